#!/bin/bash
# Hosts with a journal each, and ceph-fuse, in front of one real cluster. It plays hand-over,
# recalls under load, and kill -9 of the client at random moments. It is killed again while it
# connects or recovers, and while a short journal logs anew. A metadata server and an OSD die. A
# host sleeps past the lease, and a helper alone. Needs root, and what `make deps-ceph` installs.
# Some minutes.
#
#   [SEED=N] [ROUNDS=N] [STORE=bluestore|memstore] scripts/test-host-ceph.sh OKEANOS
#
# SEED and ROUNDS: of the moments of the kills. An OSD in memory would forget everything, so none
# dies there; nor does a host sleep.
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
readonly OKEANOS=$(realpath "$1")
# It writes and verifies.
readonly LAB=$(dirname "$OKEANOS")/okeanos-lab
readonly CLUSTER=$(dirname "$(realpath "$0")")/ceph-cluster.sh
readonly SEED=${SEED:-$(date +%s)} ROUNDS=${ROUNDS:-4} STORE=${STORE:-bluestore}
echo "test-host-ceph: SEED=$SEED STORE=$STORE"
RANDOM=$((SEED % 32768))
readonly WORK=$(mktemp -d /tmp/okhXXXX)
cd "$WORK"

background=()
daemons=()
# Bash asks for this on every way out; a signal is one.
finish() {
    local process directory
    for process in "${background[@]}"; do kill "$process" 2>/dev/null || true; done
    for process in "${daemons[@]}"; do kill -CONT "$process" 2>/dev/null || true; done
    for directory in one two three four five fuse; do
        ! grep -q " $WORK/$directory " /proc/self/mounts || umount --lazy "$directory" || true
    done
    for process in "${daemons[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    [ ! -d c ] || "$CLUSTER" stop "$WORK/c" || true
    cd / && rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

fail() {
    echo "test-host-ceph: $1 (SEED=$SEED STORE=$STORE)" >&2
    tail -n 5 ./*.out >&2 2>/dev/null || true
    timeout 10 bash -c 'head -n 6 fuse/okeanos-conflicts/*.txt' >&2 || true
    exit 1
}
part() { echo "test-host-ceph: $1, from second $SECONDS on"; }
is_in_memory() { [[ $STORE == memstore ]]; }
# In the foreground, so that its process is known, and its end too.
start_host() { # NAME [OPTION]
    "$OKEANOS" host mount --foreground --store "ceph:$WORK/c/ceph.conf" --journal "journal-$1" -o "destage=infinite${2:+,$2}" "$1" \
        >>"$1.out" 2>&1 </dev/null &
    daemon[$1]=$!
    daemons+=($!)
}
mount_host() { # NAME [OPTION]
    local round
    start_host "$@"
    for ((round = 0; round < 600; round++)); do
        ! grep -q " $WORK/$1 " /proc/self/mounts || return 0
        kill -0 "${daemon[$1]}" 2>/dev/null || break
        sleep 0.05
    done
    fail "$1 does not mount"
}
declare -A daemon
kill_host() { # NAME
    kill -KILL "${daemon[$1]}"
    wait "${daemon[$1]}" 2>/dev/null || true
    umount --lazy "$1"
}
# Of one that connects, or recovers, or has just mounted. Its helper ends with it.
kill_beginning_host() { # NAME
    local helper= moment=$((RANDOM % 400)) round
    start_host "$1"
    for ((round = 0; round < 600; round++)); do
        helper=$(helper_of "${daemon[$1]}")
        [[ ! $helper ]] || break
        sleep 0.01
    done
    [[ $helper ]] || fail "$1: no helper connects"
    sleep "$(printf '0.%03d' $moment)"
    kill -KILL "${daemon[$1]}"
    wait "${daemon[$1]}" 2>/dev/null || true
    ! grep -q " $WORK/$1 " /proc/self/mounts || umount --lazy "$1"
    for ((round = 0; round < 200; round++)); do
        grep -qs ceph-helper "/proc/$helper/cmdline" || return 0
        sleep 0.05
    done
    fail "$1 was killed $moment ms after its helper began, and that lives on"
}
leave_host() { # NAME
    timeout 120 "$OKEANOS" umount "$1" || fail "$1 does not unmount"
    wait "${daemon[$1]}" || fail "$1: not everything came to the store"
}
# Of a running daemon: its helper.
helper_of() { tr ' ' '\n' <"/proc/$1/task/$1/children" | while read -r child; do
    if tr '\0' ' ' <"/proc/$child/cmdline" | grep -q 'ceph-helper'; then echo "$child"; fi
done; }
# Ends the session of a helper that died, as the servers would by and by.
evict_helper() { # PID
    [[ $1 ]] || fail "the daemon has no helper process"
    timeout 60 ceph -c c/ceph.conf tell mds.a client evict "client_metadata.pid=$1" >evicted.out 2>&1 || fail "$(cat evicted.out)"
}
write_until_error() { # DIR
    timeout 120 "$LAB" bench streams --writers 8 --size 1024 --until-error --acknowledged "$WORK/acknowledged" "$1" \
        >streams.out 2>&1
}
verify() { # DIR
    timeout 60 "$LAB" bench verify --acknowledged acknowledged "$1" >verify.out 2>&1
}

mkdir one two three four five fuse
truncate -s 64M journal-one journal-two journal-three journal-five
truncate -s 16M journal-four
"$CLUSTER" start "$WORK/c" --store "$STORE" || fail "no cluster"
# With the kernel's page cache it reads old pages for a moment: it learns of changes after the
# fact.
ceph-fuse -f -n client.admin -c c/ceph.conf --fuse_disable_pagecache=true fuse >fuse.out 2>&1 </dev/null &
daemons+=($!)
mount_host one
mount_host two
mount_host three
for ((round = 0; round < 600; round++)); do
    ! grep -q " $WORK/fuse " /proc/self/mounts || break
    sleep 0.05
done

if ! is_in_memory; then
    # One host sleeps from here on, with its helper, and holds what another wants: that waits until
    # the lease is over.
    echo mine >three/disputed
    sync three/disputed
    # Answered, and not synced yet: its sync comes too late. A process of its own holds it: what
    # inherits the descriptor waits for the sleeper when it ends (FLUSH).
    coproc HOLDER { exec python3 -c '
import sys
file = open(sys.argv[1], "r+b", buffering=0)
file.write(b"MINE")
print("written", flush=True)
sys.stdin.read()' three/disputed; }
    background+=("$HOLDER_PID")
    read -r -t 60 _ <&"${HOLDER[0]}" || fail "an answered write is not answered"
    readonly SLEEPER=${daemon[three]}
    helper=$(helper_of "$SLEEPER")
    [[ $helper ]] || fail "the daemon has no helper process"
    kill -STOP "$SLEEPER" "$helper"
    daemons+=("$helper")
    (timeout 150 bash -c 'echo theirs >fuse/disputed') &
    readonly OTHER=$!
    background+=("$OTHER")
fi

part "hand-over"
# Hand-over between two of ours and one that is not, each way.
echo hello >one/greeting
timeout 60 grep -qx hello fuse/greeting || fail "ceph-fuse does not see what was written"
# ceph-fuse does not append: two of it lose lines of one another.
for number in $(seq 20); do
    for host in one two; do echo "$host $number" >>$host/shared; done
done
for host in one two fuse; do
    [[ $(timeout 60 sort -u $host/shared | wc -l) == 40 ]] || fail "$host: appended lines are missing: $(wc -l <$host/shared)"
done
for number in $(seq 10); do
    for host in one fuse two; do
        echo "$host $number" >$host/turns
        for reader in one two fuse; do
            [[ $(timeout 60 cat $reader/turns) == "$host $number" ]] || fail "$reader does not see what $host wrote"
        done
    done
done
part "what the kernel keeps"
# The kernel keeps attributes of a held file, and not a moment longer: also no mode or size that
# another gives it.
requests() { "$OKEANOS" stats --json "${2:-one}" | sed -n 's/.*"'"$1"'": \([0-9]*\).*/\1/p'; }
asked=$(requests getattr)
looks=$(timeout 120 python3 - one/kept two/kept fuse/kept <<'END'
import os, sys
own, *others = sys.argv[1:]
size, looks = 0, 0
def look(file, what):
    global looks
    for _ in range(300):
        seen = os.fstat(file)
        assert (seen.st_size, seen.st_mode & 0o777) == (size, mode), f"{what}: {seen}, not {size} bytes, mode {mode:o}"
    looks += 300
def write(file):
    global size
    os.pwrite(file, b"x", size)
    size += 1
for number in range(20):
    for other in others:
        # Opened anew each time: a token for shared writing would stay.
        file, mode = os.open(own, os.O_CREAT | os.O_RDWR), 0o600 + number % 8
        os.fchmod(file, mode)
        write(file)
        look(file, "own write")
        there = os.open(other, os.O_RDWR)
        if number % 2:
            write(there)
        else:
            mode = 0o640 + number % 8
            os.fchmod(there, mode)
        seen = os.fstat(file)
        assert (seen.st_size, seen.st_mode & 0o777) == (size, mode), f"after {other}: {seen}, not {size} bytes, mode {mode:o}"
        os.close(there)
        os.close(file)
print(looks)
END
) || fail "attributes that others changed"
((looks > 2 * ($(requests getattr) - ${asked:-0}))) || fail "the kernel keeps no attributes: $looks looks, $(requests getattr) requests"

# Directories have no tokens: by default the kernel keeps nothing of them, and sees at once what
# another changes.
timeout 120 python3 - one two fuse <<'END' || fail "directories that others changed"
import os, sys
own, *others = sys.argv[1:]
def mode(path):
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None
os.mkdir(f"{own}/directory")
within = os.open(f"{own}/directory", os.O_RDONLY)
for number in range(20):
    for other in others:
        os.chmod(f"{other}/directory", 0o700 + number % 8)
        assert mode(f"{own}/directory") == os.fstat(within).st_mode & 0o777 == 0o700 + number % 8
        os.mkdir(f"{other}/directory/below")
        assert mode(f"{own}/directory/below") is not None
        os.rename(f"{other}/directory/below", f"{other}/moved")
        assert mode(f"{own}/directory/below") is None and mode(f"{own}/moved") is not None
        os.rmdir(f"{other}/moved")
        assert mode(f"{own}/moved") is None
END
# With `directories=` it is late by that, and by two ticks of the kernel's clock: 10 ms each at
# most.
leave_host two
mount_host two directories=200ms
timeout 120 python3 - two one fuse <<'END' || fail "directories= keeps for longer than it says"
import os, sys, time
own, *others = sys.argv[1:]
LATE = 0.2 + 2 * 0.01
def seen_in_time(look, wanted):
    begin = time.monotonic()
    while True:
        asked = time.monotonic()
        if look() == wanted:
            return
        assert asked - begin <= LATE, f"not seen within {LATE} s"
for number in range(5):
    for other in others:
        os.path.isdir(f"{own}/directory")
        os.chmod(f"{other}/directory", 0o700 + number % 8)
        seen_in_time(lambda: os.stat(f"{own}/directory").st_mode & 0o777, 0o700 + number % 8)
        for new, old in (("moved", "directory"), ("directory", "moved")):
            os.rename(f"{other}/{old}", f"{other}/{new}")
            seen_in_time(lambda: [os.path.isdir(f"{own}/{name}") for name in (new, old)], [True, False])
END
asked=$(requests lookup two)
timeout 60 python3 -c 'import os; [os.stat("two/directory/.") for _ in range(1000)]'
(($(requests lookup two) - asked < 500)) || fail "the kernel keeps no directories"
leave_host two
mount_host two

mkdir one/tree
for number in $(seq 12); do head -c $((number * 9973)) /dev/urandom >"one/tree/$number"; done
cp -a one/tree kept
timeout 60 diff -r kept two/tree && timeout 60 diff -r kept fuse/tree || fail "the tree differs"
mv one/tree/1 one/tree/2
[[ ! -e two/tree/1 && ! -e fuse/tree/1 ]] || fail "a renamed file is still there"

part "recalls under load"
# Eight writers sync records while two others read their files, and three write the same files in
# turns. A reader finds all that was answered before.
mkdir one/load
recalls=$(requests recalls)
python3 - one two fuse <<'END' &
import os, random, sys, threading, time
RECORD, WRITERS, SHARED, SECONDS = 1024, 8, 4, 6
places = [f"{place}/load" for place in sys.argv[1:]]
until = time.monotonic() + SECONDS
answered = [0] * WRITERS
turns = [[0] * len(places) for _ in range(SHARED)]
looks, failures = [0, 0], []
rngs = [random.Random(which) for which in range(2 * len(places))]
def again_and_again(work, *words):
    try:
        while time.monotonic() < until and not failures:
            work(*words)
    except BaseException as failure:
        failures.append(f"{work.__name__}{words}: {failure!r}")
def record(number):
    return bytes([number % 251 + 1]) * RECORD
files = [os.open(f"{places[0]}/{writer}", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_DSYNC) for writer in range(WRITERS)]
# With all their bytes: three ceph-fuse alone read old pieces of a file that grows (in 3 of 72 files,
# and in none of 70 of full length).
for file in range(SHARED):
    there = os.open(f"{places[0]}/turns-{file}", os.O_CREAT | os.O_WRONLY)
    os.write(there, bytes(8 * len(places)))
    os.close(there)
def append(writer):
    os.write(files[writer], record(answered[writer]))
    answered[writer] += 1
def read(place):
    for writer in range(WRITERS):
        before = answered[writer]
        # Over the end of a file that grows ceph-fuse may read what came last as if it were the
        # beginning.
        length = before * RECORD if place == places[-1] else 8 << 20
        content = open(f"{place}/{writer}", "rb", buffering=0).read(length)
        assert len(content) >= before * RECORD, f"{writer}: {len(content)} bytes, and {before} records were answered"
        for number in range(len(content) // RECORD):
            seen = content[number * RECORD:(number + 1) * RECORD]
            assert seen == record(number), f"{writer}: record {number} of {len(content) / RECORD} is {seen[:4]}, {before} were answered"
        looks[0] += 1
def take_turn(who):
    file = rngs[who].randrange(SHARED)
    there = os.open(f"{places[who]}/turns-{file}", os.O_WRONLY | os.O_DSYNC)
    os.pwrite(there, (turns[file][who] + 1).to_bytes(8, "little"), who * 8)
    os.close(there)
    turns[file][who] += 1
def compare(who):
    file = rngs[len(places) + who].randrange(SHARED)
    before = list(turns[file])
    there = os.open(f"{places[who]}/turns-{file}", os.O_RDONLY)
    content = os.pread(there, 8 * len(places), 0)
    os.close(there)
    assert len(content) == 8 * len(places), f"{file} from {who}: {len(content)} bytes"
    for writer, count in enumerate(before):
        seen = int.from_bytes(content[writer * 8:writer * 8 + 8], "little")
        assert count <= seen <= turns[file][writer] + 1, f"{file} from {who}: {seen} of {writer}, {count} were answered"
    looks[1] += 1
works = [(append, writer) for writer in range(WRITERS)] + [(read, place) for place in places[1:]]
works += [(work, who) for work in (take_turn, compare) for who in range(len(places))]
threads = [threading.Thread(target=again_and_again, args=work) for work in works]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
assert min(answered) > 0 and min(map(sum, turns)) > 0 and min(looks) > 10, (answered, turns, looks)
print(f"{sum(answered)} records, {sum(map(sum, turns))} turns, {looks[0]} and {looks[1]} looks")
END
load=$!
background+=("$load")
# Who waits for an answer that never comes cannot be ended.
for ((try = 0; try < 600; try++)); do
    kill -0 "$load" 2>/dev/null || break
    sleep 0.1
done
! kill -0 "$load" 2>/dev/null || fail "recalls under load: somebody waits for ever"
wait "$load" || fail "recalls under load"
(($(requests recalls) - recalls > 20)) || fail "only $(($(requests recalls) - recalls)) tokens were recalled under load"

part "what is read before a recovery"
# A host dies while a file of it is recalled: the servers know its size by then.
mount_host five
echo "no zeros" >five/recalled
sync five/recalled
dead=$(helper_of "${daemon[five]}")
kill -STOP "${daemon[five]}"
timeout 150 bash -c 'stat fuse/recalled && cat fuse/recalled' >recalled.out 2>&1 &
reader=$!
background+=("$reader")
# Longer than the helper keeps its answer for a daemon that says nothing.
sleep 2.5
kill_host five
for ((try = 0; try < 200; try++)); do
    grep -qs ceph-helper "/proc/$dead/cmdline" || break
    sleep 0.05
done
evict_helper "$dead"
wait "$reader" || fail "nobody reads a file of a host that died"
[[ $(tail -1 recalled.out | tr '\0' 0) == "no zeros" ]] || fail "read before the recovery: $(tail -1 recalled.out | tr '\0' 0)"
mount_host five
[[ $(timeout 60 cat fuse/recalled) == "no zeros" ]] || fail "read after the recovery: $(tr '\0' 0 <fuse/recalled)"
leave_host five

part "a reader that stays"
# Another host reads a file all the time when its writer comes back. Each of both must have its
# turn.
mount_host five
echo first >five/followed
sync five/followed
kill_host five
timeout 120 tail -f two/followed >followed.out 2>&1 &
reader=$!
background+=("$reader")
mount_host five
echo second >>five/followed
for ((try = 0; try < 200; try++)); do
    [[ $(wc -l <followed.out) != 2 ]] || break
    sleep 0.1
done
[[ $(tr '\n' ' ' <followed.out) == "first second " ]] || fail "who follows a file sees: $(cat followed.out)"
kill "$reader"
# What is open stays readable when another client takes its last name.
timeout 60 python3 - two/followed fuse/followed <<'END' || fail "a file that another removes is gone for who has it open"
import os, sys
own, other = sys.argv[1:]
file = os.open(own, os.O_RDONLY)
seen = os.pread(file, 100, 0)
os.unlink(other)
assert os.pread(file, 100, 0) == seen == b"first\nsecond\n", seen
END
leave_host five

if is_in_memory; then
    part "a reader that stays and is not ours"
    # It opens the file between the crash and the mount. Nothing is replayed then, nothing is
    # lost, and the mount says what to do.
    mount_host five
    echo "synced" >five/open
    sync five/open
    dead=$(helper_of "${daemon[five]}")
    kill_host five
    evict_helper "$dead"
    timeout 150 tail -f fuse/open >followed.out 2>&1 &
    reader=$!
    background+=("$reader")
    sleep 1
    start_host five
    ! wait "${daemon[five]}" || fail "a host mounts beside a reader that stays"
    grep -q "open on another client.*mount again" five.out || fail "a reader that stays is not reported"
    kill "$reader"
    mount_host five
    [[ $(timeout 60 cat fuse/open) == synced ]] || fail "after a reader that stayed: $(timeout 60 cat fuse/open | tr '\0' 0)"
    leave_host five
fi

part "kill -9"
for ((round = 1; round <= ROUNDS; round++)); do
    mkdir "one/round-$round"
    write_until_error "one/round-$round" &
    writers=$!
    background+=("$writers")
    # A kill before their files are made would be no more than an error.
    for ((try = 0; try < 600; try++)); do
        [[ $(ls "one/round-$round" | wc -l) != 8 ]] || break
        sleep 0.05
    done
    # Tokens are recalled all the time, and at the moment of the kill.
    (while cat two/round-$round/* >/dev/null; do :; done) 2>/dev/null &
    reader=$!
    background+=("$reader")
    moment=$((200 + RANDOM % 1800))
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    kill_host one
    wait "$writers" || fail "round $round: the writers: $(tail -3 streams.out)"
    kill_beginning_host one
    begin=$EPOCHREALTIME
    mount_host one
    echo "round $round: killed after $moment ms, mounted again after $(python3 -c "print(f'{$EPOCHREALTIME - $begin:.2f}')") s"
    kill "$reader" 2>/dev/null || true
    wait "$reader" 2>/dev/null || true
    verify "fuse/round-$round" || fail "round $round, as ceph-fuse sees it: $(cat verify.out)"
    verify "two/round-$round" || fail "round $round, as the other host sees it: $(cat verify.out)"
done

part "kill -9 while a short journal logs anew"
# A short journal logs anew what is written over and over, and the host is killed.
mount_host four
for ((round = 1; round <= ROUNDS; round++)); do
    # Writes until the host is gone. Then it prints each block's last byte, and what may be there
    # instead of one of them.
    timeout 120 python3 - "four/over" $((SEED + round)) >over.json 2>over.out <<'END' &
import json, os, random, sys
BLOCK, BLOCKS = 16384, 40
rng = random.Random(int(sys.argv[2]))
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_DSYNC)
last, tried = [], None
for block in range(BLOCKS):
    last.append((os.pread(file, 1, block * BLOCK) or b"\0")[0])
try:
    while True:
        block = rng.randrange(BLOCKS)
        tried = block, (last[block] + 1) % 256
        os.pwrite(file, bytes([tried[1]]) * BLOCK, block * BLOCK)
        last[block], tried = tried[1], None
except OSError:
    print(json.dumps([last, tried]))
END
    writer=$!
    background+=("$writer")
    for ((try = 0; try < 1200; try++)); do
        [[ $(requests logged_anew_bytes four) == 0 ]] || break
        kill -0 $writer 2>/dev/null || fail "round $round: no writer: $(tail -3 over.out)"
        sleep 0.05
    done
    [[ $(requests logged_anew_bytes four) -gt 0 ]] || fail "round $round: nothing is logged anew"
    sleep "$(printf '%d.%03d' $((RANDOM % 2)) $((RANDOM % 1000)))"
    kill_host four
    wait "$writer" || fail "round $round: the writer: $(tail -3 over.out)"
    mount_host four
    timeout 60 python3 - fuse/over over.json <<'END' || fail "round $round: what was written over and over"
import json, sys
BLOCK = 16384
content = open(sys.argv[1], "rb").read()
last, tried = json.load(open(sys.argv[2]))
for block, byte in enumerate(last):
    seen = set(content[block * BLOCK:(block + 1) * BLOCK])
    may = [byte, tried[1]] if tried and tried[0] == block else [byte]
    # A block that was never written may not be there.
    assert (len(seen) == 1 and seen.pop() in may) or (byte == 0 and not seen), f"block {block}: {seen}, not {may}"
END
done
leave_host four

part "servers that die"
# They die under load, and come back.
victims=(mds osd0)
! is_in_memory || victims=(mds)
mkdir one/servers
timeout 120 "$LAB" bench streams --writers 8 --size 1024 --seconds 6s --acknowledged "$WORK/acknowledged" one/servers \
    >streams.out 2>&1 &
writers=$!
background+=("$writers")
for victim in "${victims[@]}"; do
    sleep 1
    "$CLUSTER" kill "$WORK/c" $victim
    "$CLUSTER" resume "$WORK/c" || fail "$victim does not come back"
done
wait "$writers" || fail "writers under servers that die: $(tail -3 streams.out)"
verify fuse/servers || fail "what was written while servers died: $(cat verify.out)"

if ! is_in_memory; then
    part "the return of who slept past the lease"
    # The sleeper returns. What it had synced must not go over what others wrote.
    wait "$OTHER" || fail "another client does not get the file of a host that sleeps"
    kill -CONT "$SLEEPER" "$helper"
    for _ in 1 2; do
        ! timeout 100 sync three/disputed 2>late.out || fail "a sync after the lease is a promise"
        grep -q "Input/output error" late.out || fail "the late sync: $(cat late.out)"
    done
    kill "$HOLDER_PID"
    (timeout 20 bash -c 'echo late >>three/disputed; sync three/disputed') 2>/dev/null || true
    [[ $(timeout 60 head -1 fuse/disputed) == theirs ]] || fail "a fenced host has overwritten what others wrote"
    seen=$(timeout 60 cat fuse/disputed)
    [[ ! ${seen,,} =~ mine ]] || fail "a write of a fenced host appeared: $seen"
    timeout 60 "$OKEANOS" umount three 2>/dev/null || umount --lazy three
    for ((round = 0; round < 600; round++)); do
        kill -0 "$SLEEPER" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$SLEEPER" 2>/dev/null || true
    wait "$SLEEPER" 2>/dev/null || true
    mount_host three
    [[ $(timeout 60 head -1 three/disputed) == theirs ]] || fail "the recovery has overwritten what others wrote"
    # Its late sync journaled what it had over that, before it was refused: either may be set aside.
    timeout 60 grep -rqi '^mine$' fuse/okeanos-conflicts || fail "what was synced was not set aside"
fi

part "a helper that sleeps past the lease"
# Its daemon does not sleep, and could answer a sync from the journal.
coproc LATE { exec python3 -c '
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"ours")
os.fsync(file)
os.pwrite(file, b"late", 0)
print("written", flush=True)
for line in sys.stdin:
    try:
        os.fsync(file)
        print("synced", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)' two/asleep; }
background+=("$LATE_PID")
read -r -t 60 _ <&"${LATE[0]}" || fail "an answered write is not answered"
helper=$(helper_of "${daemon[two]}")
[[ $helper ]] || fail "the daemon has no helper process"
daemons+=("$helper")
kill -STOP "$helper"
timeout 150 bash -c 'echo theirs >fuse/asleep' || fail "another client does not get the file of a host whose helper sleeps"
for _ in 1 2; do
    echo >&"${LATE[1]}"
    read -r -t 100 outcome <&"${LATE[0]}" || fail "a late sync is not answered"
    [[ $outcome == "Input/output error" ]] || fail "a sync after the lease is a promise: $outcome"
done
kill "$LATE_PID"
[[ $(timeout 60 cat fuse/asleep) == theirs ]] || fail "a host whose helper slept has overwritten what others wrote"
timeout 60 grep -rqxE 'ours|late' fuse/okeanos-conflicts || fail "what was synced before the helper slept was not set aside"
timeout 60 bash -c 'echo on >two/on && sync two/on' || fail "a host whose helper slept does not go on"

for host in one two three; do leave_host $host; done
timeout 60 "$OKEANOS" host recover --store "ceph:$WORK/c/ceph.conf" --journal journal-one | grep -q "is empty" ||
    fail "the journal is not empty after unmount"
timeout 60 umount fuse
echo "test-host-ceph: well, after $SECONDS s"
