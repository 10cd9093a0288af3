//! Correct checksums over damaged bytes, so that the code behind the checksums meets the damage.

use format::ext4::checksum::crc32c;
use format::ext4::{InodeLayout, extent};
use format::jbd2::{LogLayout, Seed};
use units::InodeNumber;

/// Sets the checksum of a superblock of 1024 bytes, at 0x3fc.
pub fn superblock(bytes: &mut [u8]) {
    let sum = crc32c(!0, &bytes[..0x3fc]);
    bytes[0x3fc..0x400].copy_from_slice(&sum.to_le_bytes());
}

/// Sets the checksum of an inode in its slot.
pub fn inode(raw: &mut [u8], number: InodeNumber, seed: Option<u32>) {
    let deletion = u32::from_le_bytes([raw[0x14], raw[0x15], raw[0x16], raw[0x17]]);
    // Nothing but the checksum changes. A nonsensical extra size has no checksum to set.
    let extra =
        if raw.len() > 128 { usize::from(u16::from_le_bytes([raw[0x80], raw[0x81]])) } else { 0 };
    if 128 + extra <= raw.len() {
        format::ext4::inode::patch_deletion_time(raw, deletion, number, seed);
    }
}

pub fn extent_node(block: &mut [u8], seed: u32) {
    if extent::checksum_bytes(block).end <= block.len() {
        extent::write_checksum(block, seed);
    }
}

/// Sets the checksum of a leaf of a directory; the rest of its tail is left damaged.
pub fn directory_leaf(block: &mut [u8], seed: u32) {
    let sum = crc32c(seed, &block[..block.len() - 12]);
    let at = block.len() - 4;
    block[at..].copy_from_slice(&sum.to_le_bytes());
}

/// Sets the checksum of an index block of a directory; `start` is the offset of its table.
pub fn directory_index(block: &mut [u8], start: usize, seed: u32) {
    let number = |at: usize| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
    let (limit, count) = (number(start), number(start + 2));
    let tail = start + limit * 8;
    if tail + 8 <= block.len() && count <= limit {
        let sum = crc32c(seed, &block[..start + count * 8]);
        let sum = crc32c(crc32c(sum, &block[tail..tail + 4]), &[0; 4]);
        block[tail + 4..tail + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Sets the checksum in the first 1024 bytes of a journal's first block.
pub fn journal_superblock(bytes: &mut [u8]) {
    bytes[0xfc..0x100].fill(0);
    let sum = Seed(!0).with(&bytes[..1024]).0;
    bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the commit block's own checksum.
pub fn commit_block(block: &mut [u8], layout: &LogLayout) {
    block[0x10..0x14].fill(0);
    let sum = Seed::of_journal(&layout.uuid).with(block).0;
    block[0x10..0x14].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the checksum at the end of a descriptor or revoke block.
pub fn log_tail(block: &mut [u8], layout: &LogLayout) {
    let end = block.len() - 4;
    block[end..].fill(0);
    let sum = Seed::of_journal(&layout.uuid).with(block).0;
    block[end..].copy_from_slice(&sum.to_be_bytes());
}

/// The layout for reading inodes of a base image.
pub fn layout_of(superblock: &format::ext4::VolumeSuperblock) -> InodeLayout {
    use format::ext4::feature;
    let checksums = superblock.features.has(feature::METADATA_CSUM);
    InodeLayout {
        inode_size: superblock.inode_size,
        block_size: superblock.block_size,
        huge_file: superblock.features.has(feature::HUGE_FILE),
        large_dir: superblock.features.has(feature::LARGEDIR),
        checksum_seed: checksums.then_some(superblock.checksum_seed),
    }
}
