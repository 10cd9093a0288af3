//! Tests of mount options that have an effect, on real mounts. Needs root, FUSE and loop devices;
//! every mount is made in a namespace of its own.

use crate::rig::Rig;

#[test]
fn a_read_only_mount_replays_the_journal() {
    for options in ["data=ordered", "data=wasteless", "noloop,data=ordered"] {
        let rig = Rig::new();
        rig.run(&format!(
            r#"$O mkfs image 64M -- -q; serve {options} image; echo kept >$M/file; sync $M/file
               exec 7>$M/orphan; rm $M/orphan; sync $M
               kill_daemon; exec 7>&-; umount $M; settle image
               $O mount -o ro,{options} image $M
               grep -q kept $M/file; refuses touch $M/new; $O umount $M; settle image; clean image
               $O mount -o ro,{options} image $M; grep -q kept $M/file; $O umount $M"#
        ));
    }
}

#[test]
fn a_plain_mount_warns_that_neither_sync_nor_umount_waits() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount -o noloop image $M 2>out
           grep -q 'sync(2) and syncfs(2)' out; grep -q 'okeanos umount (umount(8)' out
           grep -q 'within 5s (commit=)' out
           refuses grep -q 'umount(2)' out; $O umount $M; settle image
           $O mount -o noloop,ro image $M 2>out; [ ! -s out ]; $O umount $M"#,
    );
}

#[test]
fn a_write_protected_disk_with_a_live_journal_is_refused_with_the_way_out() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; echo old >text; debugfs -w -R 'write text old' image 2>/dev/null
           serve data=ordered image; echo kept >$M/file; sync $M/file
           kill_daemon; umount $M; settle image; sha256sum image >before
           refuses $O mount -o noload image $M 2>out; grep -q 'ro,noload' out
           L=$(losetup -r -f --show image); trap 'losetup -d $L' EXIT
           refuses $O mount -o ro $L $M 2>out; grep -q write-protected out; grep -q 'ro,noload' out
           for word in noload norecovery; do
               $O mount -o ro,$word $L $M; grep -q old $M/old; refuses touch $M/new; $O umount $M
           done
           losetup -d $L; trap - EXIT; settle image; sha256sum -c before
           $O recover image; clean image"#,
    );
}

#[test]
fn what_an_fstab_line_of_ext4_may_say_can_be_mounted() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q
           for options in defaults,errors=remount-ro,nofail \
               errors=continue,discard,noatime,user,x-systemd.automount \
               acl,user_xattr,barrier=1,nodelalloc,auto_da_alloc,nodiratime,lazytime,commit=60,data=ordered \
               rw,relatime,stripe=128,journal_checksum,i_version,init_itable=10,_netdev,comment=x \
               strictatime,noauto_da_alloc,nodiscard,noacl,nouser_xattr,sync,nosuid,nodev,noexec,owner,noiversion \
               ro,noload,errors=panic
           do $O mount -o $options image $M 2>>printed; $O umount $M; settle image; done
           clean image; grep -q discard printed; grep -q errors=panic printed
           for options in usrquota jqfmt=vfsv0 usrjquota=aquota.user resuid=5 sb=8193; do
               refuses $O mount -o $options image $M 2>out; grep -q "$options" out
           done"#,
    );
}

