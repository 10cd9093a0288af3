//! Tests of what stands in the way of users, and of the way out that a command names.

use crate::rig::Rig;

/// `within COMMAND...`: it ends in time, or the script does. A daemon that is stopped at the end
/// of the script, whatever happened, goes on and is killed.
const STOPPED: &str = r#"
within() {
    local s=0; timeout -k 1 60 "$@" || s=$?; [ $s -lt 124 ] || { echo "it hangs: $*" >&2; kill $$; }
    return $s
}
rescue() { kill -CONT $DAEMON 2>/dev/null || true; kill -9 $DAEMON 2>/dev/null || true; }
says() {
    local command=$1 out=out-$BASHPID; shift; refuses within $O $command >$out 2>&1
    for text; do grep -q -- "$text" $out || { echo $command; cat $out; exit 1; }; done
}
waits=; DAEMON=; trap rescue EXIT
$O mkfs image 64M -- -q; $O mkfs other 64M -- -q
"#;

#[test]
fn no_command_waits_for_a_stopped_daemon() {
    for options in ["noloop", "data=wasteless"] {
        Rig::new().run(&format!(
            r#"{STOPPED}
               serve {options} image; mkdir $M/below; kill -STOP $DAEMON
               for command in "stats $M" "stats --watch $M" "stats $M/below/deep" "umount $M" \
                   "umount --lazy $M" "mount other $M" \
                   "mount -o remount,ro $M" "check $M" "inspect super $M" "checkpoint $M" \
                   "advise $M" "doctor $M" "fingerprint $M/file"; do
                   says "$command" "$M does not answer" "okeanos umount --force $M" &
                   waits="$waits $!"
               done
               for command in "stats image" "checkpoint image" "umount image" "check image" \
                   "recover image"; do
                   says "$command" "$M" & waits="$waits $!"
               done
               for process in $waits; do wait $process; done
               status=0; within $O check $M 2>printed || status=$?; [ $status = 8 ]
               within $O umount --if-dead $M; within $O inspect super image >printed
               grep -q " $M " /proc/self/mountinfo
               within $O list >printed; grep "^$M" printed | grep -q 'no answer'
               # It was only stopped.
               kill -CONT $DAEMON; ls $M/below; $O umount $M; wait $DAEMON; DAEMON=; settle image
               clean image
               serve {options} image; kill -STOP $DAEMON; within $O umount --force $M
               unmounted $M"#
        ));
    }
}

#[test]
fn a_pipe_as_the_log_delays_neither_mount_nor_requests() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; mkfifo pipe
           refuses timeout 60 $O mount -o log_file=pipe image $M 2>printed
           grep -q 'reader of the pipe' printed; unmounted $M
           exec 9<>pipe; timeout 60 $O mount -o log_file=pipe,log_level=debug,noloop image $M
           for i in $(seq 3000); do echo $i; done >numbers
           timeout 120 bash -c \
               'for i in $(seq 30); do for j in a b c d; do echo $i >$M/file-$i-$j; done; done'
           timeout 60 $O umount $M; exec 9<&-; settle image; clean image"#,
    );
}

#[test]
fn a_mount_whose_starter_was_killed_does_not_come_later() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; mkfifo held
           # The daemon waits for the image, which another program has locked.
           python3 -c 'import fcntl, time
file = open("image", "r+b"); fcntl.lockf(file, fcntl.LOCK_EX); open("held", "w").close(); time.sleep(1000)' &
           L=$!
           cat held; $O mount -o noloop image $M & S=$!
           until C=$(pgrep -P $S); do sleep 0.02; done; kill -9 $S; wait $S || true; kill $L
           wait $L || true
           for i in $(seq 600); do [ -d /proc/$C ] || break; sleep 0.1; done
           refuses test -d /proc/$C; unmounted $M
           # One whose command has ended stays.
           $O mount -o noloop image $M; sleep 0.3; mountpoint -q $M; $O umount $M; clean image"#,
    );
}

