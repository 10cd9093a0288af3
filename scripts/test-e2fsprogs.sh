#!/bin/bash
# Damaged volumes of e2fsprogs' own tests: no command panics or hangs, the exit code of `check` has
# every bit that `e2fsck -fn` sets, and what it calls sound can be mounted and walked. About 70
# seconds of processor time.
#
#   scripts/test-e2fsprogs.sh PROGRAM [FOLDER [IMAGE...]]    all images, or these
#
# The images come with Debian's source package, which is fetched to FOLDER (target/e2fsprogs) by an
# apt configuration of its own and never committed. Needs root for mounts.
# scripts/e2fsprogs-exceptions.txt lists whose exit code is another, with both codes and the reason;
# a line too many fails as one too few does.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
cd "$(dirname "$0")/.."
program=$(realpath "$1")
folder=$(realpath -m "${2:-target/e2fsprogs}")
exceptions=$PWD/scripts/e2fsprogs-exceptions.txt
# Fewer than these: the package is another, or was not unpacked.
readonly IMAGES_LEAST=216
# Seconds for one command, and KiB of memory.
readonly LIMIT=${LIMIT:-120} MEMORY=$((1 << 20))
readonly MEASURED='import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
sys.exit(99 if peak > int(sys.argv[1]) else code if code >= 0 else 128 - code)'

