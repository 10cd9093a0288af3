//! Tests of `barrier=coerce` through the program: flush zones on volumes, judged by e2fsck and the
//! kernel.

use crate::rig::Rig;
use format::flush_zone::{FLUSH_ZONE_SUPERBLOCK_SIZE, FlushZoneSuperblock};
use std::os::unix::fs::FileExt;

const PROFILE: &str = r#"cat >profile <<END
model = "A drive"
size = 1000
trials = 50
milliseconds = 1.5
[workload]
pattern = "random"
writes = 16
bytes = 160000
END"#;

const SYNC_WRITES: &str = "for at in 1 2 3 4; do
         dd if=/dev/zero of=$M/log bs=100 count=4 oflag=sync,append conv=notrunc status=none; done";

fn with_profile() -> Rig {
    let rig = Rig::new();
    rig.run(PROFILE);
    rig
}

#[test]
fn every_mode_evicts_where_it_would_flush() {
    let rig = with_profile();
    for (journal, option) in
        [("", ""), ("--journal-device log --journal-size 8M", ",journal_dev=log")]
    {
        for mode in ["writeback", "ordered", "journal", "wasteless", "selective"] {
            rig.run(&format!(
                "rm -f image log
                 $O mkfs --flush-zone profile --force-profile {journal} image 64M -- -q"
            ));
            let counts = rig.run(&format!(
                "$O mount -o barrier=coerce,data={mode}{option} image $M
                 {SYNC_WRITES}
                 $O stats --json $M | tr -d ' \n' | grep -o '\"evictions\":[0-9]*'
                 $O umount $M"
            ));
            let counts: Vec<u64> = counts
                .lines()
                .map(|line| line.rsplit(':').next().unwrap().parse().unwrap())
                .collect();
            let disks = if journal.is_empty() { 1 } else { 2 };
            assert_eq!(counts.len(), disks, "{mode} {journal}");
            // Each of the 16 writes is durable by itself: at least on the disk that holds the log.
            assert!(*counts.last().unwrap() >= 16, "{mode} {journal}: {counts:?}");
            if journal.is_empty() {
                rig.check("");
            }
        }
    }
}

#[test]
fn the_zone_is_a_file_behind_the_journal_and_the_kernel_takes_the_volume() {
    let rig = with_profile();
    for kind in ["", "-t ext3"] {
        rig.run(&format!(
            "rm -f image
             $O mkfs --flush-zone profile --force-profile --journal-size 4M image 64M \
                 -- -q {kind}"
        ));
        rig.check("");
        let printed = rig.run("$O inspect super image");
        assert!(
            printed.contains("16 random writes, 0.16 MB in all; the profile was forced"),
            "{printed}"
        );
        let journal =
            rig.run("debugfs -R 'blocks <8>' image 2>/dev/null | tr ' ' '\n' | sort -n | tail -1");
        let zone = rig.run(
            "debugfs -R 'blocks /.flush-zone' image 2>/dev/null | tr ' ' '\n' | sort -n |
                 sed -n 2p",
        );
        let [journal, zone] = [journal, zone].map(|text| text.trim().parse::<u64>().unwrap());
        assert!(
            zone > journal && zone < journal + 16,
            "journal ends at {journal}, zone begins at {zone}"
        );
        rig.run(
            "mount -o loop image $M; ls -a $M | grep -q flush-zone; echo kernel >$M/file
             umount $M",
        );
        rig.run("$O mount -o barrier=coerce image $M; cat $M/file; rm $M/file; $O umount $M");
        rig.check("");
    }
}

#[test]
fn a_crash_is_recovered_through_the_zone() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q");
    rig.run(&format!(
        "serve barrier=coerce,data=wasteless image
         {SYNC_WRITES}
         kill_daemon; umount -l $M; settle image; $O recover image"
    ));
    rig.check("");
    rig.run("$O mount -o barrier=coerce image $M; test $(stat -c %s $M/log) = 1600; $O umount $M");
}

#[test]
fn without_a_zone_or_with_a_foreign_profile_it_is_refused() {
    let rig = with_profile();
    let said =
        rig.run("refuses $O mkfs --flush-zone profile image 64M -- -q 2>&1; test ! -e image");
    assert!(said.contains("--force-profile"), "{said}");
    let said =
        rig.run("refuses $O mkfs --flush-zone hitachi-7k80 image 64M -- -q 2>&1; test ! -e image");
    assert!(said.contains("hitachi-7k80 may not fit"), "{said}");
    let said =
        rig.run("refuses $O mkfs --flush-zone samsung-16 image 64M -- -q 2>&1; test ! -e image");
    assert!(said.contains("samsung-16 has no profile") && said.contains("--as-paper"), "{said}");
    rig.run("$O mkfs image 64M -- -q");
    let said = rig.run("refuses $O mount -o barrier=coerce image $M 2>&1");
    assert!(said.contains("no flush zone"), "{said}");
    rig.check("");
}

