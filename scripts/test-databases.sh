#!/bin/bash
# Databases on a volume of each mode, their daemon killed under load: SQLite (rollback journal and
# WAL, synchronous=FULL or above), PostgreSQL and etcd. After recovery every transaction that was
# acknowledged must be there, the database must call itself sound, and e2fsck find nothing. The mode
# `blocks` is the kernel's ext4 over a block volume. Needs root, sqlite3, postgresql, etcd-server and
# etcd-client.
# Usage: scripts/test-databases.sh PROGRAM sqlite|postgres|etcd [MODE...]
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

okeanos=$(realpath "$1")
engine=$2
shift 2
[ $# -gt 0 ] || set -- writeback ordered journal wasteless selective blocks

place=$(mktemp -d)
chmod 755 "$place"
mount=$place/mount
mkdir "$mount"
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)

as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
database() { as_postgres "$postgres/$1" -h "$place" "${@:2}"; }
# It may be unable to read its own number of process; it is recognized by its directory on our
# volume.
stop_postgres() {
    as_postgres "$postgres/pg_ctl" -D "$mount/cluster" -m immediate -W stop >"$place/out" 2>&1 || true
    while pgrep -u postgres -f "^$postgres/postgres -D $mount/cluster" >"$place/processes"; do
        xargs kill -QUIT <"$place/processes" 2>"$place/out" || true
        sleep 0.2
    done
}
finish() {
    [ ! -f "$mount/cluster/postmaster.pid" ] || stop_postgres
    [ -z "${server:-}" ] || stop_etcd
    [ -z "$(jobs -p)" ] || kill $(jobs -p) 2>"$place/out" || true
    if [ "${mode:-}" = blocks ]; then
        umount "$mount" 2>"$place/out" || true
        timeout 60 "$okeanos" blocks detach "$place/image" 2>"$place/out" || true
    else
        mountpoint -q "$mount" && timeout 60 "$okeanos" umount --force "$mount" 2>"$place/out" || true
    fi
    rm -rf "$place"
}
trap finish EXIT
fail() { echo "$mode, $engine: $*" >&2; tail -n 20 "$place/log" >&2 2>"$place/out" || true; exit 1; }

daemon() { "$okeanos" stats --json "$at" | sed -n 's/.*"process": *\([0-9]*\).*/\1/p'; }
make_it() {
    rm -f "$place/image"
    if [ "$mode" = blocks ]; then
        truncate -s 1G "$place/image"
        "$okeanos" blocks format "$place/image" >"$place/out"
        attach
        at=$place/image
        mkfs.ext4 -q "$device"
        mount "$device" "$mount"
    else
        at=$mount
        "$okeanos" mkfs "$place/image" 1G -- -q >"$place/out"
        mount_it
    fi
}
# A ublk device, or a loop device where the kernel has none.
attach() { device=$(timeout 60 "$okeanos" blocks attach "$place/image" 2>"$place/out") || fail "$(cat "$place/out")"; }
mount_it() { "$okeanos" mount -o "data=$mode,allow_other" "$place/image" "$mount"; }
kill_daemon() {
    local process
    process=$(daemon)
    kill -9 "$process"
    while kill -0 "$process" 2>"$place/out"; do sleep 0.05; done
}
mount_again() {
    if [ "$mode" = blocks ]; then
        timeout 60 umount "$mount"
        attach
        mount "$device" "$mount"
    else
        "$okeanos" umount "$mount" 2>"$place/out"
        mount_it
    fi
}
umount_and_check() {
    local checked=$place/image
    if [ "$mode" = blocks ]; then
        umount "$mount"
        checked=$device
    else
        "$okeanos" umount "$mount"
    fi
    timeout 120 e2fsck -fn "$checked" >"$place/e2fsck" 2>&1 || { cat "$place/e2fsck"; fail "e2fsck is not content"; }
    [ "$mode" != blocks ] || timeout 120 "$okeanos" blocks detach "$place/image"
}

# $1 is called with 1, 2, ... and must fail when the number was not stored; what was is noted
# outside the volume.
client() {
    local number=0
    while "$1" "$2" $((number + 1)) >"$place/out.$2" 2>&1; do
        number=$((number + 1))
        echo "$number" >"$place/acknowledged.$2.new"
        mv "$place/acknowledged.$2.new" "$place/acknowledged.$2"
    done
}
# Four clients until each has $2 acknowledgements, then the daemon dies.
crash_under_load() {
    local one clients=()
    rm -f "$place"/acknowledged.*
    for one in 1 2 3 4; do
        client "$1" "$one" &
        clients+=($!)
    done
    for one in 1 2 3 4; do
        until [ "$(cat "$place/acknowledged.$one" 2>"$place/out" || echo 0)" -ge "$2" ]; do
            kill -0 "${clients[0]}" 2>"$place/out" || fail "client ended early: $(cat "$place/out.1")"
            sleep 0.05
        done
    done
    # What runs beside the clients must do so until the crash.
    [ -z "${3:-}" ] || kill -0 "$3" 2>"$place/out" || fail "what ran beside the clients has ended"
    kill_daemon
    wait "${clients[@]}"
}

