//! What a sync of a file, or a change that promises to be durable, has to wait for.

use super::Written;
use crate::{Inode, Result, Volume};
use format::ext4::inode::flags;
use std::rc::Rc;
use units::TransactionId;

/// What of a file is to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncWhat {
    /// Everything (`fsync`).
    All,
    /// What reading it back needs (`fdatasync`).
    Data,
}

impl Volume {
    /// Makes the file durable.
    pub async fn sync_file(&self, inode: &Inode, what: SyncWhat) -> Result<()> {
        // The kernel writes the file's pages back before it asks for this.
        inode.pages.written_back();
        let last = match what {
            SyncWhat::All => inode.last_change.get(),
            SyncWhat::Data => inode.last_data_change.get(),
        };
        Ok(self.engine().sync_owner(inode.number.into(), last).await?)
    }

    /// `fsync`, or `fdatasync`.
    pub async fn fsync(self: &Rc<Self>, inode: &Rc<Inode>, data_only: bool) -> Result<()> {
        self.sync_file(inode, if data_only { SyncWhat::Data } else { SyncWhat::All }).await
    }

    /// Waits for what has been written to be durable, if the writer has `asked` (`O_DSYNC`) or the file promises it.
    pub async fn settle_write(&self, inode: &Inode, written: &Written, asked: bool) -> Result<()> {
        if asked || inode.has_flag(flags::SYNC) {
            self.engine().sync_owner(inode.number.into(), written.transaction).await?;
        }
        Ok(())
    }

    /// Waits for a change of a directory to be durable, if the mount `asked` for it (`dirsync`) or the directory promises it.
    pub async fn settle_directory(
        &self,
        directory: &Inode,
        change: TransactionId,
        asked: bool,
    ) -> Result<()> {
        if asked || directory.has_flag(flags::SYNC | flags::DIRECTORY_SYNC) {
            self.engine().commit(change).await?;
        }
        Ok(())
    }
}
