#!/bin/bash
# Programs on two hosts in front of one store: appends, locks, attributes, SQLite, a host that dies
# with locks, on real mounts.
#
#   scripts/test-host-sharing.sh OKEANOS            a directory; needs root
#   scripts/test-host-sharing.sh OKEANOS ceph       a cluster of its own
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
readonly OKEANOS=$(realpath "$1") KIND=${2:-dir}
readonly HERE=$(dirname "$(realpath "$0")")
readonly WORK=$(mktemp -d /tmp/okeanos-sharing.XXXXXX)
chmod 755 "$WORK"
cd "$WORK"

finish() {
    for directory in one two; do
        ! mountpoint -q "$directory" || umount -l "$directory"
    done
    ! mountpoint -q shared/inner 2>/dev/null || umount -l shared/inner
    if mountpoint -q frozen 2>/dev/null; then
        fsfreeze --unfreeze frozen 2>/dev/null || true
        ! mountpoint -q three || umount -l three
        umount -l frozen
    fi
    [[ $KIND == dir ]] || "$HERE/ceph-cluster.sh" stop "$WORK/cluster" >/dev/null 2>&1 || true
    cd / && rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
fail() {
    echo "test-host-sharing: $KIND: $1" >&2
    exit 1
}
mount_host() {
    timeout 90 "$OKEANOS" host mount --store "$STORE" --journal "journal-$1" \
        -o "destage=infinite,allow_other${2:+,$2}" "$1" || fail "no mount of $1"
}
daemon_of() {
    "$OKEANOS" stats --json "$1" | sed -n 's/.*"process": \([0-9]*\).*/\1/p'
}
# Locks all of a file by fcntl(2), for reading and writing, and says so; MODE: wait or try.
fcntl_lock() { # FILE MODE SECONDS
    timeout 60 python3 -c '
import fcntl, os, sys, time
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(f, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[2] == "try" else 0))
except BlockingIOError:
    sys.exit(1)
print("locked", flush=True)
time.sleep(float(sys.argv[3]))' "$@"
}

mkdir one two shared
truncate -s 64M journal-one journal-two
if [[ $KIND == ceph ]]; then
    "$HERE/ceph-cluster.sh" start "$WORK/cluster" >/dev/null
    readonly STORE=ceph:$WORK/cluster/ceph.conf
else
    readonly STORE=dir:$WORK/shared
fi
mount_host one
mount_host two
chmod 777 one

# Appends, each by a descriptor of its own, and by two that stay open.
for number in $(seq 6); do
    where=$([[ $((number % 2)) == 0 ]] && echo one || echo two)
    echo "line $number" | timeout 60 dd of="$where/log" oflag=append conv=notrunc,fsync status=none
done
timeout 60 cat one/log | cmp - <(printf 'line %d\n' $(seq 6)) || fail "synced lines are lost: $(tr '\n' ';' <one/log)"
timeout 120 python3 - <<'P' || fail "appends of descriptors that stay open"
import os
both = [os.open(d + '/kept', os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_SYNC, 0o644) for d in ('one', 'two')]
wanted = b''
for number in range(60):
    line = b'%d\n' % number
    os.write(both[number % 7 % 2], line)
    wanted += line
assert open('two/kept', 'rb').read() == wanted, open('two/kept', 'rb').read()
P

# Appends at the same time, by programs with locks of the file: in front of Ceph no host has it alone.
timeout 120 python3 - <<'P' || fail "appends beside each other, with locks"
import fcntl, os
LINES = 40
def append(host):
    file = os.open(host + '/locked', os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_SYNC, 0o644)
    fcntl.lockf(file, fcntl.LOCK_SH, 1, 0)
    for number in range(LINES):
        os.write(file, b'%s %d\n' % (host.encode(), number))
children = []
for host in ('one', 'two'):
    child = os.fork()
    if child == 0:
        try:
            append(host)
            os._exit(0)
        finally:
            os._exit(1)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
found = open('one/locked', 'rb').read().split(b'\n')
wanted = [b'%s %d' % (host, number) for host in (b'one', b'two') for number in range(LINES)]
assert sorted(found) == sorted(wanted + [b'']), found
P

