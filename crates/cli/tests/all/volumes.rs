//! Tests of the program as people use it, judged by e2fsck and the kernel. Needs root, FUSE and
//! loop devices; every mount is made in a namespace of its own.

use crate::rig::{DETACHED, LIST_TREE, Rig, WORK};
use ext4::{OpenParts, VolumeOptions};
use runtime::RealWorld;
use std::path::Path;
use std::rc::Rc;

const MODES: [&str; 5] = ["writeback", "ordered", "journal", "wasteless", "selective"];

/// Works on the volume with okeanos, then checks it with e2fsck and the kernel.
fn prove(mkfs: &str, mount: &str, kernel: &str, e2fsck: &str) {
    let rig = Rig::new();
    rig.run(mkfs);
    let extents = if mkfs.contains("ext3") { "no" } else { "yes" };
    let ours = rig.run(&format!(
        "EXTENTS={extents}; $O mount {mount} image $M\n{WORK}\n{LIST_TREE}\n$O umount $M"
    ));
    rig.check(e2fsck);
    let again = rig.run(&format!("$O mount {mount} image $M\n{LIST_TREE}\n$O umount $M"));
    assert_eq!(ours, again, "{mkfs}: after an unmount");
    let theirs = rig.run(&format!("mount -o loop{kernel} image $M\n{LIST_TREE}\numount $M"));
    assert_eq!(ours, theirs, "{mkfs}: as the kernel sees it");
    // Okeanos continues where the kernel left.
    rig.run(&format!(
        "mount -o loop{kernel} image $M; mkdir $M/kernel; cp $M/log $M/kernel; umount $M"
    ));
    rig.run(&format!(
        "$O mount {mount} image $M; cmp $M/log $M/kernel/log; rm -r $M/kernel $M/many; $O umount $M"
    ));
    rig.check(e2fsck);
}

#[test]
fn default_ext4_is_the_same_to_okeanos_and_the_kernel() {
    prove("mke2fs -q -t ext4 image 256M", "-o data=wasteless", "", "");
}
#[test]
fn ext4_with_small_blocks_is_the_same_to_okeanos_and_the_kernel() {
    prove("mke2fs -q -t ext4 -b 1024 image 128M", "-o data=selective", "", "");
}
#[test]
fn ext4_with_blocks_of_2_kib_is_the_same_to_okeanos_and_the_kernel() {
    prove("mke2fs -q -t ext4 -b 2048 image 128M", "-o data=writeback", "", "");
}
#[test]
fn ext3_is_the_same_to_okeanos_and_the_kernel() {
    prove("mke2fs -q -t ext3 -b 4096 image 256M", "-o data=ordered", "", "");
}
/// Tests blocks longer than a page, which the kernel does not mount. Programs make, change, kill,
/// recover, check and read back the volume.
fn prove_without_kernel(block: u32, mode: &str) {
    let rig = Rig::new();
    rig.run(&format!("$O mkfs image 320M -- -q -b {block}"));
    assert!(
        rig.run("dumpe2fs -h image 2>/dev/null")
            .contains(&format!("Block size:               {block}\n"))
    );
    let before =
        rig.run(&format!("$O mount -o data={mode} image $M\n{WORK}\n{LIST_TREE}\n$O umount $M"));
    rig.check("");
    let killed = rig.run(&format!(
        "serve data={mode} image
         {LIST_TREE}
         cp $M/log $M/kept; sync $M/kept $M
         echo later | dd of=$M/log conv=notrunc,fsync status=none
         kill_daemon; umount -l $M; {DETACHED}; $O recover image >recovered"
    ));
    assert_eq!(before, killed, "blocks of {block}: after an unmount");
    rig.check("");
    rig.run(&format!(
        "$O mount -o data={mode} image $M; head -c 6 $M/log | grep later; cmp -i 6 $M/log $M/kept
         $O umount $M"
    ));
    rig.check("");
}

#[test]
fn volumes_of_8_to_64_kib_blocks_are_made_used_recovered_and_sound() {
    for (block, mode) in
        [(8192, "selective"), (16384, "wasteless"), (32768, "ordered"), (65536, "journal")]
    {
        prove_without_kernel(block, mode);
    }
}

