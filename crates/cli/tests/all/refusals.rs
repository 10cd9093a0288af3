//! Commands refuse their work where necessary, so that nothing that somebody needs is overwritten
//! or taken for another.

use crate::rig::Rig;

/// `kept FILE COMMAND...`: the command must fail, and leave the file as it is.
const KEPT: &str = r#"
    kept() { local file=$1 sum=$(sha256sum <$1); shift; refuses "$@" >>printed 2>&1
        [ "$sum" = "$(sha256sum <$file)" ] || { echo "changed: $file by $*" >&2; exit 1; }; }
"#;

/// The copy of a superblock makes a volume whose start was erased.
#[test]
fn a_block_volume_of_which_the_copy_is_left_is_no_blank_disk() {
    Rig::new().run(&format!(
        r#"{KEPT} truncate -s 64M v; $O blocks format v >made; mkdir store
           dd if=/dev/zero of=v bs=1M count=1 conv=notrunc status=none
           kept v $O mkfs v; kept v $O blocks format v; kept v timeout 20 $O nbd --socket $PWD/s v
           kept v $O host mount --store dir:$PWD/store --journal v $M
           kept v $O host recover --store dir:$PWD/store --journal v
           [ $(grep -c "block volume" printed) = 5 ] || {{ cat printed; exit 1; }}"#
    ));
}

/// A disk that begins with zeros may hold anything.
#[test]
fn a_table_of_runs_is_made_over_nothing_else() {
    Rig::new().run(&format!(
        r#"{KEPT} $O mkfs --scattered-logs image 256M -- -q >made
           truncate -s 64M v other; $O blocks format v >made
           printf data | dd of=other bs=1 seek=2000000 conv=notrunc status=none
           for file in v other; do kept $file $O mount -o log=scattered,mtl=$file image $M; done
           truncate -s 16M blank; $O mount -o log=scattered,mtl=blank image $M; $O umount $M"#
    ));
}

#[test]
fn a_copy_of_an_attached_volume_is_not_taken_for_it() {
    Rig::new().run(&format!(
        r#"{KEPT} truncate -s 64M a; $O blocks format a >made; L=$($O blocks attach a)
           trap '$O blocks detach a' EXIT
           cp a b; truncate -s 96M b
           kept b $O blocks grow b; kept b $O blocks detach b; kept b $O blocks attach b
           [ $(grep -c 'is a copy of' printed) = 3 ] || {{ cat printed; exit 1; }}
           blockdev --getsize64 $L; ln -s a c; $O blocks grow c; $O blocks detach c; trap - EXIT"#
    ));
}

#[test]
fn a_damaged_journal_of_a_host_is_not_made_anew() {
    Rig::new().run(&format!(
        r#"{KEPT} mkdir store; truncate -s 64M journal blank; truncate -s 4096 note; chmod 644 note
           S="--store dir:$PWD/store --journal"
           kept note $O host recover $S note; [ $(stat -c %a note) = 644 ]
           kept blank $O host recover $S blank
           $O host mount -f -o destage=infinite $S journal $M & DAEMON=$!
           for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
           echo synced >$M/file; sync $M/file; kill_daemon; $O umount $M || true
           cp journal whole
           printf X | dd of=journal bs=1 seek=$((4*4096+30)) conv=notrunc status=none
           kept journal $O host mount --format $S journal $M
           cp whole journal; $O host recover $S journal; grep -q synced store/file"#
    ));
}

/// The superblock of btrfs lies behind zeros.
#[test]
fn a_foreign_file_system_becomes_no_journal_unasked() {
    Rig::new().run(&format!(
        r#"{KEPT} mkdir store; truncate -s 64M ext4 btrfs; mke2fs -q -F -t ext4 ext4
           printf _BHRfS_M | dd of=btrfs bs=1 seek=$((65536 + 64)) conv=notrunc status=none
           S="--store dir:$PWD/store --journal"
           for image in ext4 btrfs; do
               kept $image $O host mount $S $image $M
               kept $image $O host mount --format $S $image $M
           done
           [ $(grep -c -- --force printed) = 4 ] || {{ cat printed; exit 1; }}
           $O host mount --format --force $S btrfs $M; $O umount $M"#
    ));
}

