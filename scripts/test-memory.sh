#!/bin/bash
# Plays the suites where the heap (crates/runtime/src/heap) gets no address space for its region, so
# that all memory is the C library's; then once more with a forbidden page behind each allocation of
# 2 KiB to a page. Memory that is not overcommitted is a setting of the whole machine:
# `scripts/test-kernels.sh PLACE memory`. Needs root, and a C compiler.
#
#   [TESTS='FILTER...'] [KINDS='limit guard'] scripts/test-memory.sh PLACE
set -euo pipefail

mkdir -p "$1"
readonly PLACE=$(realpath "$1")
cd "$(dirname "$0")/.."
# Less than the heap asks for, and more than anything else does. In KiB.
readonly ADDRESS_SPACE=8000000
# Tests of the program that mount, serve, recover and clean up.
read -ra tests <<<"${TESTS:-people:: daemon_rights:: robustness:: hosts:: nbd::}"
# They build okeanos-lab, for which Cargo has too little address space.
skipped=(--skip people::a_dead_host --skip people::advice_follows)
read -ra kinds <<<"${KINDS:-limit guard}"

guard=$PLACE/guard-pages.so
"${CC:-cc}" -O2 -Wall -Werror -shared -fPIC -o "$guard" scripts/guard-pages.c

# Cargo needs more address space than is left here, so the programs are started without it, each in
# the folder of its crate.
export CARGO_TARGET_TMPDIR=$PLACE
programs() { # PACKAGE...
    local -a packages
    for package; do packages+=(--package "$package"); done
    ${CARGO:-cargo} test --quiet "${packages[@]}" --no-run --message-format=json |
        sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml","target":{"kind":\["\(lib\|test\)"\].*"executable":"\([^"]*\)".*/\1 \2 \3/p'
}
play() { # KIND PROGRAM FILTER...
    (
        ulimit -v "$ADDRESS_SPACE"
        [ "$1" = limit ] || export LD_PRELOAD=$guard
        exec "${@:2}"
    )
}
for kind in "${kinds[@]}"; do
    while read -r folder of program; do
        filters=()
        case $folder/$of in
        */cli/lib) continue ;;
        */cli/test) filters=("${tests[@]}" "${skipped[@]}") ;;
        esac
        echo "test-memory: $kind: $(basename "$folder"), $of"
        (cd "$folder" && play "$kind" "$program" "${filters[@]}" </dev/null)
    done < <(programs runtime engine cli)
done
echo "test-memory: well"
