#!/bin/bash
# A real Ceph cluster to throw away, on loopback, from Debian's packages and without systemd. It has
# one monitor, one metadata server, one to three OSDs, and a file system named "okeanos".
#
#   ceph-cluster.sh start DIR [--osds N] [--replicas N] [--store memstore|bluestore] [--osd-size MIB]
#       [--auth] [--manager] [--standby]
#   ceph-cluster.sh status DIR              state of the cluster; each daemon, its memory
#   ceph-cluster.sh kill DIR NAME [SIGNAL]  sends a signal (KILL) to mon, mds, standby, osd0, osd1, osd2
#   ceph-cluster.sh resume DIR              starts the daemons that do not run; returns when all serve
#   ceph-cluster.sh stop DIR                ends the daemons and deletes DIR
#
# DIR is new or empty, and short: the daemons' sockets lie in it. Clients take DIR/ceph.conf.
# --manager adds a manager daemon without modules: quotas of pools need what it counts. --standby
# adds a metadata server, which takes over from the first when that dies.
# Everything listens on 127.0.0.1 only. Nothing is authenticated, except with --auth: all keys are in
# DIR/keyring then.
set -euo pipefail
export LC_ALL=C

PATIENCE=${PATIENCE:-120}    # seconds until a daemon that does not come up is a failure
FILE_SYSTEM=okeanos

fail() {
    echo "ceph-cluster.sh: $*" >&2
    exit 1
}

