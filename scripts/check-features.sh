#!/bin/bash
# A crate alone is built with the same features of what others wrote as within the workspace.
# Otherwise `cargo test -p CRATE` builds most of the workspace a second time. Names what differs, and
# fails. (crates/units/Cargo.toml and crates/runtime/Cargo.toml see to it. `units` and `journal`
# stand below: what their tests alone use may differ.)
set -euo pipefail
cd "$(dirname "$0")/.."

features() {
    ${CARGO:-cargo} tree --quiet --locked --edges normal,build,dev --prefix none --format '{p} {f}' "$@" | sed 's/ (\*)$//' | sort -u
}

whole=$(features --workspace)
wrong=0
for folder in crates/*; do
    crate=$(basename "$folder")
    [[ $crate != units && $crate != journal ]] || continue
    different=$(comm -23 <(features --package "$crate") - <<<"$whole")
    [ -z "$different" ] && continue
    echo "crate $crate alone has other features than in the workspace: $different" >&2
    wrong=1
done
exit $wrong
