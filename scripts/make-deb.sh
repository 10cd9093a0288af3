#!/bin/bash
# Debian packages of built programs: stripped, with man pages and completions. `okeanos` has units
# and the helper of mount(8), too; `okeanos-lab` is that of the program beside PROGRAM.
# Usage: scripts/make-deb.sh PROGRAM OUTPUT_DIRECTORY
set -euo pipefail

program=$(realpath "$1")
lab=$(dirname "$program")/okeanos-lab
output=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$output"

# Installs the files of a package: the goal of make, and its variables.
stage_files() { # STAGE GOAL WORDS...
    mkdir "$1"
    chmod 755 "$1"
    make --silent --no-print-directory "${@:2}" DESTDIR="$1" PREFIX=/usr UNITS=/usr/lib/systemd/system \
        ZSH=/usr/share/zsh/vendor-completions
    find "$1/usr/share/man" -type f -exec gzip -9n {} +
}

# Packs a stage. From standard input: the fields that the packages do not share.
pack() { # STAGE PACKAGE PROGRAM
    local library documents=$1/usr/share/doc/$2
    mkdir -p "$documents" "$1/DEBIAN"
    { echo 'Licensed under MIT or Apache-2.0, as you like.'; echo; cat LICENSE-MIT; } >"$documents/copyright"
    gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
    # What the program is linked with: the C library alone, of at least the version whose symbols it
    # uses.
    library=$(objdump -T "$3" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2 || true)
    cat >"$1/DEBIAN/control" <<END
Package: $2
Version: $version
Architecture: $architecture
Maintainer: The Okeanos authors <okeanos@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$1" | cut -f1)
$(sed "s/@LIBRARY@/libc6 (>= ${library:-2.36}), libgcc-s1/")
END
    (cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$1/DEBIAN/md5sums"
    dpkg-deb --root-owner-group --build "$1" "$output/$2_${version}_$architecture.deb" >/dev/null
    echo "$output/$2_${version}_$architecture.deb"
}

stage=$place/okeanos
stage_files "$stage" install-files PROGRAM="$program"
# As the policy wants it: not below /sbin of an unmerged system.
mkdir -p "$stage/usr/sbin" "$stage/usr/share/doc/okeanos/examples" "$stage/etc/okeanos"
mv "$stage"/sbin/mount.* "$stage/usr/sbin"
rmdir "$stage/sbin"
cp LICENSE-MIT LICENSE-APACHE README.md docs/MOUNT_OPTIONS.md docs/MONITORING.md "$stage/usr/share/doc/okeanos"
cp docs/grafana-okeanos.json systemd/mnt-a.mount "$stage/usr/share/doc/okeanos/examples"
pack "$stage" okeanos "$program" <<END
Depends: @LIBRARY@, e2fsprogs, util-linux, mount
Recommends: fuse3
Suggests: okeanos-lab
Description: journaling file system for many small synchronous writes
 A file system in user space (FUSE) on the ext4 format. It packs the bytes that
 many writers change into one journal write, and sends their blocks home later.
END

stage=$place/okeanos-lab
stage_files "$stage" install-lab-files LAB_PROGRAM="$lab"
mkdir -p "$stage/usr/share/doc/okeanos-lab"
cp LICENSE-MIT LICENSE-APACHE docs/DISKS.md docs/FIGURES.md "$stage/usr/share/doc/okeanos-lab"
pack "$stage" okeanos-lab "$lab" <<END
Depends: @LIBRARY@, okeanos (= $version), e2fsprogs, mount
Recommends: fuse3
Description: benchmarks, crash explorer and emulated disks for okeanos
 Measures synchronous writes on any file system, crashes volumes in virtual
 time, reruns the figures of the papers, and serves emulated disks.
END
