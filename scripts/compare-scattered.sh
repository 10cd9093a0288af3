#!/bin/bash
# A reader that goes through a large file and a writer that syncs share one emulated disk with an
# arm, in real time. Okeanos with scattered logs and the kernel's ext4 run alternately on equal disks. It
# prints a table. Needs root, fio and losetup.
#
#   compare-scattered.sh OKEANOS [OPTION...] [CONTENDER...]
#
# Contenders (all, if none is named): ext4 (the kernel's, ordered), or DATA-LOG of Okeanos, such as
# adaptive-scattered, wasteless-scattered, adaptive-circular. Options: --model NAME (cheetah-15k5),
# --size BYTES (4G), --large BYTES (1G), --seconds N (20), --rate N: writes a second (80)
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
program=$(realpath "$1")
# It serves the disk.
lab=$(dirname "$program")/okeanos-lab
shift

model=cheetah-15k5 size=4G large=1G seconds=20 rate=80 contenders=()
while [ $# -gt 0 ]; do
    case $1 in
        --model) model=$2; shift ;;
        --size) size=$2; shift ;;
        --large) large=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --rate) rate=$2; shift ;;
        -*) echo "compare-scattered.sh: unknown option $1" >&2; exit 2 ;;
        *) contenders+=("$1") ;;
    esac
    shift
done
[ ${#contenders[@]} -gt 0 ] || contenders=(ext4 adaptive-circular adaptive-scattered wasteless-scattered)

place=$(mktemp -d /tmp/oksXXXX)
mkdir "$place/served" "$place/mount"
device=
leave() {
    if mountpoint -q "$place/mount"; then
        if [ "${1:-}" = ext4 ]; then umount "$place/mount"; else "$program" umount "$place/mount"; fi
    fi
    [ -z "$device" ] || losetup --detach "$device"
    device=
    if mountpoint -q "$place/served"; then "$program" umount "$place/served"; fi
}
finish() {
    leave "${contender:-}" 2>/dev/null || true
    rm -rf --one-file-system "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# A fresh disk with the contender's volume, mounted.
enter() { # CONTENDER
    "$lab" disk serve --model "$model" --size "$size" --cache off "$place/served"
    device=$(losetup --find --show --direct-io=on "$place/served/disk")
    case $1 in
        ext4)
            mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 -J size=64 "$device"
            mount "$device" "$place/mount"
            ;;
        *-scattered)
            "$program" mkfs --force --scattered-logs --journal-size 64M "$device" -- -q >/dev/null
            "$program" mount -o "log=scattered,data=${1%-*},checkpoint=manual,cache=32M" "$device" "$place/mount"
            ;;
        *-circular)
            "$program" mkfs --force --journal-size 64M "$device" -- -q >/dev/null
            "$program" mount -o "data=${1%-*},checkpoint=manual,cache=32M" "$device" "$place/mount"
            ;;
        *) echo "compare-scattered.sh: no contender $1" >&2; exit 2 ;;
    esac
}

field() { # JSON-FILE EXPRESSION over `it`
    python3 -c 'import json, sys; it = json.load(open(sys.argv[1]))["jobs"]; print(eval(sys.argv[2]))' "$1" "$2"
}

# Two reads in flight, past all caches: what is read again comes from the disk, too.
reader=(--name=reader --rw=read --bs=512k --size="$large" --filename=large --time_based --ioengine=libaio --iodepth=2 --direct=1)
# 4 KiB somewhere in one of 20 files, and a sync: what the Manylogs paper has beside its reader.
writer=(--name=writer --rw=randwrite --bs=4k --size=4M --nrfiles=20 --file_service_type=random --fsync=1 --rate_iops="$rate" --time_based --ioengine=psync)
common=(--directory="$place/mount" --runtime="$seconds" --fallocate=none --randseed=1 --output-format=json)

alone() { timeout $((seconds + 300)) fio "${common[@]}" "${reader[@]}" --output="$place/alone"; }
together() { timeout $((seconds + 300)) fio "${common[@]}" "${reader[@]}" "${writer[@]}" --output="$place/both"; }

lines=("contender|reader alone|beside the writer|keeps|writes/s|mean sync|p99")
for contender in "${contenders[@]}"; do
    enter "$contender"
    # Files are there in full and at home before anything counts.
    fio "${common[@]}" --name=make --rw=write --bs=1M --size="$large" --filename=large --runtime=0 --end_fsync=1 --output=/dev/null
    fio "${common[@]}" --name=writer --rw=write --bs=64k --size=4M --nrfiles=20 --runtime=0 --end_fsync=1 --output=/dev/null
    sync "$place/mount/large"
    [ "$contender" = ext4 ] || "$program" checkpoint "$place/mount" >/dev/null
    alone
    together
    kept=$(field "$place/alone" 'it[0]["read"]["bw_bytes"]')
    lines+=("$(field "$place/both" "'|'.join(['$contender', '%.1f MB/s' % ($kept / 1e6), '%.1f MB/s' % (it[0]['read']['bw_bytes'] / 1e6), '%.0f %%' % (100 * it[0]['read']['bw_bytes'] / $kept), '%.0f' % it[1]['write']['iops'], '%.1f ms' % (it[1]['sync']['lat_ns']['mean'] / 1e6), '%.1f ms' % (it[1]['sync']['lat_ns']['percentile']['99.000000'] / 1e6)])")")
    leave "$contender"
done
printf '%s\n' "${lines[@]}" | column -t -s '|'
