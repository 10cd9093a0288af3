//! Inode flags as chattr(1) sets them.

use crate::{Error, Inode, Result, Volume, errno};
use format::ext4::inode::flags::*;
use std::rc::Rc;

/// What lsattr(1) shows (kernel: `EXT4_FL_USER_VISIBLE`).
const VISIBLE: u32 = 0x725b_dfff;
/// What chattr(1) may change here: secrm, unrm, compr, sync, immutable, append, nodump, noatime, notail, dirsync,
/// topdir.
const CHANGEABLE: u32 = 0x3_80ff;
/// ext4 changes these as well. Here the mode of the mount decides what is journaled, block maps and extent
/// trees are not turned into each other, and the rest belongs to features that are not supported.
const FIXED: u32 = JOURNAL_DATA | EXTENTS | DAX | PROJECT_INHERIT | CASE_FOLD;
const DAX: u32 = 0x0200_0000;
const PROJECT_INHERIT: u32 = 0x2000_0000;
const CASE_FOLD: u32 = 0x4000_0000;
/// Meaningless but for directories (kernel: `EXT4_REG_FLMASK`).
const DIRECTORY_ONLY: u32 = DIRECTORY_SYNC | TOP_DIRECTORY;
/// All that others than files and directories have (kernel: `EXT4_OTHER_FLMASK`).
const OTHERS: u32 = NO_DUMP | NO_ATIME;

impl Volume {
    /// The flags that a user may see.
    pub fn flags(&self, inode: &Inode) -> u32 {
        inode.fields.borrow().flags & VISIBLE
    }

    /// Makes the inode's flags those of `wanted`, as far as users may change them. The kernel has checked that the
    /// caller owns the file and may set what only root may. EOPNOTSUPP for what cannot be changed here; EPERM for the flush zone,
    /// which stays immutable.
    pub async fn set_flags(self: &Rc<Self>, inode: &Rc<Inode>, wanted: u32) -> Result<()> {
        let was = inode.fields.borrow().flags;
        if was & !wanted & IMMUTABLE != 0 && self.is_flush_zone(inode).await? {
            return Err(Error::Refused(errno::EPERM));
        }
        let _guard = inode.lock.write().await;
        let before = inode.fields.borrow().flags;
        let after = flags_after(inode, before, wanted)?;
        if after == before {
            return Ok(());
        }
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine().start(self.credits_inode()).await?;
        inode.fields.borrow_mut().flags = after;
        self.note_change(inode);
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        stored
    }
}

fn flags_after(inode: &Inode, before: u32, wanted: u32) -> Result<u32> {
    let possible = match (inode.is_directory(), inode.is_regular()) {
        (true, _) => CHANGEABLE,
        (_, true) => CHANGEABLE & !DIRECTORY_ONLY,
        _ => OTHERS,
    };
    // Whoever changes one flag gives all that he saw: those of no concern to him must not stop him.
    let impossible = wanted & !VISIBLE | wanted & CHANGEABLE & !possible | (wanted ^ before) & FIXED;
    if impossible != 0 {
        return Err(Error::Refused(errno::EOPNOTSUPP));
    }
    Ok(before & !possible | wanted & possible)
}
