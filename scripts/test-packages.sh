#!/bin/bash
# Installs and uses what is given to people in clean roots of Debian releases: the packages with apt,
# the static tarball in a root where nothing is installed.
#
#   scripts/test-packages.sh [--packages DIRECTORY] [--static TARBALL]
#
# Needs root, the network and mmdebstrap. RELEASES names the releases (bookworm trixie). Roots are
# made once (scripts/clean-root.sh); what is tried lies over them and goes away.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
packages='' tarball=''
while [ $# -gt 0 ]; do
    case $1 in
    --packages) packages=$(realpath "$2") ;;
    --static) tarball=$(realpath "$2") ;;
    *) echo "$1: not known" >&2 && exit 2 ;;
    esac
    shift 2
done
cd "$(dirname "$0")/.."
place=$(mktemp -d)
root=$place/root
mount -t tmpfs -o size=2g tmpfs "$place" && mkdir "$root"

# Mounts of the tested program end before the directories below them are removed.
finish() {
    umount --recursive --lazy "$root" 2>/dev/null || true
    umount --lazy "$place" && rmdir "$place"
}
trap finish EXIT
fail() {
    echo "test-packages: $1" >&2
    [ ! -s "$place/log" ] || tail -n 20 "$place/log" >&2
    exit 1
}

lay() { # RELEASE|DIRECTORY: a copy of it as $root, that is writable and forgotten
    mkdir -p "$place/upper" "$place/work"
    mount -t overlay -o "lowerdir=$1,upperdir=$place/upper,workdir=$place/work" overlay "$root"
    mount --bind /proc "$root/proc"
    mount --rbind --make-rslave /dev "$root/dev"
    mount --rbind --make-rslave /sys "$root/sys"
}
clear_away() {
    umount --recursive --lazy "$root"
    rm -rf "$place/upper" "$place/work"
}
inside() { chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

# What people do first: make, mount, write, unmount, check; a kill; a host in front of a directory.
daily_life() { # PROGRAM MOUNT_COMMAND...
    local okeanos=$1 pid
    shift
    inside sh -ec "
        $okeanos --version
        truncate -s 64M /root/image
        mke2fs -q -t ext4 /root/image
        mkdir -p /mnt/a /mnt/b /root/store
        mount -t tmpfs tmpfs /root/store
        $* -o data=wasteless /root/image /mnt/a
        $okeanos list | grep -q wasteless
        echo kept >/mnt/a/file
        sync /mnt/a/file
        kill -9 \$($okeanos stats --json /mnt/a | sed -n 's/.*\"process\": *\([0-9]*\).*/\1/p')
        while $okeanos list | grep -qw ok; do sleep 0.1; done
        $okeanos umount /mnt/a || umount -l /mnt/a
        $* /root/image /mnt/a
        [ \"\$(cat /mnt/a/file)\" = kept ]
        $okeanos umount /mnt/a
        $okeanos check /root/image
        e2fsck -fn /root/image
        truncate -s 64M /root/journal
        $okeanos host mount --store dir:/root/store --journal /root/journal /mnt/b
        echo shared >/mnt/b/file
        $okeanos umount /mnt/b
        [ \"\$(cat /root/store/file)\" = shared ]
        $okeanos doctor --json /root >/root/doctor
    " >"$place/log" 2>&1 || fail "$okeanos in $release"
}

try_packages() {
    cp "$packages"/okeanos_*.deb "$packages"/okeanos-lab_*.deb "$root/root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside sh -ec 'export DEBIAN_FRONTEND=noninteractive
        apt-get install -q -y --no-install-recommends /root/*.deb || { apt-get update -q && apt-get install -q -y --no-install-recommends /root/*.deb; }
        dpkg --verify okeanos okeanos-lab
        dpkg --audit' >"$place/log" 2>&1 || fail "apt-get install in $release"
    daily_life okeanos mount -t fuse.okeanos
    inside sh -ec '
        grep -q okeanos /usr/share/bash-completion/completions/okeanos
        truncate -s 64M /root/other
        mke2fs -q /root/other
        printf "%s\n" "/root/other /mnt/a fuse.okeanos noauto 0 0" \
            "dir:/root/store /mnt/b fuse.okeanos-host noauto,nofail,_netdev,journal=/root/journal 0 0" >/etc/fstab
        mount /mnt/a
        okeanos-lab bench streams --writers 2 --count 10 /mnt/a
        okeanos umount /mnt/a
        mount /mnt/b
        [ "$(cat /mnt/b/file)" = shared ]
        okeanos umount /mnt/b
        apt-get purge -q -y okeanos-lab okeanos
        if find /etc /usr /var/lib/dpkg -name "*okeanos*" | grep .; then
            exit 1
        fi
    ' >"$place/log" 2>&1 || fail "fstab and purge in $release"
}

try_static() {
    # Debian 13 has systems without it.
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside sh -c 'command -v mke2fs || { apt-get update -q && apt-get install -q -y e2fsprogs; }' >"$place/log" 2>&1 ||
        fail "mke2fs is missing in $release"
    mkdir "$root/root/static"
    tar --extract --strip-components=1 --directory "$root/root/static" --file "$tarball"
    (cd "$root/root/static" && sha256sum --quiet --check SHA256SUMS) || fail "checksums of the tarball"
    python3 - "$root/root/static/share/doc/okeanos/sbom.cdx.json" <<'SBOM' || fail "the SBOM"
import json, sys
bill = json.load(open(sys.argv[1]))
names = {component["name"] for component in bill["components"]}
assert bill["bomFormat"] == "CycloneDX" and {"io-uring", "rust-std", "musl"} <= names, sorted(names)
SBOM
    daily_life /root/static/bin/okeanos /root/static/bin/okeanos mount
    mkdir -p "$root/etc/ceph" && : >"$root/etc/ceph/ceph.conf"
    # The other journal belongs to the directory.
    truncate -s 64M "$root/root/journal-of-ceph"
    inside /root/static/bin/okeanos host mount --store ceph: --journal /root/journal-of-ceph /mnt/b >"$place/log" 2>&1 &&
        fail "a static program mounted a store of Ceph"
    grep -q 'linked statically' "$place/log" || fail "a store of Ceph: no word about the static program"
}

for release in ${RELEASES:-bookworm trixie}; do
    clean=$(scripts/clean-root.sh "$release" "$release")
    if [ -n "$packages" ]; then
        lay "$clean"
        try_packages
        clear_away
        echo "$release: packages installed, used, purged"
    fi
    if [ -n "$tarball" ]; then
        lay "$clean"
        try_static
        clear_away
        echo "$release: static program used"
    fi
done
