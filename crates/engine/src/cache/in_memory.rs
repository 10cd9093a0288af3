//! Look-ups in the cache without a read, for callers that compare the disk with it.

use crate::cache::block::Block;
use crate::cache::reader::Reader;
use units::HomeBlock;

impl Reader<'_> {
    /// The first of the blocks `at .. at + count` that is in memory, or in the log alone. A freed
    /// block leaves both with the commit that frees it, so a block that is free to be allocated is
    /// never found here.
    pub fn first_in_memory(&self, at: HomeBlock, count: u64) -> Option<HomeBlock> {
        let (cache, has_copies) = (self.cache.borrow(), self.has_copies());
        (0..count).map(|index| at.plus(index)).find(|number| {
            cache.peek(*number).is_some() || has_copies && self.copy_of(*number).is_some()
        })
    }

    /// Returns a metadata block if it needs no read.
    pub fn metadata_in_memory(&self, at: HomeBlock) -> Option<Block> {
        let block = self.cache.borrow().peek(at)?.clone();
        block.is_whole().then_some(Block(block))
    }
}
