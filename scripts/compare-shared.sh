#!/bin/bash
# Small synchronous writes on a shared file system, or another work. Clients of one and the same
# real cluster on this machine run for some seconds each, and are killed with their writers under
# way. It prints a table. Needs root, and what `make deps-ceph` installs.
#
#   compare-shared.sh PROGRAM [OPTION...] [CONTENDER...]
#
# Contenders (the first three and okeanos, if none is named; okeanos only if PROGRAM knows `host`):
# ceph-fuse:default as Debian has it ceph-fuse:1s its buffers go out each second ceph-fuse:sync
# without buffers okeanos a journal on this host in front of the cluster okeanos:OPTIONS the same,
# mounted so NAME=DIR whatever is mounted there already; not killed Options: --osds N, --replicas N,
# --store memstore|bluestore; --writers N, --size BYTES, --seconds N; --json FILE
#          --work streams|varmail|createfiles|untar|zipf: what is measured; untar is of /usr/include/linux, zipf fio's of 128 MiB
#          --work risk: each second, what a crash of the client would lose. Writers append to a file each, 20 times a second, and sync
#          nothing. Of what they were answered for, all is at risk that neither the OSDs have received nor a journal of the host has
#          --runs N: N interleaved runs of all contenders, and the medians
#          --no-crash: unmounted instead; what the OSDs get is counted until then, else until the work is done
# For each operation the table has requests of the metadata server, and processor time of the
# client's and of the servers' processes.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
[ $# -ge 1 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 2; }
program=$(realpath "$1")
# It writes and verifies.
lab=$(dirname "$program")/okeanos-lab
scripts=$(dirname "$(realpath "$0")")
shift

cluster=() writers=16 size=1024 seconds=5 runs=1 work=streams crash=yes json= contenders=()
while [ $# -gt 0 ]; do
    case $1 in
        --osds | --replicas | --store) cluster+=("$1" "$2"); shift ;;
        --writers) writers=$2; shift ;;
        --size) size=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --runs | --turns) runs=$2; shift ;;
        --work) work=$2; shift ;;
        --json) json=$2; shift ;;
        --no-crash) crash= ;;
        -*) echo "compare-shared.sh: unknown option $1" >&2; exit 2 ;;
        *) contenders+=("$1") ;;
    esac
    shift
done
[[ $work =~ ^(streams|varmail|createfiles|untar|zipf|risk)$ ]] || { echo "compare-shared.sh: unknown work $work" >&2; exit 2; }
if [ ${#contenders[@]} = 0 ]; then
    contenders=(ceph-fuse:default ceph-fuse:1s ceph-fuse:sync)
    if "$program" host --help >/dev/null 2>&1; then contenders+=(okeanos); fi
fi
readonly once=("${contenders[@]}")
for ((run = 1; run < runs; run++)); do contenders+=("${once[@]}"); done

# Sockets lie below: a short name.
place=$(mktemp -d /tmp/okcXXXX)
conf=$place/c/ceph.conf
client= writing= journaled=
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

is_mounted() { [[ $1 == *=* && $1 != okeanos:* ]]; } # CONTENDER
# Mounts a contender at DIR, as a process in the foreground whose number is in $client.
enter() { # CONTENDER DIR
    case $1 in
        ceph-fuse:default) ceph_fuse "$2" ;;
        ceph-fuse:1s) ceph_fuse "$2" --client_oc_max_dirty_age=1 --client_caps_release_delay=1 ;;
        ceph-fuse:sync) ceph_fuse "$2" --client_oc=false ;;
        okeanos | okeanos:*)
            local options=()
            [[ $1 != *:* ]] || options=(-o "${1#*:}")
            # The host's journal outlives its client, so that the second mount recovers.
            [ -e "$place/journal" ] || truncate --size 256M "$place/journal"
            "$program" host mount --foreground --store "ceph:$conf" --journal "$place/journal" "${options[@]}" "$2" \
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

