//! The block allocator.

use crate::{Inode, Result, Volume};
use engine::{Contents, Handle};
use units::{FileBlock, HomeBlock};

/// What the blocks are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// File content: gets a preallocation window that grows with the file.
    Data,
    /// Extent-tree, indirect and extended-attribute blocks: near the inode, one at a time.
    Metadata,
    /// Directory blocks.
    Directory,
}

/// A wish for `count` blocks for `inode`.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub inode: &'a Inode,
    /// Where it would be best: after the block before `at` in the file. `None`: the allocator chooses.
    pub goal: Option<HomeBlock>,
    /// At least 1; fewer may be given.
    pub count: u32,
    /// Where in the file (0 for blocks that are no content).
    pub at: FileBlock,
    pub purpose: Purpose,
    /// May take the blocks reserved for root ([`Volume::may_use_reserve`]).
    pub use_reserve: bool,
}

/// Contiguous blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub start: HomeBlock,
    pub count: u32,
}

impl Volume {
    /// Takes 1 to `request.count` contiguous blocks. The caller accounts for `sectors` of the inode.
    /// `ENOSPC`: the caller undoes or keeps what it has, stops its handle, and asks [`Volume::retry_allocation`].
    /// Credits: [`Volume::credits_allocate`]`(1)`.
    pub async fn allocate_blocks(&self, _handle: &mut Handle, _request: Request<'_>) -> Result<Run> {
        todo!()
    }

    /// Gives `count` blocks back; they are forgotten by the engine (revoked) and not given out again until the
    /// handle's transaction is committed. Corrupt if one is free already or not usable.
    pub async fn free_blocks(
        &self,
        _handle: &mut Handle,
        _start: HomeBlock,
        _count: u64,
        _contents: Contents,
    ) -> Result<()> {
        todo!()
    }

    /// After ENOSPC, with no handle open: whether a commit sets blocks free, and commits if so. Try again when
    /// true; `attempt` counts from 0, and the third is the last.
    pub async fn retry_allocation(&self, _attempt: u32) -> Result<bool> {
        todo!()
    }

    /// Gives back what was preallocated for the inode: last close, truncate.
    pub fn drop_preallocation(&self, _inode: &Inode) {}
}
