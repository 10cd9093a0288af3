//! The journal from the volume's side: crashes, external journals, recovery.

use crate::volume::allocation::create;
use crate::volume::image::{
    ALL, EXT3, EXT4, EXT4_1K, Kind, MANY_GROUPS, TestImage, open, open_with, with_volume,
};
use device::{Disk, Durability, World};
use disks::{CrashPolicy, MemoryDisk};
use engine::{Contents, EngineOptions, RecordFormat};
use ext4::{
    Access, AllocationRequest, Caller, OpenParts, Purpose, Volume, VolumeOptions, WriteFlags,
};
use format::scattered::{LOGS_MAGIC, LogsSuperblock};
use journal::LogKind;
use runtime::{SplitMix, VirtualWorld};
use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use units::{FileBlock, InodeNumber};

/// Makes and frees inodes and blocks until the power fails.
async fn work_until_dark(volume: Rc<Volume>, seed: u64) -> ext4::Result<()> {
    let random = SplitMix::new(seed);
    let root = volume.inode(InodeNumber(2)).await?;
    let mut orphans = Vec::new();
    for _ in 0..30 {
        let inode = create(&volume, &root, 0o100_644).await?;
        let mut handle =
            volume.engine().start(volume.credits_allocate(1) + volume.credits_free(1, 64)).await?;
        let request = AllocationRequest {
            inode: &inode,
            goal: None,
            count: 1 + random.next() as u32 % 64,
            at: FileBlock(0),
            purpose: Purpose::Data,
            use_reserve: true,
        };
        // No file owns the blocks, so they must be freed in the same transaction.
        let run = volume.allocate_blocks(&mut handle, request).await?;
        volume.free_blocks(&mut handle, run.start, run.count.into(), Contents::Data).await?;
        let transaction = handle.stop();
        orphans.push(inode);
        match random.next() % 3 {
            0 => volume.engine().commit(transaction).await?,
            1 => volume.sync().await?,
            _ => {
                let inode = orphans.swap_remove(random.next() as usize % orphans.len());
                volume.free_if_unused(&inode).await?;
            }
        }
    }
    drop(orphans);
    volume.close().await
}

#[test]
fn the_volume_is_whole_after_a_power_cut_at_any_write() {
    for kind in [EXT4_1K, MANY_GROUPS] {
        let image = TestImage::of(kind);
        let pristine = image.bytes();
        for seed in 0..20u64 {
            println!("{kind:?} seed {seed}");
            std::fs::write(image.path(), &pristine).unwrap();
            let (virtual_world, world, disk) = image.world(seed);
            disk.cut_at(seed * 5);
            let home = disk.clone();
            virtual_world.run(async move {
                let done = Rc::new(Cell::new(false));
                let (finished, volume_world, home_disk) =
                    (done.clone(), world.clone(), home.clone());
                world.spawn(Box::pin(async move {
                    if let Ok(volume) = open(&volume_world, &home_disk, Access::ReadWrite).await {
                        let _ = work_until_dark(volume, seed).await;
                    }
                    finished.set(true);
                }));
                while !done.get() && !home.is_off() {
                    world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
                }
            });
            let left =
                disk.crash(CrashPolicy::Random { seed, atomicity: disks::Atomicity::Unit(512) });
            left.write_file(&image.path()).unwrap();
            with_volume(&image, seed, |volume| async move {
                assert_eq!(volume.open_report().orphans.damaged, 0);
                assert!(
                    volume.open_report().warnings.is_empty(),
                    "{:?}",
                    volume.open_report().warnings
                );
            });
        }
    }
}