/// Rewrites the zone of `image` as if it had been made on this drive.
fn claim_drive(rig: &Rig, model: &str, size: u64) {
    change_zone(rig, |zone| FlushZoneSuperblock { model: model.into(), drive_size: size, ..zone });
}

/// Rewrites the superblock of the zone of `image`.
fn change_zone(rig: &Rig, change: impl FnOnce(FlushZoneSuperblock) -> FlushZoneSuperblock) {
    let block =
        rig.run("debugfs -R 'blocks /.flush-zone' image 2>/dev/null | tr ' ' '\n' | sed -n 1p");
    let at = block.trim().parse::<u64>().unwrap() * 4096;
    let file = std::fs::File::options().read(true).write(true).open(rig.path("image")).unwrap();
    let mut bytes = [0; FLUSH_ZONE_SUPERBLOCK_SIZE];
    file.read_exact_at(&mut bytes, at).unwrap();
    let zone = change(FlushZoneSuperblock::parse(&bytes).unwrap());
    file.write_all_at(&zone.serialize(), at).unwrap();
}

/// An image has no model, so it counts as another drive than any that has one.
#[test]
fn a_zone_of_another_drive_is_refused_at_mount_and_harms_no_recovery() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q -b 4096");
    rig.run("$O mount -o barrier=coerce image $M; $O umount $M");
    claim_drive(&rig, "A drive", 64 << 20);
    let said = rig.run("refuses $O mount -o barrier=coerce image $M 2>&1");
    assert!(said.contains("A drive") && said.contains("barrier=flush"), "{said}");
    rig.run(&format!("serve data=wasteless image; {SYNC_WRITES}; {CRASH}"));
    assert!(zone_bytes(&rig, true).iter().all(|byte| *byte == 0xa5));
    let said = rig.run("$O recover image 2>&1");
    // It may be the drive that it was made for, and have grown.
    assert!(said.contains("recovering through it all the same"), "{said}");
    assert!(zone_bytes(&rig, false).contains(&0), "no eviction");
    rig.check("");
    rig.run("$O mount image $M; test $(stat -c %s $M/log) = 1600; $O umount $M");
}

#[test]
fn a_zone_too_small_is_refused_at_mount_and_harms_no_recovery() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q -b 4096");
    change_zone(&rig, |zone| FlushZoneSuperblock { writes: 1 << 12, ..zone });
    let said = rig.run("refuses $O mount -o barrier=coerce image $M 2>&1");
    assert!(said.contains("has space for") && said.contains("barrier=flush"), "{said}");
    let said = rig.run("$O recover image 2>&1");
    assert!(said.contains("recovering as with barrier=flush"), "{said}");
}

