//! The orphan file (feature orphan_file): blocks of inode numbers, 0 where free, each with a tail
//! of magic and checksum (`Documentation/filesystems/ext4/orphan.rst`).

use super::checksum::crc32c;
use super::superblock::Field;
use units::{HomeBlock, InodeNumber};

const MAGIC: u32 = 0x0b10_ca04;
/// Bytes of magic and checksum.
const TAIL: usize = 8;

/// Reason for which a block is none of the orphan file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrphanBlockError {
    #[error("its magic is {found:#010x} instead of {MAGIC:#010x}")]
    BadMagic { found: u32 },
    #[error("its checksum is {stored:#010x}, its content has {computed:#010x}")]
    BadChecksum { stored: u32, computed: u32 },
}

/// Entries in a block of `block_size` bytes.
pub fn entries(block_size: usize) -> usize {
    (block_size - TAIL) / 4
}

pub fn entry(block: &[u8], index: usize) -> Option<InodeNumber> {
    Some(u32::load(&block[index * 4..])).filter(|&number| number != 0).map(InodeNumber)
}

/// Changes one entry. [`store_checksum`] must follow.
pub fn set_entry(block: &mut [u8], index: usize, number: Option<InodeNumber>) {
    number.map_or(0, InodeNumber::get).store(&mut block[index * 4..]);
}

/// Checks a block. `seed` is the checksum seed of the orphan file's inode; `None` without
/// metadata_csum.
pub fn check(block: &[u8], at: HomeBlock, seed: Option<u32>) -> Result<(), OrphanBlockError> {
    let found = u32::load(&block[block.len() - TAIL..]);
    if found != MAGIC {
        return Err(OrphanBlockError::BadMagic { found });
    }
    let Some(computed) = seed.map(|seed| compute_checksum(block, at, seed)) else { return Ok(()) };
    let stored = u32::load(&block[block.len() - 4..]);
    if stored == computed {
        Ok(())
    } else {
        Err(OrphanBlockError::BadChecksum { stored, computed })
    }
}

pub fn store_checksum(block: &mut [u8], at: HomeBlock, seed: Option<u32>) {
    if let Some(seed) = seed {
        let end = block.len() - 4;
        compute_checksum(block, at, seed).store(&mut block[end..]);
    }
}

/// Computes the checksum over the block's own address and its entries.
fn compute_checksum(block: &[u8], at: HomeBlock, seed: u32) -> u32 {
    let seed = crc32c(seed, &at.get().to_le_bytes());
    crc32c(seed, &block[..entries(block.len()) * 4])
}