#[test]
fn recover_replays_what_a_crash_left_and_e2fsck_then_finds_nothing_to_replay() {
    for kind in ALL {
        let image = TestImage::of(kind);
        let (virtual_world, world, disk) = image.world(1);
        let home = disk.clone();
        let left = virtual_world.run(async move {
            let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let inode = create(&volume, &root, 0o100_644).await.unwrap();
            volume.engine().commit(inode.last_change.get()).await.unwrap();
            let left = home.crash(CrashPolicy::LoseAll);
            let parts = parts(&world, &MemoryDisk::from_image(world.clone(), left.clone()));
            let dry = ext4::recover(&parts, true).await.unwrap();
            assert!(!dry.clean && dry.transactions >= 1, "{dry:?}");
            let disk = MemoryDisk::from_image(world.clone(), left);
            let parts = self::parts(&world, &disk);
            let report = ext4::recover(&parts, false).await.unwrap();
            assert_eq!(report.transactions, dry.transactions);
            assert!(ext4::recover(&parts, false).await.unwrap().clean);
            // A program that continues here sees that an orphan waits.
            assert!(!ext4::was_closed(&disk).await.unwrap());
            disk.image()
        });
        left.write_file(&image.path()).unwrap();
        assert!(!image.dumpe2fs().contains("needs_recovery"), "{kind:?}");
        with_volume(&image, 1, |volume| async move {
            assert_eq!(volume.open_report().orphans.freed, 1);
        });
    }
}

fn parts(world: &Rc<dyn World>, disk: &MemoryDisk) -> OpenParts {
    let home = Rc::new(disk.clone());
    OpenParts { world: world.clone(), home, journal: None, options: VolumeOptions::default() }
}

#[test]
fn read_only_opening_replays_the_journal_and_says_so_if_it_cannot() {
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let inode = create(&volume, &root, 0o100_644).await.unwrap();
        volume.engine().commit(inode.last_change.get()).await.unwrap();
        let left = disk.crash(CrashPolicy::LoseAll);
        let writable = MemoryDisk::from_image(world.clone(), left.clone());
        let volume = open(&world, &writable, Access::ReadOnly).await.unwrap();
        assert!(!volume.open_report().recovery.clean);
        volume.close().await.unwrap();
        let locked = MemoryDisk::from_image(world.clone(), left);
        locked.inject(disks::Fault::forever(device::Operation::Write));
        let refused = open(&world, &locked, Access::ReadOnly).await.err().unwrap().to_string();
        assert!(refused.contains("the journal must be replayed first"), "{refused}");
    });
}

/// A volume of 1 or 4 KiB blocks with its journal on another image.
fn with_external_journal(block: &'static str) -> (TestImage, TestImage) {
    let journal = TestImage::of(match block {
        "1024" => Kind { arguments: "-O journal_dev -b 1024", size: "8M" },
        _ => Kind { arguments: "-O journal_dev -b 4096", size: "8M" },
    });
    // mke2fs takes only block devices as journal; what it writes is the feature, the UUID, and no
    // inode.
    let home = TestImage::of(match block {
        "1024" => Kind { arguments: "-t ext4 -b 1024 -O ^has_journal", size: "24M" },
        _ => Kind { arguments: "-t ext4 -b 4096 -O ^has_journal", size: "24M" },
    });
    name_journal(&home, &journal);
    (home, journal)
}

/// Makes the journal device that of a volume without one.
pub fn name_journal(home: &TestImage, journal: &TestImage) {
    let bytes = journal.bytes();
    let uuid: String =
        bytes[1024 + 0x68..1024 + 0x78].iter().map(|byte| format!("{byte:02x}")).collect();
    let uuid = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]].join("-");
    home.debugfs_write("feature has_journal");
    home.debugfs_write(&format!("set_super_value journal_uuid {uuid}"));
    home.debugfs_write("set_super_value journal_dev 0x700");
}