#[test]
fn attributes_that_a_mount_leaves_out_are_not_served() {
    let rig = Rig::new();
    rig.run(
        r#"chmod 755 .; $O mkfs image 64M -- -q >made; f=$M/f
           again() { $O umount $M; settle image; $O mount -o allow_other,$1 image $M; }
           asked() {
               $O stats --json $M |
                   /usr/bin/python3 -c "import json, sys; print(json.load(sys.stdin)['front_end']['by_operation'].get('$1', 0))"
           }
           $O mount image $M; echo text >$f; mkdir $M/d; chmod 600 $f; setfacl -d -m u:77:rwx $M/d
           setfattr -n user.a -v 1 $f; setfattr -n trusted.t -v 1 $f; setfacl -m u:65534:r $f

           again nouser_xattr; [ "$(getfattr -d -m - $f 2>/dev/null | grep -c '^user')" = 0 ]
           refuses getfattr -n user.a $f 2>printed; grep -q 'not supported' printed
           refuses setfattr -n user.b -v 1 $f 2>printed; grep -q 'not supported' printed
           getfattr -n trusted.t $f >printed; as_nobody cat $f >printed

           again noacl; refuses as_nobody cat $f 2>printed; refuses setfacl -m u:5:r $f 2>printed
           refuses getfattr -n system.posix_acl_access $f 2>printed; grep -q 'not supported' printed
           (umask 027; touch $M/d/new); [ $(stat -c %a $M/d/new) = 640 ]; chmod 640 $f
           getfattr -n user.a $f >printed

           again noxattr; refuses as_nobody cat $f 2>printed; before=$(asked getxattr)
           for i in $(seq 20); do
               refuses getfattr -n user.a $f 2>>printed; refuses getfattr -n trusted.t $f 2>>printed
           done
           [ $(asked getxattr) -le $((before + 1)) ]; [ -z "$(getfattr -d -m - $f)" ]
           refuses setfattr -n user.b -v 1 $f 2>printed

           again defaults; [ "$(getfattr -d -m - $f 2>/dev/null | grep -c =)" = 3 ]
           getfacl -n $f 2>/dev/null | grep -q user:65534:r--
           [ "$(getfacl -n $M/d/new 2>/dev/null | grep -c user:77)" = 0 ]
           refuses $O mount -o remount,noxattr image $M 2>printed; grep -q noxattr printed
           $O umount $M; settle image"#,
    );
    rig.check("");
}

/// Covers synchronous writes to an existing file, too, which then take two requests.
#[test]
fn noopen_opens_without_asking_and_loses_nothing() {
    let rig = Rig::new();
    rig.run(
        r#"$O mkfs image 64M -- -q >made; $O mount -o noopen image $M
           asked() {
               $O stats --json $M |
                   /usr/bin/python3 -c "import json, sys; print(json.load(sys.stdin)['front_end']['by_operation'].get('$1', 0))"
           }
           for i in $(seq 20); do echo $i >$M/f$i; done
           for i in $(seq 20); do [ $(cat $M/f$i) = $i ]; done
           [ $(asked open) -le 1 ]
           # Nothing is left of files that are made, closed and removed.
           free=$(stat -f -c %d $M)
           for i in $(seq 100); do head -c 1M /dev/zero >$M/temporary; rm $M/temporary; done
           for i in $(seq 100); do [ $(stat -f -c %d $M) = $free ] && break; sleep 0.1; done
           [ $(stat -f -c %d $M) = $free ]
           # Unlinked while it is open, appended to, cut on opening, run.
           exec 3<>$M/f1; rm $M/f1; echo more >&3; exec 3>&-; echo more >>$M/f2; echo x >$M/f3
           cp /bin/true $M/true; $M/true
           # A mapping that changes a hole, and a copy beside it.
           /usr/bin/python3 - $M/f4 $M/copy <<'END'
import mmap, os, shutil, sys
os.truncate(sys.argv[1], 1 << 20)
file = os.open(sys.argv[1], os.O_RDWR)
map = mmap.mmap(file, 1 << 20)
map[500000] = 55
data = os.lseek(file, 0, os.SEEK_DATA)
assert data <= 500000, data
assert open(sys.argv[1], "rb").read()[500000] == 55
END
           $O umount $M; settle image
           serve noopen image; printf synced | dd of=$M/f5 oflag=sync conv=notrunc status=none
           kill_daemon; umount -l $M; settle image
           $O mount image $M; [ "$(cat $M/f5)" = synced ]
           [ "$(cat $M/f2)" = "$(printf '2\nmore')" ]; [ $(cat $M/f3) = x ]; [ ! -e $M/f1 ]
           [ $(tail -c +500001 $M/f4 | head -c 1) = 7 ]; $O umount $M; settle image"#,
    );
    rig.check("");
}

/// A file whose block lies beyond the end.
const DAMAGED: &str = r#"
    truncate -s 64M image; mke2fs -q -t ext3 image; echo text >text
    debugfs -w -R 'write text bad' image 2>/dev/null
    debugfs -w -R 'sif bad block[0] 99999999' image
"#;