#[test]
fn a_damaged_zone_is_reported_and_only_evictions_are_refused() {
    let rig = with_profile();
    rig.run(
        "$O mkfs --flush-zone profile --force-profile --journal-device log --journal-size 8M image \
             64M -- -q -b 4096",
    );
    for disk in ["image", "log"] {
        let printed = rig.run(&format!("$O inspect super {disk}; $O inspect super --json {disk}"));
        assert!(
            printed.contains("16 random writes, 0.16 MB in all; the profile was forced"),
            "{printed}"
        );
        assert!(printed.contains("\"writes\": 16"), "{printed}");
    }
    // The field `writes` of the zone's superblock, one bit of it.
    let at =
        rig.run("debugfs -R 'blocks /.flush-zone' image 2>/dev/null | tr ' ' '\n' | sed -n 1p");
    let of_image = at.trim().parse::<u64>().unwrap() * 4096 + 36;
    for (disk, at) in [("image", of_image), ("log", (8 << 20) + 36)] {
        rig.run("cp image image.good; cp log log.good");
        let file = std::fs::File::options().read(true).write(true).open(rig.path(disk)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        assert_eq!(byte, [16], "{disk}");
        file.write_all_at(&[17], at).unwrap();
        let printed = rig.run(&format!("$O inspect super {disk}; $O inspect super --json {disk}"));
        assert!(printed.matches("superblock has checksum").count() == 2, "{printed}");
        let said = rig.run("refuses $O mount -o barrier=coerce,journal_dev=log image $M 2>&1");
        assert!(said.contains("checksum") && said.contains("barrier=flush"), "{said}");
        rig.run(&format!(
            "serve data=wasteless,journal_dev=log image; {SYNC_WRITES}; kill_daemon; umount -l $M
             settle image"
        ));
        let is_log = disk == "log";
        let other_zone = if is_log { zone_bytes } else { log_zone_bytes };
        assert!(other_zone(&rig, true).iter().all(|byte| *byte == 0xa5));
        let said = rig.run("$O recover --journal-device log image 2>&1");
        assert!(said.contains("recovering as with barrier=flush"), "{said}");
        // Home evicts all the same. The log does not without home: it would be empty for certain.
        assert_eq!(other_zone(&rig, false).contains(&0), is_log, "{disk} is damaged");
        rig.check("-j log");
        rig.run("mv image.good image; mv log.good log");
    }
}

#[test]
fn what_finds_no_room_or_does_not_fit_is_refused_with_the_reason() {
    let rig = with_profile();
    let said = rig.run(
        "refuses $O mkfs --flush-zone hitachi-7k80 --force-profile image 32M -- -q 2>&1
         test ! -e image",
    );
    assert!(said.contains("the flush zone needs") && said.contains("--journal-size"), "{said}");
    let said =
        rig.run("refuses $O mkfs --flush-zone no-such-drive image 64M -- -q 2>&1; test ! -e image");
    assert!(said.contains("okeanos fingerprint") && said.contains("hitachi-7k80"), "{said}");
    let said = rig.run(
        "mkdir files; (cd files; touch 1 2 3 4 5 6 7 8 9); rm -f image
         refuses $O mkfs --flush-zone profile --force-profile image 64M -- -q -d files 2>&1
         test ! -e image
         refuses $O mkfs --scattered-logs image 1G -- -q -d files 2>&1; test ! -e image",
    );
    assert_eq!(said.matches("copy the files into the volume").count(), 2, "{said}");
    rig.run("truncate -s 8M log");
    let said = rig.run(
        "refuses $O mkfs --flush-zone profile --force-profile --journal-device log \
             --journal-size 8M image 64M -- -q 2>&1",
    );
    assert!(said.contains("behind it need"), "{said}");
}

/// Evictions write to the blocks that the file had when the volume was mounted.
#[test]
fn nobody_takes_the_zones_blocks_away() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q");
    for options in ["barrier=coerce", "barrier=flush"] {
        rig.run(&format!(
            "$O mount -o {options} image $M; refuses chattr -i $M/.flush-zone
             refuses rm -f $M/.flush-zone
             refuses truncate -s 0 $M/.flush-zone; refuses fallocate -p -l 64K $M/.flush-zone
             touch $M/other; chattr +i $M/other; chattr -i $M/other; $O umount $M"
        ));
    }
    // The kernel lets root do it.
    let said = rig.run(
        "mount -o loop image $M; chattr -i $M/.flush-zone; umount $M; settle image
         refuses $O mount -o barrier=coerce image $M 2>&1
         mount -o loop image $M; chattr +i $M/.flush-zone; umount $M; settle image
         e2fsck -fp image >/dev/null; tune2fs -U random image >/dev/null
         $O mount -o barrier=coerce image $M; $O umount $M",
    );
    assert!(said.contains("no longer immutable"), "{said}");
    let said = rig.run(
        "tune2fs -O mmp image >/dev/null; refuses $O mount -o barrier=coerce image $M 2>&1
         tune2fs -f -O ^mmp image >/dev/null; $O mount -o barrier=coerce image $M; $O umount $M",
    );
    assert!(said.contains("multiple mount protection"), "{said}");
    rig.check("");
}

/// Data that a loop device keeps in the page cache evicts nothing from a drive.
#[test]
fn a_loop_device_without_direct_io_is_refused() {
    let rig = with_profile();
    let said = rig.run(
        "$O mkfs --flush-zone profile --force-profile image 64M -- -q
         D=$(losetup --find --show --direct-io=off image); trap 'losetup -d $D' EXIT
         refuses $O mount -o barrier=coerce $D $M 2>&1
         refuses $O fingerprint --destroy $D 2>&1
         losetup --direct-io=on $D
         $O mount -o barrier=coerce $D $M; $O umount $M",
    );
    assert_eq!(said.matches("losetup --direct-io=on").count(), 2, "{said}");
}

