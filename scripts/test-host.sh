#!/bin/bash
# Two hosts with a journal each in front of one shared directory: files, hand-over, kill -9 and
# recovery, on real mounts.
#
#   scripts/test-host.sh OKEANOS        needs root
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
readonly OKEANOS=$(realpath "$1")
readonly WORK=$(mktemp -d /tmp/okeanos-host.XXXXXX)
# Others than root come by, too.
chmod 755 "$WORK"
cd "$WORK"

writer=
finish() {
    [[ -z $writer ]] || kill "$writer" 2>/dev/null || true
    for directory in one two user/mount; do
        ! grep -q " $WORK/$directory " /proc/self/mounts || umount -l "$directory"
    done
    cd / && rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

fail() {
    echo "test-host: $1" >&2
    exit 1
}
mount_host() { # HOST [COMMAND that gives up rights]
    timeout 60 "${@:2}" "$OKEANOS" host mount --store "dir:$WORK/shared" --journal "journal-$1" -o destage=infinite,allow_other "$1"
}
daemon_of() {
    "$OKEANOS" stats --json "$1" | sed -n 's/.*"process": \([0-9]*\).*/\1/p'
}
same() {
    cmp "$1" "$2" || fail "$1 and $2 differ"
}

mkdir shared one two
truncate -s 64M journal-one journal-two
mount_host one
mount_host two
# No commit has to wait for blocks, and none can lack them.
[[ $(stat -c %b journal-one) -ge $((64 * 2048)) ]] || fail "the journal has holes"
! filefrag -v journal-one 2>/dev/null | grep -q unwritten || fail "the journal's blocks were never written"

# The daemon of a later mount must not keep an earlier one alive.
timeout 20 "$OKEANOS" umount one || fail "a mount does not end while a later one lives"
mount_host one

echo hello >one/greeting
timeout 60 cat two/greeting | grep -qx hello || fail "the other host does not see what was written"
echo again >>two/greeting
printf 'hello\nagain\n' | cmp - one/greeting || fail "the first host does not see what the other added"

mkdir one/tree
for number in $(seq 40); do head -c $((number * 997)) /dev/urandom >"one/tree/$number"; done
cp -a one/tree kept
diff -r kept two/tree || fail "the tree differs"
truncate -s 100 one/tree/40
[[ $(stat -c %s shared/tree/40) == 100 ]] || fail "a truncation is not at the store"
mv one/tree/1 one/tree/39
[[ ! -e two/tree/1 ]] || fail "a renamed file is still there"

for round in 1 2 3; do
    dd if=/dev/urandom of="synced-$round" bs=4k count=25 status=none
    dd if="synced-$round" of="one/synced-$round" bs=1k oflag=sync status=none
    [[ $(stat -c %s "shared/synced-$round") == 0 ]] || fail "nothing should be at the store yet"
    # In the second line: nothing in memory alone, 100 KiB and more in the journal.
    timeout 20 "$OKEANOS" stats --watch=0.2 --count 1 one >watched
    grep -Pzq 'in memory +in journal +at store.*\n +0 B +\d{3,}' watched || fail "stats do not print where the bytes are: $(cat watched)"
    # As editors and mail stores save a file: new name, synced, renamed over the old one, and a
    # second link.
    dd if="synced-$round" of=one/new bs=1k conv=fsync status=none
    mv one/new one/saved
    ln one/saved "one/linked-$round"
    (while echo more; do :; done >one/stream 2>/dev/null) &
    writer=$!
    sleep 0.5
    kill -9 "$(daemon_of one)"
    wait "$writer" || true
    writer=
    umount -l one
    timeout 60 "$OKEANOS" host recover --dry-run --store "dir:$WORK/shared" --journal journal-one | grep -q replayed ||
        fail "nothing would be replayed"
    mount_host one
    same "synced-$round" "shared/synced-$round"
    same "synced-$round" "two/synced-$round"
    same "synced-$round" shared/saved
    same "synced-$round" "shared/linked-$round"
    [[ ! -e shared/okeanos-conflicts ]] || fail "something was set aside"
done

# Other users, too: the kernel asks for access lists, which this store does not have.
chmod 777 one && mkdir one/others && chown nobody: one/others
timeout 20 setpriv --reuid nobody --regid nogroup --clear-groups sh -c 'echo own >one/others/file && chmod 640 one/others/file' ||
    fail "another user cannot use his own directory"
! timeout 20 setpriv --reuid daemon --regid daemon --clear-groups cat one/others/file 2>denied.out || fail "everybody may read it"
grep -q "Permission denied" denied.out || fail "it is refused for another reason: $(cat denied.out)"

# Room and holes, also where it is dirty; what cannot be zeroed in place is written by who asks.
head -c 12288 /dev/zero | tr '\0' x >one/room
fallocate -l 16384 one/room && fallocate -p -o 4096 -l 4096 one/room || fail "no room or no hole"
cp one/room room
[[ $(stat -c %s one/room) == 16384 && $(tr -d '\0' <room | wc -c) == 8192 ]] || fail "room or hole are wrong"
same room shared/room
timeout 60 cmp room two/room || fail "the other host sees another hole"

# A file without a name stays usable.
exec 7<>one/nameless && rm one/nameless && echo kept >&7 || fail "a removed file cannot be written"
exec 7>&-

# More files open and dirty at once than a process may have by default.
python3 - one/many <<'END' || fail "many open files"
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.mkdir(sys.argv[1])
files = [os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_RDWR) for number in range(1500)]
for number, file in enumerate(files):
    os.write(file, b"%d" % number)
