//! Orphans across a crash.

use crate::image::with_engine;
use crate::volume::allocation::create;
use crate::volume::image::{ALL, EXT3, EXT4, EXT4_1K, Kind, TestImage, open, with_volume};
use device::Operation;
use disks::{CrashPolicy, Fault, MemoryDisk};
use engine::EngineOptions;
use ext4::{Access, Caller, Existence, Inode, OpenReport, SetXattr, Volume, WriteFlags};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, InodeNumber};

#[test]
fn orphans_left_by_a_crash_are_freed_at_the_next_opening() {
    for (index, kind) in ALL.into_iter().enumerate() {
        let seed = index as u64;
        println!("{kind:?} seed {seed}");
        let image = TestImage::of(kind);
        let before = image.dumpe2fs();
        let (virtual_world, world, disk) = image.world(seed);
        let home = disk.clone();
        let left = virtual_world.run(async move {
            let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
            let left = make_and_free_some(&volume, seed).await;
            volume.sync().await.unwrap();
            left
        });
        // No close: the image is what a crash leaves.
        disk.write_image(&image.path()).unwrap();
        with_volume(&image, seed, move |volume| async move {
            assert_eq!(volume.open_report().orphans.freed, left);
            assert_eq!(volume.open_report().orphans.damaged, 0);
        });
        let free = |text: &str| {
            text.lines().find(|line| line.starts_with("Free inodes:")).unwrap().to_owned()
        };
        assert_eq!(free(&before), free(&image.dumpe2fs()), "{kind:?}");
    }
}

/// The volume, opened again, after a crash that follows `fail` while orphans were open.
fn opened_after(
    kind: Kind,
    fail: impl AsyncFnOnce(&Rc<Volume>, &MemoryDisk) + 'static,
) -> (u32, u32, TestImage) {
    let image = TestImage::of(kind);
    let (virtual_world, world, disk) = image.world(1);
    let (home, path) = (disk.clone(), image.path());
    let (left, freed) = virtual_world.run(async move {
        let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
        let left = make_and_free_some(&volume, 1).await;
        volume.sync().await.unwrap();
        fail(&volume, &home).await;
        let again = MemoryDisk::from_image(world.clone(), home.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &again, Access::ReadWrite).await.unwrap();
        let report = volume.open_report();
        assert!(report.warnings[0].contains("run e2fsck"), "{report:?}");
        // Now the error stands in the superblock; orphans of this mount are freed after the next
        // crash.
        let left_again = make_and_free_some(&volume, 2).await;
        volume.sync().await.unwrap();
        let third = MemoryDisk::from_image(world.clone(), again.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &third, Access::ReadWrite).await.unwrap();
        let freed = report.orphans.freed + volume.open_report().orphans.freed;
        volume.close().await.unwrap();
        third.write_image(&path).unwrap();
        (left + left_again, freed)
    });
    (left, freed, image)
}

#[test]
fn orphans_are_freed_after_a_failed_write_although_the_volume_needs_e2fsck() {
    for kind in ALL {
        let (left, freed, image) =
            opened_after(kind, async |volume: &Rc<Volume>, disk: &MemoryDisk| {
                disk.inject(Fault::once(Operation::Write));
                let root = volume.inode(InodeNumber(2)).await.unwrap();
                let made = create(volume, &root, 0o100_600).await.unwrap();
                assert!(volume.engine().commit(made.last_change.get()).await.is_err());
                // The note in the journal superblock is in flight.
                let world = volume.engine().world();
                world.sleep_until(world.now().plus(Duration::from_secs(60))).await;
            });
        assert_eq!(freed, left, "{kind:?}");
        image.check_as("after a failed write");
        assert!(image.dumpe2fs().contains("clean with errors"), "{kind:?}");
    }
}

#[test]
fn no_orphan_is_freed_where_damage_was_found_before() {
    for kind in [EXT3, EXT4_1K, ALL[2]] {
        let (_, freed, _) = opened_after(kind, async |volume: &Rc<Volume>, _: &MemoryDisk| {
            volume.note_damage(ext4::Error::corrupt_inode(InodeNumber(13), "for a test"));
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            create(volume, &root, 0o100_600).await.unwrap();
            volume.sync().await.unwrap();
        });
        assert_eq!(freed, 0, "{kind:?}");
    }
}

