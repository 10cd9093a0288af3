#!/bin/bash
# xfstests (fstests), the kernel's suite for file systems, on volumes on loop devices: the tests of
# scripts/xfstests.txt, and e2fsck after each. The list names those that must pass, and with their
# reasons those that may fail; a failure that it does not name fails, and so does a line too many.
#
#   scripts/test-xfstests.sh PROGRAM [TEST...]        all of the list, or these (generic/001)
#   scripts/test-xfstests.sh --list PROGRAM TEST...   prints lines for the list
#
# Debian has no package of the suite. It is cloned to target/xfstests, or taken from XFSTESTS (a
# checkout or an address), and built there; nothing of it is committed. Needs root, the network once,
# and the packages that `make test-xfstests` installs. The suite believes to test ext4: in a mount
# namespace of this script, mount(8) has a helper for that type. OPTIONS in the environment are words
# for -o of the mounts, such as data=journal.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
cd "$(dirname "$0")/.."
make_list=no
[ "$1" != --list ] || { make_list=yes; shift; }
program=$(realpath "$1")
shift
list=$PWD/scripts/xfstests.txt
folder=$(realpath -m "${FOLDER:-target/xfstests}")
# The version that the list is about.
readonly COMMIT=63a29724a85f1999e49bf0a9bf0d22643b6116e5
readonly SOURCE=${XFSTESTS:-https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git}
readonly SIZE=${SIZE:-2G}
# Seconds for one test.
readonly LIMIT=${LIMIT:-600}

fetch() {
    [ ! -e "$folder/built" ] || return 0
    rm -rf "$folder"
    git clone --quiet "$SOURCE" "$folder"
    git -C "$folder" checkout --quiet "$COMMIT"
    # The kernel prints another type.
    sed -i -e "s/-e 's\/fuse\.ceph-fuse\/ceph-fuse\/'/& -e 's\/fuseblk.*\/ext4\/'/" \
        -e 's/ -t $fstype -o TARGET/ -o TARGET/' "$folder/common/rc"
    grep -q fuseblk "$folder/common/rc" || { echo "common/rc is another" >&2; exit 1; }
    make --silent -C "$folder" >"$folder/build.log" 2>&1 || { tail "$folder/build.log" >&2; exit 1; }
    touch "$folder/built"
}

# mount(8) looks for helpers in /sbin alone. The suite's own options mean what is the case anyway.
give_helper() {
    mkdir "$work/sbin"
    cat >"$work/sbin/mount.ext4" <<END
#!/bin/bash
words=()
for word; do
    word=,\$word,
    for known in acl user_xattr; do word=\${word//,\$known,/,}; done
    word=\${word#,} && word=\${word%,}
    words+=("\${word:-rw}")
done
exec -a mount.okeanos "$program" "\${words[@]}" -o "allow_other\${OPTIONS:+,\$OPTIONS}"
END
    chmod 755 "$work/sbin/mount.ext4"
    mount -t overlay -o "lowerdir=$work/sbin:$(realpath /sbin)" helper "$(realpath /sbin)"
    # The suite's users, which this machine gets no more than the helper.
    mkdir "$work"/{users,merging}
    mount -t overlay -o "lowerdir=/etc,upperdir=$work/users,workdir=$work/merging" users /etc
    local name
    for name in fsgqa fsgqa2 123456-fsgqa; do useradd --badname --no-create-home --home-dir / "$name" 2>"$work/out"; done
}

prepare() {
    mkdir "$work"/{test,scratch}
    local name
    for name in test scratch; do
        truncate -s "$SIZE" "$work/$name.image"
        devices+=("$(losetup --find --show "$work/$name.image")")
    done
    mke2fs -q -t ext4 "${devices[0]}"
    cat >"$work/config" <<END
export FSTYP=ext4 TEST_DEV=${devices[0]} TEST_DIR=$work/test
export SCRATCH_DEV=${devices[1]} SCRATCH_MNT=$work/scratch
export MOUNT_OPTIONS="-o rw" TEST_FS_MOUNT_OPTS="-o rw" RESULT_BASE=$work/results
END
}

finish() {
    cd /
    for name in test scratch; do
        ! mountpoint -q "$work/$name" || umount "$work/$name" || umount -l "$work/$name"
    done
    for device in "${devices[@]}"; do losetup -d "$device" || true; done
    umount -l /etc "$(realpath /sbin)" || true
    rm -rf "$work"
}

# One test: passes, fails, or is left out by the suite, with its own words.
run_one() { # TEST
    local status=0
    (cd "$folder" && HOST_OPTIONS=$work/config timeout -k 10 "$LIMIT" ./check "$1") >"$work/out" 2>&1 </dev/null || status=$?
    [ -z "${VERBOSE:-}" ] || cat "$work/out" >&2
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        echo "fails $LIMIT s were not enough"
    elif grep -q "^$1 .*\[not run\]" "$work/out"; then
        echo "left-out $(sed -n "s|^$1 .*\[not run\] *||p" "$work/out" | head -1)"
    elif [ $status -eq 0 ] && grep -q '^Passed all' "$work/out"; then
        echo passes
    else
        echo "fails $(grep -E '^    [-+]|^_check|mount|ERROR' "$work/out" | sed -n 's/^ *//; 3,4p' | tr '\n' ' ' | cut -c1-160)"
    fi
}

fetch
work=$(mktemp -d)
# The suite's users look for the mounts in it, and at their home.
chmod 755 "$work"
devices=()
trap finish EXIT
trap 'exit 130' INT TERM HUP
give_helper
prepare

chosen=("$@")
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(sed -n 's|^\([a-z0-9]*/[0-9]*\) .*|\1|p' "$list")
wrong=0
declare -A count
for name in "${chosen[@]}"; do
    read -r outcome words <<<"$(run_one "$name")"
    count[$outcome]=$((${count[$outcome]:-0} + 1))
    if [ $make_list = yes ]; then
        echo "$name $outcome $words"
        continue
    fi
    expected=$(sed -n "s|^$name \([a-z-]*\).*|\1|p" "$list")
    [ "$outcome" = "${expected:-passes}" ] || { echo "$name $outcome instead of ${expected:-passes}: $words"; wrong=$((wrong + 1)); }
done
echo "xfstests: ${#chosen[@]} tests; ${count[passes]:-0} pass, ${count[fails]:-0} fail, ${count[left-out]:-0} left out; $wrong other than listed"
[ $wrong -eq 0 ]
