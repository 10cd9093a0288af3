#!/bin/bash
# Plays the first minutes and the daily life, as root and as an ordinary user, and prints the transcript: docs/TOUR.md.
# What differs from run to run (sizes, times, process ids, paths of the run) is replaced, so that two runs are equal.
# Usage: scripts/tour.sh PROGRAM. Needs root, and sees to it that nobody else sees its mounts.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

program=$(realpath "$1")
place=$(mktemp -d)
finish() {
    for mount in "$place/mail" "$place/own"; do
        mountpoint -q "$mount" && { umount "$mount" 2>/dev/null || umount -l "$mount"; }
    done
    rm -rf "$place"
}
trap finish EXIT
chmod 755 "$place"
mkdir "$place/bin" "$place/mail" "$place/own"
cp "$program" "$place/bin/okeanos"
chmod 755 "$place/bin/okeanos"
chown 65534:65534 "$place/own"
# As distributions have it, for an ordinary user's mount.
mknod -m 666 "$place/fuse" c 10 229 && mount --bind "$place/fuse" /dev/fuse
export PATH=$place/bin:$PATH COLUMNS=100 LC_ALL=C TZ=UTC
unset XDG_RUNTIME_DIR || true
cd "$place"

# Sizes and times become N, where runs differ; the width of a table's columns with them.
normalised() {
    sed -E -e "s|$place|/tour|g" -e 's/\b[0-9]+(\.[0-9]+)? (ns|us|ms|s)\b/N s/g' -e 's/\b[0-9]+(\.[0-9]+)? (B|KiB|MiB|GiB)\b/N B/g' \
        -e 's|/dev/loop[0-9]+|/dev/loopN|g' -e 's/\([0-9]+\)/(N)/g' -e 's/(_total\{.*\}) [0-9]+/\1 N/' -e 's/[ \t]+$//' -e 's/ {3,}/   /g'
}
# Shows a command and what it says; a failure is part of the tour.
play() {
    printf '\n    %s %s\n' "$prompt" "$*"
    local status=0
    if [ "$prompt" = '$' ]; then
        setpriv --reuid 65534 --regid 65534 --clear-groups bash -c "$*" >"$place/said" 2>&1 </dev/null || status=$?
    else
        bash -c "$*" >"$place/said" 2>&1 </dev/null || status=$?
    fi
    normalised <"$place/said" | sed 's/^/    /; s/ *$//'
    [ $status = 0 ] || printf '    (exit status %s)\n' $status
}
say() { printf '\n%s\n' "$*"; }
# The kernel lets go of a loop device a moment after its last user.
settle() { for _ in $(seq 100); do [ -z "$(losetup -j "$1")" ] && break; sleep 0.1; done; }

echo '# A tour'
say 'Played by `make tour`; `make test` plays it again and compares. Numbers that differ from run to run stand as N. `#` is root, `$` an ordinary user.'

prompt='#'
say '## The first five minutes'
play okeanos mkfs disk.img 64M -- -q -L mail
say 'A second time, it names what is there:'
play okeanos mkfs disk.img
play okeanos mount -o allow_other,transport=classic disk.img mail
play 'for i in $(seq 100); do echo "letter $i" | dd of=mail/log oflag=append,sync conv=notrunc status=none; done; wc -l mail/log'
play okeanos list
play okeanos umount mail
settle disk.img
play okeanos check disk.img

say '## An ordinary user'
prompt='$'
chmod 777 "$place"
play okeanos mkfs mine.img 64M -- -q
play okeanos mount -o transport=classic mine.img own
play 'echo mine >own/file && cat own/file'
play okeanos umount own
chmod 755 "$place"

say '## Daily life'
prompt='#'
play okeanos mount -o allow_other,transport=classic disk.img mail
play 'cd mail && okeanos stats --watch 0.2 --count 1 . | head -1'
prompt='$'
say 'Whoever may look into the volume may look at its counts:'
play 'okeanos stats --prometheus mail | grep -E "okeanos_(failed|read_only|commits_total)"'
prompt='#'
say 'Somebody is in the way of an unmount:'
(cd mail && exec sleep 1000) &
sleeper=$!
for _ in $(seq 100); do [ "$(readlink /proc/$sleeper/cwd)" = "$place/mail" ] && break; sleep 0.05; done
play okeanos umount mail
kill $sleeper
wait $sleeper 2>/dev/null || true
play okeanos mount -o remount,ro mail mail
play okeanos list
play okeanos mount -o remount,rw mail mail

say '## The daemon dies'
echo kept >mail/kept
sync mail/kept
# The unmount at the end of the tour is not to hang on a daemon that was killed.
daemon=$(okeanos list --json | sed -n 's/.*"process": \([0-9]*\).*/\1/p' | head -1)
kill -9 "$daemon"
for _ in $(seq 100); do [ -d "/proc/$daemon" ] || break; sleep 0.1; done
play okeanos list
play okeanos stats mail
play okeanos mount disk.img mail
play okeanos umount mail
settle disk.img
play okeanos check disk.img
play okeanos mount -o transport=classic disk.img mail
play cat mail/kept
play okeanos umount mail
settle disk.img

say '## Mistakes'
play okeanos mount -o cache=1 disk.img mail
play okeanos mount -o data=fast disk.img mail
play okeanos mount disk.img nowhere
play okeanos stats /
play okeanos recover disk.img
