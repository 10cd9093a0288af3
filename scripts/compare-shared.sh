#!/bin/bash
# Small synchronous writes on a shared file system. Clients of one and the same real cluster on this machine run for
# some seconds each, and are killed with their writers under way. It prints a table. Needs root, and what `make
# deps-ceph` installs.
#
#   compare-shared.sh PROGRAM [OPTION...] [CONTENDER...]
#
# Contenders (the first three and okeanos, if none is named; okeanos only if PROGRAM knows `host`):
#   ceph-fuse:default   as Debian has it          ceph-fuse:1s     its buffers go out each second
#   ceph-fuse:sync      without buffers           okeanos          a journal on this host in front of the cluster
#   NAME=DIR            whatever is mounted there already; not killed
# Options: --osds N, --replicas N, --store memstore|bluestore; --writers N, --size BYTES, --seconds N; --no-crash; --json FILE
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
[ $# -ge 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
program=$(realpath "$1")
scripts=$(dirname "$(realpath "$0")")
shift

cluster=() writers=16 size=1024 seconds=5 crash=yes json= contenders=()
while [ $# -gt 0 ]; do
    case $1 in
        --osds | --replicas | --store) cluster+=("$1" "$2"); shift ;;
        --writers) writers=$2; shift ;;
        --size) size=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --json) json=$2; shift ;;
        --no-crash) crash= ;;
        -*) echo "compare-shared.sh: unknown option $1" >&2; exit 2 ;;
        *) contenders+=("$1") ;;
    esac
    shift
done
if [ ${#contenders[@]} = 0 ]; then
    contenders=(ceph-fuse:default ceph-fuse:1s ceph-fuse:sync)
    if "$program" host --help >/dev/null 2>&1; then contenders+=(okeanos); fi
fi

# Sockets lie below: a short name.
place=$(mktemp -d /tmp/okcXXXX)
conf=$place/c/ceph.conf
client= writing=
finish() {
    [ -z "$writing" ] || kill "$writing" 2>/dev/null || true
    leave "$place/mount" || true
    leave "$place/second" || true
    [ -z "$client" ] || kill -KILL "$client" 2>/dev/null || true
    [ ! -d "$place/c" ] || "$scripts/ceph-cluster.sh" stop "$place/c" || true
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
mkdir "$place/mount" "$place/second"

mounted() { grep -q " $1 " /proc/self/mounts; }
# A mount whose client is gone, too. Everything around a mount that may not answer has a bound.
leave() {
    mounted "$1" || return 0
    timeout 60 umount "$1" 2>/dev/null || umount --lazy "$1"
}
until_mounted() {
    local round
    for ((round = 0; round < 600; round++)); do
        ! mounted "$1" || return 0
        kill -0 "$client" 2>/dev/null || break
        sleep 0.1
    done
    echo "compare-shared.sh: the client does not mount: $(tail -3 "$place/client.out")" >&2
    exit 1
}

ceph_fuse() { # DIR OPTION...
    local directory=$1
    shift
    ceph-fuse -f -n client.admin -c "$conf" "$@" "$directory" >"$place/client.out" 2>&1 </dev/null &
    client=$!
    until_mounted "$directory"
}

# Mounts a contender at DIR, as a process in the foreground whose number is in $client.
enter() { # CONTENDER DIR
    case $1 in
        ceph-fuse:default) ceph_fuse "$2" ;;
        ceph-fuse:1s) ceph_fuse "$2" --client_oc_max_dirty_age=1 --client_caps_release_delay=1 ;;
        ceph-fuse:sync) ceph_fuse "$2" --client_oc=false ;;
        okeanos)
            # The host's journal outlives its client, so that the second mount recovers.
            [ -e "$place/journal" ] || truncate --size 256M "$place/journal"
            "$program" host mount --foreground --store "ceph:$conf" --journal "$place/journal" "$2" \
                >"$place/client.out" 2>&1 </dev/null &
            client=$!
            until_mounted "$2"
            ;;
        *) echo "compare-shared.sh: no contender $1" >&2; exit 2 ;;
    esac
}

field() { # JSON-FILE EXPRESSION over `it`
    python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

# 16 writers for some seconds; what they measured goes to $place/streams.json.
measure() { # DIR
    timeout $((seconds + 120)) "$program" bench streams --json --writers "$writers" --size "$size" --seconds "${seconds}s" "$1" \
        >"$place/streams.json"
}

# Kills the client with writers under way, mounts anew, and asks what is there of all that was acknowledged.
kill_and_look() { # CONTENDER DIR
    local acknowledged=$place/acknowledged begin
    rm -f "$acknowledged"
    timeout 180 "$program" bench streams --writers "$writers" --size "$size" --prefix crash- --until-error \
        --acknowledged "$acknowledged" "$2" >"$place/until" 2>&1 &
    writing=$!
    sleep 3
    kill -KILL "$client"
    wait "$client" 2>/dev/null || true
    # Whoever still waits for an answer of the dead client gets an error now.
    umount --lazy "$directory"
    wait "$writing" || true
    writing=
    begin=$EPOCHREALTIME
    enter "$1" "$place/second"
    timeout 180 "$program" bench verify --json --acknowledged "$acknowledged" "$place/second/$(basename "$work")" >"$place/verdict.json" 2>"$place/verdict.out" || true
    again=$(python3 -c "print(f'{$EPOCHREALTIME - $begin:.1f} s')")
    verdict=$(field "$place/verdict.json" '"%d acknowledged, %d lost" % (it["acknowledged"], it["lost"])' 2>/dev/null) ||
        verdict="not readable: $(tail -1 "$place/verdict.out")"
    leave "$place/second"
    wait "$client" 2>/dev/null || true
    client=
}

"$scripts/ceph-cluster.sh" start "$place/c" "${cluster[@]}"
lines=("client|writes/s|p50|p99|after kill -9|readable again after")
results=()
for contender in "${contenders[@]}"; do
    verdict=- again=-
    if [[ $contender == *=* ]]; then
        directory=${contender#*=}
    else
        directory=$place/mount
        enter "$contender" "$directory"
    fi
    work=$(mktemp -d "$directory/compareXXXX")
    measure "$work"
    line=$(field "$place/streams.json" \
        '"%.0f|%.2f ms|%.2f ms" % (it[0]["operations_per_second"], it[0]["latency"]["p50_ns"] / 1e6, it[0]["latency"]["p99_ns"] / 1e6)')
    results+=("\"$contender\": $(<"$place/streams.json")")
    if [[ $contender != *=* ]]; then
        if [ -n "$crash" ]; then
            kill_and_look "$contender" "$work"
        else
            leave "$directory"
            wait "$client" 2>/dev/null || true
            client=
        fi
        rm -f "$place/journal"
    fi
    lines+=("$contender|$line|$verdict|$again")
done
[ -z "$json" ] || (IFS=,; echo "{${results[*]}}") >"$json"

echo
echo "$writers writers, each its own file, $size bytes at a time, O_SYNC, $seconds s on the same cluster (${cluster[*]:-one OSD in memory}):"
echo
printf '%s\n' "${lines[@]}" | column -t -s '|'
if [[ " ${contenders[*]} " != *" okeanos "* ]]; then
    echo
    echo "$(basename "$program") has no mount in front of a cluster yet; it will stand in this table."
fi
