#!/bin/bash
# Builds the static tarball twice from this commit, in directories of different names and lengths,
# with different file modes and languages: the bytes must be the same.
# Usage: scripts/test-reproducible.sh. It takes the time of two builds.
set -euo pipefail

cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
OKEANOS_COMMIT=$(git rev-parse --short=12 HEAD)
export SOURCE_DATE_EPOCH OKEANOS_COMMIT

build() { # DIRECTORY
    mkdir -p "$1"
    git archive HEAD | tar --extract --no-same-permissions --directory "$1"
    env -u CARGO_TARGET_DIR "$1/scripts/make-static.sh" "$1/out"
    rm -rf "$1/target"
}
build "$place/one"
(umask 077 && LANG=de_DE.UTF-8 TZ=Asia/Tokyo build "$place/another/with/a/longer/name")
cmp "$place"/one/out/*.tar.gz "$place"/another/with/a/longer/name/out/*.tar.gz
cmp "$place"/one/out/SHA256SUMS "$place"/another/with/a/longer/name/out/SHA256SUMS
echo "reproducible: $(cat "$place/one/out/SHA256SUMS")"
