#!/bin/bash
# Runs what a page says it was measured with, and puts what comes out in its place.
#
#   scripts/measure.sh OKEANOS-LAB PAGE...
#
# In a page, the lines between `<!-- measured: WORDS -->` and `<!-- end -->` are the command
# `okeanos-lab WORDS` and what it printed. The same WORDS are run once. A page whose command fails stays
# as it was. Needs root and a machine with nothing else to do.
set -euo pipefail
shopt -s inherit_errexit
lab=$(realpath "$1")
shift

kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT

measure() { # WORDS: the file with what came out
    local out
    out=$kept/$(sha256sum <<<"$1" | cut -c1-16)
    if [[ ! -e $out ]]; then
        echo "okeanos-lab $1" >&2
        # shellcheck disable=SC2086 # they are words
        unshare --mount --propagation private "$lab" $1 >"$out.new" </dev/null
        mv "$out.new" "$out"
    fi
    echo "$out"
}

for page; do
    new=$kept/page
    skipping=
    while IFS= read -r line; do
        if [[ $line == '<!-- end -->' ]]; then
            skipping=
            echo
        fi
        if [[ -z $skipping ]]; then printf '%s\n' "$line"; fi
        if [[ $line =~ ^'<!-- measured: '(.*)' -->'$ ]]; then
            if [[ -n $skipping ]]; then
                echo "$page: no <!-- end --> before $line" >&2
                exit 1
            fi
            skipping=yes
            out=$(measure "${BASH_REMATCH[1]}")
            printf '\n    okeanos-lab %s\n\n' "${BASH_REMATCH[1]}"
            cat "$out"
        fi
    done <"$page" >"$new"
    if [[ -n $skipping ]]; then
        echo "$page: the last <!-- end --> is missing" >&2
        exit 1
    fi
    cat "$new" >"$page"
done
