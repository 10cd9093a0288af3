#!/bin/bash
# Switches on one deliberate fault at a time, and shows that the crash explorer or a test finds
# each.
#
#   scripts/hunt-faults.sh [NAME...] hunts these faults, or all; writes what found each into its row
#   of docs/FAULTS.md; fails if one survives
#
# docs/FAULTS.md lists the faults, and its column "hunted by" says how: see there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly WORK=$PWD/target/faults
readonly LAB=$WORK/debug/okeanos-lab
readonly TABLE=docs/FAULTS.md
export RUSTFLAGS="--cfg faults" CARGO_TARGET_DIR=$WORK
mkdir -p "$WORK"
# First seed, how many, steps of each script: every mode and setup has its turn before any has a
# long one. Four seeds in a row have all paces of commits and write-back.
readonly ROUNDS="1:1:14 1:4:40 5:8:60"
readonly SETUPS="ext4-1k small-log-1k external-4k ext4-4k ext3-4k"
# Seconds for one run of the explorer. Without a fault the longest takes a tenth of it.
readonly LIMIT=600

# Prints what stands behind the words $2 in the column "hunted by" of fault $1, or nothing.
field() {
    awk -F ' [|] ' -v name="| $1" -v words="$2 " '
        $1 == name {
            count = split($3, parts, "; ")
            for (i = 1; i <= count; i++)
                if (index(parts[i], words) == 1) print substr(parts[i], length(words) + 1)
        }
    ' "$TABLE"
}

# Writes what found fault $1, $2, and the seconds that it took, $3, into its row.
write_row() {
    NAME="| $1" FOUND=$2 TOOK=$3 awk -F ' [|] ' '
        $1 == ENVIRON["NAME"] { $0 = $1 " | " $2 " | " $3 " | " ENVIRON["FOUND"] " | " ENVIRON["TOOK"] " |" }
        { print }
    ' "$TABLE" >"$WORK/table"
    cat "$WORK/table" >"$TABLE"
}

# Hunts fault $1. Prints the arguments that found it; fails if nothing does.
hunt() {
    local modes setups disks rounds round first count steps mode setup status tests worlds
    tests=$(field "$1" "cargo test")
    if [[ -n $tests ]]; then
        hunt_by_tests "$1" "$tests"
        return
    fi
    worlds=$(field "$1" "small worlds")
    if [[ -n $worlds ]]; then
        hunt_in_small_worlds "$1" "$worlds"
        return
    fi
    modes=$(field "$1" modes)
    setups=$(field "$1" setups)
    disks=$(field "$1" disks)
    # Where a fault shows so rarely that the one case is named that found it.
    rounds=$(field "$1" rounds)
    for round in ${rounds:-$ROUNDS}; do
        IFS=: read -r first count steps <<<"$round"
        for setup in ${setups:-$SETUPS}; do
            for mode in $modes; do
                status=0
                OKEANOS_FAULT=$1 timeout $LIMIT "$LAB" sim --mode "$mode" --setup "$setup" \
                    --seed "$first" --cases "$count" --steps "$steps" $disks >"$WORK/said" 2>&1 || status=$?
                case $status in
                0) ;;
                126 | 127) echo "$LAB does not run" >&2; return 1 ;;
                124) echo "$1: $mode, $setup, seeds from $first: not done after $LIMIT s" >&2 ;;
                *) describe "$mode" "$setup" && return ;;
                esac
            done
        done
    done
    return 1
}

# Hunts fault $1 in the small worlds $2, exhaustively, shortest scripts first.
hunt_in_small_worlds() {
    local each status replay
    for each in $2; do
        status=0
        OKEANOS_FAULT=$1 timeout $LIMIT "$LAB" sim --enumerated 0 --world "${each%:*}" \
            --operations "${each#*:}" --jobs 1 >"$WORK/said" 2>&1 || status=$?
        case $status in
        0) continue ;;
        124 | 126 | 127) echo "$1, small world ${each%:*}: status $status" >&2; return 1 ;;
        esac
        replay=$(sed -n "s/^replay:.*--again '\(.*\)'/\1/p" "$WORK/said" | head -1)
        echo "small world, ${replay:-a panic}: \`$(complaint)\`"
        return
    done
    return 1
}

# Hunts fault $1 with the tests that $2 names. A fault that makes them hang is found as well.
hunt_by_tests() {
    local first
    # shellcheck disable=SC2086
    if OKEANOS_FAULT=$1 timeout $LIMIT cargo test --quiet --no-fail-fast $2 >"$WORK/said" 2>&1; then
        grep -q '^running [1-9]' "$WORK/said" || echo "$1: cargo test $2 carries out no test" >&2
        return 1
    fi
    first=$(sed -n 's/^thread .\([a-z_:]*\). .*panicked.*/\1/p' "$WORK/said" | head -1)
    # A fault in unsafe code ends the test program.
    first=${first:-$(grep -o 'signal: [0-9]*, [A-Z]*' "$WORK/said" | head -1)}
    echo "\`${first:-no test is done in $LIMIT s}\`"
}

# What the explorer said when it found something, in one line.
describe() {
    local seed place
    seed=$(sed -n 's/.*--seed \([0-9]*\).*/\1/p' "$WORK/said" | head -1)
    place=$(sed -n 's/^replay:.*--\(\(cut\|fault\) [^ ]*\).*/\1/p' "$WORK/said" | head -1)
    echo "$1, $2, ${seed:+seed $seed, }${place:-a panic}: \`$(complaint)\`"
}
complaint() {
    tr '\r' '\n' <"$WORK/said" | grep -m1 -E 'panicked|^okeanos-lab: ' | sed 's/|/\\|/g; s/`//g; s/^okeanos-lab: //' | cut -c1-160
}

cargo build --quiet --package lab

names=("$@")
if ((${#names[@]} == 0)); then
    # The faults are off: nothing may be found, or what is found below means nothing.
    OKEANOS_FAULT=none "$LAB" sim --seed 1 --cases 3 >&2
    mapfile -t names < <(sed '1,/^|---/d' "$TABLE" | sed -n 's/^| \([^ ]*\) | .*/\1/p')
fi
survivors=()
for name in "${names[@]}"; do
    grep -qF "| $name | " "$TABLE" || { echo "$TABLE has no fault $name" >&2; exit 2; }
    begun=$EPOCHREALTIME
    found=$(hunt "$name") || { found="**survives**"; survivors+=("$name"); }
    seconds=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }')
    write_row "$name" "$found" "$seconds"
    echo "$name: $found ($seconds s)"
done
if ((${#survivors[@]} > 0)); then
    echo "survive: ${survivors[*]}" >&2
    exit 1
fi