# Bytes that the OSDs have received, and what they have written to their disks. What the metadata
# server would bring from its journal to its place later goes there first, so that no client pays
# for the one before.
counters() {
    python3 - "$place/c" <<'END'
import glob, json, socket, struct, sys
def ask(path, command):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        asked.sendall(json.dumps({"prefix": command}).encode() + b"\0")
        answer = asked.makefile("rb")
        return json.loads(answer.read(*struct.unpack(">I", answer.read(4))))
received = written = 0
for path in glob.glob(f"{sys.argv[1]}/run/mds.*.asok"):
    ask(path, "flush journal")
for path in glob.glob(f"{sys.argv[1]}/run/osd.*.asok"):
    counters = ask(path, "perf dump")
    received += sum(of["msgr_recv_bytes"] for name, of in counters.items() if name.startswith("AsyncMessenger::"))
    process = path.split(".")[-2]
    written += int(open(f"/proc/{process}/io").read().split("\nwrite_bytes: ")[1].split()[0])
print(received, written)
END
}

# Requests that the metadata server has taken, and milliseconds of processor time: of the client
# with what it started, and of the servers.
spent() {
    python3 - "$place/c" "$client" <<'END'
import glob, json, os, socket, struct, sys
def requests(path):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        asked.sendall(json.dumps({"prefix": "perf dump"}).encode() + b"\0")
        answer = asked.makefile("rb")
        return json.loads(answer.read(*struct.unpack(">I", answer.read(4))))["mds_server"]["handle_client_request"]
def processor(process):
    user, system = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) * 1000 // os.sysconf("SC_CLK_TCK")
def with_children(process):
    children = open(f"/proc/{process}/task/{process}/children").read().split()
    return processor(process) + sum(map(with_children, children))
servers = sum(processor(open(path).read().split()[0]) for path in glob.glob(f"{sys.argv[1]}/daemons/*.pid"))
client = with_children(sys.argv[2]) if sys.argv[2] else 0
print(sum(map(requests, glob.glob(f"{sys.argv[1]}/run/mds.*.asok"))), client, servers)
END
}

# What must be there before the work begins.
prepare() { # DIR
    [ "$work" != zipf ] || zipf "$1" --create_only=1 >"$place/prepared"
    sync --file-system "$1"
}
zipf() { # DIR OPTION...
    fio --name=zipf --directory="$1" --ioengine=psync --rw=randwrite --bsrange=2k-16k --norandommap --size=128M \
        --random_distribution=zipf:1.0001 --time_based --runtime="$seconds" --output-format=json "${@:2}"
}
# What was measured goes to $place/measured.json, in the words of the program that did.
measure() { # DIR
    local limit=$((seconds + 120))
    case $work in
        streams) timeout $limit "$lab" bench streams --json --writers "$writers" --size "$size" --seconds "${seconds}s" "$1" ;;
        varmail) timeout $limit "$lab" bench filebench varmail --json --seed 1 --seconds "${seconds}s" "$1" ;;
        createfiles) timeout 300 "$lab" bench filebench createfiles --json --seed 1 --files $((seconds * 500)) "$1" ;;
        untar) timeout $limit python3 - "$1" <<'END' ;;
import json, subprocess, sys, time
begin = time.monotonic()
made = subprocess.check_output(f"tar -C /usr/include -c linux | tar -C '{sys.argv[1]}' -xv", shell=True, text=True).split("\n")
seconds, files = time.monotonic() - begin, sum(not name.endswith("/") for name in made if name)
latency = {"p50_ns": None, "mean_ns": seconds / files * 1e9, "p99_ns": None}
print(json.dumps({"operations": files, "operations_per_second": files / seconds, "latency": latency}))
END
        zipf) timeout $limit cat <(zipf "$1") ;;
        risk) timeout $limit python3 - "$1" "$place/c" "$writers" "$size" "$seconds" "$program" ${journaled:+journaled} <<'END' ;;
import glob, json, os, random, socket, statistics, struct, subprocess, sys, threading, time
directory, cluster = sys.argv[1:3]
writers, size, seconds = map(int, sys.argv[3:6])
program, is_journaled = sys.argv[6], len(sys.argv) > 7
PACE = 0.05
def ask(path):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        asked.sendall(json.dumps({"prefix": "perf dump"}).encode() + b"\0")
        answer = asked.makefile("rb")
        return json.loads(answer.read(*struct.unpack(">I", answer.read(4))))
# What OSDs were sent to write, but for what the metadata server has sent, such as its journal.
def reached():
    osds = sum(ask(path)["osd"]["op_w_in_bytes"] for path in glob.glob(f"{cluster}/run/osd.*.asok"))
    return osds - sum(ask(path)["objecter"]["op_send_bytes"] for path in glob.glob(f"{cluster}/run/mds.*.asok"))
