#!/bin/bash
# Real programs on a directory of CephFS, through a host with a journal: SQLite, PostgreSQL, Git,
# archives. Each must find its own data again after kill -9 of the daemon, and another client
# (ceph-fuse) must find the same after an unmount. The same works run on ceph-fuse beside it: what
# they took is printed, of one run on one cluster. Needs root, and what `make deps-ceph` installs.
# Usage: [WORKS="sqlite postgres clone archive"] scripts/test-apps-host.sh PROGRAM
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

okeanos=$(realpath "$1")
source=$(realpath "$(dirname "$0")/..")
cluster=$source/scripts/ceph-cluster.sh
works=${WORKS:-sqlite postgres clone archive}
# Sockets lie below: a short name.
place=$(mktemp -d /tmp/okaXXXX)
chmod 755 "$place"
ours=$place/ours theirs=$place/theirs
mkdir "$ours" "$theirs"
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
client= serving=

mounted() { grep -q " $1 " /proc/self/mounts; }
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
finish() {
    # A work runs in a process of its own: what it has started is known by its file.
    for directory in "$ours/postgres" "$theirs/postgres-fuse"; do
        [ ! -f "$directory/cluster/postmaster.pid" ] ||
            as_postgres "$postgres/pg_ctl" -D "$directory/cluster" -m immediate -w -t 20 stop >"$place/out" 2>&1 || true
    done
    for directory in "$ours" "$theirs"; do
        ! mounted "$directory" || timeout 60 umount "$directory" 2>"$place/out" || umount --lazy "$directory" || true
    done
    if [ -n "$client" ]; then
        kill -KILL "$client" 2>"$place/out" || true
        wait "$client" 2>"$place/out" || true
    fi
    [ ! -d "$place/c" ] || "$cluster" stop "$place/c" || true
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
fail() {
    echo "test-apps-host: $1" >&2
    tail -n 20 "$place/log" >&2 2>"$place/out" || true
    exit 1
}

mount_ours() {
    [ -e "$place/journal" ] || truncate --size 512M "$place/journal"
    timeout 120 "$okeanos" host mount --store "ceph:$place/c/ceph.conf" --journal "$place/journal" -o allow_other "$ours" ||
        fail "the host does not mount"
}
kill_ours() {
    local process
    process=$("$okeanos" stats --json "$ours" | sed -n 's/.*"process": *\([0-9]*\).*/\1/p')
    kill -KILL "$process"
    umount --lazy "$ours"
    while kill -0 "$process" 2>"$place/out"; do sleep 0.05; done
}
mount_theirs() {
    local round
    ceph-fuse -f -n client.admin -c "$place/c/ceph.conf" "$theirs" >"$place/log" 2>&1 </dev/null &
    client=$!
    for ((round = 0; round < 600; round++)); do
        ! mounted "$theirs" || return 0
        kill -0 "$client" 2>"$place/out" || break
        sleep 0.1
    done
    fail "ceph-fuse does not mount"
}

# Each work: what it does in a directory that is there; what it prints is a figure for the table.
# Then what must be found.

sqlite_rows() { # DIR: transactions a second
    local begin=$EPOCHREALTIME mode number
    for mode in delete wal; do
        sqlite3 "$1/$mode.db" "pragma journal_mode=$mode; create table rows(id integer primary key, text);" >"$place/out"
        for number in $(seq 150); do
            echo "pragma synchronous=full; begin; insert into rows(text) values(hex(randomblob(300))); commit;"
        done | sqlite3 "$1/$mode.db"
    done
    python3 -c "print(f'{300 / ($EPOCHREALTIME - $begin):.0f} transactions/s')"
}
sqlite_is_right() {
    local mode
    for mode in delete wal; do
        [ "$(sqlite3 "$1/$mode.db" 'pragma integrity_check; select count(*) from rows;' | xargs)" = "ok 150" ] || return 1
    done
}

start_postgres() { # DIR
    as_postgres "$postgres/pg_ctl" -D "$1" -l "$place/log.postgres" -w -t 180 \
        -o "-k $place -c listen_addresses= -c shared_buffers=32MB" start >"$place/out" || {
        tail "$place/log.postgres" >&2
        fail "PostgreSQL does not start"
    }
    serving=$1
}
stop_postgres() { # MODE
    as_postgres "$postgres/pg_ctl" -D "$serving" -m "$1" -w -t 120 stop >"$place/out" 2>&1 || true
    serving=
}
database() { as_postgres "$postgres/$1" -h "$place" "${@:2}"; }
postgres_rows() {
    : >"$place/log.postgres"
    chown postgres "$place" "$place/log.postgres"
    install -d -o postgres -g postgres -m 700 "$1/cluster"
    as_postgres "$postgres/initdb" -D "$1/cluster" --data-checksums --auth trust >"$place/out"
    start_postgres "$1/cluster"
    database pgbench -i -q -s 2 postgres >"$place/out" 2>&1 || fail "pgbench -i: $(tail -3 "$place/out")"
    database pgbench -n -c 8 -T 8 postgres >"$place/pgbench" 2>&1 || fail "pgbench: $(tail -3 "$place/pgbench")"
    stop_postgres "${2:-fast}"
    sed -n 's/^tps = \([0-9]*\).*/\1 transactions\/s, 8 clients/p' "$place/pgbench" | head -1
}
postgres_is_right() {
    local sums
    start_postgres "$1/cluster"
    sums=$(database psql -qXAt -d postgres -c "select (select sum(abalance) from pgbench_accounts) =
        (select sum(bbalance) from pgbench_branches) and (select sum(tbalance) from pgbench_tellers) =
        (select sum(bbalance) from pgbench_branches) and (select count(*) from pgbench_accounts) = 200000")
    stop_postgres fast
    [ "$sums" = t ] && as_postgres "$postgres/pg_checksums" --check -D "$1/cluster" >"$place/out"
}

clone_rows() { # seconds
    local begin=$EPOCHREALTIME
    git -c safe.directory='*' clone -q --no-local --depth 1 "file://$place/source.git" "$1/clone" >"$place/out" 2>&1 ||
        fail "git clone: $(tail -2 "$place/out")"
    python3 -c "print(f'{$EPOCHREALTIME - $begin:.1f} s')"
}
clone_is_right() {
    git -c safe.directory='*' -C "$1/clone" fsck --strict >"$place/out" 2>&1 &&
        [ -z "$(git -c safe.directory='*' -C "$1/clone" status --porcelain)" ]
}

archive_rows() {
    local begin=$EPOCHREALTIME
    tar -C "$1" -xf "$place/headers.tar"
    python3 -c "print(f'{$EPOCHREALTIME - $begin:.1f} s')"
}
archive_is_right() { diff -r --no-dereference "$place/linux" "$1/linux" >"$place/out"; }

if [[ $works == *clone* ]]; then git -c safe.directory='*' clone -q --bare --no-local "$source" "$place/source.git"; fi
if [[ $works == *archive* ]]; then
    cp -a /usr/include/linux "$place/linux"
    tar -C "$place" -cf "$place/headers.tar" linux
fi
"$cluster" start "$place/c" --store bluestore || fail "no cluster"
mount_theirs
mount_ours
lines=("work|ceph-fuse|okeanos")
for work in $works; do
    mkdir "$theirs/$work-fuse" "$ours/$work"
    chmod 755 "$theirs/$work-fuse" "$ours/$work"
    beside=$("${work}_rows" "$theirs/$work-fuse")
    # The programs are over, or dead, when the daemon is.
    own=$("${work}_rows" "$ours/$work" immediate)
    [ "$work" = archive ] || [ "$work" = clone ] || kill_ours
    mounted "$ours" || mount_ours
    "${work}_is_right" "$ours/$work" || fail "$work: something is wrong after the daemon was killed"
    lines+=("$work|$beside|$own")
done
timeout 120 "$okeanos" umount "$ours" || fail "the host does not unmount"
for work in $works; do
    "${work}_is_right" "$theirs/$work" || fail "$work: another client finds something else: $(head -3 "$place/out")"
done
printf '%s\n' "${lines[@]}" | column -t -s '|'
echo "test-apps-host: $works: everything is as it should be"