#[test]
fn a_trial_of_mke2fs_makes_nothing_else_either() {
    Rig::new().run(&format!(
        r#"{KEPT} truncate -s 16M image journal
           for trial in -n -qn -nFq '-b 4096 -vn' -V; do
               for more in "--journal-device journal" --scattered-logs; do
                   kept image $O mkfs --force $more image -- $trial
               done
               kept journal $O mkfs --force --journal-device journal image -- $trial
               $O mkfs new 64M -- $trial >made 2>&1; [ ! -e new ]; refuses grep -q 'Mount it' made
           done
           # Values look like options.
           $O mkfs new 64M -- -qL -n >made; blkid -p -s LABEL -o value new | grep -qx -- -n"#
    ));
}

#[test]
fn options_for_mke2fs_count_however_they_are_spelled() {
    Rig::new().run(&format!(
        r#"{KEPT} truncate -s 64M journal; F='--force --journal-device journal --journal-size 16M'
           kept journal $O mkfs $F image 64M -- -b 0; [ ! -e image ]
           refuses grep -q panicked printed
           $O mkfs $F image 64M -- -qb1024
           dumpe2fs -h journal 2>said | grep -q '^Block size: *1024'
           dumpe2fs -h journal 2>said | grep -q '^Block count: *16384'
           refuses $O mkfs --scattered-logs old 256M -- -qtext3 2>printed; [ ! -e old ]
           grep -q 'extents' printed
           mkdir mine; chmod 777 . mine; as_nobody $O mkfs mine/image 64M -- -qEroot_owner=7:8
           debugfs -R 'stat /' mine/image 2>said | grep -q 'User: *7 *Group: *8'"#
    ));
}

#[test]
fn each_error_of_scattered_logs_names_its_own_remedy() {
    Rig::new().run(
        r#"says() { local sizes=$1 options=$2 problem=$3 remedy=$4
               refuses $O mkfs --scattered-logs$sizes new 64M -- -q $options 2>printed; [ ! -e new ]
               grep -q -- "$problem" printed && grep -q -- "$remedy" printed ||
                   { echo "$options"; cat printed; exit 1; }
               [ "$remedy" = 'Give other sizes' ] || refuses grep -q 'Give other sizes' printed; }
           says '' '-t ext3' 'have extents' 'Leave out -t ext2, -t ext3'
           says '' '-O ^extent,^64bit' 'have extents' '-O ^extent'
           says '' '-O ^has_journal' 'need a journal' 'Leave out -O ^has_journal'
           says '' '-O quota' 'only be mounted read-only' 'Leave out these features'
           for sizes in =log-size=4K =log-size=8M,group-size=8M =log-size=60M,group-size=130M; do
               says $sizes '' 'log' 'Give other sizes'
           done"#,
    );
}

/// Holds for `--force`, too: what does not fit is refused before anything is overwritten.
#[test]
fn what_does_not_fit_overwrites_nothing() {
    Rig::new().run(&format!(
        r#"{KEPT} $O mkfs old 64M -- -q; $O mkfs small 9M -- -q; truncate -s 1M tiny
           for sizes in log-size=64M,group-size=8M log-size=512K log-size=128M,group-size=256M; do
               kept old $O mkfs --force --scattered-logs=$sizes old -- -q
           done
           grep -q 'Give other sizes' printed
           kept small $O mkfs --force --flush-zone hitachi-7k80 --force-profile small -- -q
           grep -q 'flush zone' printed
           kept tiny $O mkfs tiny -- -q; grep -q 'too small for a journal' printed
           refuses $O mkfs new 1M -- -q 2>printed; [ ! -e new ]
           $O mkfs new 1M -- -q -O ^has_journal; clean new; $O mkfs --force tiny -- -q -t ext2"#
    ));
}

