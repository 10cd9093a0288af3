//! Waiting for the durability of a file, by a sync or a change that promises it.

use super::Written;
use crate::{Inode, Result, Volume};
use format::ext4::inode::flags;
use units::TransactionId;

/// Extent of a file's sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncWhat {
    /// Syncs data and all metadata (`fsync`).
    All,
    /// The data and the metadata needed to read it (`fdatasync`).
    Data,
}

impl Volume {
    /// Makes the file durable.
    pub async fn sync_file(&self, inode: &Inode, what: SyncWhat) -> Result<()> {
        // The kernel writes the file's pages back before it sends a sync.
        inode.pages.written_back();
        match what {
            SyncWhat::All => self.sync_with(inode, inode.last_change.get()).await,
            SyncWhat::Data => self.sync_data(inode).await,
        }
    }

    /// Waits for what has been written to be durable, if the writer has `asked` (`O_SYNC`,
    /// `O_DSYNC`) or the file promises it.
    pub async fn settle_write(
        &self,
        inode: &Inode,
        written: &Written,
        asked: Option<SyncWhat>,
    ) -> Result<()> {
        match asked {
            _ if inode.has_flag(flags::SYNC) => self.sync_with(inode, written.transaction).await,
            Some(SyncWhat::All) => self.sync_with(inode, written.transaction).await,
            Some(SyncWhat::Data) => self.sync_data(inode).await,
            None => Ok(()),
        }
    }

    /// Makes the file's data durable, and what reading it back needs.
    async fn sync_data(&self, inode: &Inode) -> Result<()> {
        let (mut needed, home) = (inode.durable_with(), inode.last_home_data.get());
        if units::fault!("logged-data-not-synced") {
            needed = inode.last_data_change.get();
        }
        if self.engine().committed().is_at_or_after(inode.last_data_change.get()) {
            self.engine().note_sync_of_data();
        }
        if !home.is_after(needed) {
            return self.sync_with(inode, needed).await;
        }
        // An overwrite in place that no log holds: all that a commit would add are times.
        let found = self.engine().committed().is_at_or_after(needed);
        self.record_damage().await?;
        if found && self.engine().sync_in_place(inode.number.into()).await? {
            return Ok(());
        }
        self.sync_with(inode, home).await
    }

    /// Syncs `transaction` and all before it.
    async fn sync_with(&self, inode: &Inode, transaction: TransactionId) -> Result<()> {
        self.record_damage().await?;
        Ok(self.engine().sync_owner(inode.number.into(), transaction).await?)
    }

    /// Waits for a change of a directory to be durable, if the mount `asked` for it (`dirsync`) or
    /// the directory promises it.
    pub async fn settle_directory(
        &self,
        directory: &Inode,
        change: TransactionId,
        asked: bool,
    ) -> Result<()> {
        if asked || directory.has_flag(flags::SYNC | flags::DIRECTORY_SYNC) {
            self.record_damage().await?;
            self.engine().commit(change).await?;
        }
        Ok(())
    }
}
