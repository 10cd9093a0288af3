//! Making files shorter or longer, and freeing the content of inodes without links.
//!
//! A large file does not fit into one transaction. Its new size is stored first, with the inode
//! among the orphans; then blocks behind the end are freed in steps. After a crash the orphan list
//! shows where to continue.

use super::{KillPrivileges, check_changeable, clear_set_id_bits, may_have_capabilities};
use crate::mapping::has_extents;
use crate::{Error, Inode, RemovalProgress, Result, Volume};
use engine::Handle;
use format::ext4::feature;
use std::rc::Rc;
use units::Refusal;
use units::{FileBlock, TransactionId};

impl Volume {
    pub async fn truncate(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> Result<TransactionId> {
        let _guard = inode.lock.write().await;
        self.truncate_locked(inode, size, KillPrivileges::No).await
    }

    /// Clears the set-id bits that `kill_privileges` names. Capabilities go in any case.
    pub(crate) async fn truncate_locked(
        &self,
        inode: &Inode,
        size: u64,
        kill_privileges: KillPrivileges,
    ) -> Result<TransactionId> {
        check_changeable(inode, false)?;
        if size > self.file_size_max(inode) {
            return Err(Refusal::FileTooLarge.into());
        }
        if self.is_inline(inode) {
            self.truncate_inline(inode, size).await?;
        }
        self.finish_cut(inode).await?;
        let _table = self.hold(&[inode]).await?;
        // The first step of freeing + adding an orphan and removing it + the attributes.
        let orphan = self.credits_orphan() + self.credits_orphan();
        let attributes = self.xattr_change(inode).await?;
        let credits = self.credits_remove(inode) + orphan + attributes.credits;
        let mut handle = self.engine().start(credits).await?;
        let resized = self.resize(&mut handle, inode, size, kill_privileges).await;
        let stored = self.store(&mut handle, inode).await;
        let transaction = handle.stop();
        let progress = resized?;
        stored?;
        match progress {
            RemovalProgress::Done => Ok(transaction),
            RemovalProgress::More => self.free_behind_end(inode).await,
        }
    }

    /// Frees all blocks of an inode without links, which is an orphan. The caller holds the lock,
    /// or has the only reference; it frees attributes and the inode itself.
    pub async fn truncate_all_locked(&self, inode: &Inode) -> Result<()> {
        if !self.has_content_blocks(inode) {
            return Ok(());
        }
        // Nothing has changed yet when its kind of mapping is not supported.
        has_extents(inode)?;
        inode.fields.borrow_mut().size = 0;
        self.free_range(inode, FileBlock(0), None).await?;
        Ok(())
    }

    /// Finishes a truncate that failed half-way, here or before this mount. Every change comes
    /// first to this that may make the file longer, or reserve space behind its end: the blocks
    /// there hold bytes that were cut off.
    pub(super) async fn finish_cut(&self, inode: &Inode) -> Result<()> {
        if !inode.cut_unfinished.get() || units::fault!("cut-left-unfinished") {
            return Ok(());
        }
        Box::pin(self.finish_truncate_locked(inode)).await
    }

    /// Finishes a truncate that a crash or an error interrupted: frees the blocks behind the end of
    /// an orphan, and removes it from the list if it has links.
    pub async fn finish_truncate_locked(&self, inode: &Inode) -> Result<()> {
        if self.has_content_blocks(inode) {
            has_extents(inode)?;
            self.free_range(inode, self.first_block_behind_end(inode), None).await?;
        }
        let _table = self.hold(&[inode]).await?;
        let credits = self.credits_remove(inode) + self.credits_orphan();
        let mut handle = self.engine().start(credits).await?;
        let finished = self.finish_within(&mut handle, inode).await;
        handle.stop();
        finished
    }

    async fn finish_within(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        // The kernel zeros behind the end in a later transaction than that of the new size.
        match inode.is_regular() {
            true if self.is_inline(inode) => self.zero_inline_behind_end(inode)?,
            true => self.zero_behind_end(handle, inode, u64::MAX).await?,
            false => {}
        }
        self.end_cut(handle, inode).await
    }

    /// Notes that nothing is mapped behind the end any more, and stores the inode. One without
    /// links stays an orphan. Credits: [`Volume::credits_orphan`].
    async fn end_cut(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        if inode.fields.borrow().links > 0 {
            self.orphan_remove(handle, inode).await?;
        }
        inode.cut_unfinished.set(false);
        self.store(handle, inode).await
    }

    /// Stores the new size, and frees as much as fits into this handle. `More`: the inode is an
    /// orphan now.
    async fn resize(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        size: u64,
        kill_privileges: KillPrivileges,
    ) -> Result<RemovalProgress> {
        clear_set_id_bits(inode, kill_privileges);
        if may_have_capabilities(inode) {
            self.clear_capabilities(handle, inode).await?;
        }
        let old = inode.fields.borrow().size;
        inode.pages.agreed(size.min(old)..u64::MAX);
        if size < old {
            self.note_cut(inode, size);
            inode.pages.dropped_behind(size, self.kernel_page.get());
        }
        if size > old {
            inode.pages.lengthened(old, size, self.kernel_page.get());
            self.zero_behind_end(handle, inode, size).await?;
        } else if self.place_of(size) != 0 && size < old {
            // The kernel expects zeros behind the end, too.
            let block_end = (size | (self.block_size().bytes() as u64 - 1)) + 1;
            self.zero_part(handle, inode, size, block_end).await?;
        }
        inode.fields.borrow_mut().size = size;
        inode.last_data_change.set(handle.transaction());
        self.note_modification(inode);
        if size > old {
            return Ok(RemovalProgress::Done);
        }
        let progress =
            self.remove_blocks(handle, inode, self.first_block_behind_end(inode), None).await;
        if !matches!(progress, Ok(RemovalProgress::Done)) {
            // Also after an error: the next change that needs it, the next mount, or e2fsck
            // finishes the work.
            inode.cut_unfinished.set(true);
            self.orphan_add(handle, inode);
        }
        progress
    }

    async fn free_behind_end(&self, inode: &Inode) -> Result<TransactionId> {
        self.free_range(inode, self.first_block_behind_end(inode), None).await?;
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine().start(self.credits_orphan() + self.credits_inode()).await?;
        self.end_cut(&mut handle, inode).await?;
        Ok(handle.stop())
    }

    /// Frees the blocks `from .. to`, in as many handles as it takes.
    pub(super) async fn free_range(
        &self,
        inode: &Inode,
        from: FileBlock,
        to: Option<FileBlock>,
    ) -> Result<()> {
        let _table = self.hold(&[inode]).await?;
        let mut attempt = 0;
        loop {
            let mut handle = self.engine().start(self.credits_remove(inode)).await?;
            let progress = self.remove_blocks(&mut handle, inode, from, to).await;
            self.store(&mut handle, inode).await?;
            handle.stop();
            match progress {
                Ok(RemovalProgress::Done) => return Ok(()),
                Ok(RemovalProgress::More) => {}
                // A hole in an extent may take a block of the tree. What frees an inode takes
                // none, and must not wait for frees.
                Err(Error::Refused(Refusal::NoSpace))
                    if to.is_some() && self.retry_allocation(attempt).await? =>
                {
                    attempt += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn first_block_behind_end(&self, inode: &Inode) -> FileBlock {
        let size = inode.fields.borrow().size;
        let blocks = size.div_ceil(self.block_size().bytes() as u64);
        FileBlock(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Whether the inode's 60 bytes map blocks. Short symbolic links keep their target there,
    /// devices their number.
    fn has_content_blocks(&self, inode: &Inode) -> bool {
        let is_mapped = inode.is_regular()
            || inode.is_directory()
            || inode.is_symlink() && !self.is_fast_symlink(inode);
        is_mapped && !self.is_inline(inode)
    }

    /// Whether the inode is a symbolic link that keeps its target in its 60 bytes
    /// (`ext4_inode_is_fast_symlink`). It has no block of its own then. Where values of attributes
    /// may lie in inodes of their own (`ea_inode`), their blocks count as the link's; there the
    /// length decides.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        let fields = inode.fields.borrow();
        if !inode.is_symlink() {
            return false;
        }
        if self.has(feature::EA_INODE) && !units::fault!("fast-link-by-blocks") {
            return fields.size > 0 && fields.size < fields.block.len() as u64;
        }
        let of_attributes = match fields.xattr_block.get() {
            0 => 0,
            _ => self.block_size().bytes() as u64 / 512,
        };
        fields.sectors <= of_attributes
    }
}
