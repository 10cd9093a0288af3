#!/bin/bash
# Builds the packages, installs them below a root of their own, uses them there, and removes them
# again without a trace. Usage: scripts/test-deb.sh PROGRAM. Needs root.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
here=$(realpath "$(dirname "$0")")
place=$(mktemp -d)
mount=$place/mount
finish() {
    mountpoint -q "$mount" && umount "$mount"
    rm -rf "$place"
}
trap finish EXIT
mkdir "$mount"

"$here/make-deb.sh" "$1" "$place/out" >/dev/null
packages=$(echo "$place/out"/*.deb)
for package in okeanos okeanos-lab; do
    dpkg-deb --info "$place/out/${package}_"*.deb >"$place/info"
    grep -q "^ Package: $package\$" "$place/info"
done

# Installed with a database of its own: what this machine has stays as it is.
root=$place/root
mkdir -p "$root/var/lib/dpkg/"{info,updates}
: >"$root/var/lib/dpkg/status"
dpkg --root="$root" --force-depends --force-not-root --log="$place/log" --install $packages >"$place/installed" 2>&1 || { cat "$place/installed"; exit 1; }
for file in usr/bin/okeanos usr/sbin/mount.fuse.okeanos usr/share/man/man8/okeanos-mount.8.gz usr/share/man/man8/mount.fuse.okeanos.8.gz \
    usr/share/bash-completion/completions/okeanos usr/share/zsh/vendor-completions/_okeanos \
    usr/share/fish/vendor_completions.d/okeanos.fish usr/lib/systemd/system/okeanos@.service \
    usr/lib/systemd/system/okeanos-host@.service usr/lib/systemd/system/okeanos-blocks@.service usr/share/doc/okeanos/copyright \
    usr/bin/okeanos-lab usr/share/man/man1/okeanos-lab-bench.1.gz usr/share/doc/okeanos-lab/copyright \
    usr/share/bash-completion/completions/okeanos-lab; do
    [ -e "$root/$file" ] || [ -L "$root/$file" ] || { echo "the package lacks $file" >&2; exit 1; }
done
for name in mount.fuse.okeanos mount.fuse.okeanos-host; do
    [ "$(readlink "$root/usr/sbin/$name")" = /usr/bin/okeanos ]
done
# Stripped.
for program in okeanos okeanos-lab; do
    readelf -S "$root/usr/bin/$program" >"$place/sections"
    if grep -q '\.debug_info' "$place/sections"; then
        echo "$program is not stripped" >&2
        exit 1
    fi
done
for unit in okeanos okeanos-host okeanos-blocks; do
    sed "s|/usr/bin/okeanos|$root/usr/bin/okeanos|" "$root/usr/lib/systemd/system/$unit@.service" >"$place/$unit@mnt-a.service"
done
zcat -f "$root/usr/share/doc/okeanos/examples/mnt-a.mount" >"$place/mnt-a.mount"
for unit in okeanos@mnt-a.service okeanos-host@mnt-a.service okeanos-blocks@mnt-a.service mnt-a.mount; do
    systemd-analyze verify --man=no "$place/$unit" >"$place/verified" 2>&1 || { cat "$place/verified"; exit 1; }
done
# Exposure in tenths: what can be restricted without a mount namespace is (docs/INSTALL.md).
for unit in okeanos:58 okeanos-host:63 okeanos-blocks:58; do
    systemd-analyze security --offline=yes --threshold="${unit#*:}" --no-pager "$place/${unit%:*}@mnt-a.service" \
        >"$place/verified" 2>&1 || { cat "$place/verified"; exit 1; }
done
"$root/usr/bin/okeanos" --version
"$root/usr/bin/okeanos" mkfs "$place/image" 64M -- -q >"$place/made"
"$root/usr/bin/okeanos" mount -o data=wasteless "$place/image" "$mount"
echo kept >"$mount/file"
"$root/usr/bin/okeanos-lab" bench streams --writers 2 --count 10 "$mount" >"$place/measured"
"$root/usr/bin/okeanos" umount "$mount"
dpkg --root="$root" --force-not-root --log="$place/log" --purge okeanos-lab okeanos >"$place/removed" 2>&1 || { cat "$place/removed"; exit 1; }
left=$(find "$root" -path "$root/var" -prune -o \( -type f -o -type l \) -print)
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "packages: built, installed, used and removed"