#[test]
fn an_inode_that_was_never_used_is_reported_as_such() {
    let rig = Rig::new();
    rig.run("$O mkfs image 64M -- -q");
    for number in [13, 500] {
        let words = format!("$O inspect inode {number} image");
        let said = rig.run(&format!("if {words} >out 2>&1; then exit 1; fi; cat out"));
        assert!(said.contains(&format!("inode {number} was never used")), "{said}");
        assert!(!said.contains("e2fsck"), "{said}");
    }
}

#[test]
fn a_volume_with_an_external_journal_is_the_same_to_okeanos_and_the_kernel() {
    let rig = Rig::new();
    rig.run("$O mkfs --journal-device log --journal-size 16M image 256M -- -q");
    let ours = rig.run(&format!(
        "$O mount -o data=wasteless,journal_dev=log image $M\n{WORK}\n{LIST_TREE}\n$O umount $M"
    ));
    let theirs = rig.run(&format!(
        "L=$(losetup -f --show log); trap 'losetup -d $L' EXIT
         e2fsck -fn -j $L image >out 2>&1 || {{ cat out; exit 1; }}
         mount -o loop,journal_path=$L image $M\n{LIST_TREE}\numount $M"
    ));
    assert_eq!(ours, theirs);
}

#[test]
fn what_was_acknowledged_survives_a_killed_daemon_in_every_mode() {
    for mode in MODES {
        let rig = Rig::new();
        rig.run("$O mkfs image 256M -- -q -b 4096");
        let printed = rig.run(&format!(
            "$O mount -f -o data={mode} image $M & DAEMON=$!
             for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
             $LAB bench streams --writers 20 --until-error --acknowledged ack $M >streams &
             WRITERS=$!
             sleep 1; kill -9 $DAEMON; wait $WRITERS; wait $DAEMON || true; umount $M
             {DETACHED}
             $O recover image >recovered
             timeout 60 e2fsck -fn image >out 2>&1 || {{ cat out recovered; exit 1; }}
             $O mount -o data={mode} image $M; $LAB bench verify --acknowledged ack --json $M
             $O umount $M"
        ));
        let verdict: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(verdict["acknowledged"].as_u64() > Some(20), "{mode}: {printed}");
        assert_eq!(verdict["lost"], 0, "{mode}");
        rig.check("");
    }
}

#[test]
fn a_log_of_blocks_is_listed_after_a_crash() {
    let rig = Rig::new();
    rig.run("$O mkfs image 256M -- -q -b 4096");
    let printed = rig.run(&format!(
        "$O mount -f -o data=wasteless,records=blocks image $M & DAEMON=$!
         for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
         $LAB bench streams --writers 1 --count 3 $M >streams
         kill -9 $DAEMON; wait $DAEMON || true; umount $M; {DETACHED}
         $O inspect journal image; $O recover image"
    ));
    let has =
        |parts: &[&str]| printed.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["journal in inode 8", "checksums v3", "multiwrite"]), "{printed}");
    assert!(has(&["descriptor at log block", ": bytes 0..128 of block"]), "{printed}");
    assert!(has(&[": bytes 128..256 of block", "in log block", "at byte 0"]), "{printed}");
    assert!(has(&[": bytes 256..384 of block"]), "{printed}");
    assert!(has(&["whole, in log block"]), "the inodes' blocks: {printed}");
    assert!(has(&["commit at log block", "with a checksum of the whole transaction"]), "{printed}");
    assert!(has(&["are committed and would be replayed"]), "{printed}");
    assert!(has(&["replayed:", "blocks written home"]), "{printed}");
    assert!(rig.run("$O inspect journal image").contains("the log is empty"));
    rig.check("");
}

