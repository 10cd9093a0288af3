//! Closing a volume.

use super::{Volume, superblock};
use crate::{Error, Result};
use format::ext4::feature;
use format::ext4::superblock::state;
use std::rc::Rc;

impl Volume {
    /// Everything home, journal empty, superblock clean. Nothing may be under way. Inodes without links that
    /// somebody still had open are freed. Closing twice is harmless.
    pub async fn close(self: &Rc<Self>) -> Result<()> {
        if self.closed.replace(true) {
            return Ok(());
        }
        self.access_times.end();
        if self.is_read_only() {
            return Ok(self.engine.shutdown().await?);
        }
        let closed = self.close_writable().await;
        let protection = self.protection.take();
        if let Some(protection) = protection {
            let ended = protection.end(closed.is_ok()).await;
            closed.and(ended)
        } else {
            closed
        }
    }

    async fn close_writable(self: &Rc<Self>) -> Result<()> {
        let finished = self.finish().await;
        // Whatever failed, the engine's tasks must end.
        let stopped = self.engine.shutdown().await;
        finished?;
        stopped?;
        let mut clean = self.superblock.borrow().clone();
        superblock::stamp(&mut clean, self.now());
        clean.features.clear(feature::RECOVER);
        if !self.has_orphans() {
            clean.features.clear(feature::ORPHAN_PRESENT);
        }
        clean.state |= state::VALID;
        superblock::write(&**self.home_disk(), &clean).await
    }

    /// What is left to do when nobody uses the volume any more.
    async fn finish(self: &Rc<Self>) -> Result<()> {
        let unlinked = self.inodes.borrow().all(|inode| inode.fields.borrow().links == 0);
        for inode in unlinked {
            inode.lookups.set(0);
            inode.opens.set(0);
            match self.free_if_unused(&inode).await {
                // Damage is noted; the inode stays an orphan, and e2fsck will see to it.
                Err(Error::Corrupt { .. } | Error::Refused(_)) => {}
                freed => freed?,
            }
        }
        self.free_values().await?;
        self.store_access_times().await
    }
}