/// Makes orphans and frees some from the middle; returns the number left.
async fn make_and_free_some(volume: &Rc<ext4::Volume>, seed: u64) -> u32 {
    let random = SplitMix::new(seed);
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut orphans = Vec::new();
    for _ in 0..40 {
        orphans.push(create(volume, &root, 0o100_600).await.unwrap());
        if random.next() % 3 == 0 {
            let inode = orphans.swap_remove(random.next() as usize % orphans.len());
            volume.free_if_unused(&inode).await.unwrap();
        }
    }
    orphans.len() as u32
}

#[test]
fn orphans_still_open_at_unmount_are_freed() {
    for kind in ALL {
        let image = TestImage::of(kind);
        with_volume(&image, 3, |volume| async move {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            for _ in 0..5 {
                let inode = create(&volume, &root, 0o100_600).await.unwrap();
                volume.opened(&inode);
                volume.remember(&inode);
            }
        });
    }
}

#[test]
fn an_orphan_that_cannot_be_freed_here_is_named_and_hinders_no_mount() {
    for kind in [EXT3, ALL[1]] {
        let image = TestImage::of(kind);
        image.in_world(1, async move |world, disk| {
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let odd = create(&volume, &root, 0o100_600).await.unwrap();
            let other = create(&volume, &root, 0o100_600).await.unwrap();
            let mut handle = volume.engine().start(volume.credits_inode()).await.unwrap();
            odd.fields.borrow_mut().flags |= 0x1000_0000;
            odd.fields.borrow_mut().size = 17;
            volume.store(&mut handle, &odd).await.unwrap();
            handle.stop();
            drop(other);
            volume.sync().await.unwrap();
            let mut left = disk.crash(CrashPolicy::LoseAll);
            for round in 0..3 {
                let disk = MemoryDisk::from_image(world.clone(), left);
                let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
                let report = volume.open_report();
                if round == 0 {
                    assert_eq!(
                        (report.orphans.freed, report.orphans.damaged),
                        (1, 1),
                        "{report:?}"
                    );
                    let named = |warning: &String| {
                        warning.contains(&odd.number.to_string()) && warning.contains("run e2fsck")
                    };
                    assert!(report.warnings.iter().any(named), "{report:?}");
                }
                volume.close().await.unwrap();
                left = disk.image();
            }
        });
    }
}

/// The table block of an inode's neighbour in the orphan list cannot be read.
#[test]
fn an_orphan_whose_neighbour_cannot_be_read_is_freed_whole_or_not() {
    for kind in [EXT3, ALL[2]] {
        let image = TestImage::of(kind);
        let (virtual_world, world, disk) = image.world(1);
        let home = disk.clone();
        let place = |number: InodeNumber| {
            let found = image.debugfs(&format!("imap <{}>", number.get()));
            let (_, block) = found.split_once("located at block ").unwrap();
            block.split(',').next().unwrap().trim().parse::<u64>().unwrap()
        };
        let places: Vec<_> = (11..40).map(|number| place(InodeNumber(number))).collect();
        virtual_world.run(async move {
            let options = with_engine(EngineOptions { cache_bytes: 0, ..EngineOptions::default() });
            let volume = crate::image::open(&world, &home, None, options).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let orphan = create(&volume, &root, 0o100_600).await.unwrap();
            let set = SetXattr {
                name: b"user.large",
                value: &[7; 600],
                existence: Existence::Any,
                clear_set_group: false,
            };
            volume.set_xattr(&orphan, &Caller::ROOT, set).await.unwrap();
            let mut others = Vec::new();
            for _ in 0..20 {
                others.push(create(&volume, &root, 0o100_600).await.unwrap());
            }
            let neighbour = others.pop().unwrap();
            for other in &others {
                volume.free_if_unused(other).await.unwrap();
            }
            volume.engine().checkpoint().await.unwrap();
            // Nothing but these is in memory.
            for at in 5_000..5_064 {
                volume.engine().metadata(HomeBlock(at)).await.unwrap();
            }
            let [own, unreadable] =
                [orphan.number, neighbour.number].map(|it| places[it.get() as usize - 11]);
            assert_ne!(own, unreadable);
            let size = volume.block_size().bytes() as u64;
            let range = unreadable * size..(unreadable + 1) * size;
            home.inject(Fault { range, ..Fault::forever(Operation::Read) });
            volume.free_if_unused(&orphan).await.expect_err("the neighbour was in memory");
            // What was changed before the error would be durable now.
            volume.sync().await.unwrap();
        });
        virtual_world.end();
        let left =
            MemoryDisk::from_image(Rc::new(VirtualWorld::new(2)), disk.crash(CrashPolicy::LoseAll));
        left.write_image(&image.path()).unwrap();
        with_volume(&image, 3, |volume| async move {
            assert_eq!((volume.open_report().orphans.freed, volume.needs_check()), (2, false));
        });
        image.check_as("after its journal was replayed");
    }
}