#[test]
fn a_packed_log_is_listed_after_a_crash() {
    let rig = Rig::new();
    rig.run("$O mkfs image 256M -- -q -b 4096");
    let printed = rig.run(&format!(
        "$O mount -f -o data=wasteless,log_unit=512 image $M & DAEMON=$!
         for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
         $LAB bench streams --writers 1 --count 3 $M >streams
         kill -9 $DAEMON; wait $DAEMON || true; umount $M; {DETACHED}
         $O inspect journal image; $O recover image"
    ));
    let has =
        |parts: &[&str]| printed.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["journal in inode 8", "of 512 bytes", "checksums v3", "packed"]), "{printed}");
    assert!(
        has(&["packed at log block", "bytes of records, at 20", "; all up to", "was durable"]),
        "{printed}"
    );
    for bytes in ["bytes 0..128 of block", "bytes 128..256 of block", "bytes 256..384 of block"] {
        assert!(has(&[bytes]), "{bytes}: {printed}");
    }
    assert!(has(&["are committed and would be replayed"]), "{printed}");
    assert!(has(&["replayed:", "blocks written home"]), "{printed}");
    assert!(rig.run("$O inspect journal image").contains("the log is empty"));
    rig.check("");
}

#[test]
fn transactions_behind_gaps_are_listed_as_recovery_finds_them() {
    let rig = Rig::new();
    rig.run("$O mkfs image 256M -- -q -b 4096");
    let printed = rig.run(
        "serve data=wasteless,log_unit=512,log_gap=10K,commit=1h,writeback=1h,expire=1h image
         $LAB bench streams --writers 1 --count 20 $M >streams
         kill_daemon; umount $M; settle image
         $O inspect journal --json image; $O inspect journal image >printed
         $O recover image >>printed",
    );
    let listing: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(listing["features"].as_array().unwrap().contains(&"gaps".into()), "{printed}");
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let (mut end, mut count) = (number(&listing["start"]), 0);
    for packed in
        listing["records"].as_array().unwrap().iter().filter(|record| record["record"] == "packed")
    {
        assert_eq!(number(&packed["log_block"]), end + 20, "{packed}");
        end += 20 + number(&packed["log_blocks"]);
        count += 1;
    }
    let (said, last) = (rig.run("cat printed"), number(&listing["first_transaction"]) + count - 1);
    assert!(count >= 20, "{said}");
    assert!(said.contains(&format!("to T{last} are committed and would be replayed")), "{said}");
    assert!(said.contains(&format!("{count} transactions")), "{said}");
    rig.check("");
}

/// The number of writers that share a commit depends on the machine (`make demo` shows the ratio of
/// bytes); the cost of one commit does not.
#[test]
fn wasteless_fills_its_multiwrite_blocks_and_checkpoints_seldom() {
    const RECORDS: u64 = 100 * 100;
    const RECORD: u64 = 128;
    let engine = |mode: &str| {
        let rig = Rig::new();
        rig.run("$O mkfs image 256M -- -q -b 4096");
        let printed = rig.run(&format!(
            "$O mount -o data={mode} image $M; $LAB bench streams --writers 100 --count 100 $M >out
             $O stats --json $M; $O umount $M"
        ));
        let stats: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(stats["engine"]["payload_bytes"], RECORDS * RECORD, "{mode}");
        stats["engine"].clone()
    };
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let home = |engine: &serde_json::Value| -> u64 {
        engine["home_written"]
            .as_object()
            .unwrap()
            .values()
            .map(|count| number(&count["bytes"]))
            .sum()
    };
    let (wasteless, journal, ordered) =
        (engine("wasteless,records=blocks"), engine("journal"), engine("ordered"));
    // Only the last multiwrite block of a commit may have space for another record.
    let filled = RECORDS * RECORD / (4096 - RECORD) + number(&wasteless["commits"]);
    let multiwrite = number(&wasteless["log_written"]["multiwrite"]["blocks"]);
    assert!(multiwrite <= filled, "{multiwrite} multiwrite blocks, {filled} would do");
    // Data journaling logs a block for each record, since no writer has two in one commit.
    assert!(number(&journal["log_written"]["regular"]["blocks"]) >= RECORDS);
    assert!(
        home(&wasteless) * 5 <= home(&ordered),
        "home: {} and {}",
        home(&wasteless),
        home(&ordered)
    );
}