#[test]
fn an_external_journal_is_used_if_it_is_the_volumes() {
    for block in ["1024", "4096"] {
        let (home, journal) = with_external_journal(block);
        let other = TestImage::of(Kind { arguments: "-O journal_dev -b 1024", size: "8M" });
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disks = [home.disk(&world), journal.disk(&world), other.disk(&world)];
        let (home_disk, journal_disk) = (disks[0].clone(), disks[1].clone());
        virtual_world.run(async move {
            let [home, journal, other] = disks;
            let missing = open(&world, &home, Access::ReadWrite).await.err().unwrap().to_string();
            assert!(missing.contains("journal_dev="), "{missing}");
            let wrong: Rc<dyn Disk> = Rc::new(other);
            let wrong = open_with(&world, &home, Some(wrong), Access::ReadWrite)
                .await
                .err()
                .unwrap()
                .to_string();
            assert!(wrong.contains("has UUID"), "{wrong}");
            let log: Rc<dyn Disk> = Rc::new(journal.clone());
            let volume = open_with(&world, &home, Some(log), Access::ReadWrite).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let inode = create(&volume, &root, 0o100_644).await.unwrap();
            volume.engine().commit(inode.last_change.get()).await.unwrap();
            // A crash of both, then a recovery.
            let home_left = MemoryDisk::from_image(world.clone(), home.crash(CrashPolicy::LoseAll));
            let log_left =
                MemoryDisk::from_image(world.clone(), journal.crash(CrashPolicy::LoseAll));
            let again = open_with(&world, &home_left, Some(Rc::new(log_left)), Access::ReadWrite)
                .await
                .unwrap();
            assert_eq!(again.open_report().orphans.freed, 1);
            assert!(!again.open_report().recovery.clean);
            again.close().await.unwrap();
            volume.close().await.unwrap();
        });
        home_disk.write_image(&home.path()).unwrap();
        journal_disk.write_image(&journal.path()).unwrap();
        let mut command = Command::new("timeout");
        command.args(["60", "e2fsck", "-fn", "-j"]).arg(journal.path()).arg(home.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The log of one would be replayed into the other, and be empty for its own.
#[test]
fn an_external_journal_of_two_volumes_is_refused() {
    for (block, superblock) in [("1024", 2048), ("4096", 4096)] {
        let (home, journal) = with_external_journal(block);
        let (virtual_world, world, home) = home.world(1);
        let journal = journal.disk(&world);
        virtual_world.run(async move {
            let users = superblock + 0x40;
            let mut bytes = journal.read(users / 512 * 512, 512).await.unwrap();
            let at = users as usize % 512;
            assert_eq!(bytes[at..at + 4], [0; 4], "nobody has joined");
            bytes[at + 3] = 2;
            let joined =
                journal.write(users / 512 * 512, vec![Rc::new(bytes)], Durability::Durable);
            joined.await.unwrap();
            let before = (home.changes(), journal.changes());
            let log: Rc<dyn Disk> = Rc::new(journal.clone());
            let opened = open_with(&world, &home, Some(log), Access::ReadWrite).await;
            let refused = opened.err().unwrap().to_string();
            assert!(refused.contains("2 file systems"), "{refused}");
            assert_eq!((home.changes(), journal.changes()), before);
        });
    }
}

#[test]
fn an_unexpected_journal_is_refused() {
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let log: Rc<dyn Disk> = Rc::new(disk.clone());
        let refused = open_with(&world, &disk, Some(log), Access::ReadWrite).await.err().unwrap();
        assert!(refused.to_string().contains("named as journal"), "{refused}");
    });
}

#[test]
fn a_journal_superblock_that_contradicts_its_copy_is_not_believed() {
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let mut parts = parts(&world, &disk);
        parts.options.engine.data = engine::DataMode::Wasteless;
        let volume = Volume::open(parts.clone()).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let made = volume.mknod(&root, b"kept", &ext4::Caller::ROOT, 0o100_644, 0).await.unwrap();
        volume.engine().commit(made.transaction).await.unwrap();
        let mut left = disk.crash(CrashPolicy::LoseAll);
        let mut bytes = vec![0; left.size() as usize];
        left.read(0, &mut bytes);
        let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
        let at = bytes.chunks(1024).position(|block| block.starts_with(&magic)).unwrap() * 1024;
        let superblock = &mut bytes[at..at + 1024];
        // s_sequence, and s_checksum over all.
        superblock[0x1a] ^= 0x40;
        superblock[0xfc..0x100].fill(0);
        let sum = format::ext4::checksum::crc32c(!0, superblock);
        superblock[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        left.write(at as u64, superblock);
        let forged = MemoryDisk::from_image(world.clone(), left);
        let mut again = self::parts(&world, &forged);
        let error = Volume::open(again.clone()).await.err().expect("refused").to_string();
        assert!(error.contains("--find-log"), "{error}");
        again.options.engine.find_log = true;
        let volume = Volume::open(again).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        volume.lookup(&root, b"kept").await.unwrap();
        volume.close().await.unwrap();
    });
}

