#!/bin/bash
# Builds both programs in a clean root of Debian 13 with the compiler that it has, which is the oldest
# one supported, and runs them there. Crates are fetched before, so the build needs no network.
# Usage: scripts/test-compiler.sh. PROFILE: cargo's (dist if not given). Needs root and mmdebstrap.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
cd "$(dirname "$0")/.."
profile=${PROFILE:-dist}
root=$(scripts/clean-root.sh trixie-compiler trixie cargo,rustc,gcc,libc6-dev,make)
"${CARGO:-cargo}" vendor --quiet --locked --versioned-dirs "$root/vendor" >/dev/null
mkdir -p "$root/source" "$root/target" "$root/cargo"
cat >"$root/cargo/config.toml" <<END
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/vendor"
END
mount --bind -o ro . "$root/source"
mount -t proc proc "$root/proc"
inside() {
    chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 CARGO_HOME=/cargo \
        CARGO_TARGET_DIR=/target OKEANOS_COMMIT="$(git rev-parse --short=12 HEAD)" sh -ec "cd /source && $1"
}
inside 'make --no-print-directory toolchain && cargo --version'
inside "cargo build --offline --locked --profile $profile --package cli --package lab"
folder=$profile
[ "$profile" != dev ] || folder=debug
inside "/target/$folder/okeanos --version && /target/$folder/okeanos-lab --version"
echo "Debian 13: built with its own compiler"
