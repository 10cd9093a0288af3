//! Closing a volume.

use super::{Volume, superblock};
use crate::{Error, Inode, Result};
use format::ext4::feature;
use format::ext4::superblock::state;
use std::rc::Rc;

impl Volume {
    /// Writes everything home, empties the journal, and marks the superblock clean. No operation
    /// may be in progress. Inodes without links that are still open are freed. Closing twice is
    /// harmless.
    pub async fn close(self: &Rc<Self>) -> Result<()> {
        if self.closed.replace(true) {
            return Ok(());
        }
        let _guard = self.access_changes.write().await;
        self.is_marked_in_use.set(false);
        self.access_times.end();
        let closed = match self.is_read_only() {
            true => self.engine.shutdown().await.map_err(Error::from),
            false => self.close_writable().await,
        };
        self.end_protection(closed).await
    }

    /// Ends the claim on the volume after `done`, the last write: others may use it at once if that
    /// succeeded, else after a waiting time.
    pub(super) async fn end_protection(&self, done: Result<()>) -> Result<()> {
        let protection = self.protection.take();
        let ended = match protection {
            Some(protection) => protection.end(done.is_ok()).await,
            None => Ok(()),
        };
        done.and(ended)
    }

    async fn close_writable(self: &Rc<Self>) -> Result<()> {
        let finished = self.finish().await;
        // After any failure the engine's tasks must end.
        let stopped = self.engine.shutdown().await;
        finished?;
        stopped?;
        self.mark_clean().await
    }

    /// Marks the volume clean: the journal is empty, and everything is home. One that was found
    /// unchecked stays so, as the kernel leaves it (`s_mount_state`): only e2fsck knows whether its
    /// bitmaps show all blocks in use.
    pub(super) async fn mark_clean(&self) -> Result<()> {
        let now = self.now();
        {
            let mut superblock = self.superblock.borrow_mut();
            superblock::stamp(&mut superblock, now);
            superblock.features.clear(feature::RECOVER);
            if !self.has_orphans() {
                superblock.features.clear(feature::ORPHAN_PRESENT);
            }
            if self.was_valid || units::fault!("unchecked-closed-as-checked") {
                superblock.state |= state::VALID;
            }
        }
        self.write_superblock_home().await
    }

    /// Last steps, after the last use of the volume.
    async fn finish(self: &Rc<Self>) -> Result<()> {
        for inode in self.unlinked() {
            inode.lookups.set(0);
            inode.opens.set(0);
        }
        self.free_unused().await?;
        self.store_access_times().await
    }

    fn unlinked(&self) -> Vec<Rc<Inode>> {
        self.inodes.borrow().all(|inode| inode.fields.borrow().links == 0)
    }

    /// Frees inodes without links or references.
    pub(super) async fn free_unused(self: &Rc<Self>) -> Result<()> {
        for inode in self.unlinked() {
            match self.free_if_unused(&inode).await {
                // Damage is noted; the inode stays an orphan, for e2fsck or the next mount.
                Err(error) if self.may_stay_orphan(&error) => {}
                freed => freed?,
            }
        }
        self.free_or_leave_values().await
    }
}
