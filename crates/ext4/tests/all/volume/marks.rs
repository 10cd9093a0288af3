//! State of a volume that the superblock records outlives crashes and unmounts.

use crate::image::{in_mode, open as open_volume};
use crate::volume::allocation::create;
use crate::volume::image::{EXT3, EXT4, EXT4_1K, Kind, TestImage, open};
use device::World;
use disks::{CrashPolicy, Latency, MemoryDisk};
use engine::DataMode;
use ext4::{Access, Caller, Error, OnError, SyncWhat, Volume, VolumeOptions, WriteFlags};
use format::ext4::GroupDescriptor;
use format::ext4::superblock::state;
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);
const PLAIN: Kind = Kind { arguments: "-t ext4 -O ^has_journal", size: "16M" };

async fn write_file(volume: &Rc<Volume>, name: &[u8]) {
    let root = volume.inode(ROOT).await.unwrap();
    let file = volume.mknod(&root, name, &Caller::ROOT, 0o100_644, 0).await.unwrap().value;
    volume.write(&file, &Caller::ROOT, 0, &[7; 9000], WriteFlags::default()).await.unwrap();
    volume.sync().await.unwrap();
}

async fn is_valid(disk: &MemoryDisk) -> bool {
    ext4::read_superblock(disk).await.unwrap().state & state::VALID != 0
}

/// A crash without a journal leaves what only e2fsck repairs; with one, the mark is a request of
/// e2fsck or tune2fs.
#[test]
fn a_volume_found_unchecked_is_not_closed_as_checked() {
    for kind in [PLAIN, EXT4] {
        let image = TestImage::of(kind);
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let has_journal = kind.arguments == EXT4.arguments;
        if has_journal {
            image.debugfs_write("set_super_value state 0");
        }
        let mut disk = image.disk(&world);
        virtual_world.run(async move {
            if !has_journal {
                let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
                write_file(&volume, b"first").await;
                disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
            }
            for round in 0..2 {
                let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
                let warnings = volume.open_report().warnings;
                assert!(warnings.iter().any(|it| it.contains("run e2fsck")), "{warnings:?}");
                write_file(&volume, format!("later {round}").as_bytes()).await;
                volume.forbid_changes().await.unwrap();
                assert!(!is_valid(&disk).await, "{kind:?}: read-only in round {round}");
                volume.allow_changes().await.unwrap();
                volume.close().await.unwrap();
                assert!(!is_valid(&disk).await, "{kind:?}: closed in round {round}");
            }
        });
    }
}

#[test]
fn a_volume_found_checked_is_closed_as_checked() {
    for kind in [PLAIN, EXT4] {
        let image = TestImage::of(kind);
        image.in_world(1, async move |world, disk| {
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            write_file(&volume, b"one").await;
            volume.forbid_changes().await.unwrap();
            assert!(is_valid(&disk).await, "{kind:?}: read-only");
            volume.allow_changes().await.unwrap();
            write_file(&volume, b"two").await;
            volume.close().await.unwrap();
            assert!(is_valid(&disk).await, "{kind:?}: closed");
        });
    }
}

async fn mark_of(disk: &MemoryDisk) -> (bool, u32) {
    let superblock = ext4::read_superblock(disk).await.unwrap();
    (superblock.state & state::ERROR != 0, superblock.error_count)
}

fn found_damage() -> Error {
    Error::corrupt_inode(InodeNumber(12), "of the test")
}

fn options(data: DataMode, on_error: OnError) -> VolumeOptions {
    VolumeOptions { on_error, ..in_mode(data) }
}

/// The mark is made durable with a sync, or soon without one.
#[test]
fn a_mark_of_damage_survives_a_crash() {
    for (kind, data) in [
        (EXT4_1K, DataMode::Ordered),
        (EXT4, DataMode::Wasteless),
        (EXT3, DataMode::Journal),
        (PLAIN, DataMode::Ordered),
    ] {
        for synced in [true, false] {
            let image = TestImage::of(kind);
            image.in_world(1, async move |world, disk| {
                let options = options(data, OnError::Continue);
                let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
                write_file(&volume, b"first").await;
                let _ = volume.note_damage(found_damage());
                match synced {
                    true => volume.sync().await.unwrap(),
                    false => world.sleep_until(world.now().plus(Duration::from_secs(1))).await,
                }
                let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
                let volume = open_volume(&world, &disk, None, options).await.unwrap();
                assert!(volume.needs_check(), "{kind:?} {data} synced: {synced}");
                assert_eq!(volume.superblock().error_count, 1);
                volume.close().await.unwrap();
                assert_eq!(mark_of(&disk).await, (true, 1));
            });
        }
    }
}

/// A file's own sync promises what a sync of everything does.
#[test]
fn a_synced_file_is_not_without_the_mark_of_damage() {
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        let made = volume.mknod(&root, b"file", &Caller::ROOT, 0o100_644, 0).await.unwrap();
        volume
            .write(&made.value, &Caller::ROOT, 0, &[7; 9000], WriteFlags::default())
            .await
            .unwrap();
        let _ = volume.note_damage(found_damage());
        volume.sync_file(&made.value, SyncWhat::All).await.unwrap();
        let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        assert!(volume.needs_check());
        volume.close().await.unwrap();
    });
}

