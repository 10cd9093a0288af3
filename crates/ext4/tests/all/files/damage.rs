//! Damaged mapping trees: every operation ends, with an error or without, and none panics.

use crate::files::image::{EXT3_1K, Kind, TestImage, UNCHECKED, open, with_volume};
use device::World;
use disks::MemoryDisk;
use ext4::{Caller, Error, RangeMode, SeekWhat, WriteFlags};
use runtime::VirtualWorld;
use std::rc::Rc;
use units::{FileBlock, InodeNumber};

const BLOCK: usize = 1024;

/// A file whose tree has several levels, and the blocks of the tree.
fn image_with_tree(kind: Kind) -> (TestImage, Vec<u64>) {
    let image = TestImage::of_files(kind, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        for place in 0..600 {
            let flags = WriteFlags::default();
            volume.write(&inodes[0], &Caller::ROOT, place * 2048, &[1; 700], flags).await.unwrap();
        }
    });
    let text = image.debugfs("stat f0");
    // Tree blocks: "(ETB0):33", "(IND):45", "(DIND):..."
    let is_tree =
        |part: &&str| ["(ETB", "(IND", "(DIND", "(TIND"].iter().any(|name| part.starts_with(name));
    let number =
        |part: &str| part.rsplit(':').next().unwrap().trim_end_matches(',').parse().unwrap();
    let blocks: Vec<u64> = text.split_whitespace().filter(is_tree).map(number).collect();
    assert!(blocks.len() >= 3, "a tree of several blocks: {text}");
    (image, blocks)
}

/// Does everything one can do with a file; results do not matter.
async fn use_file(world: Rc<dyn World>, disk: MemoryDisk, number: InodeNumber) {
    let Ok(volume) = open(&world, &disk).await else { return };
    let Ok(inode) = volume.inode(number).await else { return };
    let caller = &Caller::ROOT;
    let _ = volume.extents(&inode, FileBlock(0), FileBlock(u32::MAX), 100_000).await;
    let _ = volume.read(&inode, 0, 2_000_000).await;
    for offset in [0, 100_000, 900_000] {
        let _ = volume.seek(&inode, offset, SeekWhat::Hole).await;
        let _ = volume.seek(&inode, offset + 512, SeekWhat::Data).await;
        let _ =
            volume.write(&inode, caller, offset + 1500, &[3; 3000], WriteFlags::default()).await;
        let _ = volume.fallocate(&inode, caller, RangeMode::PunchHole, true, offset, 5000).await;
        let _ = volume.fallocate(&inode, caller, RangeMode::Zero, true, offset + 9000, 5000).await;
        let _ = volume
            .fallocate(&inode, caller, RangeMode::Allocate, true, offset + 20_000, 50_000)
            .await;
    }
    let _ = volume.truncate(&inode, 700_000).await;
    let _ = volume.truncate(&inode, 0).await;
    let _ = volume.close().await;
}

fn damage(kind: Kind, cases: u64) {
    let (image, blocks) = image_with_tree(kind);
    let number = image.inode(0);
    for seed in 0..cases {
        // Shown only when the test fails.
        eprintln!("{} seed {seed}", kind.name);
        let virtual_world = VirtualWorld::new(seed);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let mut bytes = disks::Image::read_file(&image.path()).unwrap();
        for _ in 0..1 + world.random() % 3 {
            let block = blocks[world.random() as usize % blocks.len()] as usize;
            // Headers and first entries matter most.
            let length = if world.random() % 2 == 0 { 48 } else { BLOCK };
            let at = (block * BLOCK + world.random() as usize % length) as u64;
            match world.random() % 4 {
                0 => bytes.write(at, &[0]),
                1 => bytes.write(at, &[0xff]),
                2 => bytes.write(at, &[world.random() as u8]),
                // Points to a block of the same tree.
                _ => {
                    let target = blocks[world.random() as usize % blocks.len()] as u32;
                    bytes.write(at / 4 * 4, &target.to_le_bytes());
                }
            }
        }
        let disk = MemoryDisk::from_image(world.clone(), bytes);
        virtual_world.run(use_file(world, disk, number));
    }
}

#[test]
fn damaged_extent_trees_end_every_operation() {
    damage(UNCHECKED, 300);
}

#[test]
fn damaged_pointer_blocks_end_every_operation() {
    damage(EXT3_1K, 300);
}

/// Two files share the nodes of a tree: a change through one leaves the other's copy in memory
/// stale.
#[test]
fn zeroing_through_a_tree_that_two_files_share_is_an_error() {
    let image = TestImage::of_files(UNCHECKED, "16M", 2);
    let numbers = [image.inode(0), image.inode(1)];
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk).await.unwrap();
        let (file, other) =
            (volume.inode(numbers[0]).await.unwrap(), volume.inode(numbers[1]).await.unwrap());
        let caller = &Caller::ROOT;
        for place in 0..40 {
            let flags = WriteFlags::default();
            volume.write(&file, caller, place * 2048, &[1; 700], flags).await.unwrap();
        }
        *other.fields.borrow_mut() = file.fields.borrow().clone();
        volume.read(&file, 0, 700).await.unwrap();
        volume.fallocate(&other, caller, RangeMode::Zero, true, 0, 1024).await.unwrap();
        let zeroed = volume.fallocate(&file, caller, RangeMode::Zero, true, 0, 1024).await;
        assert!(matches!(zeroed, Err(Error::Corrupt { .. })), "{zeroed:?}");
    });
}

/// Sums of offsets and lengths would not fit into 64 bits.
#[test]
fn a_file_that_is_longer_than_any_can_be_is_corrupt() {
    let image = TestImage::of_files(UNCHECKED, "16M", 1);
    let number = image.inode(0);
    image.debugfs_write("set_inode_field f0 size 0xfffffffffffffff0");
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk).await.unwrap();
        let opened = match volume.inode(number).await {
            Ok(inode) => {
                let flags = WriteFlags::default();
                volume.write(&inode, &Caller::ROOT, 0, &[1; 700], flags).await.map(drop)
            }
            Err(error) => Err(error),
        };
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    });
}
