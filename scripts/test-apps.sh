#!/bin/bash
# Real programs on a volume of each mode: a database, archives, copies of many files, version
# control (this repository among others). Each must find its own data again after an unmount, and
# e2fsck nothing to complain about. Needs root. Usage: [WORKS="database tree repository clone"]
# scripts/test-apps.sh PROGRAM [MODE...]
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

okeanos=$(realpath "$1")
source=$(realpath "$(dirname "$0")/..")
shift
[ $# -gt 0 ] || set -- writeback ordered journal wasteless selective

works=${WORKS:-database tree repository clone}
place=$(mktemp -d)
mount=$place/mount
mkdir "$mount"
finish() {
    mountpoint -q "$mount" && "$okeanos" umount "$mount"
    rm -rf "$place"
}
trap finish EXIT

mount_it() { "$okeanos" mount -o "data=$1" "$place/image" "$mount"; }
umount_it() {
    "$okeanos" umount "$mount"
    timeout 60 e2fsck -fn "$place/image" >"$place/e2fsck" 2>&1 || { cat "$place/e2fsck"; exit 1; }
}

database() {
    sqlite3 "$mount/rows.db" 'pragma journal_mode=delete; create table rows(id integer primary key, text);' >"$place/out"
    for batch in $(seq 20); do
        echo "begin; $(seq -f "insert into rows(text) values('batch $batch row %g');" 200) commit;"
    done | sqlite3 "$mount/rows.db"
    sqlite3 "$mount/wal.db" 'pragma journal_mode=wal; create table rows(id integer primary key, text);
        insert into rows(text) select hex(randomblob(200)) from generate_series(1, 5000);' >"$place/out"
}
database_is_right() {
    [ "$(sqlite3 "$mount/rows.db" 'pragma integrity_check; select count(*) from rows;' | xargs)" = "ok 4000" ]
    [ "$(sqlite3 "$mount/wal.db" 'pragma integrity_check; select count(*) from rows;' | xargs)" = "ok 5000" ]
}

# The system's tree may change while it is looked at.
headers=$place/headers
tree() {
    cp -a "$headers" "$mount/include"
    cp -a "$mount/include" "$mount/again"
    rsync -aHAX "$mount/include/" "$mount/synced/"
    tar -C "$mount" -cf - include | zstd -q -1 >"$mount/include.tar.zst"
    rm -rf "$mount/again/linux"
    mv "$mount/again" "$mount/moved"
}
tree_is_right() {
    diff -r --no-dereference "$headers" "$mount/include"
    diff -r --no-dereference -x linux "$headers" "$mount/moved"
    # Nothing is left to be sent, whatever rsync looks at: content, modes, owners, times, links.
    rsync -aHAXc --delete --itemize-changes "$mount/include/" "$mount/synced/" >"$place/out"
    [ ! -s "$place/out" ]
    mkdir "$mount/unpacked"
    zstd -qdc "$mount/include.tar.zst" | tar -C "$mount/unpacked" -xf -
    diff -r --no-dereference "$headers" "$mount/unpacked/include"
    rm -rf "$mount/unpacked"
}

repository() {
    git init -q "$mount/repository"
    (
        cd "$mount/repository"
        git config user.name tester
        git config user.email tester@localhost
        for step in $(seq 10); do
            seq "$step" 2000 >"file$step"
            git add .
            git commit -q -m "step $step"
        done
        git gc -q
    )
}
repository_is_right() {
    git -C "$mount/repository" fsck --strict 2>"$place/out"
    [ "$(git -C "$mount/repository" rev-list --count HEAD)" = 10 ]
    git -C "$mount/repository" status --porcelain >"$place/out"
    [ ! -s "$place/out" ]
}

# This repository: all of its history through clone, checkout, and packing anew.
clone() {
    git -c safe.directory='*' clone -q --no-local "$source" "$mount/clone"
    (
        cd "$mount/clone"
        git rev-parse HEAD >../clone.head
        git checkout -q --detach "$(git rev-list HEAD | tail -n 1)"
        git checkout -q "$(cat ../clone.head)"
        git gc -q --prune=now
    )
}
clone_is_right() {
    git -C "$mount/clone" fsck --strict --full 2>"$place/out"
    [ "$(git -C "$mount/clone" rev-parse HEAD)" = "$(cat "$mount/clone.head")" ]
    git -C "$mount/clone" status --porcelain >"$place/out"
    [ ! -s "$place/out" ]
    # Every byte is read, not only what differs in size or time. (hash-object would follow symbolic
    # links.)
    git -C "$mount/clone" ls-files -s -z | grep -zv ^120000 >"$place/files"
    cut -z -f2- "$place/files" | (cd "$mount/clone" && xargs -0 git hash-object --no-filters --) >"$place/hashes"
    tr '\0' '\n' <"$place/files" | cut -d' ' -f2 | cmp - "$place/hashes"
}

if [[ $works == *tree* ]]; then cp -a /usr/include "$headers"; fi
for mode in "$@"; do
    rm -f "$place/image"
    "$okeanos" mkfs "$place/image" 2G -- -q >"$place/out"
    mount_it "$mode"
    for work in $works; do
        $work
        ${work}_is_right
    done
    umount_it
    mount_it "$mode"
    for work in $works; do
        ${work}_is_right
    done
    umount_it
    echo "$mode: $works: everything is as it should be"
done
