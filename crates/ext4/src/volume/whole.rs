//! Operations that a failing device may interrupt: what they have changed must not stay partially
//! applied.
//!
//! Such an operation first holds the blocks that it will change, so that a failing read ends it
//! before it begins. Steps that may still fail after a change are put between [`Volume::before`]
//! and [`Volume::whole`].

use crate::groups::Bits;
use crate::{Error, Inode, Result, Volume};
use engine::{Block, EngineError, Handle};
use smallvec::SmallVec;
use units::{GroupNumber, HomeBlock};

/// A handle, and an inode as it was in memory, before a part of an operation.
pub(crate) struct Before<'a> {
    changes: u32,
    inode: &'a Inode,
    fields: format::ext4::RawInode,
}

impl Volume {
    /// Holds the inodes' table blocks in memory as long as the result lives: storing one of them
    /// cannot fail. Take it before the handle is started.
    pub(crate) async fn hold(&self, inodes: &[&Inode]) -> Result<SmallVec<[Block; 2]>> {
        if units::fault!("tables-not-held") {
            return Ok(SmallVec::new());
        }
        let mut blocks = SmallVec::new();
        for inode in inodes {
            blocks.push(self.table_block(inode).await?.0);
        }
        Ok(blocks)
    }

    /// Holds bitmaps as [`Volume::hold`] does: freeing these blocks cannot fail for a read.
    pub(crate) async fn hold_bitmaps(&self, start: HomeBlock, count: u64) -> Result<Vec<Bits>> {
        let group_of = |at| self.superblock.borrow().group_of_block(at).0;
        let mut held = Vec::new();
        if self.block_is_usable(start, count) {
            for group in group_of(start).get()..=group_of(start.plus(count - 1)).get() {
                held.push(self.block_bitmap(GroupNumber(group)).await?);
            }
        }
        Ok(held)
    }

    pub(crate) fn before<'a>(&self, handle: &Handle, inode: &'a Inode) -> Before<'a> {
        Before { changes: handle.changes(), inode, fields: inode.fields.borrow().clone() }
    }

    /// Passes `result` on. After an error the inode in memory is restored, if no block was changed
    /// since. If some were, and the device failed, the transaction must never be committed: the
    /// journal is aborted.
    pub(crate) fn whole<T>(
        &self,
        handle: &Handle,
        before: Before<'_>,
        result: Result<T>,
    ) -> Result<T> {
        let Err(error) = &result else { return result };
        if units::fault!("failed-part-stays") {
            return result;
        }
        if handle.changes() == before.changes {
            let mut fields = before.inode.fields.borrow_mut();
            // Neighbours in the orphan list change it without the inode's lock.
            let deletion_time = fields.deletion_time;
            *fields = before.fields;
            fields.deletion_time = deletion_time;
        } else if let Error::Engine(error @ EngineError::Device(_)) = error {
            self.engine.abort(error);
        }
        result
    }
}
