#!/bin/bash
# A host as an ordinary client of a cluster that authenticates, with the rights that docs/CEPH.md
# names and no more: mount, sync, kill -9, recovery. Needs root, and what `make deps-ceph` installs.
#
#   scripts/test-host-user.sh OKEANOS
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
readonly OKEANOS=$(realpath "$1")
readonly CLUSTER=$(dirname "$(realpath "$0")")/ceph-cluster.sh
readonly WORK=$(mktemp -d /tmp/okuXXXX)
cd "$WORK"

finish() {
    ! grep -q " $WORK/mnt " /proc/self/mounts || umount --lazy mnt || true
    [ ! -d c ] || "$CLUSTER" stop "$WORK/c" || true
    cd / && rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
fail() {
    echo "test-host-user: $1" >&2
    tail -n 5 out >&2 || true
    exit 1
}
# The helper of a daemon, which has the rights over files that its daemon keeps, and no others.
helper_of() {
    local helper
    helper=$(ps --ppid "$1" -o pid=,args= | sed -n 's/^ *\([0-9]*\) .*ceph-helper.*/\1/p')
    for status in "/proc/$1/status" "/proc/$helper/status"; do
        grep -q 'NoNewPrivs:.*1' "$status" && grep -q 'Seccomp:.*2' "$status" || fail "no filter: $status"
        for set in CapEff CapPrm CapBnd; do
            [ $((0x$(sed -n "s/^$set:\t//p" "$status") & ~0x8928401f)) = 0 ] || fail "too many rights: $status"
        done
    done
    echo "$helper"
}
mount_host() { timeout 120 "$OKEANOS" host mount --journal journal "$@" mnt >out 2>&1; }

"$CLUSTER" start "$WORK/c" --auth || fail "no cluster"
timeout 60 ceph -c c/ceph.conf fs authorize okeanos client.mail / rw >mail.keyring 2>out || fail "no client"
# The administrator's key is out of reach.
sed '/^keyring = /d' c/ceph.conf >ceph.conf
mkdir mnt
truncate -s 64M journal
readonly STORE="ceph:$WORK/ceph.conf" MAIL=(--user mail --keyring mail.keyring)

! mount_host --store "$STORE" --user mail || fail "mounted without a key"
grep -q 'ceph --conf .* --id mail status' out || fail "no remedy where the key is missing"
! mount_host --store "$STORE" "${MAIL[@]}" --file-system another || fail "mounted a file system that is not there"
! mount_host --store "dir:$WORK" --user mail || fail "a directory has no users"
grep -q 'are for ceph: stores' out || fail "unclear where a directory gets a user"

mount_host --store "$STORE" "${MAIL[@]}" --file-system okeanos || fail "no mount with a key"
echo synced >mnt/file
sync mnt/file
daemon=$("$OKEANOS" stats --json mnt | sed -n 's/^ *"process": \([0-9]*\).*/\1/p')
# It is started anew when the connection was lost.
helper=$(helper_of "$daemon")
kill -KILL "$helper"
timeout 120 sh -c 'echo more >>mnt/file && sync mnt/file' || fail "no sync behind the end of the helper"
[ "$(helper_of "$daemon")" != "$helper" ] || fail "the helper is the former one"
kill -KILL "$daemon"
umount --lazy mnt
for ((round = 0; round < 200; round++)); do
    [ -e "/proc/$daemon/exe" ] || break
    sleep 0.05
done
mount_host --store "$STORE" "${MAIL[@]}" --file-system okeanos || fail "no recovery as an ordinary client"
[ "$(xargs <mnt/file)" = "synced more" ] || fail "what was synced is gone"
# A lock of the metadata server.
timeout 60 python3 -c 'import fcntl; fcntl.lockf(open("mnt/file", "r+"), fcntl.LOCK_EX)' || fail "no lock"
timeout 60 "$OKEANOS" umount mnt || fail "no unmount"

export CEPH_ARGS="--keyring $WORK/mail.keyring"
mount_host --store "$STORE" --user mail --file-system okeanos || fail "CEPH_ARGS is not read"
grep -q synced mnt/file || fail "what was synced is gone behind CEPH_ARGS"
timeout 60 "$OKEANOS" umount mnt || fail "no unmount"
echo "test-host-user: well, after $SECONDS s"