/// The file was durable before, and the mark is in a transaction that another task commits.
#[test]
fn a_sync_of_a_durable_file_waits_for_a_mark_in_flight() {
    for by_label in [false, true] {
        let image = TestImage::of(EXT4_1K);
        image.in_world(1, async move |world, disk| {
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            write_file(&volume, b"file").await;
            let root = volume.inode(ROOT).await.unwrap();
            let file = volume.lookup(&root, b"file").await.unwrap();
            disk.set_latency(Latency { least: Duration::from_millis(5), spread: Duration::ZERO });
            let _ = volume.note_damage(found_damage());
            if by_label {
                // Another change writes the superblock first, and asks for no commit.
                let change = volume.clone();
                world.spawn(Box::pin(async move { drop(change.set_label(b"one").await) }));
            }
            world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
            volume.sync_file(&file, SyncWhat::All).await.unwrap();
            let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            assert!(volume.needs_check(), "by label: {by_label}");
            volume.close().await.unwrap();
        });
    }
}

/// EROFS would mean to a program that its descriptor needs no sync.
#[test]
fn every_sync_of_a_stopped_volume_fails() {
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let options = options(DataMode::Ordered, OnError::Stop);
        let volume = open_volume(&world, &disk, None, options).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        let made = volume.mknod(&root, b"file", &Caller::ROOT, 0o100_644, 0).await.unwrap();
        let written =
            volume.write(&made.value, &Caller::ROOT, 0, &[7; 9000], WriteFlags::default()).await;
        let _ = volume.note_damage(found_damage());
        for what in [SyncWhat::All, SyncWhat::Data] {
            let error = volume.sync_file(&made.value, what).await.unwrap_err();
            assert!(!error.is_read_only(), "{what:?}: {error:?}");
            let settled = volume.settle_write(&made.value, written.as_ref().unwrap(), Some(what));
            let error = settled.await.unwrap_err();
            assert!(!error.is_read_only(), "{what:?}: {error:?}");
        }
        let error = volume.settle_directory(&root, made.transaction, true).await.unwrap_err();
        assert!(!error.is_read_only(), "{error:?}");
        let _ = volume.close().await;
    });
}

/// Found while changes were forbidden, it is noted when they are allowed.
#[test]
fn damage_found_by_a_reader_is_marked_once_it_may_be() {
    let image = TestImage::of(EXT4);
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk, Access::ReadOnly).await.unwrap();
        let _ = volume.note_damage(found_damage());
        world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
        assert_eq!(mark_of(&disk).await, (false, 0), "nothing may be written");
        volume.allow_changes().await.unwrap();
        let left = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        assert_eq!(mark_of(&left).await, (true, 1));
        volume.close().await.unwrap();
    });
}

/// The list may name what is in use, also where no more than the journal's superblock could record
/// that damage was found.
#[test]
fn orphans_are_not_freed_after_damage_that_stopped_the_volume() {
    let image = TestImage::of(EXT4);
    image.in_world(1, async move |world, disk| {
        let options = options(DataMode::Wasteless, OnError::Stop);
        let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        let orphan = create(&volume, &root, 0o100_600).await.unwrap();
        volume.set_label(b"one").await.unwrap();
        volume.engine().checkpoint().await.unwrap();
        volume.set_label(b"two").await.unwrap();
        let _ = volume.note_damage(found_damage());
        world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
        drop(orphan);
        let mut left = disk.crash(CrashPolicy::LoseAll);
        for round in 0..2 {
            let disk = MemoryDisk::from_image(world.clone(), left);
            let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
            let found = (volume.needs_check(), volume.open_report().orphans.freed);
            assert_eq!(found, (true, 0), "round {round}");
            assert!(volume.superblock().error_count > 0);
            volume.sync().await.unwrap();
            left = disk.crash(CrashPolicy::LoseAll);
        }
    });
}

/// The journal's inode is damaged, and the log has parts of the superblock.
#[test]
fn damage_found_before_the_replay_is_not_written_past_it() {
    let image = TestImage::of(EXT4);
    image.in_world(1, async move |world, disk| {
        let options = options(DataMode::Wasteless, OnError::Stop);
        let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
        volume.set_label(b"one").await.unwrap();
        volume.engine().checkpoint().await.unwrap();
        volume.set_label(b"two").await.unwrap();
        let superblock = volume.superblock();
        let mut left = disk.crash(CrashPolicy::LoseAll);
        let block = superblock.block_size.bytes() as u64;
        let mut bytes = [0; 64];
        left.read(superblock.descriptor_block(0).get() * block, &mut bytes);
        // The journal's inode is the eighth.
        let table = GroupDescriptor::parse(&bytes).inode_table.get() * block;
        left.fill(table + 7 * u64::from(superblock.inode_size), 60, 0xff);
        for _ in 0..2 {
            let disk = MemoryDisk::from_image(world.clone(), left);
            let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
            assert_eq!(volume.label(), b"two");
            volume.sync().await.unwrap();
            left = disk.crash(CrashPolicy::LoseAll);
        }
    });
}
