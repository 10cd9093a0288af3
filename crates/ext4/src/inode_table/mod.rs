//! Inodes: reading and writing the table, allocation, freeing, lifetime in memory.

mod access_times;
mod create;
mod handle;
mod lifetime;
mod times;

pub(crate) use access_times::AccessTimes;
pub use create::NewInode;
pub(crate) use lifetime::InodeCache;
pub use times::Atime;

use crate::{Error, Inode, Result, Volume};
use engine::{Block, Handle};
use std::rc::Rc;
use units::Refusal;
use units::{BlockRange, HomeBlock, InodeNumber};

pub(crate) const ROOT: InodeNumber = InodeNumber(2);

impl Volume {
    /// The inode, from memory or the table, checksum verified. ESTALE when it is free; Corrupt when
    /// it is one of the file system's own.
    pub async fn inode(&self, number: InodeNumber) -> Result<Rc<Inode>> {
        if let Some(inode) = self.inodes.borrow().get(number) {
            return Ok(inode);
        }
        if self.is_internal(number) || number.get() > self.superblock.borrow().inodes {
            return Err(self.note_damage(Error::corrupt_inode(number, "no name may lead to it")));
        }
        let inode = self.load_inode(number).await?;
        let (has_links, is_orphan) = (inode.fields.borrow().links > 0, self.is_orphan(number));
        if !has_links && !is_orphan {
            return Err(Refusal::Stale.into());
        }
        inode.cut_unfinished.set(has_links && is_orphan);
        self.note_owned_inode(number);
        Ok(self.inodes.borrow_mut().insert(inode, self.engine.committed()))
    }

    /// Writes the inode's fields to its table block, and notes the handle's transaction as
    /// `last_change` (a caller that changes size or mapping notes `last_data_change`). Credits:
    /// [`Volume::credits_inode`].
    pub async fn store(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        let (block, range) = self.table_block(inode).await?;
        handle.change_within(&block, range, |bytes| {
            let fields = inode.fields.borrow();
            fields.serialize(&mut bytes[range.as_usize()], inode.number, &self.layout);
        });
        inode.access_is_newer.set(false);
        inode.last_change.set(handle.transaction());
        Ok(())
    }

    /// The table block with the inode's slot, and the slot's bytes.
    pub(crate) async fn table_block(&self, inode: &Inode) -> Result<(Block, BlockRange)> {
        if let Some((block, range)) = &*inode.table.borrow() {
            if let Some(block) = block.get() {
                return Ok((block, *range));
            }
        }
        let (at, range) = self.inode_place(inode.number);
        let block = self.engine.metadata(at).await?;
        *inode.table.borrow_mut() = Some((block.known(), range));
        Ok((block, range))
    }

    /// The inode from its table block, with or without links.
    pub(crate) async fn load_inode(&self, number: InodeNumber) -> Result<Rc<Inode>> {
        if number.get() == 0 || number.get() > self.superblock.borrow().inodes {
            return Err(self.note_damage(Error::corrupt_inode(number, "there is no such inode")));
        }
        // The table's unused part has arbitrary content.
        if self.was_never_used(number) {
            return Err(Refusal::Stale.into());
        }
        let (at, range) = self.inode_place(number);
        let block = self.engine.metadata(at).await?;
        let raw = block.bytes();
        let raw = &raw[range.as_usize()];
        if raw.iter().all(|byte| *byte == 0) {
            return Err(Refusal::Stale.into());
        }
        let fields = format::ext4::RawInode::parse(raw, number, &self.layout)
            .map_err(|why| self.note_damage(Error::corrupt_inode(number, why.to_string())))?;
        // As for the kernel (`i_size_read` below zero), whose offsets have a sign.
        if fields.size > i64::MAX as u64 {
            let why = format!("it cannot have {} bytes", fields.size);
            return Err(self.note_damage(Error::corrupt_inode(number, why)));
        }
        Ok(Rc::new(Inode::new(number, fields, self.engine.committed())))
    }

    /// The block and the bytes of an inode's slot. The number is in range.
    pub(crate) fn inode_place(&self, number: InodeNumber) -> (HomeBlock, BlockRange) {
        let superblock = self.superblock.borrow();
        let (group, index) = superblock.group_of_inode(number);
        let table = self.groups.descriptor(group).inode_table;
        let size = u32::from(superblock.inode_size);
        let start = index % superblock.inodes_per_block() * size;
        let at = table.plus(u64::from(index / superblock.inodes_per_block()));
        (at, BlockRange::new(start, start + size))
    }

    pub(super) fn was_never_used(&self, number: InodeNumber) -> bool {
        let superblock = self.superblock.borrow();
        let (group, index) = superblock.group_of_inode(number);
        // Before recovery the descriptor is not trusted.
        let unused = self.groups.descriptor(group).unused_inodes;
        let used = superblock.inodes_per_group.saturating_sub(unused);
        self.has_group_checksums() && index >= used
    }

    /// Whether the inode is one of the file system itself: no directory entry may lead to them.
    fn is_internal(&self, number: InodeNumber) -> bool {
        let superblock = self.superblock.borrow();
        let own =
            [superblock.journal_inode, superblock.orphan_file_inode, superblock.user_quota_inode];
        let own =
            own.into_iter().chain([superblock.group_quota_inode, superblock.project_quota_inode]);
        number != ROOT
            && (number.get() < superblock.first_inode
                || own.into_iter().any(|own| own == number.get()))
    }
}