/// Packed records hold the bytes that changed, relative to home's content: corruption there shows
/// in the merged block.
#[test]
fn a_rotted_base_of_a_packed_record_is_found_when_the_block_is_read() {
    let image = TestImage::of(Kind { arguments: "-t ext4 -b 4096", size: "64M" });
    // The inode table's byte of a new file's first extent: nothing but its making changes it.
    let place = image.debugfs("imap <12>");
    let number = |from: &str| {
        let text = place.split(from).nth(1).unwrap().trim_start_matches("0x");
        let digits = text.split(|letter: char| !letter.is_ascii_hexdigit()).next().unwrap();
        u64::from_str_radix(digits, if from.contains("offset") { 16 } else { 10 }).unwrap()
    };
    let rotten_at = number("located at block ") * 4096 + number("offset ") + 0x30;
    image.in_world(1, async move |world, disk| {
        let packed = |disk: &MemoryDisk| {
            let mut parts = parts(&world, disk);
            parts.options.engine.data = engine::DataMode::Wasteless;
            parts
        };
        let volume = Volume::open(packed(&disk)).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let made = volume.mknod(&root, b"kept", &ext4::Caller::ROOT, 0o100_644, 0).await.unwrap();
        assert_eq!(made.value.number, InodeNumber(12), "the place that was asked for is another's");
        volume.close().await.unwrap();
        let volume = Volume::open(packed(&disk)).await.unwrap();
        let inode = volume.inode(InodeNumber(12)).await.unwrap();
        let change = ext4::SetAttributes { mode: Some(0o600), ..Default::default() };
        volume.setattr(&inode, &ext4::Caller::ROOT, change).await.unwrap();
        volume.sync().await.unwrap();
        let left = disk.crash(CrashPolicy::LoseAll);
        for rotten in [false, true] {
            let mut left = left.clone();
            if rotten {
                let mut byte = [0];
                left.read(rotten_at, &mut byte);
                left.write(rotten_at, &[byte[0] ^ 1]);
            }
            let disk = MemoryDisk::from_image(world.clone(), left);
            let report = ext4::recover(&packed(&disk), false).await.unwrap();
            assert!(
                report.transactions > 0 && report.replay.counts.whole_records == 0,
                "{report:?}"
            );
            let volume = Volume::open(packed(&disk)).await.unwrap();
            match volume.inode(InodeNumber(12)).await {
                Ok(inode) => assert!(!rotten && inode.fields.borrow().mode & 0o777 == 0o600),
                Err(error) => {
                    assert!(rotten && error.to_string().contains("run e2fsck"), "{error}")
                }
            }
            volume.close().await.unwrap();
        }
    });
}

#[test]
fn a_journal_with_one_block_in_two_places_is_refused() {
    let image = TestImage::of(EXT3);
    let first = image.debugfs("bmap <8> 0");
    let first = first.lines().next().unwrap().trim();
    image.debugfs_write(&format!("sif <8> block[1] {first}"));
    let (virtual_world, world, disk) = image.world(1);
    let opened =
        virtual_world.run(async move { open(&world, &disk, Access::ReadWrite).await.map(drop) });
    let error = opened.expect_err("a log that overwrites itself");
    assert!(error.to_string().contains("two places"), "{error}");
}

