//! Inode flags as chattr(1) sets them.

use crate::{Inode, Result, Volume};
use format::ext4::feature;
use format::ext4::inode::flags::*;
use std::rc::Rc;
use units::Refusal;

/// Flags that lsattr(1) shows (kernel: `EXT4_FL_USER_VISIBLE`).
const VISIBLE: u32 = 0x725b_dfff;
/// Flags that chattr(1) may change here: secrm, unrm, compr, sync, immutable, append, nodump,
/// noatime, notail, dirsync, topdir.
const CHANGEABLE: u32 = 0x3_80ff;
/// Flags that ext4 changes, but not Okeanos. Here the mode of the mount decides what is journaled;
/// block maps and extent trees are not converted into each other; the others belong to features
/// that are not supported.
const FIXED: u32 = JOURNAL_DATA | EXTENTS | DAX | CASE_FOLD;
const DAX: u32 = 0x0200_0000;
const CASE_FOLD: u32 = 0x4000_0000;
/// Meaningless but for directories (kernel: `EXT4_REG_FLMASK`).
const DIRECTORY_ONLY: u32 = DIRECTORY_SYNC | TOP_DIRECTORY | PROJECT_INHERIT;
/// Flags that inodes other than files and directories may have (kernel: `EXT4_OTHER_FLMASK`).
const OTHERS: u32 = NO_DUMP | NO_ATIME;

impl Volume {
    /// The flags that a user may see.
    pub fn flags(&self, inode: &Inode) -> u32 {
        inode.fields.borrow().flags & VISIBLE
    }

    /// Makes the inode's flags those of `wanted`, as far as users may change them. The kernel has
    /// checked that the caller owns the file and may set what only root may. EOPNOTSUPP for what
    /// cannot be changed here; EPERM for the flush zone and the scattered logs, which stay
    /// immutable.
    pub async fn set_flags(self: &Rc<Self>, inode: &Rc<Inode>, wanted: u32) -> Result<()> {
        self.set_flags_and_project(inode, wanted, None).await
    }

    /// The number of the inode's project.
    pub fn project(&self, inode: &Inode) -> u32 {
        if self.has(feature::PROJECT) { inode.fields.borrow().project } else { 0 }
    }
    /// Whether new inodes in a directory take its project, and inodes of others are refused.
    pub(crate) fn inherits_project(&self, directory: &Inode) -> bool {
        self.has(feature::PROJECT) && directory.has_flag(PROJECT_INHERIT)
    }
    /// EXDEV when the inode may not come into the directory, since it is of another project.
    pub(crate) fn check_project(&self, directory: &Inode, inode: &Inode) -> Result<()> {
        match self.inherits_project(directory) && self.project(directory) != self.project(inode) {
            true => Err(Refusal::OtherDevice.into()),
            false => Ok(()),
        }
    }

    /// Sets flags as [`Volume::set_flags`] does, and the number of the project. EOPNOTSUPP without
    /// the feature.
    pub async fn set_flags_and_project(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        wanted: u32,
        project: Option<u32>,
    ) -> Result<()> {
        let was = inode.fields.borrow().flags;
        if was & !wanted & IMMUTABLE != 0
            && (self.is_flush_zone(inode).await? || self.holds_logs(inode).await?)
        {
            return Err(Refusal::NotPermitted.into());
        }
        let _guard = inode.lock.write().await;
        let before = inode.fields.borrow().flags;
        let changeable =
            if self.has(feature::PROJECT) { CHANGEABLE | PROJECT_INHERIT } else { CHANGEABLE };
        let after = flags_after(inode, before, wanted, changeable)?;
        let project = project.filter(|project| *project != self.project(inode));
        if project.is_some()
            && !(self.has(feature::PROJECT) && inode.fields.borrow().holds_project())
        {
            return Err(Refusal::Unsupported.into());
        }
        if after == before && project.is_none() {
            return Ok(());
        }
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine().start(self.credits_inode()).await?;
        inode.fields.borrow_mut().flags = after;
        if let Some(project) = project {
            inode.fields.borrow_mut().project = project;
        }
        self.note_change(inode);
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        stored
    }
}

fn flags_after(inode: &Inode, before: u32, wanted: u32, changeable: u32) -> Result<u32> {
    let possible = match (inode.is_directory(), inode.is_regular()) {
        (true, _) => changeable,
        (_, true) => changeable & !DIRECTORY_ONLY,
        _ => OTHERS,
    };
    // A caller that changes one flag passes all that it read: flags it cannot change must not fail.
    let fixed = FIXED | PROJECT_INHERIT & !changeable;
    let impossible =
        wanted & !VISIBLE | wanted & changeable & !possible | (wanted ^ before) & fixed;
    if impossible != 0 {
        return Err(Refusal::Unsupported.into());
    }
    Ok(before & !possible | wanted & possible)
}