#[test]
fn a_limit_of_file_sizes_is_lifted_or_named() {
    Rig::new().run(
        r#"chmod 777 .; cp $O program; chmod 755 program; K=1024
           (ulimit -S -f $((8 * K)); $O mkfs image 64M -- -q; $O mount -o noloop image $M)
           fill() { dd if=/dev/zero of=$M/$1 bs=1M count=30 conv=fsync status=none; }
           fill file; $O umount $M; clean image
           # Beyond one that is set later nothing is written, and the daemon says so once.
           serve noloop image; prlimit --pid $DAEMON --fsize=$((8 << 20))
           refuses fill other 2>printed
           $O stats $M | grep 'stopped writing' >printed; grep -q 'File too large' printed
           [ $(grep -o aborted printed | wc -l) = 1 ]
           refuses $O umount $M 2>printed; wait $DAEMON || true
           # An ordinary user lifts the soft limit.
           as_nobody bash -c "ulimit -S -f $((8 * K)); ./program mkfs soft 64M -- -q"; clean soft
           as_nobody bash -c "ulimit -f $((8 * K)); ./program mkfs hard 64M -- -q" 2>printed &&
               exit 1
           grep -q RLIMIT_FSIZE printed; [ ! -e hard ]
           for command in "recover soft" "mkfs --force soft"; do
               as_nobody bash -c "ulimit -f $((8 * K)); ./program $command" 2>printed && exit 1
               grep -q RLIMIT_FSIZE printed
           done
           mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; mkdir own; chown 65534:65534 own
           as_nobody bash -c "ulimit -f $((8 * K)); ./program mount soft own" 2>printed && exit 1
           grep -q RLIMIT_FSIZE printed; unmounted own"#,
    );
}

#[test]
fn write_protected_disks_are_named_as_such() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O blocks format image2 2>printed || true; truncate -s 64M disk
           for file in image disk; do losetup -r -f $file; done
           settled() { losetup -n -O NAME -j $1; }
           DEVICE=$(settled image); trap 'losetup -d $DEVICE $(settled disk)' EXIT
           refuses $O mount $DEVICE $M 2>printed; grep -q 'is write-protected' printed
           grep -q -- '-o ro' printed
           refuses $O recover $DEVICE 2>printed; grep -q 'is write-protected' printed
           refuses $O blocks format $(settled disk) 2>printed; grep -q 'is write-protected' printed
           $O mount -o ro $DEVICE $M; $O umount $M
           mkdir there; mount -t tmpfs tmpfs there; cp --sparse=always image there
           mount -o remount,ro there
           for command in "recover there/image" "mkfs --force there/image"; do
               refuses $O $command 2>printed; grep -q 'write-protected: make it writable' printed
               refuses grep -q 'read-only)' printed
           done
           refuses $O mount there/image $M 2>printed; grep -q -- '-o ro' printed
           $O mount -o ro there/image $M; $O umount $M"#,
    );
}

#[test]
fn one_file_is_not_taken_as_volume_and_journal() {
    Rig::new().run(
        r#"truncate -s 64M z; ln z y; $O mkfs image 64M -- -q
           for command in "mkfs --journal-device z z" "mkfs --journal-device y z" \
               "blocks format --log z z" "blocks attach --log z z" \
               "mount -o journal_dev=image image $M"; do
               refuses $O $command 2>printed
               grep -q 'is given twice' printed || { echo $command; cat printed; exit 1; }
           done
           refuses $O mkfs --journal-device new new 64M 2>printed; grep -q 'is given twice' printed
           [ ! -e new ]"#,
    );
}

#[test]
fn what_is_no_volume_is_named_with_its_command() {
    Rig::new().run(
        r#"truncate -s 64M v l; $O blocks format --log l v >made; mkdir store host
           refuses $O mount v $M 2>printed; grep -q 'holds a block volume' printed
           grep -q 'okeanos blocks attach v' printed
           $O blocks attach --log l v >device; refuses $O blocks detach l 2>printed
           grep -q 'l is the log' printed
           grep -q "okeanos blocks detach $PWD/v" printed; $O blocks detach v
           truncate -s 64M journal
           $O host mount --store dir:$PWD/store --journal journal --format host; $O umount host
           refuses $O mount journal $M 2>printed; grep -q 'is the journal of a host' printed
           grep -q 'okeanos host mount' printed
           refuses $O mkfs /dev/null 64M 2>printed
           grep -q 'neither a file nor a block device' printed
           truncate -s 64M ext journal2; $O mkfs -F --journal-device journal2 ext -- -q >made
           refuses $O recover ext 2>printed; grep -q -- '--journal-device' printed"#,
    );
}

/// Follows docs/CEPH.md, on a store that is a directory.
#[test]
fn a_journal_whose_store_is_gone_is_given_up_by_hand_alone() {
    Rig::new().run(
        r#"mkdir store new host; truncate -s 64M journal; HOST="$O host mount --journal journal"
           $HOST --store dir:$PWD/store --format host; echo kept >host/file; sync host/file
           pid=$($O stats --json host | sed -n 's/.*"process": \([0-9]*\).*/\1/p'); kill -9 $pid
           for i in $(seq 100); do [ -d /proc/$pid ] || break; sleep 0.1; done
           $O umount host 2>printed
           for force in "" --format "--format --force"; do
               refuses $HOST --store dir:$PWD/new $force host 2>printed
           done
           grep -q 'overwrite its first 4096 bytes' printed
           dd if=/dev/zero of=journal bs=4096 count=1 conv=notrunc status=none
           $HOST --store dir:$PWD/new --format host; ls host; $O umount host"#,
    );
}