/// A file whose extents fill a block; behind enough others that it lies in a table block of its
/// own, and without orphans in front of it.
async fn make_fragmented(volume: &Rc<Volume>) -> Rc<Inode> {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    for index in 0..40 {
        let name = format!("other-{index}");
        volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_600, 0).await.unwrap();
    }
    let file = volume.mknod(&root, b"file", &Caller::ROOT, 0o100_600, 0).await.unwrap().value;
    let size = volume.block_size().bytes() as u64;
    for index in 0..12 {
        let flags = WriteFlags::default();
        volume.write(&file, &Caller::ROOT, 2 * index * size, &[1; 100], flags).await.unwrap();
    }
    file
}

/// Makes such a file, open and without a name. Returns it, and the block that its extents fill.
async fn make_nameless(volume: &Rc<Volume>) -> (Rc<Inode>, u64) {
    let file = make_fragmented(volume).await;
    volume.opened(&file);
    volume.unlink(&volume.inode(InodeNumber(2)).await.unwrap(), b"file").await.unwrap();
    volume.engine().checkpoint().await.unwrap();
    let tree = tree_block(&file);
    (file, tree)
}

/// The child of the first index, behind the header.
fn tree_block(file: &Inode) -> u64 {
    let child: [u8; 4] = file.fields.borrow().block[12 + 4..][..4].try_into().unwrap();
    u32::from_le_bytes(child).into()
}

/// A truncate fails for a read, and so does its end at the next mount.
#[test]
fn bytes_that_no_mount_could_free_stay_away() {
    for kind in [EXT4, EXT4_1K] {
        let image = TestImage::of(kind);
        image.on_disk(async move |world, disk| {
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            let file = make_fragmented(&volume).await;
            let (number, size) = (file.number, volume.block_size().bytes() as u64);
            let unreadable = tree_block(&file) * size..(tree_block(&file) + 1) * size;
            let failing = Fault { range: unreadable, ..Fault::forever(Operation::Read) };
            volume.close().await.unwrap();
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            let file = volume.inode(number).await.unwrap();
            disk.inject(failing.clone());
            volume.truncate(&file, 2 * size).await.unwrap_err();
            volume.close().await.unwrap();
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            let orphans = volume.open_report().orphans;
            assert_eq!((orphans.truncated, orphans.damaged), (0, 1), "{kind:?}");
            disk.heal();
            let file = volume.inode(number).await.unwrap();
            let flags = WriteFlags::default();
            volume.write(&file, &Caller::ROOT, 30 * size, &[1], flags).await.unwrap();
            let bytes = volume.read(&file, 2 * size, 28 * size as usize).await.unwrap().to_vec();
            assert!(bytes.iter().all(|byte| *byte == 0), "{kind:?}");
            volume.close().await.unwrap();
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            assert_eq!(volume.open_report().orphans, Default::default(), "{kind:?}");
            volume.close().await.unwrap();
            disk
        });
    }
}

/// The truncate takes more than one transaction.
#[test]
fn a_nameless_file_that_is_cut_stays_an_orphan() {
    let image = TestImage::of(Kind { arguments: "-t ext4 -b 1024 -J size=1", size: "16M" });
    image.on_disk(async move |world, disk| {
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let file = create(&volume, &root, 0o100_600).await.unwrap();
        volume.opened(&file);
        for index in 0..1000 {
            let flags = WriteFlags::default();
            volume.write(&file, &Caller::ROOT, 2048 * index, &[1; 100], flags).await.unwrap();
        }
        volume.truncate(&file, 0).await.unwrap();
        volume.sync().await.unwrap();
        let left = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &left, Access::ReadWrite).await.unwrap();
        assert_eq!(volume.open_report().orphans.freed, 1);
        volume.close().await.unwrap();
        left
    });
}

