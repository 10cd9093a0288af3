#!/bin/bash
# A Debian package of a built program: stripped, with man pages, completions, units and the helper
# of mount(8). Usage: scripts/make-deb.sh PROGRAM OUTPUT_DIRECTORY
set -euo pipefail

program=$(realpath "$1")
output=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

make --no-print-directory install-files OKEANOS="$program" DESTDIR="$stage" PREFIX=/usr UNITS=/usr/lib/systemd/system \
    ZSH=/usr/share/zsh/vendor-completions
# As the policy wants it: not below /sbin of an unmerged system.
mkdir -p "$stage/usr/sbin" "$stage/usr/share/doc/okeanos/examples"
mv "$stage"/sbin/mount.* "$stage/usr/sbin"
rmdir "$stage/sbin"
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
cp LICENSE-MIT LICENSE-APACHE README.md "$stage/usr/share/doc/okeanos"
{ echo 'Licensed under MIT or Apache-2.0, as you like.'; echo; cat LICENSE-MIT; } >"$stage/usr/share/doc/okeanos/copyright"
gzip -9nc CHANGELOG.md >"$stage/usr/share/doc/okeanos/changelog.gz"
cp docs/MOUNT_OPTIONS.md docs/MONITORING.md "$stage/usr/share/doc/okeanos"
cp docs/grafana-okeanos.json systemd/mnt-a.mount "$stage/usr/share/doc/okeanos/examples"
mkdir -p "$stage/etc/okeanos" "$stage/DEBIAN"

# What the program is linked with: the C library alone, of at least the version whose symbols it
# uses.
library=$(objdump -T "$program" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2 || true)
cat >"$stage/DEBIAN/control" <<END
Package: okeanos
Version: $version
Architecture: $architecture
Maintainer: The Okeanos authors <okeanos@localhost>
Section: admin
Priority: optional
Depends: libc6 (>= ${library:-2.36}), libgcc-s1, e2fsprogs, util-linux, mount
Recommends: fuse3
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Description: journaling file system for many small synchronous writes
 A file system in user space (FUSE) on the ext4 format. It packs the bytes that
 many writers change into one journal write, and sends their blocks home later.
END
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
mkdir -p "$output"
dpkg-deb --root-owner-group --build "$stage" "$output/okeanos_${version}_$architecture.deb" >/dev/null
echo "$output/okeanos_${version}_$architecture.deb"
