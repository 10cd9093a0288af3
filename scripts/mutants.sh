#!/bin/bash
# Breaks Okeanos on purpose, one fault at a time, and shows that the crash explorer notices every
# one.
#
#   scripts/mutants.sh --check only: every patch still applies scripts/mutants.sh [NAME...] hunts
#   these faults, or all; prints docs/MUTANTS.md; fails if one survives
#
# A fault is a patch in mutants/. It says what it breaks, which promise dies, and the modes where to
# look for it. It may say the volumes ("Setups:") and the explorer's arguments for its disks
# ("Disks:"). The diff follows. What the explorer meets too rarely a test finds ("Test:", words for
# cargo test). All are applied to a throw-away copy of the tree and built in at once; OKEANOS_MUTANT
# chooses the one that is on.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly WORK=$PWD/target/mutants
# A check may run beside a hunt.
TREE=$WORK/tree
if [[ ${1:-} == --check ]]; then TREE=$WORK/check; fi
readonly TREE
readonly OKEANOS=$WORK/build/debug/okeanos
# First seed, how many, steps of each script: every mode and setup has its turn before any has a
# long one. Four seeds in a row have all paces of commits and write-back.
readonly ROUNDS="1:1:14 1:4:40 5:8:60"
readonly SETUPS="ext4-1k small-log-1k external-4k ext4-4k ext3-4k"
# Seconds for one run of the explorer. Without a fault the longest takes a tenth of it.
readonly LIMIT=600

# Makes $TREE anew, but leaves alone what would be the same, so that it is not built again.
copy_and_patch() {
    local new=$TREE.new
    rm -rf "$new"
    mkdir -p "$new" "$TREE"
    git ls-files -z | sort -zu | xargs -0 cp --parents -t "$new"
    local patch file
    for patch in mutants/*.patch; do
        # Outside of any repository, as far as git can see: inside one it leaves out what lies
        # elsewhere.
        (cd "$new" && GIT_CEILING_DIRECTORIES=$WORK git apply -C1 "$OLDPWD/$patch") || {
            echo "$patch does not apply any more: make its change anew" >&2
            exit 1
        }
    done
    (cd "$TREE" && find . -type f -print0) | while IFS= read -r -d '' file; do
        [[ -e $new/$file ]] || rm "$TREE/$file"
    done
    (cd "$new" && find . -type f -print0) | while IFS= read -r -d '' file; do
        cmp -s "$new/$file" "$TREE/$file" || install -D -m 644 "$new/$file" "$TREE/$file"
    done
    rm -r "$new"
}

# The words behind "$2:" at the head of patch $1.
header() {
    sed -n "/^diff /q; s/^$2: //p" "mutants/$1.patch"
}

# Hunts fault $1. Prints the arguments that found it; fails if nothing does.
hunt() {
    local modes setups disks rounds round first count steps mode setup status tests
    tests=$(header "$1" Test)
    if [[ -n $tests ]]; then
        hunt_by_tests "$1" "$tests"
        return
    fi
    modes=$(header "$1" Modes)
    setups=$(header "$1" Setups)
    disks=$(header "$1" Disks)
    # Where a fault shows so rarely that the one case is named that found it.
    rounds=$(header "$1" Rounds)
    for round in ${rounds:-$ROUNDS}; do
        IFS=: read -r first count steps <<<"$round"
        for setup in ${setups:-$SETUPS}; do
            for mode in $modes; do
                status=0
                OKEANOS_MUTANT=$1 timeout $LIMIT "$OKEANOS" sim --mode "$mode" --setup "$setup" \
                    --seed "$first" --cases "$count" --steps "$steps" $disks >"$WORK/said" 2>&1 || status=$?
                case $status in
                0) ;;
                126 | 127) echo "$OKEANOS does not run" >&2; return 1 ;;
                124) echo "$1: $mode, $setup, seeds from $first: not done after $LIMIT s" >&2 ;;
                *) describe "$mode" "$setup" && return ;;
                esac
            done
        done
    done
    return 1
}

# Hunts fault $1 with the tests that $2 names. A fault that makes them hang is found as well.
hunt_by_tests() {
    local first
    OKEANOS_MUTANT=$1 CARGO_TARGET_DIR=$WORK/build timeout $LIMIT cargo test --quiet --no-fail-fast $2 \
        --manifest-path "$TREE/Cargo.toml" >"$WORK/said" 2>&1 && return 1
    first=$(sed -n 's/^thread .\([a-z_:]*\). .*panicked.*/\1/p' "$WORK/said" | head -1)
    echo "cargo test $2 | \`${first:-no test is done in $LIMIT s}\`"
}

# What the explorer said when it found something, in one line.
describe() {
    local seed place
    seed=$(sed -n 's/.*--seed \([0-9]*\).*/\1/p' "$WORK/said" | head -1)
    place=$(sed -n 's/^replay:.*--\(\(cut\|fault\) [^ ]*\).*/\1/p' "$WORK/said" | head -1)
    echo "$1, $2, seed ${seed:-?}, ${place:-a panic} | \`$(complaint)\`"
}
complaint() {
    tr '\r' '\n' <"$WORK/said" | grep -m1 -E 'panicked|^okeanos: ' | sed 's/|/\\|/g; s/`//g; s/^okeanos: //' | cut -c1-160
}

copy_and_patch
if [[ ${1:-} == --check ]]; then
    rm -rf "$TREE"
    echo "$(ls mutants/*.patch | wc -l) patches apply"
    exit
fi
in_tree() {
    local command=$1
    shift
    CARGO_TARGET_DIR=$WORK/build cargo "$command" --quiet --manifest-path "$TREE/Cargo.toml" "$@"
}
in_tree build --package cli

names=("$@")
if ((${#names[@]} == 0)); then
    # The faults are off: nothing may be found, or what is found below means nothing.
    OKEANOS_MUTANT=none "$OKEANOS" sim --seed 1 --cases 3 >&2
    for patch in mutants/*.patch; do
        [[ $patch == mutants/00-switch.patch ]] || names+=("$(basename "$patch" .patch)")
    done
fi
survivors=()
cat <<'HEAD'
# Mutants

Deliberate faults, and how the crash explorer notices each. Made by `make mutants`; each row is one fault (a patch in
`mutants/`), built into a throw-away copy and switched on alone. Seeds are tried from 1 upwards, each mode and kind of volume in turn, until
the explorer complains. The seconds are those of the whole hunt. With all faults off the same program finds nothing (checked at the start of
every run). Some show so rarely that the patch names where to look, such as the case that found the real bug (`Rounds:`, `Disks:`).

| fault | what it breaks | found by | complaint | seconds |
|---|---|---|---|---|
HEAD
for name in "${names[@]}"; do
    begun=$EPOCHREALTIME
    found=$(hunt "$name") || { found="**survives** | "; survivors+=("$name"); }
    seconds=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }')
    echo "| $name | $(head -1 "mutants/$name.patch") | $found | $seconds |"
done
if ((${#survivors[@]} > 0)); then
    echo "survive: ${survivors[*]}" >&2
    exit 1
fi
