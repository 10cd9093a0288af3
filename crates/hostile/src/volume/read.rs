//! Structures of a healthy volume, read from its image.

use crate::seal;
use disks::Image;
use format::ext4::inode::RawInode;
use format::ext4::superblock::SUPERBLOCK_OFFSET;
use format::ext4::{GroupDescriptor, VolumeSuperblock};
use units::{GroupNumber, InodeNumber};

pub(super) fn read_superblock(image: &Image) -> VolumeSuperblock {
    let mut bytes = vec![0; 1024];
    image.read(SUPERBLOCK_OFFSET, &mut bytes);
    VolumeSuperblock::parse(&bytes).expect("a healthy superblock")
}

pub(super) fn read_block(image: &Image, superblock: &VolumeSuperblock, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; superblock.block_size.bytes()];
    image.read(block << superblock.block_size.shift(), &mut bytes);
    bytes
}

pub(super) fn descriptor_at(superblock: &VolumeSuperblock, group: GroupNumber) -> u64 {
    let per_block = superblock.descriptors_per_block();
    let block = superblock.descriptor_block(group.get() / per_block).get();
    let within = u64::from(group.get() % per_block) * u64::from(superblock.descriptor_size());
    (block << superblock.block_size.shift()) + within
}

pub(super) fn read_descriptor(
    image: &Image,
    superblock: &VolumeSuperblock,
    group: GroupNumber,
) -> GroupDescriptor {
    let mut raw = vec![0; superblock.descriptor_size().into()];
    image.read(descriptor_at(superblock, group), &mut raw);
    GroupDescriptor::parse(&raw)
}

pub(super) fn read_inode(
    image: &Image,
    superblock: &VolumeSuperblock,
    number: InodeNumber,
) -> (u64, RawInode) {
    let (group, index) = superblock.group_of_inode(number);
    let table = read_descriptor(image, superblock, group).inode_table.get();
    let slot = (table << superblock.block_size.shift())
        + u64::from(index) * u64::from(superblock.inode_size);
    let mut raw = vec![0; superblock.inode_size.into()];
    image.read(slot, &mut raw);
    let mut layout = seal::layout_of(superblock);
    layout.checksum_seed = None;
    (slot, RawInode::parse(&raw, number, &layout).expect("a healthy inode"))
}
