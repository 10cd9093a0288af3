//! Tests of mounted hosts from outside.

use crate::common::ring::Ring;
use crate::daemon_rights::{FEW_RIGHTS, SETTLED};
use crate::rig::Rig;

const HOST: &str = r#"
    mkdir store; truncate -s 64M journal
    host() { # store, journal, then the words before
        local store=$1 journal=$2; shift 2
        "$@" $O host mount -f $OPTIONS --store dir:$PWD/$store --journal $PWD/$journal $M &
        DAEMON=$!
        for i in $(seq 600); do mountpoint -q $M && return; sleep 0.1; done; false
    }
"#;

/// The rule of `docs/KERNELS.md`; a host that is refused the ring is mounted without it.
#[test]
fn a_host_takes_the_ring_when_asked_for_and_goes_without() {
    let Some(ring) = Ring::take() else { return };
    for (is_allowed, of_uring) in [(true, "io_uring"), (false, "classic")] {
        ring.allow(is_allowed);
        Rig::new().run(&format!(
            r#"{HOST}
               for asked in default auto classic uring; do
                   OPTIONS="-o transport=$asked"; [ $asked != default ] || OPTIONS=
                   host store journal 2>printed; echo $asked >>$M/file; $O stats --json $M >stats
                   expected=classic; [ $asked != uring ] || expected={of_uring}
                   grep -q "\"transport\": *\"$expected\"" stats; $O umount $M; wait $DAEMON
               done
               [ "$(echo $(cat store/file))" = 'default auto classic uring' ]"#
        ));
    }
}

/// The daemon may not use the second processor, whose queue has one entry then.
#[test]
fn locks_over_a_ring_leave_an_entry_for_the_unlock() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("NOT TESTED: one processor");
        return;
    }
    let Some(_allowed) = Ring::allowed() else { return };
    Rig::new().run(&format!(
        r#"{HOST}
           OPTIONS="-o transport=uring"; host store journal taskset -c 0
           $O stats --json $M | grep -q '"transport": *"io_uring"'; echo content >$M/file
           taskset -c 1 flock $M/file sh -c 'touch held; until [ -e unlock ]; do sleep 0.02; done' &
           HOLDER=$!
           until [ -e held ]; do sleep 0.02; done
           taskset -c 1 timeout 20 flock $M/file true 2>printed & WAITER=$!
           sleep 0.5; touch unlock
           for i in $(seq 200); do kill -0 $HOLDER 2>gone || break; sleep 0.05; done
           refuses kill -0 $HOLDER 2>gone
           refuses wait $WAITER; grep -q 'No locks available' printed
           # With more entries a program waits.
           rm held unlock
           taskset -c 0 flock $M/file sh -c 'touch held; until [ -e unlock ]; do sleep 0.02; done' &
           until [ -e held ]; do sleep 0.02; done; taskset -c 0 timeout 20 flock $M/file true &
           WAITER=$!
           sleep 0.2; touch unlock; wait $WAITER
           $O umount $M; wait $DAEMON"#
    ));
}

/// The dead mount of another store stays, that of another journal, which alone has what was synced,
/// and one whose daemon is only late.
#[test]
fn a_mount_takes_the_place_of_its_own_dead_one() {
    Rig::new().run(&format!(
        r#"{HOST}
           mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
           mounts() {{ grep -c " $M " /proc/self/mountinfo; }}
           mkdir other; truncate -s 64M journal2; OPTIONS=
           host store journal; echo kept >$M/file; sync $M/file; kill_daemon
           refuses $O host mount --store dir:$PWD/other --journal $PWD/journal2 $M 2>printed
           grep -q 'has died' printed; [ $(mounts) = 1 ]
           refuses $O host mount --store dir:$PWD/store --journal $PWD/journal2 $M 2>printed
           grep -q 'has died' printed; [ $(mounts) = 1 ]
           $O host mount --store dir:$PWD/store --journal $PWD/journal $M 2>printed
           grep -q 'taken away' printed; [ $(mounts) = 1 ]; grep -q kept $M/file; $O umount $M
           host store journal; major=$(mountpoint -d $M | cut -d: -f1)
           minor=$(mountpoint -d $M | cut -d: -f2)
           kill -STOP $DAEMON; echo 1 >/sys/fs/fuse/connections/$((major << 20 | minor))/abort
           for i in $(seq 100); do stat -f $M >stat 2>&1 || break; sleep 0.1; done
           refuses $O host mount --store dir:$PWD/store --journal $PWD/journal $M 2>printed
           grep -q "has not ended" printed; [ $(mounts) = 1 ]
           kill -CONT $DAEMON; wait $DAEMON || true
           $O host mount --store dir:$PWD/store --journal $PWD/journal $M 2>printed
           [ $(mounts) = 1 ]; grep -q kept $M/file; $O umount $M"#
    ));
}

