#!/bin/bash
# Measures Okeanos beside the kernel's file systems, interleaved on fresh volumes, and writes one page
# with a picture. RUNS=3 is an hour or so; what is run is printed as it begins. Needs root and a
# machine with nothing else to do.
#
#   scripts/bench-peers.sh OKEANOS-LAB PAGE.md      the picture lies beside the page, as PAGE.svg
set -euo pipefail

[ $# = 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
lab=$(realpath "$1")
page=$2
picture=${page%.md}.svg
runs=${RUNS:-3}
peers=ext4:ordered,ext4:journal,ext4:fast_commit,xfs,btrfs

measure() { # HEADING WORDS...
    local heading=$1
    shift
    echo "okeanos-lab bench $*" >&2
    printf '\n## %s\n\n    okeanos-lab bench %s\n\n' "$heading" "$*"
    "$lab" bench "$@"
}

{
    echo "# Okeanos beside the kernel's file systems"
    echo
    echo "Medians of $runs runs on Linux $(uname -r), $(nproc) processors. In parentheses the speed relative to the first column's in the same run."
    for model in cloud-volume sd-card cheetah-15k5-300; do
        measure "Synchronous appends, \`$model\`" compare --model $model --runs "$runs" \
            --contenders ext4:ordered,ext4:fast_commit,okeanos,okeanos:wasteless --markdown
    done
    measure "Programs" programs --runs "$runs" --markdown
    measure "PostgreSQL on \`cloud-volume\`" programs --works postgresql --model cloud-volume --runs "$runs" --markdown
    measure "Synchronous appends on a loop device" compare --runs "$runs" --contenders $peers,okeanos,okeanos:wasteless --markdown
    measure "Synchronous writers beside a reader and large writes" mixed --runs "$runs" --markdown
    measure "Growth" growth --runs "$runs" --svg "$picture" --markdown
    printf '\n![growth beside the work](%s)\n' "$(basename "$picture")"
} >"$page.new"
mv "$page.new" "$page"
echo "$page, $picture" >&2
