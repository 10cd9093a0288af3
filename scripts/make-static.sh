#!/bin/bash
# Both programs without shared libraries, as a tarball with man pages, completions, units, the list of
# what is linked in (SBOM) and checksums. The same commit, compiler and C library give the same bytes,
# wherever it is built. Usage: scripts/make-static.sh OUTPUT_DIRECTORY
#
# PROFILE is cargo's (dist if not given). Without git, SOURCE_DATE_EPOCH and OKEANOS_COMMIT say when
# and what the source is.
set -euo pipefail
umask 022

output=$(realpath -m "$1")
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
profile=${PROFILE:-dist}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
target=${host/%-gnu/-musl}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export OKEANOS_COMMIT=${OKEANOS_COMMIT:-$(git rev-parse --short=12 HEAD)}
export LC_ALL=C.UTF-8 TZ=UTC

# musl's own startup files, linker arguments and C library come with Rust's target.
if [ ! -e "$("${RUSTC:-rustc}" --print target-libdir --target "$target")" ]; then
    if ! rustup target add "$target"; then
        echo "Rust's target $target is needed: rustup target add $target (https://rustup.rs)" >&2
        exit 1
    fi
fi

# No path of this machine may be in the programs.
built=$(realpath -m "${CARGO_TARGET_DIR:-target/static-build}")
export CARGO_TARGET_DIR=$built CARGO_INCREMENTAL=0
export RUSTFLAGS="--remap-path-prefix=$PWD=/okeanos
    --remap-path-prefix=$built=/target --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
"$cargo" build --locked --profile "$profile" --target "$target" --package cli --package lab
programs=$built/$target/$profile
[ "$profile" != dev ] || programs=$built/$target/debug

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
name=okeanos-$version-${target%%-*}-static
make --silent --no-print-directory install-files install-lab-files DESTDIR="$place/root" PREFIX=/usr/local \
    PROGRAM="$programs/okeanos" LAB_PROGRAM="$programs/okeanos-lab"
mv "$place/root/usr/local" "$place/$name"
mkdir -p "$place/$name/share/doc/okeanos"
cp LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md docs/INSTALL.md "$place/$name/share/doc/okeanos"
scripts/make-sbom.py "$target" cli lab >"$place/$name/share/doc/okeanos/sbom.cdx.json"
(cd "$place/$name" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)

mkdir -p "$output"
rm -f "$output/$name.tar.gz"
tar --create --directory "$place" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --format=gnu --mode=u=rwX,go=rX "$name" | gzip -9n >"$output/$name.tar.gz"
cp "$place/$name/share/doc/okeanos/sbom.cdx.json" "$output/$name.cdx.json"
(cd "$output" && sha256sum "$name.tar.gz" "$name.cdx.json" >SHA256SUMS)
echo "$output/$name.tar.gz"