# A rollback journal commits by its removal, which SQLite makes durable only with synchronous=EXTRA.
declare -A synchronous=([delete]=extra [truncate]=full [wal]=full)
sqlite_insert() {
    sqlite3 -cmd '.timeout 20000' "$mount/$journal.db" \
        "pragma journal_mode=$journal; pragma synchronous=${synchronous[$journal]}; insert into rows values($1, $2, hex(randomblob(500)));"
}
test_sqlite() {
    for journal in delete truncate wal; do
        sqlite3 "$mount/$journal.db" "pragma journal_mode=$journal;
            create table rows(client int, number int, text, primary key(client, number));" >"$place/out"
        crash_under_load sqlite_insert 15
        mount_again
        sound=$(sqlite3 "$mount/$journal.db" 'pragma integrity_check;')
        [ "$sound" = ok ] || fail "$journal: $sound"
        for one in 1 2 3 4; do
            acknowledged=$(cat "$place/acknowledged.$one")
            found=$(sqlite3 "$mount/$journal.db" \
                "select count(*) from rows where client=$one and number <= $acknowledged;")
            [ "$found" = "$acknowledged" ] || fail "$journal: of $acknowledged acknowledged rows $found are there"
        done
        # The program alone is killed, in the midst of a transaction.
        (
            { echo 'begin;'; seq -f "insert into rows values(9, %g, 'never committed');" 100000; sleep 2; } |
                timeout -s KILL 1 sqlite3 "$mount/$journal.db"
        ) >"$place/out" 2>&1 || true
        [ "$(sqlite3 "$mount/$journal.db" 'pragma integrity_check; select count(*) from rows where client=9;' |
            xargs)" = "ok 0" ] || fail "$journal: something of a transaction that was cut"
    done
}

postgres_insert() {
    database psql -qX -v ON_ERROR_STOP=1 -d postgres -c "insert into rows values($1, $2)"
}
start_postgres() {
    as_postgres "$postgres/pg_ctl" -D "$mount/cluster" -l "$place/log" -w -t 120 \
        -o "-k $place -c listen_addresses= -c shared_buffers=32MB" start >"$place/out" ||
        fail "PostgreSQL does not start"
}
test_postgres() {
    : >"$place/log"
    chown postgres "$place" "$place/log"
    install -d -o postgres -g postgres -m 700 "$mount/cluster"
    as_postgres "$postgres/initdb" -D "$mount/cluster" --data-checksums --auth trust >"$place/out"
    start_postgres
    database psql -qX -d postgres -c 'create table rows(client int, number int, primary key(client, number))
        ; create extension amcheck'
    database pgbench -i -q -s 2 postgres >"$place/out" 2>&1 || fail "pgbench -i: $(tail -3 "$place/out")"
    database pgbench -n -c 8 -T 3600 postgres >"$place/pgbench" 2>&1 &
    bench=$!
    crash_under_load postgres_insert 15 "$bench"
    stop_postgres
    # 2: its clients lost the server.
    ended=0
    wait "$bench" || ended=$?
    [ "$ended" = 2 ] || fail "pgbench ended with $ended: $(tail -3 "$place/pgbench")"
    mount_again
    start_postgres
    for one in 1 2 3 4; do
        acknowledged=$(cat "$place/acknowledged.$one")
        found=$(database psql -qXAt -d postgres -c \
            "select count(*) from rows where client=$one and number <= $acknowledged")
        [ "$found" = "$acknowledged" ] || fail "of $acknowledged acknowledged rows $found are there"
    done
    sums=$(database psql -qXAt -d postgres -c "select (select sum(abalance) from pgbench_accounts) =
        (select sum(bbalance) from pgbench_branches) and (select sum(tbalance) from pgbench_tellers) =
        (select sum(bbalance) from pgbench_branches)")
    [ "$sums" = t ] || fail "the sums of accounts, tellers and branches differ"
    played=$(database psql -qXAt -d postgres -c 'select count(*) from pgbench_history')
    [ "$played" -ge 20 ] || fail "pgbench committed $played transactions before the crash"
    database pg_amcheck --heapallindexed -d postgres || fail "pg_amcheck is not content"
    database pgbench -n -c 8 -t 50 postgres >"$place/pgbench" 2>&1 || fail "pgbench after recovery"
    as_postgres "$postgres/pg_ctl" -D "$mount/cluster" -m fast -w stop >"$place/out"
    as_postgres "$postgres/pg_checksums" --check -D "$mount/cluster" >"$place/out" || fail "pg_checksums is not content"
}

# Its sockets lie in the working directory, and have names of the form HOST:PORT.
etcd_client() { (cd "$place" && exec timeout 20 etcdctl --endpoints unix://clients:1 --command-timeout 5s "$@"); }
etcd_insert() { etcd_client put "$1/$2" "$2"; }
start_etcd() {
    rm -f "$place/clients:1" "$place/peers:1"
    (cd "$place" && exec etcd --data-dir "$mount/etcd" --listen-client-urls unix://clients:1 \
        --advertise-client-urls unix://clients:1 --listen-peer-urls unix://peers:1) >"$place/log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        ! etcd_client endpoint health >"$place/out" 2>&1 || return 0
        sleep 0.1
    done
    fail "etcd does not start"
}
stop_etcd() {
    kill -KILL "$server" 2>"$place/out" || true
    wait "$server" 2>"$place/out" || true
    server=
}
test_etcd() {
    start_etcd
    crash_under_load etcd_insert 15
    stop_etcd
    mount_again
    start_etcd
    for one in 1 2 3 4; do
        acknowledged=$(cat "$place/acknowledged.$one")
        found=$(etcd_client get "$one/" --prefix --keys-only | awk -F/ -v most="$acknowledged" 'NF == 2 && $2 <= most' | wc -l)
        [ "$found" = "$acknowledged" ] || fail "of $acknowledged acknowledged keys $found are there"
    done
    etcd_client put after recovery >"$place/out" || fail "no key can be written after recovery"
    stop_etcd
}

for mode in "$@"; do
    make_it
    "test_$engine"
    umount_and_check
    echo "$mode: $engine has everything it acknowledged before the crash"
done
