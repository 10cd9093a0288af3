//! Lifetime of inodes, and their fields afterwards.

use crate::image::in_mode;
use crate::image::world_with;
use crate::volume::allocation::create;
use crate::volume::image::{ALL, EXT4, TestImage, open, with_volume};
use device::Disk;
use disks::{CrashPolicy, MemoryDisk};
use engine::DataMode;
use ext4::{Access, Caller, NewInode, OpenParts, Volume};
use std::rc::Rc;
use std::time::Duration;
use units::Refusal;
use units::{FileBlock, InodeNumber, Timestamp};

#[test]
fn an_inode_without_links_lives_until_the_last_reference_is_gone() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let inode = create(&volume, &root, 0o100_644).await.unwrap();
        let number = inode.number;
        volume.opened(&inode);
        volume.remember(&inode);
        volume.remember(&inode);
        volume.forget(number, 1).await.unwrap();
        volume.closed(number).await.unwrap();
        assert!(volume.inode(number).await.is_ok());
        volume.forget(number, 1).await.unwrap();
        let gone = volume.inode(number).await.err().unwrap();
        assert_eq!(gone.refusal(), Some(Refusal::Stale));
        assert_ne!(inode.fields.borrow().deletion_time, 0);
    });
}

#[test]
fn inodes_that_only_the_kernel_remembers_take_no_memory_and_are_not_forgotten() {
    const FILES: usize = 12_000;
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = number.to_string();
            let made =
                volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
            volume.remember(&made.value);
            files.push((made.value.number, Rc::downgrade(&made.value)));
            if number % 1000 == 0 {
                volume.sync().await.unwrap();
            }
        }
        let in_memory = files.iter().filter(|(_, inode)| inode.strong_count() > 0).count();
        assert!(in_memory < FILES / 2 + 1000, "{in_memory} of {FILES} inodes are in memory");
        let (number, _) = files[0];
        let inode = volume.inode(number).await.unwrap();
        assert_eq!(inode.lookups.get(), 1, "the kernel still refers to it");
        drop(inode);
        volume.unlink(&root, b"0").await.unwrap();
        assert!(volume.inode(number).await.is_ok(), "and may still use it");
        volume.forget(number, 1).await.unwrap();
        assert_eq!(volume.inode(number).await.err().unwrap().refusal(), Some(Refusal::Stale));
        // Forgotten while it was not in memory: nothing keeps it when its name goes.
        let (number, _) = *files[1..].iter().find(|(_, inode)| inode.strong_count() == 0).unwrap();
        let index = files.iter().position(|(other, _)| *other == number).unwrap();
        volume.forget(number, 1).await.unwrap();
        volume.unlink(&root, index.to_string().as_bytes()).await.unwrap();
        assert_eq!(volume.inode(number).await.err().unwrap().refusal(), Some(Refusal::Stale));
    });
}

#[test]
fn a_new_inode_inherits_what_its_directory_hands_down() {
    for kind in ALL {
        let image = TestImage::of(kind);
        with_volume(&image, 1, |volume| async move {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let directory = create(&volume, &root, 0o042_755).await.unwrap();
            directory.fields.borrow_mut().flags |= 0x80 | 0x1_0000;
            let file = create(&volume, &directory, 0o100_644).await.unwrap();
            assert_eq!((file.fields.borrow().uid, file.fields.borrow().gid), (0x1_0002, 7));
            assert_eq!(file.fields.borrow().flags & 0x1_0080, 0x80);
            let below = create(&volume, &directory, 0o040_700).await.unwrap();
            assert_eq!(below.fields.borrow().mode, 0o042_700);
            assert_eq!(below.fields.borrow().flags & 0x1_0080, 0x1_0080);
            let mut handle = volume.engine().start(volume.credits_create_inode()).await.unwrap();
            let new =
                NewInode { parent: &root, mode: 0o060_600, uid: 0, gid: 0, rdev: 0x0110_0203 };
            let device = volume.create_inode(&mut handle, new).await.unwrap();
            device.fields.borrow_mut().links = 0;
            volume.orphan_add(&mut handle, &device);
            handle.stop();
            assert_eq!(device.fields.borrow().block[..8], [0, 0, 0, 0, 3, 2, 0x10, 1]);
            for inode in [directory, file, below, device] {
                volume.free_if_unused(&inode).await.unwrap();
            }
        });
    }
}

#[test]
fn the_file_systems_own_inodes_are_not_to_be_had() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        for number in [0, 1, 3, 8, 10, volume.superblock().inodes + 1, u32::MAX] {
            assert!(volume.inode(InodeNumber(number)).await.is_err(), "{number}");
        }
    });
    // The attempt counts as damage: a name that leads there would be.
    assert!(image.debugfs("stats").contains("clean with errors"));
}

#[test]
fn reading_only_changes_nothing() {
    for kind in ALL {
        let image = TestImage::of(kind);
        let before = image.bytes();
        let (virtual_world, world, disk) = image.world(1);
        let home = disk.clone();
        virtual_world.run(async move {
            let volume = open(&world, &home, Access::ReadOnly).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            volume.note_access(&root);
            volume.sync().await.unwrap();
            volume.close().await.unwrap();
        });
        disk.write_image(&image.path()).unwrap();
        assert!(image.bytes() == before, "{kind:?}");
    }
}

