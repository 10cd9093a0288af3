//! Orphans: inodes that a crash must not leave behind (open without links, or being truncated).
//!
//! On the disk they stand in the orphan file (feature orphan_file) while it has free slots. The
//! others form a list that begins in the superblock and continues through the inodes' deletion
//! times. Both are mirrored in memory, so adding and removing take a constant number of steps.

mod cleanup;
mod file;
mod list;

pub use cleanup::OrphanReport;

use crate::{Inode, Result, Volume};
use engine::Handle;
use file::OrphanFile;
use list::OrphanList;
use std::collections::BTreeMap;
use units::InodeNumber;

#[derive(Default)]
pub(crate) struct Orphans {
    list: OrphanList,
    file: Option<OrphanFile>,
    in_file: BTreeMap<InodeNumber, file::Slot>,
}

impl Volume {
    /// Adds the inode to the orphans, unless it is one. The caller stores the inode with the same
    /// handle: its deletion time is its link in the list. Credits: [`Volume::credits_orphan`].
    pub fn orphan_add(&self, handle: &mut Handle, inode: &Inode) {
        let is_there = self.is_orphan(inode.number) || units::fault!("orphan-left-out");
        if !is_there && !self.add_to_orphan_file(handle, inode.number) {
            self.add_to_orphan_list(handle, inode);
        }
    }

    /// Removes the inode from the orphans, if it is one. The caller stores the inode, as for
    /// [`Volume::orphan_add`]. Credits: [`Volume::credits_orphan`].
    pub async fn orphan_remove(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        if self.remove_from_orphan_file(handle, inode.number) {
            return Ok(());
        }
        self.remove_from_orphan_list(handle, inode).await
    }

    pub(crate) fn is_orphan(&self, number: InodeNumber) -> bool {
        let orphans = self.orphans.borrow();
        orphans.in_file.contains_key(&number) || orphans.list.contains(number)
    }

    pub(crate) fn has_orphans(&self) -> bool {
        let orphans = self.orphans.borrow();
        !orphans.in_file.is_empty() || !orphans.list.is_empty()
    }
}
