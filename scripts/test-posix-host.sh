#!/bin/bash
# The POSIX suites of others on a host with a journal. They are pjdfstest (system calls and their
# errors) and fsx (content), in front of a shared directory and of a real cluster. In front of the
# directory nothing may fail. In front of the cluster nothing may fail that does not fail on
# ceph-fuse as well. Needs root, and what `make deps-ceph` installs. Usage:
# scripts/test-posix-host.sh PROGRAM TOOLS OPERATIONS (TOOLS: where pjdfstest and fsx are; fsx does
# OPERATIONS on each) OPTIONS in the environment are words for -o of the host, such as
# directories=1s.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

. "$(dirname "$0")/posix-settings.sh"
program=$(realpath "$1")
tools=$(realpath "$2")
operations=$3
seed=${SEED:-$RANDOM}
cluster=$(dirname "$(realpath "$0")")/ceph-cluster.sh
# Sockets lie below: a short name.
place=$(mktemp -d /tmp/okpXXXX)
chmod 755 "$place"
mkdir "$place"/{shared,host,fuse,other}
client=
mounted() { grep -q " $1 " /proc/self/mounts; }
finish() {
    for directory in host fuse other; do
        ! mounted "$place/$directory" || timeout 60 umount "$place/$directory" 2>"$place/out" || umount --lazy "$place/$directory" || true
    done
    [ -z "$client" ] || kill "$client" 2>"$place/out" || true
    [ ! -d "$place/c" ] || "$cluster" stop "$place/c" || true
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
fail() { echo "test-posix-host: $1" >&2; exit 1; }

enter() { # STORE
    rm -f "$place/journal"
    truncate -s 128M "$place/journal"
    timeout 120 "$program" host mount --store "$1" --journal "$place/journal" -o "allow_other${OPTIONS:+,$OPTIONS}" "$place/host" || fail "$1 does not mount"
}

system_calls() { # DIR: names of the tests that fail, in order
    mkdir "$1/calls-$2"
    chmod 755 "$1/calls-$2"
    pjdfstest_settings "$place/other" false >"$place/pjdfstest.toml"
    timeout 600 "$tools/bin/pjdfstest" -c "$place/pjdfstest.toml" -p "$1/calls-$2" >"$place/calls.$2" 2>&1 || true
    grep -aq '^Summary' "$place/calls.$2" || fail "pjdfstest on $2 does not end: $(tail -3 "$place/calls.$2")"
    # Who has a file system's type for unknown, or may not remount it, leaves a test out.
    ! grep -a ' skipped$' "$place/calls.$2" | grep -v -E '^([a-z_:]*erofs|link::link_count_max )' || fail "left out on $2"
    grep -a ' FAILED$' "$place/calls.$2" | awk '{ print $1 }' | sort >"$place/failed.$2" || true
    echo "  pjdfstest on $2:$(grep -a '^Summary' "$place/calls.$2" | sed 's/^[^:]*://')" $(cat "$place/failed.$2")
}

content() { # DIR NAME
    fsx_settings "${MAPPED:-10}" 1 >"$place/fsx.toml"
    timeout $((60 + operations / 10)) "$tools/bin/fsx" -f "$place/fsx.toml" -N "$operations" -S "$seed" -P "$place" \
        "$1/file" >"$place/out" 2>&1 || {
        tail -n 60 "$place/out"
        fail "fsx on $2, seed $seed"
    }
    echo "  fsx on $2: $operations operations, seed $seed"
}

mount -t tmpfs none "$place/other"
enter "dir:$place/shared"
system_calls "$place/host" dir
[ ! -s "$place/failed.dir" ] || fail "these fail in front of a directory: $(xargs <"$place/failed.dir")"
content "$place/host" dir
timeout 120 "$program" umount "$place/host"

"$cluster" start "$place/c" || fail "no cluster"
ceph-fuse -f -n client.admin -c "$place/c/ceph.conf" "$place/fuse" >"$place/fuse.out" 2>&1 </dev/null &
client=$!
for ((round = 0; round < 600; round++)); do
    ! mounted "$place/fuse" || break
    sleep 0.1
done
enter "ceph:$place/c/ceph.conf"
system_calls "$place/fuse" ceph-fuse
system_calls "$place/host" ceph
own=$(comm -23 "$place/failed.ceph" "$place/failed.ceph-fuse")
[ -z "$own" ] || fail "these fail in front of a cluster, and not on ceph-fuse: $(xargs <<<"$own")"
content "$place/host" ceph
timeout 120 "$program" umount "$place/host"
echo "test-posix-host: well"