#[test]
fn kernels_that_keep_old_pages_map_no_file_of_a_host() {
    Rig::new().run(&format!(
        r#"{HOST}
           OPTIONS=; host store journal setarch --uname-2.6
           /usr/bin/python3 - $M/file <<'END'
import errno, mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, b"content")
assert mmap.mmap(file, 7, mmap.MAP_PRIVATE)[:] == b"content"
try:
    mmap.mmap(file, 7, mmap.MAP_SHARED)
    sys.exit("mapped")
except OSError as error:
    assert error.errno == errno.ENODEV, error
END
           $O umount $M; wait $DAEMON"#
    ));
}

/// A user who may read a journal may lock it.
#[test]
fn a_journal_is_private_before_it_is_claimed() {
    Rig::new().run(&format!(
        r#"{HOST}
           OPTIONS=; host store journal; mkdir two; [ $(stat -c %a journal) = 600 ]
           chmod 644 journal
           refuses $O host mount --store dir:$PWD/store --journal $PWD/journal two 2>printed
           [ $(stat -c %a journal) = 600 ]; $O umount $M; wait $DAEMON
           # No journal, and not to become one.
           cp /bin/true other
           refuses $O host mount --store dir:$PWD/store --journal $PWD/other $M 2>printed
           [ $(stat -c %a other) = 755 ]"#
    ));
}

#[test]
fn a_store_on_fuse_is_refused_unless_forced() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; mkdir fuse; $O mount image fuse; truncate -s 64M journal
           refuses $O host mount --store dir:$PWD/fuse --journal $PWD/journal $M 2>printed
           grep -q 'it lies on FUSE' printed; grep -q -- --force printed
           $O host mount --force --store dir:$PWD/fuse --journal $PWD/journal $M; echo kept >$M/file
           $O umount $M
           grep -q kept fuse/file
           refuses $O host recover --store dir:$PWD/fuse --journal $PWD/journal 2>printed
           grep -q 'it lies on FUSE' printed
           $O host recover --dry-run --store dir:$PWD/fuse --journal $PWD/journal
           $O host recover --force --store dir:$PWD/fuse --journal $PWD/journal; $O umount fuse"#,
    );
}

#[test]
fn list_counts_files_that_the_store_refuses() {
    Rig::new().run(&format!(
        r#"{HOST}
           mount -t tmpfs -o size=1M none store; head -c 100000 /dev/urandom >content
           OPTIONS="-o destage=1,writeback=1"; host store journal; $O list | grep "$M" | grep -q ok
           touch $M/file; sync $M/file; head -c 2M /dev/zero >store/filler 2>printed && exit 1
           cat content >$M/file; sync $M/file
           for i in $(seq 300); do
               $O list >listed; grep -q '1 files cannot go to the store' listed && break; sleep 0.1
           done
           grep "$M" listed | grep -q '1 files cannot go to the store: see the system log' ||
               {{ cat listed; exit 1; }}
           status=0; $O check $M >checked 2>&1 || status=$?
           [ $status = 4 ] && grep -q 'cannot go to the store: 1' checked ||
               {{ cat checked; exit 1; }}
           # What is left when it is unmounted is nothing for e2fsck.
           status=0; $O umount $M 2>said || status=$?; wait $DAEMON || true
           [ $status = 1 ] && grep -q 'okeanos host mount --store' said || {{ cat said; exit 1; }}
           refuses grep -q e2fsck said
           rm store/filler; host store journal
           cmp content $M/file; $O umount $M; wait $DAEMON; cmp content store/file
           umount store"#
    ));
}