const CRASH: &str = "kill_daemon; umount -l $M; settle image";

/// A recovery through such a device evicts nothing either, but has no other way.
#[test]
fn recovery_over_a_page_cache_says_that_it_evicts_nothing() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q");
    let said = rig.run(&format!(
        "serve barrier=coerce,data=wasteless image; {SYNC_WRITES}; {CRASH}
         D=$(losetup --find --show --direct-io=off image); trap 'losetup -d $D' EXIT
         $O recover $D 2>&1"
    ));
    assert!(said.contains("page cache; recovering as with barrier=flush"), "{said}");
    let said = rig.run(
        "D=$(losetup --find --show --direct-io=off image); trap 'losetup -d $D' EXIT
         $O inspect super $D 2>&1; $O recover --dry-run $D 2>&1",
    );
    assert!(said.contains("nothing to recover"), "{said}");
    rig.check("");
    rig.run("$O mount -o barrier=coerce image $M; test $(stat -c %s $M/log) = 1600; $O umount $M");
}

/// Returns the bytes of the zone of `image` to which evictions write, and fills them with another
/// byte than theirs if `fills`.
fn zone_bytes(rig: &Rig, fills: bool) -> Vec<u8> {
    let blocks = rig.run(
        "debugfs -R 'blocks /.flush-zone' image 2>/dev/null | tr ' ' '\n' | grep . | tail -n +2",
    );
    let file = std::fs::File::options().read(true).write(true).open(rig.path("image")).unwrap();
    let mut bytes = Vec::new();
    for block in blocks.lines().map(|block| block.trim().parse::<u64>().unwrap()) {
        let mut content = [0xa5; 4096];
        if fills {
            file.write_all_at(&content, block * 4096).unwrap();
        }
        file.read_exact_at(&mut content, block * 4096).unwrap();
        bytes.extend_from_slice(&content);
    }
    bytes
}

/// Returns, and fills, the bytes of the zone behind the journal on `log` likewise.
fn log_zone_bytes(rig: &Rig, fills: bool) -> Vec<u8> {
    let file = std::fs::File::options().read(true).write(true).open(rig.path("log")).unwrap();
    let start = (8 << 20) + 4096;
    let mut bytes = vec![0xa5; (file.metadata().unwrap().len() - start) as usize];
    if fills {
        file.write_all_at(&bytes, start).unwrap();
    }
    file.read_exact_at(&mut bytes, start).unwrap();
    bytes
}

/// The log was left by a mount that evicted: the drive may ignore the flushes of this one.
#[test]
fn a_mount_with_other_barriers_replays_through_the_zone() {
    let rig = with_profile();
    for options in ["barrier=flush", "ro"] {
        rig.run(
            "rm -f image; $O mkfs --flush-zone profile --force-profile image 64M -- -q -b 4096",
        );
        rig.run(&format!("serve barrier=coerce,data=wasteless image; {SYNC_WRITES}; {CRASH}"));
        assert!(zone_bytes(&rig, true).iter().all(|byte| *byte == 0xa5));
        rig.run(&format!(
            "$O mount -o {options} image $M; test $(stat -c %s $M/log) = 1600; $O umount $M
             settle image"
        ));
        assert!(zone_bytes(&rig, false).contains(&0), "{options}: no eviction");
        rig.check("");
    }
    claim_drive(&rig, "A drive", 64 << 20);
    for options in ["barrier=flush", "ro"] {
        let said = rig.run(&format!(
            "serve barrier=flush,data=wasteless image; {SYNC_WRITES}; {CRASH}
             $O mount -o {options} image $M 2>&1; $O umount $M; settle image
             $O mount -o {options} image $M 2>&1; $O umount $M; settle image"
        ));
        // A log that is empty needs no evictions.
        let warning = "may not fit: the profile is of";
        assert_eq!(said.matches(warning).count(), 1, "{options}: {said}");
        assert!(said.contains("recovering through it all the same"), "{options}: {said}");
    }
}