# A program that waits for another host's token can be killed, also behind a signal that it survives.
timeout 60 python3 - "$(daemon_of two)" <<'P' || fail "a writer that waits cannot be killed"
import os, signal, subprocess, sys, time
WRITER = '''
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
file = os.open('one/waited', os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_SYNC, 0o644)
print('open', flush=True)
sys.stdin.readline()
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
os.write(file, b'ours')
print('written', flush=True)
'''
daemon = int(sys.argv[1])
writer = subprocess.Popen([sys.executable, '-c', WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert writer.stdout.readline() == 'open\n'
with open('two/waited', 'w') as theirs:
    theirs.write('theirs')
    theirs.flush()
    os.fsync(theirs.fileno())
    os.kill(daemon, signal.SIGSTOP)
    try:
        writer.stdin.write('go\n')
        writer.stdin.flush()
        time.sleep(1.5)
        assert writer.poll() is None, 'it does not wait'
        writer.kill()
        writer.wait(5)
    finally:
        os.kill(daemon, signal.SIGCONT)
assert writer.stdout.read() == ''
assert open('two/waited').read() == 'theirs', open('two/waited').read()
P

# Attributes beside dirty bytes stay, and a crash loses nothing of them.
echo synced >one/dirty && sync one/dirty
timeout 60 chmod 600 two/dirty
echo more >>one/dirty && sync one/dirty
[[ $(timeout 60 stat -c %a two/dirty) == 600 ]] || fail "a mode was undone"

# Locks of ranges.
fcntl_lock one/lock wait 3 >held & holder=$!
until grep -qs locked held; do sleep 0.05; done
! fcntl_lock two/lock try 0 >/dev/null || fail "fcntl: both hold it"
timeout 20 ls two >/dev/null || fail "others wait for a lock"
fcntl_lock two/lock wait 0 >/dev/null || fail "fcntl: never given"
wait "$holder" || true
# A wait ends with a signal. The former holder's word must be gone first: the file is truncated by
# the new one.
rm held
fcntl_lock one/lock wait 20 >held & holder=$!
until grep -qs locked held; do sleep 0.05; done
fcntl_lock two/lock wait 0 >/dev/null & waiter=$!
sleep 0.5
python3 - "$waiter" <<'P'
import os, sys, time
pid = int(open('/proc/%s/task/%s/children' % (sys.argv[1], sys.argv[1])).read().split()[0])
pid = int(open('/proc/%d/task/%d/children' % (pid, pid)).read().split()[0])
os.kill(pid, 9)
P
for _ in $(seq 100); do kill -0 "$waiter" 2>/dev/null || break; sleep 0.05; done
! kill -0 "$waiter" 2>/dev/null || fail "who waits for a lock cannot be killed"
wait "$waiter" || true

# The host of the holder dies: its lock is free.
kill -9 "$(daemon_of one)"
umount -l one
wait "$holder" || true
mount_host one
fcntl_lock two/lock try 0 >/dev/null || fail "the lock of a host that died is held"
[[ $(timeout 60 cat two/dirty) == $'synced\nmore' ]] || fail "synced bytes are lost: $(cat two/dirty)"
[[ ! -e two/okeanos-conflicts ]] || fail "set aside: $(head -n 3 two/okeanos-conflicts/*.txt)"

# Locks of whole files, or none at all.
touch one/whole
if [[ $KIND == dir ]]; then
    timeout 30 flock one/whole sleep 2 & holder=$!
    sleep 0.5
    ! timeout 20 flock -n two/whole true || fail "flock: both hold it"
    timeout 20 flock two/whole true || fail "flock: never given"
    wait "$holder"
    timeout 20 flock -n two/whole true || fail "flock: held behind its end"
else
    timeout 20 flock -n one/whole true 2>refused && fail "flock is not shared, and was given"
    grep -qi 'no locks available' refused || fail "flock: $(cat refused)"
fi

# SQLite on both, each of which locks, reads, writes and syncs.
command -v sqlite3 >/dev/null || fail "sqlite3 is missing: apt-get install sqlite3"
sqlite3 one/base.db 'pragma journal_mode=delete; create table t(host, n);' >/dev/null
insert() {
    for number in $(seq 25); do
        timeout 120 sqlite3 -cmd '.timeout 60000' "$1/base.db" "insert into t values('$1', $number)" &&
            echo "$1" >>inserted
    done
}
insert one & first=$!
insert two & second=$!
wait "$first" "$second" || true
found=$(timeout 60 sqlite3 two/base.db 'pragma integrity_check; select count(*) from t' | xargs)
[[ $found == "ok $(wc -l <inserted)" ]] || fail "SQLite: $(wc -l <inserted) inserts succeeded, then: $found"
[[ $(wc -l <inserted) == 50 ]] || fail "SQLite: $(wc -l <inserted) of 50 inserts succeeded"

# Two readers of a directory, and names that are removed at the same time.
timeout 300 python3 - <<'P' || fail "listings beside each other"
import os
os.mkdir('one/many')
for number in range(3000):
    open('one/many/%d' % number, 'w').close()
reader = os.scandir('one/many')
seen = [next(reader).name for _ in range(100)]
for name in seen[:50]:
    os.unlink('one/many/' + name)
assert len(list(os.scandir('one/many'))) == 2950
seen += [entry.name for entry in reader]
assert len(seen) == len(set(seen)) == 3000, (len(seen), len(set(seen)))
P

if [[ $KIND == dir ]]; then
    # What is mounted in the store is not part of it.
    mkdir one/inner
    mount -t tmpfs none shared/inner
    echo theirs >shared/inner/file
    ! cat one/inner/file 2>/dev/null || fail "another file system is shown"
    umount shared/inner

    # A number that is used again names no other file.
    timeout 60 python3 - <<'P' || fail "a descriptor of a removed file wrote to another"
import os
open('one/x', 'w').write('old')
open('two/x').read()
log = os.open('two/x', os.O_WRONLY | os.O_APPEND)
os.unlink('one/x')
for number in range(50):
    with open('one/y%d' % number, 'w') as file:
        file.write('mine')
        file.flush()
        os.fsync(file.fileno())
try:
    os.write(log, b'line')
    os.fsync(log)
except OSError:
    pass
for number in range(50):
    assert open('one/y%d' % number).read() == 'mine', number
P

    # A writer for whom there is no room in the journal, as the store takes nothing, waits. It can be
    # killed, and what was synced is there when the store takes it.
    mkdir frozen three
    truncate -s 64M image
    truncate -s 20M journal-three
    mke2fs -q -t ext4 image
    mount -o loop image frozen
    timeout 90 "$OKEANOS" host mount --store "dir:$WORK/frozen" --journal journal-three \
        -o destage=1s,writeback=1s three || fail "no mount of three"
    timeout 120 python3 - <<'P' || fail "a writer that waits for room cannot be killed"
import os, select, subprocess, sys
WRITER = '''
import os
file = os.open('three/waits', os.O_WRONLY | os.O_CREAT)
os.fsync(file)
print('open', flush=True)
number = 0
while True:
    os.pwrite(file, b'%07d' % number * 9362, number % 16 << 16)
    os.fsync(file)
    print(number, flush=True)
    number += 1
'''
writer = subprocess.Popen([sys.executable, '-c', WRITER], stdout=subprocess.PIPE, text=True, bufsize=1)
assert writer.stdout.readline() == 'open\n'
subprocess.run(['fsfreeze', '--freeze', 'frozen'], check=True)
try:
    said = b''
    # It stops when the journal is full. Where it then gets an error, its output ends.
    while select.select([writer.stdout], [], [], 4)[0]:
        more = os.read(writer.stdout.fileno(), 1 << 16)
        assert more, 'the writer got an error, and did not wait'
        said += more
    assert writer.poll() is None
    writer.kill()
    writer.wait(5)
    acknowledged = int(said.split(b'\n')[-2])
finally:
    subprocess.run(['fsfreeze', '--unfreeze', 'frozen'], check=True)
with open('three/waits', 'rb') as file:
    content = file.read()
for number in range(acknowledged - 14, acknowledged + 1):
    at = number % 16 << 16
    assert content[at:at + 65534] == b'%07d' % number * 9362, number
P
    timeout 60 "$OKEANOS" umount three || fail "no unmount of three"
    umount frozen

    # What others may not open they cannot lock.
    [[ $(stat -c %a journal-one shared/.okeanos | xargs) == "600 700" ]] || fail "others may open the journal"
    timeout 30 "$OKEANOS" umount two
    mount_host two nosuid,nodev,noexec,ro
    grep " $WORK/two " /proc/self/mounts | grep -q 'ro,nosuid,nodev,noexec' || fail "mount options are not taken"
    ! touch two/new 2>/dev/null || fail "a mount that only reads was written"
fi
timeout 60 "$OKEANOS" umount one || fail "no unmount"
timeout 60 "$OKEANOS" umount two || fail "no unmount"
echo "test-host-sharing: $KIND: well"
