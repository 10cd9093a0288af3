#!/bin/bash
# Records the log traces of docs/TRACES.md: what PostgreSQL and MariaDB do to their logs under load.
# The databases are private ones on a file system in a loop device, run as their own users, and are
# gone afterwards. All record at once, because their loads are paced; about 17 minutes. Needs root,
# mariadb-server, postgresql, sysbench, strace and zstd. Usage: scripts/record-traces.sh DIRECTORY
# [NAME...] record into DIRECTORY/NAME.csv.zst
#        scripts/record-traces.sh --table FILE...          a table of what is in traces
#        scripts/record-traces.sh --picture FILE...        the sizes of their writes, as SVG
set -euo pipefail
shopt -s nullglob
export LC_ALL=C

tools=$(cd "$(dirname "$0")/traces" && pwd)
all="innodb-cmt-disk innodb-prd-disk innodb-cmt-cache mail-store postgres-tpcb"

# How long each load runs, and the seed of its random number generator. The paper: TPC-C 500 s, 15 minutes of
# Jetstress.
orders_seconds=${ORDERS_SECONDS:-500}
mail_seconds=${MAIL_SECONDS:-900}
tpcb_seconds=${TPCB_SECONDS:-300}
seed=1

# Where the load begins, the log has been quiet for this long.
QUIET_SECONDS=5

records_of() { zstd -dcq "$1" | grep -v '^#' | sed 1d; }
if [ "${1:-}" = --table ]; then
    shift
    printf '| trace | records | writes | syncs | of them alone | MiB written | size: median | p90 | max | seconds | records/s |\n'
    printf '|---|---|---|---|---|---|---|---|---|---|---|\n'
    for file in "$@"; do
        records_of "$file" | awk -F, -f "$tools/summary.awk" -v name="$(basename "$file" .csv.zst)"
    done
    exit
fi
if [ "${1:-}" = --picture ]; then
    shift
    for file in "$@"; do
        records_of "$file" | sed "s/^/$(basename "$file" .csv.zst),/"
    done | awk -f "$tools/sizes-svg.awk"
    exit
fi

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