/// A power cut tears the block with the zone's inode; the log holds it.
#[test]
fn a_zone_whose_inode_is_torn_is_found_again_after_recovery() {
    let rig = with_profile();
    rig.run("$O mkfs --flush-zone profile --force-profile image 64M -- -q -b 4096");
    // The new file's inode is in the same block as the zone's.
    rig.run(&format!("serve barrier=coerce,data=journal image; {SYNC_WRITES}; {CRASH}"));
    let place = rig.run("debugfs -R 'imap /.flush-zone' image 2>/dev/null");
    let number = |before: &str, radix| {
        let rest = place.split(before).nth(1).unwrap_or_else(|| panic!("{place}"));
        let digits = rest.split(|it: char| !it.is_ascii_hexdigit()).next().unwrap();
        u64::from_str_radix(digits, radix).unwrap()
    };
    let at = number("located at block ", 10) * 4096 + number("offset 0x", 16);
    let file = std::fs::File::options().read(true).write(true).open(rig.path("image")).unwrap();
    file.write_all_at(&[0xa5; 64], at + 40).unwrap();
    let said = rig.run("refuses $O mount -o barrier=coerce image $M 2>&1");
    assert!(said.contains("okeanos recover") && !said.contains("mkfs"), "{said}");
    let said = rig.run("$O recover image 2>&1");
    assert!(said.contains("recovering as with barrier=flush"), "{said}");
    rig.check("");
    rig.run("$O mount -o barrier=coerce image $M; test $(stat -c %s $M/log) = 1600; $O umount $M");
}

/// Direct I/O on a file goes no further than its file system, which may lie on such a device, or
/// have none for the file.
#[test]
fn a_page_cache_further_below_is_refused() {
    let rig = with_profile();
    let said = rig.run(
        "mkdir below; mke2fs -q -F -t ext4 lower 300M; trap 'umount -q below; losetup -d $D' EXIT
         D=$(losetup --find --show --direct-io=off lower); mount $D below
         $O mkfs --flush-zone profile --force-profile below/image 64M -- -q
         refuses $O mount -o barrier=coerce below/image $M 2>&1
         refuses $O mount -o barrier=coerce,noloop below/image $M 2>&1
         umount below; losetup --direct-io=on $D; mount $D below
         $O mount -o barrier=coerce below/image $M; $O umount $M; settle below/image
         umount below; mount -o data=journal $D below
         refuses $O mount -o barrier=coerce,noloop below/image $M 2>&1",
    );
    assert_eq!(said.matches("losetup --direct-io=on").count(), 2, "{said}");
    assert!(said.contains("no direct I/O for it"), "{said}");
}

/// There are more reasons than the kernel reports for a disk to open a file without direct I/O.
#[test]
fn a_file_that_is_opened_without_direct_io_is_refused() {
    let rig = with_profile();
    let said = rig.run(
        "mkdir memory; mount -t ramfs none memory; trap 'umount -q memory' EXIT
         $O mkfs --flush-zone profile --force-profile memory/image 64M -- -q
         refuses $O mount -o barrier=coerce,noloop memory/image $M 2>&1
         $O mkfs --flush-zone profile --force-profile --journal-device memory/log \
             --journal-size 8M image 64M -- -q
         refuses $O mount -o barrier=coerce,journal_dev=memory/log image $M 2>&1
         truncate -s 64M memory/blocks
         $O blocks format --flush-zone profile --force-profile memory/blocks 2>&1
         refuses $O blocks attach -o barrier=coerce memory/blocks 2>&1
         $O recover memory/image 2>&1",
    );
    assert_eq!(said.matches("keeps what is written in the page cache").count(), 4, "{said}");
    assert_eq!(said.matches("recovering as with barrier=flush").count(), 1, "{said}");
}

/// The device may have had an earlier life, or the journal another UUID (tune2fs -U).
#[test]
fn a_journals_zone_of_another_journal_is_reported() {
    let rig = with_profile();
    rig.run(
        "$O mkfs --flush-zone profile --force-profile --journal-device log --journal-size 8M \
             image 64M -- -q -b 4096",
    );
    let file = std::fs::File::options().read(true).write(true).open(rig.path("log")).unwrap();
    let mut bytes = [0; FLUSH_ZONE_SUPERBLOCK_SIZE];
    file.read_exact_at(&mut bytes, 8 << 20).unwrap();
    let zone = FlushZoneSuperblock::parse(&bytes).unwrap();
    let zone = FlushZoneSuperblock { uuid: [7; 16], ..zone };
    file.write_all_at(&zone.serialize(), 8 << 20).unwrap();
    let said = rig.run(
        "refuses $O mount -o barrier=coerce,journal_dev=log image $M 2>&1
         $O recover --journal-device log image 2>&1",
    );
    assert_eq!(said.matches("log: the flush zone is another journal's").count(), 2, "{said}");
    assert!(said.contains("recovering as with barrier=flush"), "{said}");
}