for number, file in enumerate(files):
    os.fsync(file)
    assert os.pread(file, 9, 0) == b"%d" % number
END
[[ $(timeout 60 cat two/many/1499) == 1499 ]] || fail "the last of many files"

# Records of about half a block, in one transaction each; and what is removed stays removed.
python3 - one <<'END' || fail "many writes of one file"
import os, sys
for count in range(79, 84):
    file = os.open(f"{sys.argv[1]}/states-{count}", os.O_CREAT | os.O_RDWR)
    for number in range(count):
        os.pwrite(file, b"acknowledged data %03d\n" % number, number * 22)
    os.fsync(file)
END
echo removed >one/removed && sync one/removed && rm one/removed
echo mine >one/disputed
sync one/disputed
kill -9 "$(daemon_of one)"
umount -l one
echo theirs >two/disputed
sleep 0.1
timeout 60 "$OKEANOS" umount two
# The store's file system is not mounted yet.
mv shared elsewhere && mkdir shared
for command in "host mount" "host recover"; do
    place=one
    [[ $command == "host mount" ]] || place=
    # shellcheck disable=SC2086
    ! timeout 60 "$OKEANOS" $command --store "dir:$WORK/shared" --journal journal-one $place 2>refused ||
        fail "$command: another directory counts as the store"
    grep -q "no host ever used this directory" refused || fail "$command: $(cat refused)"
done
[[ ! $(ls -A shared) ]] || fail "something was made in another directory"
rmdir shared && mv elsewhere shared
mount_host one
for count in $(seq 79 83); do
    [[ $(stat -c %s "one/states-$count") == $((count * 22)) ]] || fail "$count writes are gone"
done
! grep -rq removed shared/okeanos-conflicts || fail "a removed file came back"
[[ $(cat one/disputed) == theirs ]] || fail "another host's write was overwritten"
grep -rq mine shared/okeanos-conflicts || fail "what was synced was not set aside"
timeout 60 "$OKEANOS" umount one
timeout 60 "$OKEANOS" host recover --store "dir:$WORK/shared" --journal journal-one | grep -q "is empty" ||
    fail "the journal is not empty after unmount"

# What its owner made read-only, as git makes its objects, is written and recovered by him: here root
# without the right to pass over modes.
readonly OWNER=(setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search)
mount_host one "${OWNER[@]}"
python3 - one/object <<'END' || fail "a file made read-only cannot be written by who made it"
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o444)
os.write(file, b"synced")
os.fsync(file)
END
kill -9 "$(daemon_of one)"
umount -l one
timeout 60 "${OWNER[@]}" \
    "$OKEANOS" host recover --store "dir:$WORK/shared" --journal journal-one >recovered || fail "an owner cannot recover his file"
[[ $(cat shared/object) == synced && $(stat -c %a shared/object) == 444 ]] || fail "a file made read-only: $(cat recovered)"

# An ordinary user's host holds git, and recovers at once, also behind a removal of what was synced.
# A node of our own for /dev/fuse: the system's may be closed to ordinary users.
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
install -m 755 "$OKEANOS" program
mkdir -p user/store user/mount user/run
truncate -s 64M user/journal
chown -R 65534:65534 user
as_user() {
    timeout 60 setpriv --reuid 65534 --regid 65534 --clear-groups \
        env HOME="$WORK/user" XDG_RUNTIME_DIR="$WORK/user/run" GIT_CEILING_DIRECTORIES="$WORK" "$@"
}
mount_user() {
    as_user "$WORK/program" host mount --store "dir:$WORK/user/store" --journal "$WORK/user/journal" \
        -o destage=infinite user/mount || fail "an ordinary user's host: $1"
}
readonly TREE=$WORK/user/mount/tree
repository() { as_user git -C "$TREE" -c user.name=a -c user.email=a@example.org "$@" >git.out 2>&1; }
mount_user "no mount"
as_user cp -r kept "$TREE"
repository init -q && repository add . && repository commit -qm first || fail "an ordinary user's host holds no git: $(cat git.out)"
as_user find "$TREE" -exec sync {} +
as_user sh -c 'echo removed >user/mount/a && sync user/mount/a && rm user/mount/a'
daemon=$(as_user "$WORK/program" stats --json user/mount | sed -n 's/.*"process": \([0-9]*\).*/\1/p')
kill -9 "$daemon"
umount -l user/mount
mount_user "no recovery at the first attempt"
[[ ! -e user/store/okeanos-conflicts ]] || fail "an ordinary user's host set aside: $(head -n 3 user/store/okeanos-conflicts/*.txt)"
repository fsck --strict || fail "git behind a crash: $(cat git.out)"
[[ -z $(as_user git -C "$TREE" status --porcelain) ]] || fail "git lacks something behind a crash"
as_user diff -r --exclude .git kept "$TREE" || fail "the tree differs behind a crash"
as_user "$WORK/program" umount user/mount || fail "an ordinary user's host: no unmount"
echo "test-host: well"