/// A file without a name gets one behind a truncate that failed: the rest is freed all the same.
#[test]
fn a_file_cut_half_way_that_gets_a_name_stays_an_orphan() {
    let image = TestImage::of(EXT4);
    image.on_disk(async move |world, disk| {
        let options = with_engine(EngineOptions { cache_bytes: 0, ..EngineOptions::default() });
        let volume = crate::image::open(&world, &disk, None, options).await.unwrap();
        let (file, tree) = make_nameless(&volume).await;
        let size = volume.block_size().bytes() as u64;
        for at in 5_000..5_064 {
            volume.engine().metadata(HomeBlock(at)).await.unwrap();
        }
        let range = tree * size..(tree + 1) * size;
        disk.inject(Fault { range, ..Fault::forever(Operation::Read) });
        volume.truncate(&file, 2 * size).await.expect_err("its extents were in memory");
        disk.heal();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        volume.link(&file, &root, b"named", &Caller::ROOT).await.unwrap();
        volume.sync().await.unwrap();
        let left = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &left, Access::ReadWrite).await.unwrap();
        let orphans = volume.open_report().orphans;
        assert_eq!((orphans.truncated, orphans.freed, orphans.damaged), (1, 0, 0));
        let file = volume.inode(file.number).await.unwrap();
        // The block of the end, and the one in which its extents were.
        assert!(volume.getattr(&file).sectors <= 2 * size / 512);
        volume.close().await.unwrap();
        left
    });
}

/// Opens what a crash left while `block` cannot be read, and then again when it can.
fn open_without_block(kind: Kind, of_table: bool) -> [(OpenReport, bool); 2] {
    let image = TestImage::of(kind);
    let (virtual_world, world, disk) = image.world(1);
    let table = |number: InodeNumber| {
        let found = image.debugfs(&format!("imap <{}>", number.get()));
        let (_, block) = found.split_once("located at block ").unwrap();
        block.split(',').next().unwrap().trim().parse::<u64>().unwrap()
    };
    let tables: Vec<u64> = (1..90).map(|number| table(InodeNumber(number))).collect();
    virtual_world.run(async move {
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        let (file, tree) = make_nameless(&volume).await;
        let size = volume.block_size().bytes() as u64;
        let block = if of_table { tables[file.number.get() as usize - 1] } else { tree };
        let mut left = disk.crash(CrashPolicy::LoseAll);
        let mut opened = async |fault: Option<Fault>| {
            let disk = MemoryDisk::from_image(world.clone(), left.clone());
            fault.into_iter().for_each(|fault| disk.inject(fault));
            let volume = open(&world, &disk, Access::ReadWrite).await;
            let volume = volume.unwrap_or_else(|error| panic!("{kind:?} {of_table}: {error}"));
            volume.sync().await.unwrap();
            left = disk.crash(CrashPolicy::LoseAll);
            (volume.open_report(), volume.needs_check())
        };
        let range = block * size..(block + 1) * size;
        let first = opened(Some(Fault { range, ..Fault::forever(Operation::Read) })).await;
        [first, opened(None).await]
    })
}

#[test]
fn an_orphan_that_cannot_be_read_hinders_no_mount() {
    for kind in [EXT4, EXT4_1K] {
        let [(first, marked), (second, _)] = open_without_block(kind, false);
        assert_eq!((first.orphans.freed, first.orphans.damaged), (0, 1), "{kind:?}: {first:?}");
        assert!(first.warnings.iter().any(|it| it.contains("orphan")), "{kind:?}: {first:?}");
        // A read that fails is no damage: the orphan is freed once it can be read.
        assert!(!marked, "{kind:?}");
        let freed = (second.orphans.freed, second.orphans.damaged);
        assert_eq!(freed, (1, 0), "{kind:?}: {second:?}");
    }
}

#[test]
fn orphans_whose_list_cannot_be_read_hinder_no_mount() {
    for kind in [EXT4, EXT4_1K] {
        let [(first, _), _] = open_without_block(kind, true);
        assert_eq!((first.orphans.freed, first.orphans.damaged), (0, 1), "{kind:?}: {first:?}");
        assert!(first.warnings.iter().any(|it| it.contains("orphan")), "{kind:?}: {first:?}");
    }
}

/// The kernel zeros behind the end in another transaction than the one that makes the file shorter.
#[test]
fn a_truncate_that_the_kernel_left_unfinished_zeros_behind_the_end() {
    for kind in [EXT3, EXT4] {
        let image = TestImage::of(kind);
        image.mounted("rw", "head -c 4096 /dev/zero | tr '\\0' x >file");
        let number = image.number("file").get();
        image.debugfs_write(&format!("sif <{number}> size 1000"));
        image.debugfs_write(&format!("ssv last_orphan {number}"));
        with_volume(&image, 1, |volume| async move {
            assert_eq!(volume.open_report().orphans.truncated, 1);
        });
        image.debugfs_write(&format!("sif <{number}> size 4096"));
        let content = image.debugfs("cat file").into_bytes();
        let shown: Vec<_> =
            content.chunk_by(|one, next| one == next).map(|it| (it[0], it.len())).collect();
        assert_eq!(shown, [(b'x', 1000), (0, 3096)], "{kind:?}");
    }
}