#[test]
fn errors_decides_what_damage_stops() {
    for (tune, options, stops) in [
        ("-e continue", "defaults", false),
        ("-e continue", "errors=remount-ro", true),
        ("-e remount-ro", "defaults", true),
        ("-e remount-ro", "errors=continue", false),
    ] {
        let then = if stops { "refuses touch $M/new" } else { "touch $M/new; sync -f $M/new" };
        let end = if stops { "refuses $O umount $M" } else { "$O umount $M" };
        Rig::new().run(&format!(
            r#"{DAMAGED} tune2fs {tune} image >out; $O mount -o {options} image $M; touch $M/before
               refuses cat $M/bad; {then}; {end}; settle image
               dumpe2fs -h image 2>/dev/null | grep 'state:.*errors'"#
        ));
    }
}

#[test]
fn the_superblock_says_how_to_mount_where_the_command_does_not() {
    let rig = Rig::new();
    let mode = |tune: &str, options: &str| {
        let printed = rig.run(&format!(
            "[ -e image ] || $O mkfs image 64M -- -q >out; tune2fs {tune} image >out
             $O mount -o {options} image $M; $O stats --json $M; $O umount $M; settle image"
        ));
        let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        printed["about"]["data"].as_str().unwrap().to_owned()
    };
    assert_eq!(mode("-o ^acl", "defaults"), "selective");
    assert_eq!(mode("-o journal_data_ordered", "defaults"), "ordered");
    assert_eq!(mode("-o journal_data", "defaults"), "journal");
    assert_eq!(mode("-o journal_data", "data=wasteless"), "wasteless");
    assert_eq!(mode("-o ^journal_data,journal_data_writeback", "noatime"), "writeback");
    assert_eq!(mode("-E mount_opts=data=selective", "defaults"), "selective");
    rig.run(
        r#"tune2fs -o bsdgroups image >out; $O mount image $M; mkdir $M/d; chgrp 77 $M/d
           touch $M/d/theirs
           [ $(stat -c %g $M/d/theirs) = 77 ]; $O umount $M; settle image
           $O mount -o nogrpid image $M; touch $M/d/ours; [ $(stat -c %g $M/d/ours) = 0 ]
           $O umount $M"#,
    );
}

#[test]
fn a_mount_that_names_no_mode_is_selective_and_learns_its_threshold() {
    for (mkfs, options, data, threshold) in [
        ("$O mkfs image 64M -- -q", "defaults", "selective", "threshold=auto"),
        (
            "$O mkfs image 64M -- -q",
            "noloop,threshold=16K",
            "selective",
            "bytes, requests below 16384",
        ),
        (
            "mke2fs -q -b 4096 -t ext4 image 64M",
            "data=selective",
            "selective",
            "bytes, requests below 4096",
        ),
        ("$O mkfs image 64M -- -q", "ro,noload", "ordered", ""),
        ("mke2fs -q -t ext3 image 64M", "noatime", "selective", "threshold=auto"),
        ("mke2fs -q -t ext4 -O ^has_journal image 64M", "defaults", "ordered", ""),
    ] {
        Rig::new().run(&format!(
            r#"{mkfs} >made; $O mount -o {options} image $M 2>printed; refuses grep data= printed
               grep -qE " $M fuse(blk)?.okeanos.{data} " /proc/mounts
               $O stats $M >stats; grep -q 'data={data}' stats; grep -q '{threshold}' stats
               $O umount $M; settle image; clean image"#
        ));
    }
}

#[test]
fn a_mode_that_logs_data_warns_on_a_volume_without_a_journal() {
    Rig::new().run(
        r#"mke2fs -q -t ext4 -O ^has_journal image 64M
           for mode in journal wasteless selective adaptive; do
               $O mount -o data=$mode image $M 2>printed; $O umount $M; settle image
               [ $(grep -c warning printed) = 1 ]; grep -q "data=$mode" printed
               grep -q journal printed
               $O mount -f -o data=$mode image $M 2>printed &
               for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
               $O umount $M; wait; settle image; grep -q "data=$mode" printed
               grep -q journal printed
           done"#,
    );
}

