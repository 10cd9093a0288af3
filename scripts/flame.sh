#!/bin/bash
# Where the daemon's processor time goes beside synchronous writers, as a flame graph in text: of
# 100 samples of the daemon, how many lie in a function and in what it calls. Needs root, perf, and
# programs with frame pointers (`make flame`): OKEANOS, and okeanos-lab beside it, which writes.
#
#   flame.sh OKEANOS [--writers N (100)] [--seconds N (4)] [--least N, of 100 (1.5)] [--options
#   MOUNT-OPTIONS]
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
program=$(realpath "$1")
lab=$(dirname "$program")/okeanos-lab
shift

writers=100 seconds=4 least=1.5 options=data=wasteless
while [ $# -gt 0 ]; do
    case $1 in
        --writers) writers=$2 ;;
        --seconds) seconds=$2 ;;
        --least) least=$2 ;;
        --options) options=$2 ;;
        *) echo "flame.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done

place=$(mktemp -d /tmp/okfXXXX)
mkdir "$place/mount"
finish() {
    if mountpoint -q "$place/mount"; then "$program" umount "$place/mount"; fi
    rm -rf --one-file-system "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

"$program" mkfs "$place/image" 1G >/dev/null
"$program" mount -o "$options" "$place/image" "$place/mount"
daemon=$(pgrep -f "$place/mount" | head -n 1)
"$lab" bench streams --writers "$writers" --seconds "$((seconds + 2))s" "$place/mount" >/dev/null &
sleep 1
perf record --quiet --call-graph fp --freq 1999 --pid "$daemon" --output "$place/samples" -- sleep "$seconds"
wait $!
# While the daemon lives, perf looks for its program in the daemon's own mount namespace.
"$program" umount "$place/mount"

# A line for each sample: its functions from the outermost on, names without parameters and hashes.
fold() {
    awk '
        function name(text) {
            sub(/^[ \t]*[0-9a-f]+ /, "", text); sub(/ \([^()]*\)$/, "", text)
            sub(/\+0x[0-9a-f]+$/, "", text); sub(/::h[0-9a-f]+$/, "", text)
            while (gsub(/<[^<>]*>/, "", text)) {}
            gsub(/::\{\{closure\}\}|\{closure#[0-9]+\}/, "", text); gsub(/;/, ",", text); gsub(/::::/, "::", text)
            sub(/^::/, "", text)
            return text
        }
        /^[^ \t]/ { stack = ""; last = ""; next }
        /^$/ { if (stack != "") print stack; stack = ""; next }
        { function_ = name($0); if (function_ != last) stack = function_ (stack == "" ? "" : ";" stack); last = function_ }
    '
}

# The tree of all stacks; a function that only passes on to one other is left out.
tree() { # LEAST
    LC_ALL=C sort | awk -F ';' -v least="$1" '
        { all++; path = ""; for (at = 1; at <= NF; at++) { path = path ";" $at; if (!(path in count)) { order[++paths] = path; called[path] = $at } count[path]++ } }
        END {
            for (at = 1; at <= paths; at++) { path = order[at]; parent = path; sub(/;[^;]*$/, "", parent); if (count[path] > most[parent]) most[parent] = count[path] }
            for (at = 1; at <= paths; at++) {
                path = order[at]; share = 100 * count[path] / all
                parent = path; sub(/;[^;]*$/, "", parent)
                if (share < least) continue
                level[path] = level[parent]
                if (most[path] > 0.97 * count[path]) continue
                printf "%5.1f  %*s%s\n", share, 2 * level[path], "", called[path]
                level[path]++
            }
        }
    '
}

echo "$writers writers, $options; of 100 samples of the daemon:"
perf script --input "$place/samples" --fields comm,ip,sym 2>/dev/null | fold | tree "$least"
