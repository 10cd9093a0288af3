#!/bin/bash
# Records the file trace of docs/TRACES.md: copy, unpack, configure and make OpenSSH, all in one
# empty directory. Needs root, strace, zstd, gcc, make, libssl-dev, zlib1g-dev, and the network for
# Debian's source package. Usage: scripts/record-build.sh DIRECTORY record into
# DIRECTORY/openssh-build.csv.zst
set -euo pipefail
shopt -s nullglob
export LC_ALL=C

tools=$(cd "$(dirname "$0")/traces" && pwd)
output=$(mkdir -p "$1" && cd "$1" && pwd)
place=$(realpath "$(mktemp -d)")
trap 'rm -rf "$place"' EXIT
root=$place/volume
mkdir "$root" "$place/source" "$place/lists" "$place/lists/partial" "$place/calls" "$place/temporary"

cd "$place/source"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" \
    >"$place/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$place/sources.list" -o Dir::Etc::SourceParts=- \
    -o "Dir::State::Lists=$place/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" source --download-only openssh
archive=$(echo *.orig.tar.gz)
tree=$(tar -tzf "$archive" | sed 's|/.*||' | sort -u)

# What compilers leave in /tmp is on another disk, as the system's own files are.
export TMPDIR=$place/temporary
phases=(
    "copy:cp $place/source/$archive $archive"
    "unpack:tar -xzf $archive"
    "configure:cd $tree && ./configure --quiet"
    "make:cd $tree && make"
)

begin() { echo "0 $(date +%s.%6N) phase(\"$1\") = 0" >>"$place/phases"; }
run() { # WITH...
    local phase name
    cd "$root"
    : >"$place/phases"
    for phase in "${phases[@]}"; do
        name=${phase%%:*}
        begin "$name"
        "${@//PHASE/$name}" sh -c "${phase#*:}" >"$place/out" 2>&1 </dev/null || { tail "$place/out" >&2; exit 1; }
    done
    begin end
}
durations() {
    awk -F '[ "]' 'NR > 1 { printf "%s%s %.1f s", separator, name, $2 - begun; separator = ", " }
        { name = $4; begun = $2 }' "$place/phases"
}
# Once without strace, so that its cost is known.
run env
plain=$(durations)
rm -rf "$root"
mkdir "$root"
for phase in "${phases[@]}"; do mkdir "$place/calls/${phase%%:*}"; done
calls=open,openat,creat,dup,dup2,dup3,fcntl,read,readv,pread64,write,writev,pwrite64,lseek,copy_file_range,sendfile
calls+=,truncate,ftruncate,fsync,fdatasync,chmod,fchmod,fchmodat,utimensat,mkdir,mkdirat,rmdir,unlink,unlinkat,rename
calls+=,renameat,renameat2,link,linkat,symlink,symlinkat,clone,clone3,fork,vfork,chdir,fchdir
# In a count of processes of their own, so that no number is used twice.
run unshare --mount --pid --fork --kill-child --mount-proc strace -ff -o "$place/calls/PHASE/process" --seccomp-bpf -ttt -y -s 0 -e signal=none -e "trace=$calls"
traced=$(durations)

{
    cat "$place/phases"
    for process in "$place"/calls/*/process.*; do sed "s/^/${process##*.} /" "$process"; done
} | sort -s -k 2,2 | awk -f "$tools/files-from-strace.awk" -v root="$root" -v cwd="$root" >"$place/operations"
# A replay of the trace must end with the files that the build left.
diff <(awk -F, -f "$tools/files-at-end.awk" "$place/operations" | sort) \
    <(cd "$root" && find . -type f -printf '%P %s\n' | sort) || { echo "the trace misses something" >&2; exit 1; }
{
    echo "# copy, unpack, configure and make $tree; $(gcc --version | head -1), $(make --version | head -1)"
    echo "# without strace: $plain; while recording: $traced"
    cat "$place/operations"
} | zstd -q -19 -f -o "$output/openssh-build.csv.zst"
echo "openssh-build: $(($(wc -l <"$place/operations") - 1)) operations, $(stat -c %s "$output/openssh-build.csv.zst") bytes"
