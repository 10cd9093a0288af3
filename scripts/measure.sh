#!/bin/bash
# Runs what a page says it was measured with, and puts what comes out in its place.
#
#   scripts/measure.sh OKEANOS PAGE...
#
# In a page, the lines between `<!-- measured: WORDS -->` and `<!-- end -->` are what `okeanos WORDS` printed. WORDS of one
# run are run once. Needs root and a machine with nothing else to do.
set -euo pipefail
okeanos=$(realpath "$1")
shift

kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT

measure() { # WORDS: the file with what came out
    local out
    out=$kept/$(sha256sum <<<"$1" | cut -c1-16)
    if [[ ! -e $out ]]; then
        echo "okeanos $1" >&2
        # shellcheck disable=SC2086 # they are words
        unshare --mount --propagation private "$okeanos" $1 >"$out.new"
        mv "$out.new" "$out"
    fi
    echo "$out"
}

for page; do
    new=$kept/page
    skipping=
    while IFS= read -r line; do
        if [[ $line == '<!-- end -->' ]]; then skipping=; fi
        if [[ -z $skipping ]]; then printf '%s\n' "$line"; fi
        if [[ $line =~ ^'<!-- measured: '(.*)' -->'$ ]]; then
            skipping=yes
            cat "$(measure "${BASH_REMATCH[1]}")"
        fi
    done <"$page" >"$new"
    cat "$new" >"$page"
done