[ $# -ge 2 ] || { sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 2; }
verb=$1
mkdir -p "$2"
home=$(cd "$2" && pwd -P)
shift 2
conf=$home/ceph.conf

# A daemon is two files: daemons/NAME.command, one argument a line, and daemons/NAME.pid, the
# process with the tick at which it began. A number that another process got since then is not ours
# to kill.
tick_of() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # The program's name may hold spaces and ends with the last bracket; the tick is field 22, the
    # state field 3.
    read -ra stat <<<"${stat##*) }"
    [ "${stat[0]}" != Z ] || return 1
    echo "${stat[19]}"
}
names() {
    local file
    for file in "$home"/daemons/*.command; do
        [ -e "$file" ] && basename "$file" .command
    done
    true
}
# Prints the process of a daemon that runs; fails if it does not.
running() {
    local pid tick
    [ -e "$home/daemons/$1.pid" ] || return 1
    read -r pid tick <"$home/daemons/$1.pid"
    [ "$(tick_of "$pid")" = "$tick" ] && echo "$pid"
}
# Leaves the process in `pid`.
launch() {
    local name=$1 arguments tick
    mapfile -t arguments <"$home/daemons/$name.command"
    # A session of its own: an interrupt at the terminal is for the script. No lock or pipe of the
    # caller stays open.
    setsid "${arguments[@]}" >>"$home/log/$name.out" 2>&1 </dev/null 3>&- 4>&- 9>&- &
    pid=$!
    tick=$(tick_of "$pid") || fail "$name ended at once: $(tail -n 5 "$home/log/$name.out")"
    echo "$pid $tick" >"$home/daemons/$name.pid"
}
declare_daemon() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$home/daemons/$name.command"
}
# Ends every daemon, and returns when none is left.
end_all() {
    local name pid round left
    for ((round = 0; round < 100; round++)); do
        left=0
        for name in $(names); do
            if pid=$(running "$name"); then
                left=1
                # The data goes away, so nobody needs to end in good order.
                kill -KILL "$pid" 2>/dev/null || true
            fi
        done
        [ $left = 1 ] || return 0
        sleep 0.1
    done
    fail "daemons in $home do not end"
}
is_cluster() { [ -d "$home/daemons" ] || fail "$home holds no cluster"; }

# Commands come in on standard input: the interpreter starts only once for all of them.
ceph_commands() { timeout "$PATIENCE" ceph --conf "$conf" --connect-timeout "$PATIENCE" "$@"; }

osds() { names | grep -c '^osd' || true; }
standbys() { names | grep -c '^standby' || true; }

# Returns when the metadata server serves and all OSDs are up. The monitor's word is good only for
# daemons that it learned of anew: `resume` first has it forget those that died.
wait_until_served() {
    local wanted status deadline=$((SECONDS + PATIENCE)) name
    wanted=$(osds)
    while [ $SECONDS -lt $deadline ]; do
        for name in $(names); do
            running "$name" >/dev/null || fail "$name died; $home/log/$name.out ends: $(tail -n 5 "$home/log/$name.out")"
        done
        status=$(ceph_commands --format json status 2>"$home/log/status.out" | tr -d ' \n') || status=
        if [[ $status == *'"num_up_osds":'"$wanted",* && $status == *'"status":"up:active"'* && $status == *'"up:standby":'$(standbys)* ]]; then
            return 0
        fi
        sleep 0.2
    done
    fail "not all daemons serve after $PATIENCE s; their logs are in $home/log"
}

write_conf() {
    local port=$1 replicas=$2 store=$3 bytes=$4 auth=$5
    cat >"$conf" <<END
[global]
fsid = $(</proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$port/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
# Daemons take the first free ports of these.
ms bind port min = $((port + 1))
ms bind port max = $((port + 99))
auth cluster required = $auth
auth service required = $auth
auth client required = $auth
keyring = $home/keyring
run dir = $home/run
crash dir = $home/crash
admin socket = $home/run/\$name.\$pid.asok
log file = $home/log/\$name.log
# One machine holds all replicas.
osd crush chooseleaf type = 0
osd pool default size = $replicas
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
mon pg warn min per osd = 0
mon max pg per osd = 500
# A disk may be nearly full for reasons that are not ours, and a monitor takes a few MiB: it need
# not end at any percentage.
mon data avail warn = 0
mon data avail crit = -1
# Maps change at once: few daemons make few changes.
paxos propose interval = 0.05
paxos min wait = 0.02
mds beacon interval = 1
# Clients that died are not waited for longer than this after a restart of the metadata server.
mds reconnect timeout = 5
[mon]
mon data = $home/mon
mon cluster log file = $home/log/cluster.log
[mds]
mds data = $home/mds
mds cache memory limit = 268435456
[osd]
osd data = $home/osd\$id
osd objectstore = $store
osd crush initial weight = 1
osd class update on start = false
osd memory target = 939524096
# File systems with short names for attributes.
osd max object name len = 256
osd max object namespace len = 64
bluestore block size = $bytes
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = 67108864
memstore device bytes = $bytes
[client]
log file =
admin socket =
END
}

# Makes the keys of the daemons and of client.admin.
make_keys() {
    local id
    ceph-authtool --create-keyring "$home/keyring" --gen-key --name mon. --cap mon 'allow *'
    ceph-authtool "$home/keyring" --gen-key --name client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *'
    ceph-authtool "$home/keyring" --gen-key --name mds.a --cap mon 'profile mds' --cap osd 'allow *' --cap mds 'allow *'
    for ((id = 0; id < $1; id++)); do
        ceph-authtool "$home/keyring" --gen-key --name osd.$id --cap mon 'profile osd' --cap osd 'allow *'
    done
}

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start() {
    local osds=1 replicas= store=memstore mib=2048 auth=none manager= standby= port id pid
    while [ $# -gt 0 ]; do
        case $1 in
            --auth)
                auth=cephx
                shift
                continue
                ;;
            --manager)
                manager=1
                shift
                continue
                ;;
            --standby)
                standby=1
                shift
                continue
                ;;
            --osds) osds=$2 ;;
            --replicas) replicas=$2 ;;
            --store) store=$2 ;;
            --osd-size) mib=$2 ;;
            *) fail "unknown option $1" ;;
        esac
        shift 2
    done
    replicas=${replicas:-$osds}
    [ -z "$manager$standby" ] || [ $auth = none ] || fail "--manager and --standby have no key: not with --auth"
    [[ $osds == [123] && $replicas == [123] && $replicas -le $osds ]] || fail "one to three OSDs, and no more replicas than OSDs"
    [[ $store == memstore || $store == bluestore ]] || fail "--store is memstore or bluestore"
    [ -z "$(ls -A "$home")" ] || fail "$home is not empty"
    [ ${#home} -le 70 ] || fail "$home: too long a path for the daemons' sockets (70 characters at the most)"
    mkdir "$home"/{daemons,log,run,crash,mon,mds}
    trap '[ $? = 0 ] || end_all' EXIT
    # A signal is a way out, too: no daemon of a cluster that is half made stays.
    trap 'exit 130' INT TERM HUP

    # Below the ports that the kernel gives out by itself.
    for ((id = 0; id < 50; id++)); do
        port=$((20000 + RANDOM % 120 * 100))
        port_is_free "$port" && break
    done
    write_conf "$port" "$replicas" "$store" $((mib << 20)) $auth
    [ $auth = none ] || make_keys "$osds" >"$home/log/make-keys.out" 2>&1 || fail "no keys: $(tail -n 5 "$home/log/make-keys.out")"
    local keys=()
    [ $auth = none ] || keys=(--keyring "$home/keyring")
    # With a monitor map of its own the monitor knows its name and port at once.
    {
        monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$conf")" --enable-all-features \
            --set-min-mon-release pacific --addv a "[v2:127.0.0.1:$port/0]" "$home/monmap"
        ceph-mon --conf "$conf" --id a --mkfs --monmap "$home/monmap" "${keys[@]}"
    } >"$home/log/make-mon.out" 2>&1 || fail "cannot make the monitor: $(tail -n 5 "$home/log/make-mon.out")"
    declare_daemon mon ceph-mon --foreground --conf "$conf" --id a
    launch mon
    local monitor=$pid

    local identity=() making=() commands=
    for ((id = 0; id < osds; id++)); do
        identity[id]=$(</proc/sys/kernel/random/uuid)
        mkdir "$home/osd$id"
        echo "$store" >"$home/osd$id/type"
        # Beside the monitor's start, and without asking it.
        ceph-osd --conf "$conf" --id $id --mkfs --no-mon-config --osd-uuid "${identity[id]}" \
            >"$home/log/make-osd$id.out" 2>&1 &
        making[id]=$!
        commands+="osd new ${identity[id]} $id"$'\n'
    done
    commands+="osd pool create metadata 8 8 replicated"$'\n'"osd pool create data 8 8 replicated"$'\n'
    commands+="fs new $FILE_SYSTEM metadata data"$'\n'
    # The shortest that Ceph allows: others wait for a client that is silent for so long, and then
    # it is cut off.
    commands+="fs set $FILE_SYSTEM session_timeout 30"$'\n'"fs set $FILE_SYSTEM session_autoclose 30"$'\n'
    # A monitor that ended leaves its clients waiting: look whether it runs while they do.
    ceph_commands <<<"$commands" >"$home/log/set-up.out" 2>&1 &
    local setting_up=$! status=0
    while [ -e "/proc/$setting_up" ] && running mon >/dev/null; do
        sleep 0.05
    done
    if ! running mon >/dev/null; then
        kill $setting_up 2>/dev/null || true
        wait "$monitor" || status=$?
        # What it had to say may have ended with it.
        fail "the monitor ended with status $status (an error number of errno.h?): $(tail -n 5 "$home/log/mon.out")"
    fi
    wait $setting_up ||
        fail "the monitor refused the set-up: $(tail -n 5 "$home/log/set-up.out"; tail -n 5 "$home/log/mon.out")"
    for ((id = 0; id < osds; id++)); do
        wait "${making[id]}" || fail "cannot make osd$id: $(tail -n 5 "$home/log/make-osd$id.out")"
        declare_daemon osd$id ceph-osd --foreground --conf "$conf" --id $id
        launch osd$id
    done
    declare_daemon mds ceph-mds --foreground --conf "$conf" --id a
    launch mds
    if [ -n "$manager" ]; then
        mkdir "$home"/manager "$home"/manager/{data,modules}
        declare_daemon mgr ceph-mgr --foreground --conf "$conf" --id a --mgr_data "$home/manager/data" --mgr_module_path "$home/manager/modules"
        launch mgr
    fi
    wait_until_served
    if [ -n "$standby" ]; then
        declare_daemon standby ceph-mds --foreground --conf "$conf" --id b
        launch standby
        wait_until_served
    fi
    echo "$home/ceph.conf: $osds OSDs ($store), $replicas replicas, ready after $SECONDS s"
}

status() {
    local name pid
    is_cluster
    ceph_commands status
    for name in $(names); do
        if pid=$(running "$name"); then
            awk -v name="$name" -v pid="$pid" '/^VmRSS/ { printf "%-6s process %7d %6.0f MiB\n", name, pid, $2 / 1024 }' "/proc/$pid/status"
        else
            echo "$name does not run"
        fi
    done
    du -sm "$home" | awk '{ print $1 " MiB on disk" }'
}

resume() {
    local name dead=() commands= pid
    is_cluster
    for name in $(names); do
        running "$name" >/dev/null || dead+=("$name")
    done
    for name in "${dead[@]}"; do
        case $name in
            mon) launch mon ;;
            mds) [ "$(standbys)" = 1 ] || commands+="mds fail 0"$'\n' ;;
            osd*) commands+="osd down ${name#osd}"$'\n' ;;
        esac
    done
    [ -z "$commands" ] || ceph_commands <<<"$commands" >"$home/log/forget.out" 2>&1 ||
        fail "the monitor does not answer: $(tail -n 5 "$home/log/forget.out")"
    for name in "${dead[@]}"; do
        [ "$name" = mon ] || launch "$name"
    done
    wait_until_served
    echo "${#dead[@]} daemons started again; ready after $SECONDS s"
}

case $verb in
    start) start "$@" ;;
    status) status ;;
    resume) resume ;;
    kill)
        is_cluster
        [ $# -ge 1 ] || fail "kill whom? One of: $(names | tr '\n' ' ')"
        pid=$(running "$1") || fail "$1 does not run"
        signal=${2:-KILL}
        # A memstore is gone with its process, and with it what nobody else has.
        [[ $1 != osd* || $signal =~ ^(STOP|CONT)$ ]] || ! grep -q '^osd objectstore = memstore' "$conf" ||
            fail "$1 keeps its data in memory and would not come back; start the cluster with --store bluestore"
        kill -"$signal" "$pid"
        # A process that is killed takes a while to give its memory back; `resume` would take it for
        # one that runs.
        if [[ $signal =~ ^(SIG)?KILL$|^9$ ]]; then
            for ((round = 0; round < 1000; round++)); do
                running "$1" >/dev/null || exit 0
                sleep 0.02
            done
            fail "$1 does not end"
        fi
        ;;
    stop)
        if [ -d "$home/daemons" ]; then
            end_all
            rm -rf "$home"
        else
            rmdir "$home" 2>/dev/null || fail "$home holds no cluster, and other files"
        fi
        ;;
    *) fail "unknown: $verb" ;;
esac
