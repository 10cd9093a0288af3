#!/bin/bash
# Plays the first minutes and the daily life, as root and as an ordinary user, and prints the
# transcript: docs/TOUR.md. What differs from run to run (sizes, times, process ids, paths of the
# run) is replaced, so that two runs are equal. Usage: scripts/tour.sh PROGRAM. Needs root, and sees
# to it that nobody else sees its mounts. okeanos-lab, beside PROGRAM, writes in it, too.
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
cp "$(dirname "$program")/okeanos-lab" "$place/bin/okeanos-lab"
chmod 755 "$place"/bin/*
chown 65534:65534 "$place/own"
# As distributions have it, for an ordinary user's mount.
mknod -m 666 "$place/fuse" c 10 229 && mount --bind "$place/fuse" /dev/fuse
export PATH=$place/bin:$PATH COLUMNS=100 LC_ALL=C TZ=UTC
unset XDG_RUNTIME_DIR || true
cd "$place"

# Sizes and times become N, where runs differ; the width of a table's columns with them. The warning
# of a root without CAP_SYS_RESOURCE depends on the machine.
normalised() {
    sed -E -e '/warning: the daemon may not ask the kernel to take memory/d' -e "s|$place|/tour|g" -e 's/\b[0-9]+(\.[0-9]+)? (ns|us|ms|s)\b/N s/g' -e 's/\b[0-9]+(\.[0-9]+)? (B|KiB|MiB|GiB)\b/N B/g' \
        -e 's|/dev/loop[0-9]+|/dev/loopN|g' -e 's/\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [+-][0-9]{4}\b/DATE/; s/okeanos\[[0-9]+\]/okeanos[N]/' \
        -e 's/\b(request|process) [0-9]+/\1 N/g; s/^Transactions? .* replayed/Transactions N replayed/; s/\b[0-9]+ (blocks written home|of them)/N \1/g' -e 's/\([0-9]+\)/(N)/g' -e 's/(_total\{.*\}) [0-9]+/\1 N/' -e 's/[ \t]+$//' -e 's/ {3,}/   /g'
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
# As if it had crashed. The kernel takes a moment to know.
crash() {
    local daemon
    daemon=$(okeanos list --json | grep -A12 "\"$1\"" | sed -n 's/.*"process": \([0-9]*\).*/\1/p' | head -1)
    kill -9 "$daemon"
    for _ in $(seq 100); do [ -d "/proc/$daemon" ] || break; sleep 0.1; done
    # An unmount at the end of the tour is not to hang on it.
    for _ in $(seq 100); do stat -f "$1" >"$place/said" 2>&1 || break; sleep 0.1; done
}
say() { printf '\n%s\n' "$*"; }
# The kernel releases a loop device a moment after its last user.
settle() { for _ in $(seq 100); do [ -z "$(losetup -j "$1")" ] && break; sleep 0.1; done; }

echo '# A tour'
say 'Played by `make tour`; `make test` plays it again and compares. Numbers that differ from run to run
stand as N. `#` is root, `$` an ordinary user.'

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
play 'echo mine >own/file && sync own/file && stat -c "%u %A %n" own own/file'
play okeanos list
play 'okeanos stats own | head -1'
play okeanos check own
play okeanos mount mine.img own
say 'Its daemon dies, too:'
crash "$place/own"
play cat own/file
play okeanos list
play okeanos umount own
play 'okeanos recover mine.img | tail -1'
play okeanos mount -o transport=classic mine.img own
play cat own/file
say 'The image stands for its mount:'
play okeanos umount mine.img
play okeanos check mine.img
chmod 755 "$place"

say '## Daily life'
prompt='#'
play okeanos mount -o allow_other,transport=classic disk.img mail
play 'okeanos stats --watch --count 1 mail | head -1'
prompt='$'
say 'A user who may look into the volume may look at its counts:'
play 'okeanos stats --prometheus mail | grep -E "okeanos_(failed|read_only|commits_total)"'
play okeanos list
say 'Which mode suits the work? After some of it:'
prompt='#'
play 'okeanos-lab bench streams --writers 4 --count 300 mail >measured'
prompt='$'
# What everybody may ask is answered from memory for a second.
sleep 1.2
play 'okeanos advise mail | tail -1'
prompt='#'
play 'source <(okeanos completions bash); COMP_WORDS=(okeanos st) COMP_CWORD=1; _okeanos okeanos st okeanos; echo $COMPREPLY'
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
crash "$place/mail"
play okeanos list
play okeanos stats mail
play okeanos umount mail
settle disk.img
play okeanos check disk.img
say 'The next mount would do it, too:'
play 'okeanos recover disk.img | tail -1'
play okeanos check disk.img
play okeanos mount -o transport=classic disk.img mail
play cat mail/kept
play okeanos umount mail
settle disk.img

say '## What it says'
play okeanos mount -o transport=classic,log_file=log disk.img mail
play okeanos umount mail
settle disk.img
play cat log
say 'Each request, in the foreground:'
play 'okeanos mount -f -v -o transport=classic disk.img mail 2>log & until mountpoint -q mail; do sleep 0.1; done; mkdir mail/new; okeanos umount mail; wait; grep mkdir log'
settle disk.img

say '## Mistakes'
play okeanos mount -o cache=1 disk.img mail
play okeanos mount -o data=fast disk.img mail
play okeanos mount disk.img nowhere
play okeanos mount disk.img
play okeanos moutn disk.img mail
play okeanos stats /
play okeanos recover disk.img