/// The file system of the store keeps times in whole seconds, so that a time of change proves
/// little: what was synced after a destage is in the file all the same.
#[test]
fn synced_bytes_survive_on_a_store_with_times_in_seconds() {
    Rig::new().run(&format!(
        r#"{HOST}
           truncate -s 200M image; mke2fs -q -F -t ext4 -I 128 image >made 2>&1
           mount -o loop image store
           OPTIONS="-o destage=1,writeback=1"; host store journal; exec 3<>$M/file
           printf 'A%.0s' $(seq 5000) >&3; sync $M/file
           for i in $(seq 100); do [ $(stat -c %s store/file) = 5000 ] && break; sleep 0.1; done
           sleep 2
           printf 'B%.0s' $(seq 3000) |
               dd of=$M/file bs=1000 seek=1 conv=notrunc oflag=sync status=none
           kill_daemon; exec 3>&-; umount -l $M; host store journal
           (printf 'A%.0s' $(seq 1000); printf 'B%.0s' $(seq 3000)
            printf 'A%.0s' $(seq 1000)) | cmp - $M/file
           [ ! -e $M/okeanos-conflicts ]; $O umount $M; wait $DAEMON; umount store"#
    ));
}

/// The holder of a token looks for wishes of others, twenty times a second.
#[test]
fn an_idle_host_that_holds_a_file_sleeps() {
    Rig::new().run(&format!(
        r#"{HOST}
           OPTIONS=; host store journal; exec 3>$M/file; echo held >&3; sync $M/file; sleep 3
           wakes() {{
               echo $(($(sed -n 's/^voluntary_ctxt_switches:\t//p' /proc/$DAEMON/task/*/status | paste -sd+)))
           }}
           ticks() {{ set -- $(cat /proc/$DAEMON/stat); echo $((${{14}} + ${{15}})); }}
           wakes=$(wakes) ticks=$(ticks); sleep 2
           wakes=$(($(wakes) - wakes)) ticks=$(($(ticks) - ticks))
           exec 3>&-; $O umount $M; wait $DAEMON; echo "$wakes wakes, $ticks ticks"
           test $wakes -le 150; test $ticks -le 10"#
    ));
}

/// Tokens are of one store each.
#[test]
fn a_store_within_a_store_is_refused_unless_forced() {
    Rig::new().run(&format!(
        r#"{HOST}
           OPTIONS=; mkdir store/inner; host store journal; $O umount $M; wait $DAEMON
           truncate -s 64M journal2
           refuses $O host mount --store dir:$PWD/store/inner --journal $PWD/journal2 $M 2>printed
           grep -q "it lies in the store dir:$PWD/store" printed; grep -q -- --force printed
           $O host mount --force --store dir:$PWD/store/inner --journal $PWD/journal2 $M
           $O umount $M"#
    ));
}

#[test]
fn a_store_on_overlayfs_is_refused() {
    Rig::new().run(
        r#"mkdir base merged; mount -t tmpfs none base; mkdir base/lower base/upper base/work
           truncate -s 64M journal
           mount -t overlay none -o lowerdir=base/lower,upperdir=base/upper,workdir=base/work merged
           refuses $O host mount --store dir:$PWD/merged --journal $PWD/journal $M 2>printed
           grep -q 'it lies on overlayfs' printed"#,
    );
}

/// Kept: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, IPC_LOCK, SYS_PTRACE, SYS_ADMIN,
/// SYS_RESOURCE, MKNOD and SETFCAP.
#[test]
fn a_host_of_root_keeps_only_rights_over_files() {
    Rig::new().run(&format!(
        r#"{HOST} {FEW_RIGHTS} {SETTLED}
           chmod 755 .; OPTIONS='-o allow_other'; host store journal
           few $DAEMON 0x8928401f; settled $DAEMON; locked $DAEMON
           cd $M; chmod 1777 .; echo content >file; chown 1000:7000 file; chmod 6755 file
           setfattr -n trusted.a -v 1 file; cp /bin/true program; setcap cap_net_raw+ep program
           mknod null c 1 3; as_nobody sh -c 'echo own >own; chmod 0 own'; cat own | grep -q own
           few $DAEMON 0x8928401f; cd ..; $O umount $M; wait $DAEMON; cd store
           [ "$(stat -c '%u %g %a' file)" = '1000 7000 6755' ]; [ -c null ]
           [ "$(stat -c '%u %a' own)" = '65534 0' ]; getcap program | grep -q net_raw
           getfattr -n trusted.a file >printed"#
    ));
}
