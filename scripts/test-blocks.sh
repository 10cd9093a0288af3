#!/bin/bash
# The kernel's ext4, XFS and btrfs over a block volume whose daemon is killed under load, ROUNDS
# times each. After each kill what fio had written and synced must verify, and the file system must
# be content: its own log is replayed by the kernel, then e2fsck -fn, xfs_repair -n or btrfs check
# finds nothing. Needs root, fio, xfsprogs and btrfs-progs.
# Usage: ROUNDS=2 scripts/test-blocks.sh PROGRAM [KIND...]
# KIND: ext4, ext4-fast_commit, ext4-async_commit, ext4-data=journal, xfs, btrfs; all unless named.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

okeanos=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- ext4 ext4-fast_commit ext4-async_commit ext4-data=journal xfs btrfs
rounds=${ROUNDS:-2}
seed=${SEED:-1}

# How each round's volume is made, and with what it is attached.
formats=("" "--scattered-logs=log-size=2M,group-size=16M" "--log log" "")
options=("data=wasteless" "data=adaptive" "data=selective --log log" "data=journal,records=blocks --write-through")

place=$(mktemp -d)
cd "$place"
mkdir here
device=
daemon() { "$okeanos" stats --json image | sed -n 's/^ *"process": \([0-9]*\),*$/\1/p'; }
finish() {
    [ -z "$(jobs -p)" ] || kill $(jobs -p) 2>/dev/null || true
    mountpoint -q here && timeout 60 umount here || true
    [ -z "$device" ] || timeout 60 "$okeanos" blocks detach image 2>/dev/null || true
    cd /
    rm -rf "$place"
}
trap finish EXIT
fail() { echo "test-blocks: $*" >&2; exit 1; }

# Writes a file with a checksum in each block, syncs it, and records it: what is recorded must verify.
job() {
    fio --name=job --filename="here/$1" --size=1m --rw=randwrite --bsrange=512-32k --blockalign=512 \
        --verify=crc32c --randseed="$2" --end_fsync=1 --ioengine=psync "${@:3}"
}
write_jobs() {
    for number in $(seq 1000); do
        job "$1-$number" "$number" --do_verify=0 >fio.out 2>&1 || return 0
        sync here 2>/dev/null || return 0
        echo "$1-$number $number" >>recorded
    done
}
verify_jobs() {
    while read -r name number; do
        job "$name" "$number" --verify_only=1 >fio.out 2>&1 || { cat fio.out; fail "$name does not verify"; }
    done <recorded
}
# The kernel replays the journal of the file system; then its own program finds nothing.
check() {
    mount_it
    umount here
    case $1 in
        ext4*) timeout 120 e2fsck -fn "$device" >check.out 2>&1 || { cat check.out; fail "e2fsck"; } ;;
        xfs) timeout 120 xfs_repair -n "$device" >check.out 2>&1 || { cat check.out; fail "xfs_repair"; } ;;
        btrfs) timeout 120 btrfs check --check-data-csum "$device" >check.out 2>&1 || { cat check.out; fail "btrfs check"; } ;;
    esac
}

for kind in "$@"; do
    features=() mounted_with=()
    case $kind in
        ext4-async_commit)
            features=(-O ^metadata_csum)
            mounted_with=(-o data=writeback,journal_async_commit)
            ;;
        ext4-data=*) mounted_with=(-o "${kind#*-}") ;;
        ext4-*) features=(-O "${kind#*-}") ;;
    esac
    mount_it() { mount "${mounted_with[@]}" "$device" here; }
    for round in $(seq "$rounds"); do
        at=$(((round - 1) % ${#formats[@]}))
        rm -f image log recorded
        truncate -s 400M image
        truncate -s 64M log
        : >recorded
        # shellcheck disable=SC2086
        "$okeanos" blocks format ${formats[at]} image >/dev/null
        # shellcheck disable=SC2086
        attach() { device=$(timeout 60 "$okeanos" blocks attach --via loop -o ${options[at]} image); }
        attach
        "mkfs.${kind%%-*}" -q "${features[@]}" "$device" 2>mkfs.out || { cat mkfs.out; fail "mkfs for $kind"; }
        # Two kills: what the first life recorded must outlive the second, too.
        for life in 1 2; do
            mount_it
            process=$(daemon)
            write_jobs "$life" &
            writer=$!
            least=$(($(wc -l <recorded) + 2))
            for _ in $(seq 1200); do [ "$(wc -l <recorded)" -ge $least ] && break; sleep 0.05; done
            [ "$(wc -l <recorded)" -ge $least ] || fail "nothing is written"
            seed=$(((seed * 1103515245 + 12345) % 2147483648))
            sleep "0.$((seed / 65536 % 10))"
            kill -9 "$process"
            for _ in $(seq 600); do [ -e "/proc/$process/exe" ] || break; sleep 0.1; done
            wait $writer || true
            timeout 60 umount here
            attach
            check "$kind"
            mount_it
            verify_jobs
            umount here
        done
        timeout 60 "$okeanos" blocks detach image
        device=
        echo "test-blocks: $kind, ${options[at]}: $(wc -l <recorded) files verified after two kills"
    done
done
