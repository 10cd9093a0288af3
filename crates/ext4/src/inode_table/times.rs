//! The times of inodes.

use crate::{Inode, Result, Volume};
use format::ext4::inode::flags;
use std::rc::Rc;

/// Rule by which a read changes the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    Never,
    /// Changed if it is not later than the last change, or a day old.
    #[default]
    Relative,
    Always,
}

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Access times stored by one handle.
const BATCH: usize = 64;

impl Volume {
    /// Notes a read in the access time, as the mount option says; stored later, with the next
    /// change or sync.
    pub fn note_access(&self, inode: &Inode) {
        let now = self.now();
        let mut fields = inode.fields.borrow_mut();
        let last = fields.accessed;
        let needs_update = match self.live.get().atime {
            Atime::Never => false,
            Atime::Always => last != now,
            Atime::Relative => {
                last <= fields.modified
                    || last <= fields.changed
                    || now.seconds - last.seconds >= DAY_SECONDS
            }
        };
        let needs_update =
            needs_update && !self.is_read_only() && fields.flags & flags::NO_ATIME == 0;
        let is_noted = || {
            inode.access_is_newer.get()
                || self.access_times.note(inode.number, self.engine.world().now())
        };
        if needs_update && is_noted() {
            fields.accessed = now;
            inode.access_is_newer.set(true);
        }
    }

    /// Sets `changed` to now and counts `version`. The caller stores the inode.
    pub fn note_change(&self, inode: &Inode) {
        let mut fields = inode.fields.borrow_mut();
        fields.changed = self.now();
        fields.version = fields.version.wrapping_add(1);
    }

    /// Sets `modified` and `changed` to now and counts `version`. The caller stores the inode.
    pub fn note_modification(&self, inode: &Inode) {
        self.note_change(inode);
        let mut fields = inode.fields.borrow_mut();
        fields.modified = fields.changed;
    }

    /// Stores the access times that are newer in memory.
    pub(crate) async fn store_access_times(&self) -> Result<()> {
        let newer = self.inodes.borrow().all(|inode| inode.access_is_newer.get());
        for batch in newer.chunks(BATCH) {
            for inode in batch {
                self.store_access_time(inode).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn store_access_time(&self, inode: &Rc<Inode>) -> Result<()> {
        let _guard = inode.lock.read().await;
        if !inode.access_is_newer.get() || !self.is_cached(inode) {
            return Ok(());
        }
        let mut handle = self.engine.start(self.credits_inode()).await?;
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        stored
    }
}