#[test]
fn mount_with_a_namespace_mounts_there() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q >made; ln -s $O mount.fuse.okeanos
           unshare --mount --propagation private sleep 1000 & S=$!; trap 'kill $S' EXIT
           for i in $(seq 100); do
               [ "$(readlink /proc/$S/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ] && break
               sleep 0.1
           done
           ./mount.fuse.okeanos $PWD/image $M -N /proc/$S/ns/mnt; unmounted $M
           nsenter --mount --target $S mountpoint -q $M; nsenter --mount --target $S $O umount $M
           settle image; clean image"#,
    );
}

#[test]
fn mount_and_umount_of_the_system_know_us() {
    let rig = Rig::new();
    // Called as mount(8) calls it, without touching /sbin.
    rig.run(
        "$O mkfs image 64M -- -q; ln -s $O mount.fuse.okeanos
         status=0; ./mount.fuse.okeanos nothing $M 2>printed || status=$?; [ $status = 32 ]
         ./mount.fuse.okeanos image $M -o rw,data=wasteless,x-test -t fuse.okeanos
         echo hello >$M/a; umount $M
         debugfs -R 'cat /a' image 2>/dev/null | grep -q hello",
    );
    rig.check("");
}

#[test]
fn what_is_no_volume_is_refused_in_words_and_left_alone() {
    let rig = Rig::new();
    std::fs::write(rig.path("text"), "no volume\n".repeat(10_000)).unwrap();
    let before = std::fs::read(rig.path("text")).unwrap();
    for command in ["mount text $M", "recover text", "inspect super text", "inspect journal text"] {
        let printed = rig.run(&format!("if $O {command} 2>&1; then exit 1; fi"));
        assert!(printed.contains("text") && !printed.contains("panicked"), "{command}: {printed}");
    }
    assert_eq!(std::fs::read(rig.path("text")).unwrap(), before);
    rig.run(
        "mke2fs -q -t ext4 image 64M; truncate -s 20M image
         if $O mount image $M 2>printed; then exit 1; fi; grep -qi trunc printed",
    );
    rig.run(
        "rm image; mke2fs -q -t ext4 -O casefold image 64M
         if $O mount image $M 2>printed; then exit 1; fi; grep -q casefold printed",
    );
}

#[test]
fn what_is_in_use_is_refused() {
    let rig = Rig::new();
    rig.run(
        "$O mkfs image 64M -- -q; $O mount image $M
         refuses $O mount image $M 2>printed; refuses $O recover image 2>>printed
         refuses $O mkfs image 2>>printed
         echo alive >$M/a; $O umount $M",
    );
    rig.check("");
}

/// Performs the first step of `okeanos recover`.
fn replay(image: &Path) {
    let world = RealWorld::new().unwrap();
    let disk = disks::FileDisk::open(world.ring(), image, disks::DiskAccess::ReadWrite).unwrap();
    let parts = OpenParts {
        world: Rc::new(world.clone()),
        home: Rc::new(disk),
        journal: None,
        options: VolumeOptions::default(),
    };
    let report = world.run(async move { ext4::recover(&parts, false).await.unwrap() });
    assert!(!report.clean);
    world.end();
}

#[test]
fn a_recovery_killed_after_the_replay_is_finished_by_the_next() {
    for (mode, mkfs) in [("ordered", "-O orphan_file"), ("wasteless", "-O ^orphan_file")] {
        let rig = Rig::new();
        rig.run(&format!(
            "$O mkfs image 64M -- -q {mkfs}; serve noloop,data={mode} image; exec 7>$M/orphan
             echo text >&7
             rm $M/orphan; sync $M; kill_daemon; exec 7>&-; umount $M"
        ));
        replay(&rig.path("image"));
        let printed = rig.run("$O recover image");
        assert!(
            printed.contains("nothing to replay") && printed.contains("1 freed"),
            "{mode}: {printed}"
        );
        let printed = rig.run("$O recover image; clean image");
        assert!(printed.contains("nothing to recover"), "{mode}: {printed}");
    }
}