#[test]
fn a_remount_does_not_take_another_volume_for_the_mounted_one() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mkfs other 64M -- -q; ln -s image link; $O mount image $M
           refuses $O mount -o remount,ro other $M 2>printed
           grep -q "other is not what is mounted on $M" printed; touch $M/file
           $O mount -o remount,ro link $M; refuses touch $M/new 2>printed; $O mount -o remount,rw $M
           touch $M/new; $O umount $M"#,
    );
}

#[test]
fn a_pipe_is_no_disk_and_is_not_waited_for() {
    Rig::new().run(
        r#"mkfifo pipe; $O mkfs --scattered-logs image 256M -- -q; mkdir store
           is_refused() {
               refuses timeout 20 $O "$@" 2>printed && grep -q 'pipe' printed ||
                   { echo "$*"; cat printed; exit 1; }
           }
           is_refused mount pipe $M; is_refused blocks attach pipe; is_refused inspect super pipe
           is_refused check pipe
           is_refused mount -o log=scattered,mtl=pipe image $M
           is_refused host mount --store dir:$PWD/store --journal pipe $M
           is_refused mkfs --flush-zone pipe new 64M; [ ! -e new ]"#,
    );
}

#[test]
fn a_profile_of_the_journal_alone_is_refused() {
    Rig::new().run(
        r#"refuses $O mkfs --journal-device log --journal-flush-zone hitachi-7k80 image 64M \
               2>printed
           grep -q -- --flush-zone printed; [ ! -e log ] && [ ! -e image ]; truncate -s 64M v log
           refuses $O blocks format --log log --log-flush-zone hitachi-7k80 v 2>printed
           grep -q -- --flush-zone printed"#,
    );
}

/// blkid(8) knows neither of them.
#[test]
fn a_file_of_an_unknown_kind_is_kept() {
    Rig::new().run(&format!(
        r#"{KEPT} mkdir some; head -c 3000000 /dev/urandom >some/file; tar cf archive some
           truncate -s 64M archive
           cp archive log; truncate -s 64M image
           kept archive $O fingerprint --flush-test archive; kept archive $O mkfs archive
           kept archive $O blocks format archive
           kept log $O mkfs --journal-device log image; kept log $O blocks format --log log image
           [ $(grep -c 'data of an unknown kind' printed) = 5 ] || {{ cat printed; exit 1; }}
           $O blocks format --force archive
           $O mkfs --force --journal-device log --journal-size 16M image -- -q"#
    ));
}

#[test]
fn the_journal_of_a_block_volume_is_named_as_such() {
    Rig::new().run(
        r#"truncate -s 64M v log; $O blocks format --log log v >made
           refuses $O mount log $M 2>printed; grep -q 'is the journal of a block volume' printed
           grep -q 'okeanos blocks attach --log log VOLUME' printed"#,
    );
}

#[test]
fn of_two_commands_that_make_something_one_is_refused() {
    Rig::new().run(
        r#"for round in 1 2 3; do
               rm -f r; truncate -s 64M r
               $O mkfs r -- -q >one 2>&1 & P=$!; A=0; B=0
               $O mkfs r -- -q >two 2>&1 || A=1; wait $P || B=1
               [ $((A + B)) = 1 ] || { cat one two; exit 1; }
           done"#,
    );
}

/// The error of a mount in the background, whatever it begins with.
#[test]
fn a_failed_mount_says_so() {
    Rig::new().run(
        r#"$O mkfs --journal-device journal v 64M -- -q >made; : >up.img
           refuses $O mount -o journal_dev=up.img v $M 2>printed; unmounted $M
           grep -q up.img printed"#,
    );
}

#[test]
fn a_check_of_a_mount_whose_daemon_dies_is_no_verdict() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q >made; serve data=ordered image
           for i in $(seq 40); do mkdir $M/d$i; for j in $(seq 50); do : >$M/d$i/$j; done; done
           strace -qq -o calls -e trace=llistxattr -e inject=llistxattr:error=ENOTCONN:when=30+ \
               $O check $M >printed 2>&1 && { cat printed; exit 1; }
           grep -q 'ENOTCONN.*INJECTED' calls; refuses grep -q 'nothing is wrong' printed
           $O umount $M; wait $DAEMON; settle image"#,
    );
}
