//! Space of a volume.

use super::Volume;
use crate::Result;
use format::ext4::{VolumeSuperblock, feature};
use units::GroupNumber;

/// Result of `statfs(2)`, in blocks and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statfs {
    pub block_size: u32,
    /// Blocks of the volume except those of the file system itself, as ext4 counts (its option
    /// bsddf).
    pub blocks: u64,
    pub blocks_free: u64,
    /// Free blocks but those reserved for root.
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub name_length: u32,
}

impl Volume {
    pub async fn statfs(&self) -> Result<Statfs> {
        let superblock = self.superblock.borrow();
        Ok(Statfs {
            block_size: superblock.block_size.bytes() as u32,
            blocks: superblock.blocks.saturating_sub(overhead(&superblock)),
            blocks_free: superblock.free_blocks,
            blocks_available: superblock
                .free_blocks
                .saturating_sub(superblock.reserved_blocks)
                .saturating_sub(kept_for_trees(&superblock)),
            inodes: superblock.inodes.into(),
            inodes_free: superblock.free_inodes.into(),
            name_length: 255,
        })
    }
}

/// Blocks that are kept for extent trees, as many as the kernel's ext4 keeps (`s_resv_clusters`),
/// also from root, and not counted as available: a write to allocated space, or a hole, may split
/// an extent, and must not fail where the volume is full.
pub(crate) fn kept_for_trees(superblock: &VolumeSuperblock) -> u64 {
    match superblock.features.has(feature::EXTENTS) {
        true => (superblock.blocks / 50).min(4096),
        false => 0,
    }
}

/// Blocks of superblocks, descriptors, bitmaps, inode tables and journal: as mke2fs counted them,
/// else the same sum.
fn overhead(superblock: &VolumeSuperblock) -> u64 {
    if superblock.overhead_blocks != 0 {
        return superblock.overhead_blocks.into();
    }
    let table = u64::from(superblock.inode_table_blocks());
    let groups = (0..superblock.groups()).map(|group| {
        // The blocks kept for growing the descriptor table belong to an inode and are not counted.
        let all = superblock.superblock_and_descriptors(GroupNumber(group));
        let reserved = match superblock.features.has(feature::META_BG) || all <= 1 {
            true => 0,
            false => u32::from(superblock.reserved_descriptor_blocks),
        };
        u64::from(all - reserved) + 2 + table
    });
    // The backup of the journal inode ends with its size: high word, low word.
    let journal = superblock.features.has(feature::HAS_JOURNAL) && superblock.journal_inode != 0;
    let bytes =
        u64::from(superblock.journal_backup[15]) << 32 | u64::from(superblock.journal_backup[16]);
    let journal = if journal { bytes >> superblock.block_size.shift() } else { 0 };
    u64::from(superblock.first_data_block) + groups.sum::<u64>() + journal
}
