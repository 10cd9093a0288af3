//! Closing a volume.

use super::{Volume, superblock};
use crate::Result;
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
        if self.is_read_only() {
            return Ok(self.engine.shutdown().await?);
        }
        let unlinked = self.inodes.borrow().all(|inode| inode.fields.borrow().links == 0);
        for inode in unlinked {
            inode.lookups.set(0);
            inode.opens.set(0);
            self.free_if_unused(&inode).await?;
        }
        self.store_access_times().await?;
        self.engine.shutdown().await?;
        let mut clean = self.superblock.borrow().clone();
        superblock::stamp(&mut clean, self.now());
        clean.features.clear(feature::RECOVER);
        if !self.has_orphans() {
            clean.features.clear(feature::ORPHAN_PRESENT);
        }
        clean.state |= state::VALID;
        superblock::write(&**self.home_disk(), &clean).await
    }
}
