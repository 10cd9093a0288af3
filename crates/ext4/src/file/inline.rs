//! Content within the inode. Reads are served from the inode. Before a change the content moves to
//! a block, as if it had outgrown the inode: nothing is ever stored into inodes here.

use super::{Content, Piece};
use crate::{Allocate, Caller, Error, Inode, Result, Volume};
use device::Buffer;
use engine::{Base, FileUpdate, Handle};
use format::ext4::inode::flags;
use format::ext4::{feature, inline};
use std::rc::Rc;
use units::{BlockRange, FileBlock, HomeBlock};

impl Volume {
    /// Whether the inode itself holds its content.
    pub fn is_inline(&self, inode: &Inode) -> bool {
        inode.has_flag(flags::INLINE_DATA) && self.has(feature::INLINE_DATA)
    }

    /// The whole inline area.
    pub(crate) fn inline_content(&self, inode: &Inode) -> Result<Vec<u8>> {
        let content = inline::content(&inode.fields.borrow());
        content.map_err(|error| {
            self.note_damage(Error::corrupt_inode(inode.number, error.to_string()))
        })
    }

    /// The bytes `from .. to`, which lie before the end of the file. Zeros follow the inode's
    /// inline area.
    pub(super) fn read_inline(&self, inode: &Inode, from: u64, to: u64) -> Result<Content> {
        let mut content = Content::default();
        if from >= to {
            return Ok(content);
        }
        let bytes = self.inline_content(inode)?;
        let end = to.min(bytes.len() as u64).max(from);
        if from < end {
            let range = from as usize..end as usize;
            let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(512));
            buffer[..bytes.len()].copy_from_slice(&bytes);
            content.pieces.push(Piece::Bytes { buffer: Rc::new(buffer), range });
        }
        if end < to {
            content.pieces.push(Piece::Zeros((to - end) as usize));
        }
        Ok(content)
    }

    /// Moves the content of a file to a block, unchanged, in a handle of its own.
    pub(super) async fn leave_inline(&self, inode: &Inode, caller: &Caller<'_>) -> Result<()> {
        if !self.is_inline(inode) {
            return Ok(());
        }
        let _table = self.hold(&[inode]).await?;
        // The mapping with the inode. (Before it has one, it counts as deep.)
        let credits = || self.credits_map(inode);
        let leave =
            async |handle: &mut Handle| self.leave_inline_within(handle, inode, caller).await;
        self.with_space(credits, leave).await?;
        Ok(())
    }

    async fn leave_inline_within(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let mut content = self.inline_content(inode)?;
        content.truncate(usize::try_from(inode.fields.borrow().size).unwrap_or(usize::MAX));
        if content.len() > self.block_size().bytes() {
            return Err(
                self.note_damage(Error::corrupt_inode(inode.number, "it holds more than a block"))
            );
        }
        if content.is_empty() {
            self.drop_inline(inode)?;
            return self.store(handle, inode).await;
        }
        let home = self.give_first_block(handle, inode, caller, Allocate::Written).await?;
        let update = FileUpdate {
            owner: inode.number.into(),
            home,
            range: BlockRange::new(0, content.len() as u32),
            bytes: &content,
            base: Base::Zero,
            request: content.len() as u64,
            sequential: false,
            in_place: false,
            durable_only: self.is_durable_only(inode),
        };
        handle.write_file_data(update).await?;
        // The inode held the content durably; so no mode may commit its removal before the data is
        // home or logged.
        handle.order_data(inode.number.into(), home);
        inode.last_data_change.set(handle.transaction());
        self.store(handle, inode).await
    }

    /// Zeros what the inline area has behind the end of the file. The caller stores the inode.
    pub(super) fn zero_inline_behind_end(&self, inode: &Inode) -> Result<()> {
        let mut content = self.inline_content(inode)?;
        let size = usize::try_from(inode.fields.borrow().size).unwrap_or(usize::MAX);
        let behind = content.get_mut(size..).unwrap_or_default();
        if super::is_zeros(behind) {
            return Ok(());
        }
        behind.fill(0);
        let put = inline::set_content(&mut inode.fields.borrow_mut(), &content);
        put.map_err(|error| self.note_damage(Error::corrupt_inode(inode.number, error.to_string())))
    }

    /// Empties the inode's inline area: a file truncated to zero needs no block. The caller stores
    /// the inode.
    pub(super) fn drop_inline(&self, inode: &Inode) -> Result<()> {
        let left = inline::leave(&mut inode.fields.borrow_mut(), self.has(feature::EXTENTS));
        left.map_err(|error| {
            self.note_damage(Error::corrupt_inode(inode.number, error.to_string()))
        })
    }

    /// Turns the inode into one that maps blocks, and gives it the first one, which the caller
    /// fills in the same handle. An error leaves it unchanged. Credits: [`Volume::credits_map`].
    pub(crate) async fn give_first_block(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        caller: &Caller<'_>,
        how: Allocate,
    ) -> Result<HomeBlock> {
        let before = inode.fields.borrow().clone();
        self.drop_inline(inode)?;
        let allocated = self.map_or_allocate(handle, inode, caller, FileBlock(0), 1, how).await;
        match allocated.map(|allocated| allocated.mapping.home()) {
            Ok(Some(home)) => Ok(home),
            failed => {
                inode.mapping_cache.clear();
                let mut fields = inode.fields.borrow_mut();
                // Neighbours in the orphan list change it without the inode's lock.
                let deletion_time = fields.deletion_time;
                *fields = before;
                fields.deletion_time = deletion_time;
                drop(fields);
                let no_home = || Error::corrupt_inode(inode.number, "a new block has no home");
                Err(failed.err().unwrap_or_else(|| self.note_damage(no_home())))
            }
        }
    }

    /// Prepares an inline file for truncation: one of length 0 needs no block.
    pub(super) async fn truncate_inline(&self, inode: &Inode, size: u64) -> Result<()> {
        if size > 0 {
            return self.leave_inline(inode, &Caller::ROOT).await;
        }
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine().start(self.credits_inode()).await?;
        self.drop_inline(inode)?;
        inode.fields.borrow_mut().size = 0;
        inode.last_data_change.set(handle.transaction());
        self.store(&mut handle, inode).await
    }
}