#[test]
fn a_volume_with_errors_is_reported_until_e2fsck_repaired_it() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; debugfs -w -R 'ssv state 3' image 2>made
           $O mount image $M 2>printed; grep -q 'warning: .*run e2fsck' printed
           $O list >printed; grep -q 'run e2fsck' printed; $O stats --json $M >printed
           grep -q '"needs_check": *true' printed
           refuses $O check $M >printed 2>&1; grep -q marked printed
           $O umount $M; settle image; refuses $O check image >printed 2>&1; grep -q marked printed
           timeout 60 e2fsck -fy image >printed || [ $? = 1 ]; $O check image
           $O mount image $M 2>printed; refuses grep . printed; $O list >printed
           grep -qw ok printed; $O check $M; $O umount $M
           settle image; clean image"#,
    );
}

#[test]
fn after_damage_remount_ro_refuses_changes_and_syncs_fail() {
    Rig::new().run(&format!(
        r#"{DAMAGED} $O mount -o errors=remount-ro image $M; echo kept >$M/before; sync $M/before
           echo more >>$M/before
           refuses cat $M/bad
           for change in "touch $M/new" "rm $M/before" "mv $M/before $M/after" \
               "chmod 600 $M/before" "mkdir $M/d" \
               "truncate -s 1 $M/before"; do
               refuses $change 2>out; grep -q 'Read-only file system' out
           done
           refuses sync $M/before 2>out; grep -q 'Input/output error' out
           refuses sync -f $M/before 2>out; grep -q 'Input/output error' out
           refuses $O mount -o remount,rw image $M 2>out; grep -q aborted out
           refuses $O umount $M; settle image"#
    ));
}

/// Functions for scripts. `has WORD`: the mount's options list it. `refuses_changes`: as on a
/// read-only volume.
const REMOUNT: &str = r#"
    has() { findmnt -no OPTIONS $M | grep -qw -- "$1"; }
    refuses_changes() { refuses touch $M/new 2>out; grep -q 'Read-only file system' out; }
    $O mkfs image 64M -- -q
"#;

#[test]
fn a_remount_makes_a_read_only_volume_writable_and_back() {
    for options in [
        "data=ordered",
        "data=wasteless",
        "data=journal",
        "noloop,data=selective",
        "noloop,data=writeback",
    ] {
        Rig::new().run(&format!(
            r#"{REMOUNT} serve ro,{options} image; has ro; refuses_changes
               for round in 1 2 3; do
                   $O mount -o remount,rw image $M; has rw; echo round $round >>$M/file
                   mkdir $M/directory$round; exec 7>$M/orphan; rm $M/orphan; exec 7>&-
                   $O mount -o remount,ro image $M; has ro; refuses_changes
                   grep -q "round $round" $M/file
                   # As clean as if it were unmounted.
                   copy image rested; clean rested; dumpe2fs -h rested 2>/dev/null >printed
                   refuses grep -q needs_recovery printed
               done
               $O mount -o remount,rw image $M; echo last >>$M/file; sync $M/file
               kill_daemon; umount $M; settle image
               $O mount -o {options} image $M; [ $(cat $M/file | wc -l) = 4 ]; grep -q last $M/file
               $O umount $M
               settle image; clean image"#
        ));
    }
}

#[test]
fn a_volume_that_cannot_be_written_stays_read_only_and_says_why() {
    Rig::new().run(&format!(
        r#"{REMOUNT} L=$(losetup -r -f --show image); trap 'losetup -d $L' EXIT
           $O mount -o ro $L $M
           refuses $O mount -o remount,rw $L $M 2>out; grep -q write-protected out; has ro
           refuses_changes
           $O umount $M; losetup -d $L; trap - EXIT; settle image
           $O mount -o ro,noload image $M; refuses $O mount -o remount,rw image $M 2>out
           grep -q noload out; refuses_changes
           $O umount $M; settle image; mkdir other; $O mount -o ro,noloop image $M
           $O mount -o ro,noloop image other
           refuses $O mount -o remount,rw image $M 2>out; grep -q 'in use' out; has ro
           refuses_changes
           $O umount other; $O mount -o remount,rw image $M; echo text >$M/file
           refuses $O mount -o ro,noloop image other 2>out; grep -q 'in use' out
           $O mount -o remount,ro image $M; $O mount -o ro,noloop image other
           grep -q text other/file
           $O umount other; $O umount $M; clean image"#
    ));
}

