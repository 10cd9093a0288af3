//! Metadata blocks that the parts of an operation may change, with the sums.

use crate::Volume;
use engine::Credits;

impl Volume {
    /// [`Volume::store`] of one inode: its inode-table block.
    pub fn credits_inode(&self) -> Credits {
        Credits(1)
    }
    /// [`Volume::create_inode`]: inode bitmap + descriptor block + inode-table block.
    pub fn credits_create_inode(&self) -> Credits {
        Credits(1 + 1 + 1)
    }
    /// [`Volume::free_inode`]: inode bitmap + descriptor block + inode-table block.
    pub fn credits_free_inode(&self) -> Credits {
        Credits(1 + 1 + 1)
    }
    /// `runs` calls of [`Volume::allocate_blocks`]: each a block bitmap + a descriptor block.
    pub fn credits_allocate(&self, runs: u32) -> Credits {
        Credits(1 + 1) * runs
    }
    /// [`Volume::free_blocks`] of `runs` runs of at most `blocks` blocks in all. A run that crosses
    /// group borders changes a bitmap and a descriptor block per group.
    pub fn credits_free(&self, runs: u32, blocks: u64) -> Credits {
        let crossings = blocks.div_ceil(u64::from(self.blocks_per_group())) as u32;
        Credits(1 + 1) * (runs + crossings)
    }
    /// [`Volume::orphan_add`] or [`Volume::orphan_remove`]: superblock + inode-table blocks of the
    /// inode and of its neighbour in the list (the orphan file needs fewer: one block of it).
    pub fn credits_orphan(&self) -> Credits {
        Credits(1 + 1 + 1)
    }
}
