//! How long inodes live, and what their fields become.

use crate::allocation::create;
use crate::image::{ALL, EXT4, TestImage, open, with_volume};
use device::World;
use ext4::{Access, Caller, NewInode, errno};
use runtime::VirtualWorld;
use std::rc::Rc;
use units::InodeNumber;

#[test]
fn an_inode_without_links_lives_until_the_last_reference_is_gone() {
    let image = TestImage::make(EXT4);
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
        assert_eq!(gone.errno(), errno::ESTALE);
        assert_ne!(inode.fields.borrow().deletion_time, 0);
    });
}

#[test]
fn inodes_that_only_the_kernel_remembers_take_no_memory_and_are_not_forgotten() {
    const FILES: usize = 12_000;
    let image = TestImage::make(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = number.to_string();
            let made = volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
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
        assert_eq!(volume.inode(number).await.err().unwrap().errno(), errno::ESTALE);
        // Forgotten while it was not in memory: nothing keeps it when its name goes.
        let (number, _) = *files[1..].iter().find(|(_, inode)| inode.strong_count() == 0).unwrap();
        let index = files.iter().position(|(other, _)| *other == number).unwrap();
        volume.forget(number, 1).await.unwrap();
        volume.unlink(&root, index.to_string().as_bytes()).await.unwrap();
        assert_eq!(volume.inode(number).await.err().unwrap().errno(), errno::ESTALE);
    });
}

#[test]
fn a_new_inode_inherits_what_its_directory_hands_down() {
    for kind in ALL {
        let image = TestImage::make(kind);
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
            let new = NewInode { parent: &root, mode: 0o060_600, uid: 0, gid: 0, rdev: 0x0110_0203 };
            let device = volume.create_inode(&mut handle, new).await.unwrap();
            device.fields.borrow_mut().links = 0;
            volume.orphan_add(&mut handle, &device).await.unwrap();
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
    let image = TestImage::make(EXT4);
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
        let image = TestImage::make(kind);
        let before = image.bytes();
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disk = image.disk(&world);
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
    let image = TestImage::make(EXT4);
    with_volume(&image, 1, |_| async {});
    let text = image.dumpe2fs();
    assert!(text.contains("Mount count:              1"), "{text}");
    assert!(text.contains("Last mounted on:          /test"), "{text}");
    assert!(text.contains("Filesystem state:         clean\n"), "{text}");
    assert!(text.contains("Last mount time:          Wed Jan  1 00:00:0"), "{text}");
}

#[test]
fn access_times_are_stored_by_sync() {
    let image = TestImage::make(EXT4);
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
