#!/bin/bash
# Dependencies between our crates go down only (ARCHITECTURE.md). Names every edge that does not,
# and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# Crate, and floor with the step on it: an edge must lead lower.
declare -A floor=(
    [units]=00 [device]=10 [format]=11 [runtime]=20 [disks]=21 [emulated]=22 [store]=23 [volume_images]=30
    [journal]=30 [eviction]=31 [scattered]=31 [ceph]=32 [engine]=40 [ext4]=50 [blocks]=50 [host]=51 [fuse]=60 [nbd]=60
    [workloads]=70 [stages]=71 [rigs]=72 [reproduce]=73 [hostile]=70 [sim]=71 [cli]=74
)

# The names in the sections of dependencies of a manifest, those of tests and builds too.
dependencies_of() {
    awk '/^\[/ { wanted = ($0 ~ /^\[(build-|dev-)?dependencies\]/) }
         wanted && /^[a-z]/ { sub(/[ .=].*/, ""); print }' "$1"
}

wrong=0
for manifest in crates/*/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    if [ -z "${floor[$crate]:-}" ]; then
        echo "crate $crate has no floor: give it one in scripts/check-floors.sh and ARCHITECTURE.md" >&2
        wrong=1
        continue
    fi
    for dependency in $(dependencies_of "$manifest"); do
        [ -n "${floor[$dependency]:-}" ] || continue
        if [ "${floor[$dependency]}" -ge "${floor[$crate]}" ]; then
            echo "wrong edge: $crate (floor ${floor[$crate]}) depends on $dependency (floor ${floor[$dependency]})" >&2
            wrong=1
        fi
    done
done
exit $wrong
