#!/bin/bash
# The figures' page as a real browser shows it, on a screen and on a phone, light and dark: pictures
# to look at.
#
#   scripts/figure-screens.sh OKEANOS-LAB DIR [FIGURE...]
#
# Plays the figures shortly (1, 9, 10a and 13 unless named), and writes DIR/screen.png, phone.png
# and phone-dark.png. Fails if the page is wider than a phone's screen, since then everything on it
# is too small to read.
set -euo pipefail
lab=$(realpath "$1")
directory=$(realpath -m "$2")
shift 2
if [[ $# == 0 ]]; then set -- 1 9 10a 13; fi

# What an older program drew is not to be looked at.
rm -rf "$directory/figures"
mkdir -p "$directory"
"$lab" reproduce --quick "$@" --out "$directory/figures" >"$directory/said" || { cat "$directory/said" >&2; exit 1; }
page=file://$directory/figures/index.html

browse() { # OPTION...: chromium, without a display; all it prints is in the file `browser`
    timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=2 "$@" "$page" 2>"$directory/browser"
}
browse --window-size=1280,3000 --screenshot="$directory/screen.png"
browse --window-size=500,6000 --screenshot="$directory/phone.png"
browse --window-size=500,6000 --blink-settings=preferredColorScheme=0 --screenshot="$directory/phone-dark.png"
# The page itself says how wide it is.
probe=$directory/figures/width.html
trap 'rm -f "$probe"' EXIT
sed 's|</body>|<script>document.title = "wide " + document.documentElement.scrollWidth + " of " + innerWidth</script></body>|' \
    "$directory/figures/index.html" >"$probe"
page=file://$probe
title=$(browse --window-size=500,800 --dump-dom | grep -o 'wide [0-9]* of [0-9]*' | head -1)
read -r _ wide _ screen <<<"$title"
if ((wide > screen)); then
    echo "the page is $wide wide on a screen of $screen: see $directory/phone.png" >&2
    exit 1
fi
echo "$directory: screen.png, phone.png, phone-dark.png; $title"
