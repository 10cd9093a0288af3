#!/bin/bash
# The POSIX suites of others on mounted volumes: pjdfstest (system calls and their errors) and fsx
# (content). Any failure fails, and any test left out that docs/POSIX.md does not name. Needs root.
# Usage: scripts/test-posix.sh PROGRAM TOOLS OPERATIONS (TOOLS: where pjdfstest and fsx are; fsx
# does OPERATIONS per volume)
#        scripts/test-posix.sh kernel  TOOLS OPERATIONS   the same on the kernel's ext4, to compare
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

. "$(dirname "$0")/posix-settings.sh"
program=$1
tools=$(realpath "$2")
operations=$3
seed=${SEED:-$RANDOM}
place=$(mktemp -d)
mount=$place/mount
mkdir "$mount"
chmod 755 "$place"
finish() {
    ! mountpoint -q "$mount" || leave "$mount"
    ! mountpoint -q "$place/other" || umount "$place/other"
    rm -rf "$place"
}
trap finish EXIT

enter() { # OPTIONS
    if [ "$program" = kernel ]; then
        mount -o loop "$place/image" "$mount"
    else
        "$program" mount -o "$1,allow_other" "$place/image" "$mount"
    fi
}
leave() {
    if [ "$program" = kernel ]; then umount "$mount"; else "$program" umount "$mount"; fi
}

# The suite leaves files open, after which nothing can be remounted. Tests of read-only mounts get a
# process of their own, on the kernel's file systems as well.
system_calls() {
    mkdir -p "$place/other"
    mount -t tmpfs none "$place/other"
    system_calls_with false
    system_calls_with true erofs
    umount "$place/other"
}

system_calls_with() { # REMOUNT [PATTERN]
    pjdfstest_settings "$place/other" "$1" >"$place/pjdfstest.toml"
    timeout 300 "$tools/bin/pjdfstest" -c "$place/pjdfstest.toml" -p "$mount" "${@:2}" >"$place/out" 2>&1 || {
        grep -a -A 2 FAILED "$place/out" || tail "$place/out"
        return 1
    }
    # The C library knows the greatest number of links only of the kernel's own file systems
    # (docs/POSIX.md).
    ! grep -a ' skipped$' "$place/out" | grep -v -E '^([a-z_:]*erofs|link::link_count_max )' || return 1
    echo "  pjdfstest:$(tail -n 1 "$place/out" | sed 's/.*Summary[^:]*://')"
}

content() { # KIND
    # Block maps cannot preallocate; the C library writes zeros instead.
    local fallocate=1
    [ "$1" = ext4 ] || fallocate=0
    fsx_settings 10 "$fallocate" >"$place/fsx.toml"
    timeout $((60 + operations / 50)) "$tools/bin/fsx" -f "$place/fsx.toml" -N "$operations" -S "$seed" -P "$place" \
        "$mount/file" >"$place/out" 2>&1 || {
        echo "fsx, seed $seed:"
        tail -n 60 "$place/out"
        return 1
    }
    echo "  fsx: $operations operations, seed $seed"
}

volume() { # KIND BLOCK-SIZE OPTIONS SUITE...
    echo "$program: $1, blocks of $2, $3"
    rm -f "$place/image"
    truncate -s 256M "$place/image"
    mke2fs -q -t "$1" -b "$2" "$place/image"
    enter "$3"
    for suite in "${@:4}"; do
        $suite "$1"
    done
    leave
    timeout 60 e2fsck -fn "$place/image" >"$place/out" 2>&1 || { cat "$place/out"; exit 1; }
}

volume ext4 4096 data=wasteless system_calls content
volume ext3 1024 data=ordered system_calls content
volume ext4 4096 data=journal content
volume ext4 2048 data=selective content
volume ext4 1024 data=writeback,cache=16M content
