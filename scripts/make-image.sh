#!/bin/bash
# An OCI image of the static program alone, as a tar that podman, docker and skopeo load
# (docs/CONTAINERS.md). Needs buildah. Usage: scripts/make-image.sh STATIC_TARBALL OUTPUT_DIRECTORY
set -euo pipefail
umask 022

tarball=$(realpath "$1")
output=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$output" "$place/root/usr" "$place/root/run" "$place/root/tmp" "$place/root/mnt"
chmod 1777 "$place/root/tmp"
tar --extract --directory "$place/root/usr" --strip-components=1 --file "$tarball" --wildcards \
    '*/bin/okeanos' '*/share/doc/okeanos'

image() { buildah --storage-driver vfs --root "$place/storage" --runroot "$place/runroot" "$@"; }
container=$(image from scratch)
image copy --quiet "$container" "$place/root" / >/dev/null
image config --entrypoint '["/usr/bin/okeanos"]' --cmd --help \
    --label org.opencontainers.image.title=okeanos \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.licenses='MIT OR Apache-2.0' "$container"
image commit --quiet --format oci --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci:$place/image:$version" >/dev/null
tar --create --directory "$place/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --format=gnu --mode=u+rw,go=rX . >"$output/okeanos-$version.oci.tar"
echo "$output/okeanos-$version.oci.tar"
