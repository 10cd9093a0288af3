//! Group descriptors: 32 bytes, or with 64bit at least 64, in the table behind the superblock
//! (`Documentation/filesystems/ext4/group_descr.rst`).

use super::checksum::{crc16, crc32c};
use super::superblock::{Field, VolumeSuperblock};
use super::{bitmap, feature};
use smallvec::SmallVec;
use units::{GroupNumber, HomeBlock};

/// Bits of [`GroupDescriptor::flags`]; valid only with uninit_bg (gdt_csum) or metadata_csum.
pub mod group_flags {
    /// No inode is in use, and the inode bitmap was never written.
    pub const INODE_UNINIT: u16 = 1;
    /// No block is in use but those of the file system itself, and the block bitmap was never
    /// written.
    pub const BLOCK_UNINIT: u16 = 2;
    /// The unused part of the inode table is zeroed.
    pub const INODE_ZEROED: u16 = 4;
}

/// A group descriptor, parsed. Checksums of bitmaps have 32 bits in descriptors of 64 bytes, else
/// 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDescriptor {
    pub block_bitmap: HomeBlock,
    pub inode_bitmap: HomeBlock,
    /// The first block of the inode table.
    pub inode_table: HomeBlock,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    pub flags: u16,
    pub block_bitmap_checksum: u32,
    pub inode_bitmap_checksum: u32,
    /// Inodes at the table's end that were never used.
    pub unused_inodes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    #[error("its checksum is {stored:#06x}, its content has {computed:#06x}")]
    BadChecksum { stored: u16, computed: u16 },
    #[error("its {field} is {value}, which is impossible")]
    Impossible { field: &'static str, value: u64 },
}

const CHECKSUM: usize = 0x1e;

impl GroupDescriptor {
    /// Parses [`VolumeSuperblock::descriptor_size`] bytes. Only reads the fields: see
    /// [`Self::check`].
    pub fn parse(raw: &[u8]) -> GroupDescriptor {
        let low = |at: usize| u32::from(u16::load(&raw[at..]));
        let wide = raw.len() >= 64;
        let join16 = |at: usize, high: usize| low(at) | if wide { low(high) << 16 } else { 0 };
        let join32 = |at: usize, high: usize| {
            let upper = if wide { u64::from(u32::load(&raw[high..])) << 32 } else { 0 };
            HomeBlock(u64::from(u32::load(&raw[at..])) | upper)
        };
        GroupDescriptor {
            block_bitmap: join32(0x00, 0x20),
            inode_bitmap: join32(0x04, 0x24),
            inode_table: join32(0x08, 0x28),
            free_blocks: join16(0x0c, 0x2c),
            free_inodes: join16(0x0e, 0x2e),
            directories: join16(0x10, 0x30),
            flags: u16::load(&raw[0x12..]),
            block_bitmap_checksum: join16(0x18, 0x38),
            inode_bitmap_checksum: join16(0x1a, 0x3a),
            unused_inodes: join16(0x1c, 0x32),
        }
    }

    /// Writes all fields but the places of bitmaps and table (which never change), and the
    /// checksum.
    pub fn serialize(&self, raw: &mut [u8], group: GroupNumber, superblock: &VolumeSuperblock) {
        let counts = [
            (self.free_blocks, 0x0c, 0x2c),
            (self.free_inodes, 0x0e, 0x2e),
            (self.directories, 0x10, 0x30),
            (self.block_bitmap_checksum, 0x18, 0x38),
            (self.inode_bitmap_checksum, 0x1a, 0x3a),
            (self.unused_inodes, 0x1c, 0x32),
        ];
        for (value, low, high) in counts {
            (value as u16).store(&mut raw[low..]);
            if raw.len() >= 64 {
                ((value >> 16) as u16).store(&mut raw[high..]);
            }
        }
        self.flags.store(&mut raw[0x12..]);
        if let Some(checksum) = compute_checksum(raw, group, superblock) {
            checksum.store(&mut raw[CHECKSUM..]);
        }
    }

