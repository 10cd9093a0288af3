//! Target: the superblock of a block volume; the areas of a valid one must lie apart.

use format::blocks::{
    BLOCKS_MAGIC, BLOCKS_SUPERBLOCK_SIZE, BlocksRole, BlocksSuperblock, RESERVED_BYTES,
    blocks_copy_at,
};
use format::ext4::checksum::crc32c;
use std::hint::black_box;

/// The input as a superblock, and once more with correct magic, version and checksum.
pub fn run(bytes: &[u8]) {
    black_box(BlocksSuperblock::parse(bytes).is_ok());
    let mut bytes = bytes.to_vec();
    bytes.resize(BLOCKS_SUPERBLOCK_SIZE, 0);
    bytes[..8].copy_from_slice(&BLOCKS_MAGIC);
    bytes[8..12].copy_from_slice(&1u32.to_be_bytes());
    let (body, sum) = bytes.split_at_mut(BLOCKS_SUPERBLOCK_SIZE - 4);
    // The ext4 way of CRC-32C does not invert its result.
    sum.copy_from_slice(&(!crc32c(!0, body)).to_be_bytes());
    let Ok(parsed) = BlocksSuperblock::parse(&bytes) else { return };
    let again = BlocksSuperblock::parse(&parsed.serialize());
    assert_eq!(again.as_ref(), Ok(&parsed), "what parses is written so that it parses");
    if parsed.role == BlocksRole::Volume {
        apart(&parsed);
    }
}

fn apart(superblock: &BlocksSuperblock) {
    let shift = superblock.block_size.shift();
    let copy_at = blocks_copy_at(superblock.disk_bytes).expect("there is space for the copy");
    let journal_end = superblock.journal_at + u64::from(superblock.journal_blocks);
    let data_end = superblock.data_at + superblock.data_blocks;
    assert!(superblock.data_at << shift >= RESERVED_BYTES && superblock.data_at >= journal_end);
    assert!(data_end << shift <= copy_at && copy_at + RESERVED_BYTES <= superblock.disk_bytes);
    assert!((1..=superblock.data_blocks).contains(&superblock.exported_blocks()));
}