#[test]
fn mounting_leaves_its_traces_in_the_superblock() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |_| async {});
    let text = image.dumpe2fs();
    assert!(text.contains("Mount count:              1"), "{text}");
    assert!(text.contains("Last mounted on:          /test"), "{text}");
    assert!(text.contains("Filesystem state:         clean\n"), "{text}");
    assert!(text.contains("Last mount time:          Wed Jan  1 00:00:0"), "{text}");
}

/// A mount writes the superblock home past the log, and the block in memory stays as it was. A byte
/// that the first change sets back differs at home alone. In one mount of 64 it is a byte of the
/// checksum.
#[test]
fn the_first_logged_superblock_replaces_all_that_the_mount_wrote_home() {
    let image = TestImage::of(EXT4);
    let fresh = image.read();
    for number in 0..400 {
        let (virtual_world, world, disk) = world_with(number, fresh.clone());
        let label = format!("label {number}");
        let (parts, said) = (
            move |home: Rc<dyn Disk>| {
                let options = in_mode(DataMode::Wasteless);
                OpenParts { world: world.clone(), home, journal: None, options }
            },
            label.clone(),
        );
        let superblock = virtual_world.run(async move {
            let volume = Volume::open(parts(Rc::new(disk.clone()))).await.unwrap();
            volume.set_label(label.as_bytes()).await.unwrap();
            let left: Rc<dyn Disk> = Rc::new(MemoryDisk::from_image(
                volume.engine().world().clone(),
                disk.crash(CrashPolicy::LoseAll),
            ));
            ext4::recover(&parts(left.clone()), false)
                .await
                .unwrap_or_else(|error| panic!("{number}: {error}"));
            ext4::read_superblock(&*left).await.unwrap()
        });
        assert_eq!(&superblock.volume_name[..said.len()], said.as_bytes());
        virtual_world.end();
    }
}

#[test]
fn access_times_are_stored_by_sync() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        root.fields.borrow_mut().accessed.seconds = 5;
        volume.note_access(&root);
        assert!(root.access_is_newer.get());
        volume.sync().await.unwrap();
        assert!(!root.access_is_newer.get());
    });
    let text = image.debugfs("stat <2>");
    assert!(text.contains("atime: 0x5e0be100:"), "{text}");
}

/// Makes files, and drops all of them from memory that nothing keeps there.
async fn make_files(volume: &Rc<ext4::Volume>, count: usize) -> Vec<InodeNumber> {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut numbers = Vec::new();
    for number in 0..count {
        let name = number.to_string();
        let made = volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
        made.value.fields.borrow_mut().accessed.seconds = 5;
        numbers.push(made.value.number);
    }
    volume.sync().await.unwrap();
    numbers
}

#[test]
fn the_time_of_a_read_is_stored_within_a_minute_without_a_sync() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let numbers = make_files(&volume, 10).await;
        let inode = volume.inode(numbers[3]).await.unwrap();
        volume.read(&inode, 0, 10).await.unwrap();
        assert!(inode.access_is_newer.get());
        let world = volume.engine().world().clone();
        world.sleep_until(world.now().plus(Duration::from_secs(60))).await;
        assert!(!inode.access_is_newer.get());
        assert!(volume.engine().committed().is_at_or_after(inode.last_change.get()), "not durable");
    });
}

#[test]
fn reading_many_files_keeps_few_of_them_in_memory() {
    const FILES: usize = 11_000;
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let mut read = Vec::new();
        let world = volume.engine().world().clone();
        for number in make_files(&volume, FILES).await {
            let inode = volume.inode(number).await.unwrap();
            volume.read(&inode, 0, 10).await.unwrap();
            read.push(Rc::downgrade(&inode));
            drop(inode);
            // As fast as a front end reads them.
            world.sleep_until(world.now().plus(Duration::from_micros(100))).await;
        }
        // The next commit, and the next insertion sweeps.
        world.sleep_until(world.now().plus(Duration::from_secs(60))).await;
        make_more(&volume).await;
        let in_memory = read.iter().filter(|inode| inode.strong_count() > 0).count();
        assert!(in_memory < 5000, "{in_memory} of {FILES} are in memory");
    });
}

/// Files that are opened without a request count no descriptor.
#[test]
fn a_file_whose_addresses_are_known_stays_in_memory() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let number = make_files(&volume, 1).await[0];
        let inode = volume.inode(number).await.unwrap();
        volume.remember(&inode);
        volume.exposed_address(&inode, FileBlock(0)).await.unwrap();
        let kept = Rc::downgrade(&inode);
        drop(inode);
        make_more(&volume).await;
        assert!(kept.strong_count() > 0, "nobody knows any more that others write to its blocks");
    });
}

async fn make_more(volume: &Rc<ext4::Volume>) {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    for number in 0..4200 {
        let name = format!("more {number}");
        volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
    }
}

#[test]
fn times_beyond_the_last_second_become_that_second_without_parts() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let last = (3 << 32) + i64::from(i32::MAX);
        for (seconds, stored) in [(i64::MAX, last), (last, last), (i64::MIN, i64::from(i32::MIN))] {
            let time = volume.storable(Timestamp { seconds, nanoseconds: 5 });
            assert_eq!(time, Timestamp { seconds: stored, nanoseconds: 0 });
        }
        let inside = Timestamp { seconds: last - 1, nanoseconds: 5 };
        assert_eq!(volume.storable(inside), inside);
    });
}