#[test]
fn a_remount_changes_commit_barrier_and_errors_of_what_is_mounted() {
    Rig::new().run(&format!(
        r#"{REMOUNT} count() {{ $O stats --json $M | tr -d ' ,"' | sed -n "s/^$1://p"; }}
           $O mount -o commit=1h image $M; sync -f $M; before=$(count commits); echo text >$M/file
           sleep 2; [ $(count commits) = $before ]
           # A transaction that runs already keeps its age; so does the kernel's.
           $O mount -o remount,commit=1,discard,auto_da_alloc image $M; sync -f $M
           before=$(count commits); echo more >>$M/file
           for i in $(seq 600); do [ $(count commits) -gt $before ] && break; sleep 0.1; done
           [ $(count commits) -gt $before ]
           $O mount -o remount,barrier=0 image $M 2>out; grep -q 'power cut' out
           [ $(count barrier) = false ]
           # What no word speaks of stays.
           $O mount -o remount,errors=remount-ro image $M; $O mount -o remount,noatime image $M
           [ $(count stop_on_error) = true ]; [ $(count barrier) = false ]
           [ $(count secs) = 1 ]
           $O mount -o remount,barrier=1,errors=continue image $M; [ $(count barrier) = true ]
           [ $(count stop_on_error) = false ]
           refuses $O mount -o remount,barrier=coerce image $M 2>out
           grep -q 'barrier=coerce cannot change' out
           $O umount $M; settle image; clean image"#
    ));
}

#[test]
fn a_remount_changes_what_can_change() {
    Rig::new().run(
        r#"has() { findmnt -no OPTIONS $M | grep -qw -- "$1"; }
           $O mkfs image 64M -- -q; $O mount -o data=wasteless image $M; echo one >$M/file
           $O mount -o remount,ro image $M; has ro; refuses touch $M/new; grep -q one $M/file
           $O mount -o remount,rw,nosuid,noatime image $M; has rw; has nosuid; has noatime
           echo two >>$M/file
           exec 7>>$M/file; refuses $O mount -o remount,ro image $M 2>out
           grep -q 'open for writing' out; exec 7>&-
           has rw; echo three >>$M/file
           touch -a -d 2001-01-01 $M/file; cat $M/file >/dev/null
           [ "$(stat -c %x $M/file | cut -c1-4)" = 2001 ]
           refuses $O mount -o remount,data=journal image $M 2>out; grep -q 'data cannot change' out
           # As mount(8) calls its helper: with all words that it knows of the mount.
           ln -s $O mount.fuseblk.okeanos
           ./mount.fuseblk.okeanos image $M \
               -o rw,suid,strictatime,remount,user_id=0,group_id=0,blksize=4096
           refuses has nosuid; refuses has noatime
           echo 3 >/proc/sys/vm/drop_caches; cat $M/file >/dev/null
           [ "$(stat -c %x $M/file | cut -c1-4)" != 2001 ]
           $O umount $M; settle image; clean image
           refuses $O mount -o remount,ro image $M"#,
    );
}

#[test]
fn the_kernel_reads_ahead_as_far_as_the_mount_says() {
    for (options, kilobytes) in
        [("defaults", 4096), ("readahead=1M", 1024), ("noloop,readahead=2M", 2048)]
    {
        Rig::new().run(&format!(
            r#"$O mkfs image 64M -- -q; $O mount -o {options} image $M; ls $M >out
               D=$(mountpoint -d $M); cat /sys/class/bdi/$D*/read_ahead_kb >printed
               $O umount $M; grep -qx {kilobytes} printed"#
        ));
    }
}

#[test]
fn an_idle_mount_takes_no_processor_time() {
    for options in ["data=wasteless", "data=ordered,poll=10ms"] {
        Rig::new().run(&format!(
            r#"$O mkfs image 64M -- -q; $O mount -o {options} image $M
               for number in $(seq 100); do echo $number >>$M/file; sync $M/file; done
               P=$($O stats --json $M | sed -n 's/.*"process": *\([0-9]*\).*/\1/p')
               sleep 1; set -- $(cat /proc/$P/stat); before=$((${{14}} + ${{15}}))
               sleep 2; set -- $(cat /proc/$P/stat); after=$((${{14}} + ${{15}}))
               # Of two hundred hundredths of a second.
               echo $((after - before)) >ticks; $O umount $M; test $(cat ticks) -le 10"#
        ));
    }
}