#[test]
fn a_trial_of_mkfs_leaves_no_file() {
    Rig::new().run(
        r#"$O mkfs new 64M -- -n >printed; grep -q 'inodes' printed; [ ! -e new ]
           refuses grep -q 'Mount it' printed"#,
    );
}

#[test]
fn commands_in_messages_can_be_pasted() {
    Rig::new().run(
        r#"mkdir 'my dir$(x)'; cd 'my dir$(x)'; name=$'it\'s\nnew'
           $O mkfs "$name" 64M -- -q >printed
           eval "$(sed -n 's/^Mount it with: okeanos/$O/; s/ DIR$/ $M/; p' printed | tail -1)"
           refuses $O recover "$name" 2>printed
           eval "$(sed -n 's/.*Unmount it first: okeanos \(.*\)\.$/$O \1/p' printed)"
           unmounted $M; settle "$name"; odd=$'odd\xff'; $O mkfs "$odd" 64M -- -q >printed
           eval "$(sed -n 's/^Mount it with: okeanos/$O/; s/ DIR$/ $M/; p' printed)"
           mountpoint -q $M; $O umount $M; settle "$odd""#,
    );
}

#[test]
fn checks_say_what_to_do_and_what_nobody_read() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; status=0; $O check image >/dev/full 2>printed || status=$?
           [ $status = 8 ]
           debugfs -w -R 'set_inode_field lost+found links_count 9' image 2>printed; status=0
           $O check image >printed 2>&1 || status=$?; [ $status = 4 ]
           grep -q 'then repair it: e2fsck -f' printed; refuses grep -q 'unmount it' printed
           $O mkfs --force image -- -q; name=$'odd\xff'; $O mount image $M; touch "$M/$name"
           $O umount $M; settle image
           $O inspect inode "/$name" image >printed; grep -q file printed
           refuses $O inspect inode "/other$name" image 2>printed; grep -q 'there is no' printed"#,
    );
}

#[test]
fn a_stopped_daemon_whose_mount_was_cut_is_named() {
    Rig::new().run(&format!(
        r#"{STOPPED}
           serve data=wasteless image; kill -STOP $DAEMON; within $O umount --force $M 2>printed
           grep -q "kill -9 $DAEMON" printed
           says "mount image $M" "kill -CONT $DAEMON""#
    ));
}

#[test]
fn what_needs_root_is_named_to_an_ordinary_user() {
    Rig::new().run(
        r#"mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; chmod 777 .; cp $O program
           chmod 755 program; truncate -s 64M v; chmod 666 v; $O blocks format v >made
           for via in loop nbd; do
               as_nobody timeout 60 ./program blocks attach --via $via v 2>printed && exit 1
               grep -q -- '--via nbd --socket' printed && refuses grep -q modprobe printed ||
                   { cat printed; exit 1; }
           done"#,
    );
}

#[test]
fn a_wrong_default_in_the_superblock_is_warned_of() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; tune2fs -E mount_opts=data=jounal image >made
           $O mount image $M 2>printed; $O umount $M
           grep -q 'warning: tune2fs.*data=jounal' printed"#,
    );
}

#[test]
fn what_a_command_does_not_take_is_refused_with_what_it_takes() {
    Rig::new().run(
        r#"says() {
               local text=$1; shift; refuses timeout 60 $O "$@" 2>printed
               grep -q -- "$text" printed || { echo "$*"; cat printed; exit 1; }
           }
           truncate -s 64M v; $O blocks format v >made; $O mkfs image 64M -- -q; mkdir store
           for option in noatime nosuid noloop allow_other transport=uring poll=off readahead=1M \
               log_level=debug; do
               says "$option is an option of a mount" blocks attach -o $option v
           done
           says 'cannot be changed' blocks attach -o remount v
           $O blocks attach --via loop -o ro,cache=64M,data=wasteless v >device
           L=$(cat device); [ $(blockdev --getro $L) = 1 ]; $O blocks detach v
           says 'okeanos list --help' blocks list; says 'okeanos umount --help' host umount
           says '--listen HOST:PORT' nbd image
           says '--listen HOST:PORT' nbd --listen 127.0.0.1 image
           says 'names no directory' host mount --store dir: --journal v $M
           says 'type ext4' host mount --store dir:$PWD/store --journal image $M
           truncate -s 64M journal
           $O host mount --store dir:$PWD/store --journal journal \
               -o noauto,user,nofail,_netdev,x-foo,noatime,nosymfollow $M
           grep " $M " /proc/self/mountinfo | grep -q noatime; $O umount $M
           says 'no okeanos volume is mounted' mount -o remount,ro image $M"#,
    );
}

