//! Directories within their inode: read as the block that they become, changed in place as long as
//! no name is added.
//!
//! Entries keep their places when the directory gets its first block, so a listing continues where
//! it was.

use super::{Directory, Found, Kind, NameHolder};
use crate::{Allocate, Caller, Error, Result};
use device::Buffer;
use engine::Handle;
use format::ext4::directory::DirectoryError;
use format::ext4::inline;
use std::rc::Rc;
use units::{FileBlock, InodeNumber};

impl Directory<'_> {
    pub(super) fn is_inline(&self) -> bool {
        self.volume.is_inline(self.inode)
    }

    /// The directory as a block, and its content.
    pub(super) fn inline_block(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let content = self.volume.inline_content(self.inode)?;
        let length = self.settings.block_size.bytes();
        let block = inline::directory_block(&self.format, self.inode.number, &content, length);
        Ok((block.map_err(|error| self.damaged_leaf(FileBlock(0), error))?, content))
    }

    /// The entries of a leaf, in a block or in the inode.
    pub(super) async fn leaf_bytes(&self, at: FileBlock) -> Result<Rc<Buffer>> {
        match self.is_inline() {
            true => Ok(Rc::new(Buffer::copy_of(&self.inline_block()?.0))),
            false => Ok(self.block(at, Kind::Leaf).await?.bytes()),
        }
    }

    pub(super) fn damaged_leaf(&self, at: FileBlock, error: DirectoryError) -> Error {
        self.corrupt(format!("its names in {at}: {error}"))
    }

    pub(super) fn find_inline(&self, name: &[u8]) -> Result<Option<Found>> {
        let (block, _) = self.inline_block()?;
        let found = self
            .format
            .find(&block, name)
            .map_err(|error| self.damaged_leaf(FileBlock(0), error))?;
        Ok(found.map(|entry| Found { inode: entry.inode, place: NameHolder::Inline }))
    }

    pub(super) fn remove_inline(&self, name: &[u8]) -> Result<()> {
        self.change_inline(name, inline::erase)
    }
    pub(super) fn replace_inline(
        &self,
        name: &[u8],
        inode: InodeNumber,
        file_type: u8,
    ) -> Result<()> {
        self.change_inline(name, |content, at, _| {
            inline::retarget(&self.format, content, at, inode, file_type)
        })
    }
    pub(super) fn set_parent_inline(&self, parent: InodeNumber) -> Result<()> {
        let mut content = self.volume.inline_content(self.inode)?;
        inline::set_parent(&mut content, parent);
        self.put_inline(&content)
    }

    /// Applies `change` to the content, with the positions in the block of the named entry and of
    /// the one before it.
    fn change_inline(
        &self,
        name: &[u8],
        change: impl FnOnce(&mut [u8], usize, Option<usize>),
    ) -> Result<()> {
        let (block, mut content) = self.inline_block()?;
        let found = self
            .format
            .find(&block, name)
            .map_err(|error| self.damaged_leaf(FileBlock(0), error))?;
        let Some(entry) = found else {
            return Err(self.corrupt("a name has vanished from it"));
        };
        change(&mut content, entry.at, entry.previous);
        self.put_inline(&content)
    }
    fn put_inline(&self, content: &[u8]) -> Result<()> {
        let put = inline::set_content(&mut self.inode.fields.borrow_mut(), content);
        put.map_err(|error| self.corrupt(error.to_string()))
    }

    /// Gives the directory its first block. Credits: [`Directory::append_credits`].
    pub(super) async fn leave_inline(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let (block, _) = self.inline_block()?;
        let home =
            self.volume.give_first_block(handle, self.inode, caller, Allocate::Directory).await?;
        let first = handle.create(home);
        self.rewrite(handle, &first, Kind::Leaf, self.whole(), |bytes| {
            bytes.copy_from_slice(&block)
        })?;
        self.inode.fields.borrow_mut().size = self.settings.block_size.bytes() as u64;
        self.inode.last_data_change.set(handle.transaction());
        self.volume.store(handle, self.inode).await
    }
}
