#!/bin/bash
# Builds the package, installs it below a root of its own, uses it there, and removes it again
# without a trace. Usage: scripts/test-deb.sh PROGRAM. Needs root.
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

package=$("$here/make-deb.sh" "$1" "$place/out" | tail -1)
dpkg-deb --info "$package" >"$place/info"
grep -q '^ Package: okeanos' "$place/info"

# Installed with a database of its own: what this machine has stays as it is.
root=$place/root
mkdir -p "$root/var/lib/dpkg/"{info,updates}
: >"$root/var/lib/dpkg/status"
dpkg --root="$root" --force-depends --force-not-root --log="$place/log" --install "$package" >"$place/installed" 2>&1 || { cat "$place/installed"; exit 1; }
for file in usr/bin/okeanos usr/sbin/mount.fuse.okeanos usr/share/man/man8/okeanos-mount.8.gz usr/share/man/man8/mount.fuse.okeanos.8.gz \
    usr/share/bash-completion/completions/okeanos usr/share/zsh/vendor-completions/_okeanos \
    usr/share/fish/vendor_completions.d/okeanos.fish usr/lib/systemd/system/okeanos@.service \
    usr/lib/systemd/system/okeanos-host@.service usr/share/doc/okeanos/copyright; do
    [ -e "$root/$file" ] || [ -L "$root/$file" ] || { echo "the package lacks $file" >&2; exit 1; }
done
[ "$(readlink "$root/usr/sbin/mount.fuse.okeanos")" = /usr/bin/okeanos ]
# Stripped.
! readelf -S "$root/usr/bin/okeanos" | grep -q '\.debug_info'
if command -v systemd-analyze >/dev/null; then
    for unit in okeanos okeanos-host; do
        sed "s|/usr/bin/okeanos|$root/usr/bin/okeanos|" "$root/usr/lib/systemd/system/$unit@.service" >"$place/$unit@mnt-a.service"
    done
    zcat -f "$root/usr/share/doc/okeanos/examples/mnt-a.mount" >"$place/mnt-a.mount"
    for unit in okeanos@mnt-a.service okeanos-host@mnt-a.service mnt-a.mount; do
        systemd-analyze verify --man=no "$place/$unit" >"$place/verified" 2>&1 || { cat "$place/verified"; exit 1; }
    done
fi
"$root/usr/bin/okeanos" --version
"$root/usr/bin/okeanos" mkfs "$place/image" 64M -- -q >"$place/made"
"$root/usr/bin/okeanos" mount -o data=wasteless "$place/image" "$mount"
echo kept >"$mount/file"
"$root/usr/bin/okeanos" umount "$mount"
dpkg --root="$root" --force-not-root --log="$place/log" --purge okeanos >"$place/removed" 2>&1 || { cat "$place/removed"; exit 1; }
left=$(find "$root" -path "$root/var" -prune -o \( -type f -o -type l \) -print)
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "package: built, installed, used and removed"
