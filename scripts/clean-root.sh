#!/bin/bash
# Makes a root of a Debian release, once, and prints where it is: in target/roots, or ROOTS. Packages
# come from the machine's own mirror, or MIRROR. Needs root, the network, and mmdebstrap.
# Usage: scripts/clean-root.sh NAME RELEASE [PACKAGE,...]
set -euo pipefail

roots=$(realpath -m "${ROOTS:-$(dirname "$0")/../target/roots}")
root=$roots/$1
if [ ! -e "$root/.complete" ]; then
    echo "making a root of $2" >&2
    rm -rf "$root"
    mkdir -p "$roots"
    mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -1)}
    mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --skip=cleanup/apt/lists ${3:+"--include=$3"} \
        "$2" "$root" "$mirror" >&2
    touch "$root/.complete"
fi
echo "$root"