    /// Checks checksum and fields, so that everything computed from them stays in bounds.
    pub fn check(
        &self,
        raw: &[u8],
        group: GroupNumber,
        superblock: &VolumeSuperblock,
    ) -> Result<(), GroupError> {
        let stored = u16::load(&raw[CHECKSUM..]);
        if let Some(computed) =
            compute_checksum(raw, group, superblock).filter(|&sum| sum != stored)
        {
            return Err(GroupError::BadChecksum { stored, computed });
        }
        let impossible = |field, value| Err(GroupError::Impossible { field, value });
        self.check_places(group, superblock)?;
        if self.free_blocks > superblock.blocks_in_group(group) {
            return impossible("number of free blocks", self.free_blocks.into());
        }
        if self.free_inodes > superblock.inodes_per_group {
            return impossible("number of free inodes", self.free_inodes.into());
        }
        if self.unused_inodes > superblock.inodes_per_group {
            return impossible("number of unused inodes", self.unused_inodes.into());
        }
        if self.directories > superblock.inodes_per_group - self.free_inodes {
            return impossible("number of directories", self.directories.into());
        }
        Ok(())
    }

    /// Checks that bitmaps and table lie in the volume; without flex_bg in their own group.
    pub fn check_places(
        &self,
        group: GroupNumber,
        superblock: &VolumeSuperblock,
    ) -> Result<(), GroupError> {
        let table = u64::from(superblock.inode_table_blocks());
        let (first, end) = if superblock.features.has(feature::FLEX_BG) {
            // Behind the primary superblock.
            (u64::from(superblock.first_data_block) + 1, superblock.blocks)
        } else {
            let start = superblock.group_start(group).get();
            (start, start + u64::from(superblock.blocks_in_group(group)))
        };
        let places = [
            ("block bitmap", self.block_bitmap, 1),
            ("inode bitmap", self.inode_bitmap, 1),
            ("inode table", self.inode_table, table),
        ];
        for (field, start, count) in places {
            if start.get() < first || start.get() >= end || count > end - start.get() {
                return Err(GroupError::Impossible { field, value: start.get() });
            }
        }
        Ok(())
    }

    pub fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether a block bitmap has the checksum in the descriptor. True without metadata_csum.
    pub fn block_bitmap_matches(&self, bits: &[u8], superblock: &VolumeSuperblock) -> bool {
        bitmap::block_bitmap_checksum(bits, superblock)
            .is_none_or(|sum| sum == self.block_bitmap_checksum)
    }
    /// Whether an inode bitmap has the checksum in the descriptor. True without metadata_csum.
    pub fn inode_bitmap_matches(&self, bits: &[u8], superblock: &VolumeSuperblock) -> bool {
        bitmap::inode_bitmap_checksum(bits, superblock)
            .is_none_or(|sum| sum == self.inode_bitmap_checksum)
    }
}

/// The descriptor's checksum; `None` when the volume has none in descriptors. The checksum's own
/// bytes are left out (CRC-16) or taken as zero (CRC-32C, of which the low half is kept).
fn compute_checksum(raw: &[u8], group: GroupNumber, superblock: &VolumeSuperblock) -> Option<u16> {
    let number = group.get().to_le_bytes();
    let (before, behind) = (&raw[..CHECKSUM], &raw[CHECKSUM + 2..]);
    if superblock.features.has(feature::METADATA_CSUM) {
        // One call: a short one costs as much as two hundred bytes do.
        let mut all = SmallVec::<[u8; 96]>::new();
        [&number, before, &[0, 0], behind].iter().for_each(|part| all.extend_from_slice(part));
        return Some(crc32c(superblock.checksum_seed, &all) as u16);
    }
    superblock
        .features
        .has(feature::GDT_CSUM)
        .then(|| crc16(&[&superblock.uuid, &number, before, behind]))
}