#[test]
fn a_reason_stands_below_the_table_and_a_check_names_what_it_walked() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; debugfs -w -R 'ssv state 3' image 2>made
           $O mount -v image $M 2>printed
           grep -q "the daemon reports to the system's log" printed; $O list >printed
           grep "^$M " printed | grep -q 'errors were found  '
           grep -q "^$M: errors were found: unmount it and run e2fsck -f" printed
           refuses $O check $M/lost+found >printed 2>&1; grep -q "^$M: .* are readable" printed
           grep -q 'okeanos recover, e2fsck -f' printed
           $O umount $M"#,
    );
}

/// e2fsck stops at the log, whichever superblock it is given.
#[test]
fn a_damaged_superblock_over_a_live_log_is_restored_as_the_message_says() {
    let zeros = "dd if=/dev/zero of=image bs=1024 seek=1 count=1 conv=notrunc";
    let byte = "printf x | dd of=image bs=1 seek=$((1024 + 0x78)) conv=notrunc";
    // Of a superblock that is changed again behind a checkpoint the log has some bytes only: with
    // those the copy is damaged once more.
    let orphans = "echo x >$M/first; exec 8<$M/first; rm $M/first; sync $M; $O checkpoint $M >done
        exec 9<$M/open; rm $M/open; exec 8<&-;";
    for (format, damage, orphan, rounds, done) in [
        ("-b 1024", zeros, "", "1", " replayed: "),
        ("-b 4096", byte, "", "1", " replayed: "),
        ("-b 4096", zeros, orphans, "1 2", "The journal is empty"),
    ] {
        Rig::new().run(&format!(
            r#"$O mkfs image 200M -- -q {format}; serve data=selective,noloop image
               for name in a b c open; do echo $name >$M/$name; sync $M/$name; done
               {orphan} echo d >$M/d; sync $M/d; kill_daemon; exec 9<&-; umount $M
               {damage} status=none
               for command in "check image" "recover image" "mount image $M"; do
                   refuses $O $command 2>printed
                   grep -q '^    okeanos recover --find-log .*image$' printed ||
                       {{ cat printed; exit 1; }}
               done
               for round in {rounds}; do
                   grep -q 'bs=1024' printed || {{ cat printed; exit 1; }}
                   sed -n 's/^    okeanos/$O/p; s/^    dd.*/& status=none/p' printed >steps
                   status=0; (. ./steps) >printed 2>&1 || status=$?
               done
               [ $status = 0 ] && grep -q '{done}' printed || {{ cat printed; exit 1; }}
               for name in a b c d; do [ "$(debugfs -R "cat /$name" image 2>said)" = $name ]; done
               timeout 60 e2fsck -fy image >fsck || [ $? = 1 ]; clean image; $O check image"#
        ));
    }
}

#[test]
fn a_superblock_that_forgets_a_live_log_leads_to_the_replay() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; serve data=selective,noloop image; echo mine >$M/file
           sync $M/file; kill_daemon; umount $M
           debugfs -w -R 'feature ^needs_recovery' image >said 2>&1
           refuses $O recover image 2>printed; grep -q 'recover --find-log' printed
           refuses $O mount image $M 2>printed; grep -q 'recover --find-log' printed
           $O recover --find-log image; debugfs -R 'cat /file' image 2>said | grep -q mine
           clean image"#,
    );
}

#[test]
fn a_directory_without_a_volume_is_named_as_such() {
    Rig::new().run(
        r#"mkdir plain; refuses $O inspect super plain 2>printed
           grep -q 'no okeanos volume is mounted there' printed
           $O mkfs image 64M -- -q; losetup -f --show image >device
           trap 'losetup -d $(cat device)' EXIT
           refuses $O check image 2>printed; refuses grep -q 'okeanos list' printed
           grep -q "losetup -d $(cat device)" printed"#,
    );
}

#[test]
fn root_unmounts_an_ordinary_users_mount() {
    Rig::new().run(
        r#"mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; chmod 777 .; cp $O program
           chmod 755 program; O=$PWD/program
           mkdir own; chown 65534:65534 own; as_nobody $O mkfs image 64M -- -q
           $O mkfs roots 64M -- -q
           for flag in "" --lazy; do
               as_nobody $O mount image own; as_nobody touch own/file
               refuses $O mount roots own 2>printed
               grep -q "is mounted on $PWD/own" printed; $O umount $flag own; unmounted own
               for i in $(seq 100); do e2fsck -fn image >fsck 2>&1 && break; sleep 0.1; done
               clean image
           done
           $O mount image $M; $O stats --watch=0.1 $M >rates 2>printed & S=$!; sleep 1; $O umount $M
           wait $S && exit 1
           grep -q "was unmounted from $M" printed; refuses grep -q 'as the user' printed
           $O mount roots $M; refuses as_nobody $O umount $M 2>printed
           grep -q 'mounted by root' printed; $O umount $M"#,
    );
}