output=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- $all
# A loop device has sectors of 512 bytes wherever its file lies, and so the log of InnoDB has blocks
# of that size.
around=$(mktemp -d)
place=$around/mount
chmod 755 "$around"
mkdir "$place"
truncate -s 8G "$around/image"
mkfs.ext4 -q "$around/image"
mount -o loop "$around/image" "$place"
postgres=$(ls -d /usr/lib/postgresql/*/bin | tail -1)

finish() {
    local file
    for file in "$place"/*/pid "$place"/*/data/postmaster.pid; do
        kill -QUIT "$(head -1 "$file")" 2>>"$around/out" || true
    done
    await 60 umount "$place"
    rm -rf "$around"
}
trap finish EXIT
fail() { echo "$*" >&2; exit 1; }

# $1 runs as the user $2 of that name.
as() { setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }

# strace notes only what concerns files that are made durable; each thread has its own file of
# notes.
traced() { # DIRECTORY USER PROGRAM...
    mkdir "$1/calls"
    chown "$2" "$1/calls"
    as "$2" strace -ff -o "$1/calls/thread" --seccomp-bpf -ttt -y -s 0 \
        -e trace=pwrite64,fsync,fdatasync,openat "${@:3}" >"$1/log" 2>&1 &
}
await() { # SECONDS COMMAND...
    local tries=$(($1 * 5))
    until "${@:2}" >>"$around/out" 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "waited in vain for: ${*:2}"
        sleep 0.2
    done
}
converted() { # DIRECTORY LOG_FILE_PATTERN SEGMENT_BYTES FROM SECONDS NAME REMARK...
    local thread
    for thread in "$1"/calls/thread.*; do
        sed "s/^/${thread##*.} /" "$thread"
    done | sort -s -k 2,2 | awk -f "$tools/from-strace.awk" \
        -v log_file="$2" -v segment_bytes="$3" -v from="$4" -v seconds="$5" >"$1/records"
    [ -s "$1/records" ] || fail "$6: the log was not written"
    {
        printf '# %s\n' "${@:7}"
        echo time_us,offset_bytes,size_bytes,sync
        cat "$1/records"
    } | zstd -q -19 -f -o "$output/$6.csv.zst"
    echo "$6: $(wc -l <"$1/records") records, $(stat -c %s "$output/$6.csv.zst") bytes"
}

# The log through the page cache, as the paper's MySQL wrote it.
mariadb_options="--innodb-flush-method=fsync --innodb-log-file-buffering=ON"
mariadb_on() { mariadb --no-defaults --socket "$1/socket" --user root --batch --skip-column-names --execute "$2"; }
start_mariadb() { # DIRECTORY OPTIONS RUNNER...
    "${@:3}" mariadbd --no-defaults --datadir="$1/data" --socket="$1/socket" --pid-file="$1/pid" --skip-networking $2
    await 60 mariadb_on "$1" "SELECT 1"
}
plain() { as mysql "$@" >"$place/plain.log" 2>&1 & }
stop_mariadb() {
    mariadb_on "$1" SHUTDOWN
    await 120 test ! -e "$1/pid"
}
loaded() { # LUA COMMAND DIRECTORY OPTIONS...
    LUA_PATH="$tools/?.lua;;" sysbench "$tools/$1.lua" --db-driver=mysql --mysql-socket="$3/socket" \
        --mysql-user=root --mysql-db=load --rand-seed=$seed "${@:4}" "$2" >"$3/sysbench" 2>&1 ||
        { tail -n 5 "$3/sysbench" >&2; fail "sysbench $1 $2 failed"; }
}
filled_mariadb() { # DIRECTORY LUA OPTIONS...
    mkdir "$1"
    chown mysql "$1"
    as mysql mariadb-install-db --no-defaults --datadir="$1/data" --auth-root-authentication-method=normal \
        --skip-test-db >"$1/install" 2>&1
    start_mariadb "$1" "--innodb-flush-log-at-trx-commit=0" plain
    mariadb_on "$1" "CREATE DATABASE \`load\`"
    loaded "$2" prepare "$1" "${@:3}"
    # Everything home, so that the recording does not begin with the end of the filling.
    mariadb_on "$1" "SET GLOBAL innodb_fast_shutdown=0"
    stop_mariadb "$1"
}
# The log has another size than where the tables were filled, so it is made anew and begins at its
# beginning.
record_mariadb() { # NAME FILLED FLUSH_METHOD_AND_LOG_SIZE LUA SECONDS REMARK OPTIONS...
    local directory=$place/$1 from version
    local options="$mariadb_options --innodb-flush-log-at-trx-commit=${3%,*} --innodb-log-file-size=${3#*,}"
    cp -a "$2" "$directory"
    traced_here() { traced "$directory" mysql "$@"; }
    start_mariadb "$directory" "$options" traced_here
    version=$(mariadb_on "$directory" "SELECT VERSION()")
    sleep $QUIET_SECONDS
    from=$(date +%s.%6N)
    loaded "$4" run "$directory" --time="$5" --events=0 "${@:7}"
    stop_mariadb "$directory"
    converted "$directory" '/ib_logfile0$' 0 "$from" "$5" "$1" \
        "ib_logfile0 of MariaDB $version, $options" "$6" \
        "$(awk '/transactions:|ignored errors:/ { $1 = $1; printf "%s%s", sep, $0; sep = "; " }' "$directory/sysbench")"
}

record_postgres() { # NAME SECONDS
    local directory=$place/$1 clients=8 rate=100 from
    mkdir "$directory"
    chown postgres "$directory"
    as postgres "$postgres/initdb" -D "$directory/data" -A trust >"$directory/init" 2>&1
    traced "$directory" postgres "$postgres/postgres" -D "$directory/data" -k "$directory" -c listen_addresses=
    await 60 as postgres "$postgres/pg_isready" -h "$directory"
    as postgres "$postgres/pgbench" -h "$directory" -i -s 10 postgres >"$directory/init" 2>&1
    as postgres "$postgres/psql" -h "$directory" -c CHECKPOINT postgres >"$directory/init" 2>&1
    sleep $QUIET_SECONDS
    from=$(date +%s.%6N)
    as postgres "$postgres/pgbench" -h "$directory" -c $clients -j 2 --rate=$rate -T "$2" --random-seed=$seed \
        postgres >"$directory/pgbench" 2>&1
    as postgres "$postgres/pg_ctl" -D "$directory/data" -m fast stop >"$directory/init" 2>&1
    converted "$directory" '/pg_wal/[0-9A-F]+$' 16777216 "$from" "$2" "$1" \
        "write-ahead log of $("$postgres/postgres" --version), as installed: wal_sync_method=fdatasync" \
        "pgbench, TPC-B-like, scale 10, $clients clients, $rate transactions/s, $2 s" \
        "$(grep 'actually processed' "$directory/pgbench")"
}

wanted() { [[ " $names " == *" $1 "* ]]; }
names="$*"
for name in $names; do [[ " $all " == *" $name "* ]] || fail "no trace $name: there are $all"; done

running=()
if wanted postgres-tpcb; then
    record_postgres postgres-tpcb "$tpcb_seconds" & running+=($!)
fi
if wanted mail-store; then
    threads=10
    filled_mariadb "$place/mail" mail --threads=$threads
    record_mariadb mail-store "$place/mail" 1,256M mail "$mail_seconds" \
        "mail.lua: 50 mailboxes, 1 operation/s each, 10 connections, records of 1000 bytes, $mail_seconds s" \
        --threads=$threads & running+=($!)
fi
if [[ " $names" == *" innodb-"* ]]; then
    filled_mariadb "$place/orders" orders
    # 10 MiB: MySQL came with two log files of 5 MiB then.
    for method in "1 innodb-cmt-disk" "0 innodb-prd-disk" "2 innodb-cmt-cache"; do
        read -r number name <<<"$method"
        wanted "$name" || continue
        record_mariadb "$name" "$place/orders" "$number,10M" orders "$orders_seconds" \
            "orders.lua: 20 warehouses, 10 terminals each, 20 connections, keying and thinking, $orders_seconds s" \
            --threads=20 & running+=($!)
    done
fi
for process in "${running[@]}"; do wait "$process"; done
