//! The search for a volume's flush zone on a disk with blocks that cannot be read.

use crate::image::world_with;
use crate::image::{TestImage, in_mode, open};
use device::Operation;
use disks::{CrashPolicy, Fault, Image};
use engine::DataMode;
use ext4::{Caller, FoundFlushZone, OpenParts, WriteFlags, find_flush_zones};
use format::flush_zone::{FLUSH_ZONE_SUPERBLOCK_SIZE, FlushZoneSuperblock};
use std::rc::Rc;

const BLOCK: u64 = 4096;

fn zone() -> FlushZoneSuperblock {
    FlushZoneSuperblock {
        uuid: [0; 16],
        inode: 0,
        sequential: false,
        writes: 4,
        bytes: 4 * BLOCK,
        trials: 50,
        drive_size: 0,
        model: String::new(),
        length: 0,
    }
}

/// Returns a volume after a power cut, with a flush zone if `has_zone`, and a log to replay; and
/// the block of the inode table with the first inodes.
fn cut_volume(has_zone: bool) -> (Image, u64) {
    cut_volume_of("ext4", has_zone)
}

fn cut_volume_of(kind: &str, has_zone: bool) -> (Image, u64) {
    let image = TestImage::make(&["-t", kind, "-b", "4096"], "32M");
    let super_text = image.dumpe2fs();
    let table = super_text.split("Inode table at ").nth(1).expect("the table of group 0");
    let table = table.split(|it: char| !it.is_ascii_digit()).next().unwrap().parse().unwrap();
    let (virtual_world, world, disk) = image.world(1);
    let on_it = disk.clone();
    virtual_world.run(async move {
        let mode = || in_mode(DataMode::Wasteless);
        let volume = open(&world, &on_it, None, mode()).await.unwrap();
        if has_zone {
            volume.make_flush_zone(zone(), 64 * BLOCK, BLOCK).await.unwrap();
        }
        volume.close().await.unwrap();
        let volume = open(&world, &on_it, None, mode()).await.unwrap();
        let root = volume.inode(units::InodeNumber(2)).await.unwrap();
        let file = volume.mknod(&root, b"log", &Caller::ROOT, 0o100_600, 0).await.unwrap().value;
        volume.write(&file, &Caller::ROOT, 0, b"new", WriteFlags::default()).await.unwrap();
        volume.sync().await.unwrap();
    });
    virtual_world.end();
    (disk.crash(CrashPolicy::LoseAll), table)
}

/// Looks for the zones on a disk of which `block` cannot be read, if one is given.
fn find(image: &Image, block: Option<u64>) -> ext4::Result<Option<FoundFlushZone>> {
    let (virtual_world, world, disk) = world_with(2, image.clone());
    if let Some(block) = block {
        let range = block * BLOCK..(block + 1) * BLOCK;
        disk.inject(Fault { range, ..Fault::forever(Operation::Read) });
    }
    let options = in_mode(DataMode::Wasteless);
    let parts = OpenParts { world, home: Rc::new(disk), journal: None, options };
    let found = virtual_world.run(async move { find_flush_zones(&parts).await });
    virtual_world.end();
    found.0
}

#[test]
fn a_zone_that_cannot_be_read_is_not_absent() {
    let (image, table) = cut_volume(true);
    let found = find(&image, None).unwrap().expect("a zone");
    let its_superblock = found.extents[0].start / BLOCK - 1;
    // Its inode, its superblock, and the descriptors that say where the inode is.
    for block in [table, its_superblock, 1] {
        assert!(find(&image, Some(block)).is_err(), "block {block}");
    }
}

#[test]
fn a_volume_without_zone_has_none() {
    let (image, _) = cut_volume(false);
    assert!(find(&image, None).unwrap().is_none());
}

/// A damaged inode may be the zone's: the log may hold it undamaged.
#[test]
fn a_zone_whose_inode_is_damaged_is_not_absent() {
    let (mut image, table) = cut_volume(true);
    let number = inode_of_zone(&image);
    image.fill(table * BLOCK + (number - 1) * 256 + 40, 60, 0xa5);
    assert!(find(&image, None).is_err());
}

/// Two pointer blocks, each full of the next, map 2^20 blocks; three a thousand times as many.
#[test]
fn a_zone_of_shared_pointer_blocks_takes_no_memory() {
    const LENGTH: u64 = 7000;
    let (mut image, table) = cut_volume_of("ext3", true);
    let inode = table * BLOCK + (inode_of_zone(&image) - 1) * 256;
    let found = find(&image, None).unwrap().expect("a zone");
    let superblock = found.extents[0].start - BLOCK;
    let data: Vec<u32> = found
        .extents
        .iter()
        .flat_map(|it| it.start / BLOCK..it.end / BLOCK)
        .map(|it| it as u32)
        .collect();
    let [first, second, pointers] = [data[20], data[30], data[40]];
    let mut indirect = [0; 4];
    image.read(inode + 40 + 12 * 4, &mut indirect);
    let full_of = |pair: [u32; 2]| pair.map(u32::to_le_bytes).as_flattened().repeat(512);
    let indirect = u32::from_le_bytes(indirect);
    image.write(u64::from(indirect) * BLOCK, &full_of([first, second]));
    image.write(u64::from(pointers) * BLOCK, &full_of([indirect, indirect]));
    image.write(inode + 40 + 13 * 4, &pointers.to_le_bytes());
    image.write(inode + 4, &((2 + LENGTH) as u32 * BLOCK as u32).to_le_bytes());
    let length = LENGTH * BLOCK;
    let zone = FlushZoneSuperblock { length, ..found.superblock };
    image.write(superblock, &zone.serialize());
    let error = find(&image, None).expect_err("a zone in too many pieces").to_string();
    assert!(error.contains("more than 4096 pieces"), "{error}");
}

fn inode_of_zone(image: &Image) -> u64 {
    let at = find(image, None).unwrap().expect("a zone").extents[0].start - BLOCK;
    let mut bytes = [0; FLUSH_ZONE_SUPERBLOCK_SIZE];
    image.read(at, &mut bytes);
    FlushZoneSuperblock::parse(&bytes).unwrap().inode.into()
}

/// The search ends with the inode table of a volume with few inodes.
#[test]
fn a_volume_of_few_inodes_without_zone_has_none() {
    let image = TestImage::make(&["-t", "ext4", "-b", "1024", "-N", "16"], "8M");
    assert!(find(&image.read(), None).unwrap().is_none());
}
