#!/bin/bash
# Dependencies between our crates go down only (ARCHITECTURE.md). Names every edge that does not, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# Crate and floor. An edge must lead to a lower floor, or be among the neighbours below.
declare -A floor=(
    [units]=0 [device]=1 [format]=1 [runtime]=2 [disks]=2 [emulated]=2 [e2fsprogs]=3
    [journal]=3 [eviction]=3 [engine]=4 [ext4]=5 [fuse]=6
    [bench]=7 [reproduce]=7 [cli]=7 [sim]=7 [damage]=7
)
neighbours=" disks->runtime emulated->disks emulated->runtime cli->bench cli->reproduce reproduce->bench cli->sim "

# The names in the sections [dependencies] and [build-dependencies] of a manifest.
dependencies_of() {
    awk '/^\[/ { wanted = ($0 ~ /^\[(build-)?dependencies\]/) }
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
        if [ "${floor[$dependency]}" -ge "${floor[$crate]}" ] && [[ $neighbours != *" $crate->$dependency "* ]]; then
            echo "wrong edge: $crate (floor ${floor[$crate]}) depends on $dependency (floor ${floor[$dependency]})" >&2
            wrong=1
        fi
    done
done
exit $wrong