fetch() {
    [ ! -e "$folder/fetched" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"/apt/{lists/partial,archives/partial} "$folder/images"
    local codename
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "${MIRROR:-http://deb.debian.org/debian} $codename main" >"$folder/apt/sources.list"
    cat >"$folder/apt/apt.conf" <<END
Dir::State::Lists "$folder/apt/lists";
Dir::Cache::Archives "$folder/apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::SourceList "$folder/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
END
    export APT_CONFIG=$folder/apt/apt.conf
    apt-get update -qq
    (cd "$folder" && apt-get source -qq --download-only e2fsprogs)
    mkdir "$folder/source"
    tar -x -f "$(ls "$folder"/e2fsprogs_*.orig.tar.* | grep -v "\.asc$")" -C "$folder/source" --strip-components=1
    local packed name
    for packed in "$folder"/source/tests/*/{image,image.gz,image.bz2}; do
        [ -e "$packed" ] || continue
        name=$(basename "$(dirname "$packed")")
        case $packed in
        *.gz) gzip -d -c "$packed" ;;
        *.bz2) bzip2 -d -c "$packed" ;;
        *) cat "$packed" ;;
        esac | cp --sparse=always /dev/stdin "$folder/images/$name"
    done
    rm -rf "$folder/source"
    touch "$folder/fetched"
}

# Runs our program with bounds; its output goes to $out. Sets $code.
run() { # NAME ARGUMENTS...
    local name=$1
    shift
    code=0
    python3 -c "$MEASURED" "$MEMORY" timeout "$LIMIT" "$program" "$@" >"$out" 2>&1 </dev/null || code=$?
    case $code in 99 | 124 | 134 | 137 | 139 | 101) fail "$name: $* ended with $code" ;; esac
    ! grep -q -a 'panicked at' "$out" || fail "$name: $* panicked"
}

fail() {
    echo "$1"
    wrong=$((wrong + 1))
}

# e2fsck's exit code, kept beside the image: it does not change. Some images make it loop.
code_of_e2fsck() {
    local kept=$folder/codes/$1
    if [ ! -e "$kept" ]; then
        local code=0
        E2FSCK_CONFIG=/dev/null timeout 30 e2fsck -fn "$folder/images/$1" >/dev/null 2>&1 </dev/null || code=$?
        echo $code >"$kept"
    fi
    cat "$kept"
}

is_strict() { # OURS THEIRS: every bit of e2fsck's, and not 0 where e2fsck did not end
    case $2 in
    124) [ "$1" -ne 0 ] ;;
    *) [ $(($2 & 12 & ~$1)) -eq 0 ] && { [ "$2" -eq 0 ] || [ "$1" -ne 0 ]; } ;;
    esac
}

# Is the code strict enough? An exception says which two codes it is about.
judge() { # check|alone NAME OURS THEIRS
    local listed
    listed=$(sed -n "s|^$1 $2 \([0-9]* [0-9]*\) .*|\1|p" "$exceptions")
    if is_strict "$3" "$4"; then
        [ -z "$listed" ] || fail "$2: $1 is strict enough; take it out of $exceptions"
        return 0
    fi
    [ "$listed" = "$3 $4" ] || fail "$2: e2fsck $4, $1 $3: $(tail -2 "$out" | head -1)"
    return 1
}

# What a check calls sound, a mount takes, and nothing in it fails.
walk() {
    local name=$1 mode
    for mode in ro rw; do
        cp --sparse=always "$folder/images/$name" "$work/image"
        run "$name" mount -o "$mode,noloop" "$work/image" "$work/mount"
        # Read-only is how some features are supported.
        [ $code -eq 0 ] || {
            [ $mode = rw ] && grep -q 'read-only' "$out" || fail "$name: check finds nothing, mount -o $mode: $(head -1 "$out")"
            continue
        }
        timeout $LIMIT find "$work/mount" -ls >"$out" 2>&1 || fail "$name: check finds nothing, find: $(tail -1 "$out")"
        run "$name" umount "$work/mount"
    done
}

fetch
mkdir -p "$folder/codes"
work=$(mktemp -d)
out=$work/out
wrong=0 images=0 strict=0 walked=0 alone=0
mkdir "$work/mount"
finish() {
    ! mountpoint -q "$work/mount" || "$program" umount "$work/mount" || umount -l "$work/mount"
    rm -rf "$work"
}
trap finish EXIT

chosen=("${@:3}")
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(cd "$folder/images" && printf '%s\n' *)
for name in "${chosen[@]}"; do
    image=$folder/images/$name
    images=$((images + 1))
    theirs=$(code_of_e2fsck "$name")
    before=$(sha256sum <"$image")
    run "$name" check --without-e2fsck "$image"
    ours=$code
    grep -q '^Not looked at' "$out" || [ $ours -ne 0 ] || fail "$name: check does not say what it left out"
    ! judge alone "$name" $ours "$theirs" || alone=$((alone + 1))
    # Where e2fsck loops it would take a minute; that it is ended is a test of the program.
    if [ "$theirs" -ne 124 ]; then
        run "$name" check --json "$image"
        grep -q "\"exit_status\": $code" "$out" || fail "$name: exit code $code is not that of the JSON"
        ! judge check "$name" $code "$theirs" || strict=$((strict + 1))
        if [ $code -eq 0 ]; then
            walk "$name"
            walked=$((walked + 1))
        fi
    fi
    for what in super groups "journal --all" "logs --all" "inode 2" "dir /"; do
        # shellcheck disable=SC2086
        run "$name" inspect $what "$image"
    done
    run "$name" recover --dry-run "$image"
    if [ $code -eq 0 ] && grep -q 'journal is empty' "$out"; then
        run "$name" inspect journal "$image"
        [ $code -eq 0 ] || grep -q 'has no journal' "$out" || fail "$name: recover calls its journal empty: $(head -1 "$out")"
    fi
    cp --sparse=always "$image" "$work/image"
    run "$name" recover "$work/image"
    [ "$before" = "$(sha256sum <"$image")" ] || fail "$name: a command that only looks changed it"
done
while read -r run name _; do
    case $run in '#'* | '') ;; *) [ -e "$folder/images/$name" ] || fail "$name in $exceptions: no such image" ;; esac
done <"$exceptions"
[ $# -gt 2 ] || [ $images -ge $IMAGES_LEAST ] || fail "$images images instead of $IMAGES_LEAST"
echo "e2fsprogs: $images images; check as strict as e2fsck on $strict, without it on $alone; $walked sound ones mounted and walked; $wrong wrong"
[ $wrong -eq 0 ]