def in_journal():
    if not is_journaled:
        return 0
    printed = subprocess.check_output([program, "stats", "--json", os.path.dirname(directory)])
    return json.loads(printed)["host"]["dirty_in_journal"]
answered, times = [0] * writers, [[] for _ in range(writers)]
before, at_risk = reached(), []
begin = time.monotonic()
def append(writer):
    file = os.open(f"{directory}/{writer}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    due = begin + PACE * writer / writers
    while due < begin + seconds:
        time.sleep(max(0, due - time.monotonic()))
        asked = time.monotonic()
        os.write(file, bytes([writer + 1]) * size)
        times[writer].append(time.monotonic() - asked)
        answered[writer] += size
        due += PACE
    os.close(file)
threads = [threading.Thread(target=append, args=[writer]) for writer in range(writers)]
for thread in threads: thread.start()
# At any time between two looks: the journal is written each second, too.
rng = random.Random(1)
for second in range(1, seconds):
    time.sleep(max(0, begin + second - rng.random() - time.monotonic()))
    written = sum(answered)
    journaled = in_journal()
    # To ask takes a while.
    written = (written + sum(answered)) // 2
    at_risk.append(max(0, written - journaled - (reached() - before)))
for thread in threads: thread.join()
took = sorted(time for each in times for time in each)
percentile = lambda part: took[int(part * (len(took) - 1))] * 1e9
latency = {"p50_ns": percentile(0.5), "mean_ns": statistics.mean(took) * 1e9, "p99_ns": percentile(0.99)}
# The first seconds have nothing old.
risk = {"mean_bytes": statistics.mean(at_risk[len(at_risk) // 4:]), "most_bytes": max(at_risk), "each_second_bytes": at_risk}
print(json.dumps({"operations": len(took), "operations_per_second": len(took) / seconds, "latency": latency, "at_risk": risk}))
END
    esac >"$place/measured.json"
}
# One line of JSON for a run, in the same words for each work.
normal() { # CONTENDER BEFORE AFTER SPENT-BEFORE SPENT-AFTER
    python3 - "$place/measured.json" "$@" <<'END'
import json, sys
def between(before, after):
    return (int(end) - int(begin) for begin, end in zip(before.split(), after.split()))
it, (received, written), spent = json.load(open(sys.argv[1])), between(*sys.argv[3:5]), between(*sys.argv[5:7])
it = it[0] if isinstance(it, list) else it
if "jobs" in it:
    wrote = it["jobs"][0]["write"]
    times = {of + "_ns": wrote["clat_ns"]["percentile"][part] for of, part in (("p50", "50.000000"), ("p99", "99.000000"))}
    it = {"operations": wrote["total_ios"], "operations_per_second": wrote["iops"], "latency": times | {"mean_ns": wrote["clat_ns"]["mean"]}}
it = {key: it[key] for key in ("operations", "operations_per_second", "latency", "at_risk") if key in it}
print(json.dumps({"client": sys.argv[2]} | it | {"received_bytes": received, "written_bytes": written} | dict(zip(("requests", "client_ms", "servers_ms"), spent))))
END
}

# Kills the client while writers run, mounts anew, and asks what is there of all that was
# acknowledged.
kill_and_look() { # CONTENDER DIR
    local acknowledged=$place/acknowledged begin
    rm -f "$acknowledged"
    timeout 180 "$lab" bench streams --writers "$writers" --size "$size" --prefix crash- --until-error \
        --acknowledged "$acknowledged" "$2" >"$place/until" 2>&1 &
    writing=$!
    sleep 3
    kill -KILL "$client"
    wait "$client" 2>/dev/null || true
    # A process that still waits for an answer of the dead client gets an error now.
    umount --lazy "$directory"
    wait "$writing" || true
    writing=
    begin=$EPOCHREALTIME
    enter "$1" "$place/second"
    timeout 180 "$lab" bench verify --json --acknowledged "$acknowledged" "$place/second/$(basename "$2")" >"$place/verdict.json" 2>"$place/verdict.out" || true
    again=$(python3 -c "print(f'{$EPOCHREALTIME - $begin:.1f} s')")
    # As the host reports it: from the fencing of its former self on.
    recovery=$(sed -n 's/.*It took \(.*\)\.$/\1/p' "$place/client.out" | tail -1)
    verdict=$(field "$place/verdict.json" '"%d acknowledged, %d lost" % (it["acknowledged"], it["lost"])' 2>/dev/null) ||
        verdict="not readable: $(tail -1 "$place/verdict.out")"
    leave "$place/second"
    wait "$client" 2>/dev/null || true
    client=
}

# A table of all runs, or of the medians and of how many times as much the first client has.
table() { # all|medians
    python3 - "$1" "$place/runs" <<'END'
import json, statistics, sys
from math import isnan
def values(run):
    times = [float(run["latency"][of + "_ns"] or "nan") / 1e6 for of in ("p50", "mean", "p99")]
    bytes = [run[of + "_bytes"] / run["operations"] / 1e3 for of in ("received", "written")]
    spent = [run[of] / run["operations"] for of in ("requests", "client_ms", "servers_ms")]
    risks = [run["at_risk"][of + "_bytes"] / 1e6 for of in ("mean", "most")] if "at_risk" in run else []
    return [run["operations_per_second"]] + times + bytes + spent + risks
rows = {}
for number, line in enumerate(open(sys.argv[2])):
    run = json.loads(line)
    rows.setdefault((run["client"], number if sys.argv[1] == "all" else 0), []).append(run)
is_of_risk = all("at_risk" in run for runs in rows.values() for run in runs)
units = ["%.0f", "%.2f ms", "%.2f ms", "%.2f ms", "%.1f kB", "%.1f kB", "%.2f", "%.3f ms", "%.3f ms", "%.2f MB", "%.2f MB"]
first = None
print("client|operations/s|p50|mean|p99|received by OSDs, of each|written there|requests|client's processor|servers'" + "|at risk, on average|at most" * is_of_risk + "|after kill -9|readable again after|recovery alone" * (sys.argv[1] == "all"))
for (name, _), runs in rows.items():
    row = [statistics.median(column) for column in zip(*map(values, runs))]
    cells = ["-" if isnan(own) else unit % own for unit, own in zip(units, row)]
    if sys.argv[1] == "all":
        cells += runs[0]["crash"]
    else:
        first = first or row
        cells = ["%s (%.2f)" % (cell, its / own if own else 0) if cell != "-" else cell for cell, its, own in zip(cells, first, row)]
    print(name, *cells, sep="|")
END
}

"$scripts/ceph-cluster.sh" start "$place/c" "${cluster[@]}"
: >"$place/runs"
for contender in "${contenders[@]}"; do
    verdict=- again=- recovery=
    if is_mounted "$contender"; then
        directory=${contender#*=}
    else
        directory=$place/mount
        enter "$contender" "$directory"
    fi
    journaled=
    [[ $contender != okeanos* ]] || journaled=yes
    below=$(mktemp -d "$directory/compareXXXX")
    prepare "$below"
    before=$(counters)
    spent_before=$(spent)
    measure "$below"
    spent_after=$(spent)
    after=$(counters)
    if ! is_mounted "$contender"; then
        if [ -n "$crash" ]; then
            kill_and_look "$contender" "$below"
        else
            leave "$directory"
            wait "$client" 2>/dev/null || true
            client=
            # With all that was dirty.
            after=$(counters)
        fi
        rm -f "$place/journal"
    fi
    run=$(normal "$contender" "$before" "$after" "$spent_before" "$spent_after")
    echo "${run%\}}, \"crash\": [\"$verdict\", \"$again\", \"${recovery:--}\"]}" >>"$place/runs"
done
[ -z "$json" ] || (echo "[" && paste -sd, "$place/runs" && echo "]") >"$json"

echo
case $work in
    streams) echo "$writers writers, each its own file, $size bytes at a time, O_SYNC, $seconds s on the same cluster (${cluster[*]:-one OSD in memory}):" ;;
    *) echo "$work, $seconds s on the same cluster (${cluster[*]:-one OSD in memory}):" ;;
esac
echo
table all | column -t -s '|'
if ((runs > 1)); then
    echo
    echo "medians of $runs runs; in brackets, what ${contenders[0]} has over it:"
    table medians | column -t -s '|'
fi
if [[ " ${contenders[*]} " != *" okeanos"* ]]; then
    echo
    echo "$(basename "$program") has no mount in front of a cluster yet; it will stand in this table."
fi