/// A file that is no such thing, with the number that the right one might have, and made by
/// anybody.
#[test]
fn a_file_that_looks_like_scattered_logs_does_not_hinder_the_opening() {
    let parsed =
        LogsSuperblock { uuid: [7; 16], inode: 11, logs: 1, log_blocks: 64, group_blocks: 128 };
    for (name, start) in [
        ("right but for the flag", parsed.serialize().to_vec()),
        ("magic alone", LOGS_MAGIC.to_vec()),
    ] {
        let image = TestImage::of(EXT4);
        with_volume(&image, 1, |volume| async move {
            volume.make_scattered_logs(2 << 20, 16 << 20).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            volume.rmdir(&root, b"lost+found").await.unwrap();
            let anybody = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
            let made = volume.mknod(&root, b"mine", &anybody, 0o100_644, 0).await.unwrap().value;
            assert_eq!(made.number.0, 11);
            let mut content = vec![0; 65 * 4096];
            content[..start.len()].copy_from_slice(&start);
            volume.write(&made, &anybody, 0, &content, WriteFlags::default()).await.unwrap();
        });
        image.in_world(1, async move |world, disk| {
            let engine = EngineOptions { log: LogKind::Scattered, ..EngineOptions::default() };
            let options = VolumeOptions { engine, ..VolumeOptions::default() };
            let parts = OpenParts {
                world: world.clone(),
                home: Rc::new(disk.clone()),
                journal: None,
                options,
            };
            let volume =
                Volume::open(parts).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            volume.close().await.unwrap();
        });
    }
}

/// The log still has a record of the superblock's block. What the mount says of itself must not be
/// undone by it.
#[test]
fn what_a_mount_marks_over_a_kept_log_survives_a_power_cut() {
    for (kind, records) in
        [EXT4, EXT4_1K].into_iter().zip([RecordFormat::Blocks, RecordFormat::Packed])
    {
        let image = TestImage::of(kind);
        with_volume(&image, 1, |volume| async move {
            volume.make_scattered_logs(2 << 20, 16 << 20).await.unwrap();
        });
        let world = VirtualWorld::new(1);
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let mut disk = image.disk(&shared);
        for mount_point in ["/one", "/two", "/three"] {
            let engine = EngineOptions {
                log: LogKind::Scattered,
                records: Some(records),
                ..EngineOptions::default()
            };
            let options = VolumeOptions {
                engine,
                mount_point: mount_point.into(),
                ..VolumeOptions::default()
            };
            let home: Rc<dyn Disk> = Rc::new(disk.clone());
            let parts = OpenParts { world: shared.clone(), home, journal: None, options };
            let kept = world.run(async move {
                let volume = Volume::open(parts).await.unwrap();
                let kept = volume.engine().has_begun_log();
                let root = volume.inode(InodeNumber(2)).await.unwrap();
                volume
                    .mkdir(&root, &mount_point.as_bytes()[1..], &Caller::ROOT, 0o755)
                    .await
                    .unwrap();
                volume.sync().await.unwrap();
                if mount_point == "/one" {
                    volume.set_label(b"name").await.unwrap();
                }
                kept
            });
            assert!(kept || mount_point == "/one", "{records:?}: the log was not kept");
            disk = MemoryDisk::from_image(shared.clone(), disk.crash(CrashPolicy::LoseAll));
            // As recovery would leave it, on a copy.
            let copy: Rc<dyn Disk> = Rc::new(MemoryDisk::from_image(shared.clone(), disk.image()));
            let (world_of_copy, options) = (shared.clone(), VolumeOptions::default());
            let recovered =
                OpenParts { world: world_of_copy, home: copy.clone(), journal: None, options };
            let superblock = world.run(async move {
                ext4::recover(&recovered, false).await.unwrap();
                ext4::read_superblock(&*copy).await.unwrap()
            });
            let said = superblock.last_mounted.split(|byte| *byte == 0).next().unwrap();
            assert_eq!(said, mount_point.as_bytes(), "{records:?}");
            assert_eq!(&superblock.volume_name[..4], b"name");
        }
        world.end();
    }
}
