//! Falsified bitmaps that neither checksum nor count reveals.

use super::read::{descriptor_at, read_block, read_descriptor, read_superblock};
use disks::Image;
use format::ext4::{VolumeSuperblock, bitmap, group_flags};
use runtime::SplitMix;
use units::{GroupNumber, HomeBlock};

/// Marks up to ten inodes and blocks as free that are in use in `image`, but were not in `fresh`,
/// as mke2fs left it.
pub fn lie_in_bitmaps(image: &mut Image, fresh: &Image, random: &SplitMix) {
    let superblock = read_superblock(image);
    for _ in 0..1 + random.next() % 10 {
        let group = GroupNumber((random.next() % u64::from(superblock.groups())) as u32);
        let of_inodes = random.next() % 3 == 0;
        let (now, then) = (
            bits(image, &superblock, group, of_inodes),
            bits(fresh, &superblock, group, of_inodes),
        );
        let count =
            if of_inodes { superblock.inodes_per_group } else { superblock.blocks_in_group(group) };
        let used = |index: &u32| bitmap::is_set(&now.1, *index) && !bitmap::is_set(&then.1, *index);
        let candidates: Vec<u32> = (0..count).filter(used).collect();
        let Some(pick) = (random.next() as usize).checked_rem(candidates.len()) else { continue };
        // A few adjacent ones, so that the first fit is likely to find them.
        let run = candidates[pick..].iter().take(1 + (random.next() % 4) as usize);
        let (at, mut bits) = now;
        run.for_each(|index| bitmap::clear(&mut bits, *index..*index + 1));
        image.write(at.get() << superblock.block_size.shift(), &bits);
        vouch_for_bitmaps(image, &superblock, group);
    }
}

fn bits(
    image: &Image,
    superblock: &VolumeSuperblock,
    group: GroupNumber,
    of_inodes: bool,
) -> (HomeBlock, Vec<u8>) {
    let descriptor = read_descriptor(image, superblock, group);
    let (at, uninitialised) = match of_inodes {
        true => (descriptor.inode_bitmap, group_flags::INODE_UNINIT),
        false => (descriptor.block_bitmap, group_flags::BLOCK_UNINIT),
    };
    let unused = vec![0; superblock.block_size.bytes()];
    (
        at,
        if descriptor.is(uninitialised) { unused } else { read_block(image, superblock, at.get()) },
    )
}

/// Makes the group's counts and checksums agree with its bitmaps.
pub fn vouch_for_bitmaps(image: &mut Image, superblock: &VolumeSuperblock, group: GroupNumber) {
    let mut descriptor = read_descriptor(image, superblock, group);
    if !descriptor.is(group_flags::BLOCK_UNINIT) {
        let bits = read_block(image, superblock, descriptor.block_bitmap.get());
        descriptor.free_blocks = bitmap::count_clear(&bits, superblock.blocks_in_group(group));
        let sum = bitmap::block_bitmap_checksum(&bits, superblock);
        descriptor.block_bitmap_checksum = sum.unwrap_or(descriptor.block_bitmap_checksum);
    }
    if !descriptor.is(group_flags::INODE_UNINIT) {
        let bits = read_block(image, superblock, descriptor.inode_bitmap.get());
        descriptor.free_inodes = bitmap::count_clear(&bits, superblock.inodes_per_group);
        let used = superblock.inodes_per_group - descriptor.free_inodes;
        descriptor.directories = descriptor.directories.min(used);
        let sum = bitmap::inode_bitmap_checksum(&bits, superblock);
        descriptor.inode_bitmap_checksum = sum.unwrap_or(descriptor.inode_bitmap_checksum);
    }
    let at = descriptor_at(superblock, group);
    let mut raw = vec![0; superblock.descriptor_size().into()];
    image.read(at, &mut raw);
    descriptor.serialize(&mut raw, group, superblock);
    image.write(at, &raw);
}
