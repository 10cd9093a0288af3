//! Inodes: from the table, into it, made and freed.

use crate::{Inode, Result, Volume};
use engine::Handle;
use std::rc::Rc;
use units::InodeNumber;

/// When a read changes the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    Never,
    /// When it is not later than the last change, or a day old.
    #[default]
    Relative,
    Always,
}

/// An inode to be made.
pub struct NewInode<'a> {
    pub parent: &'a Inode,
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    pub uid: u32,
    /// The parent's group is taken instead when the parent is set-group-id (directories inherit that bit too).
    pub gid: u32,
    /// As in `st_rdev` of Linux (new encoding, 32 bits); 0 unless a device.
    pub rdev: u32,
}

impl Volume {
    /// The inode, from memory or the table, checksum verified. ESTALE when it is free.
    pub async fn inode(&self, _number: InodeNumber) -> Result<Rc<Inode>> {
        todo!()
    }

    /// Writes the inode's fields to its table block, and notes the handle's transaction as `last_change`
    /// (whoever changes size or mapping notes `last_data_change`). Credits: [`Volume::credits_inode`].
    pub async fn store(&self, _handle: &mut Handle, _inode: &Inode) -> Result<()> {
        todo!()
    }

    /// A new inode, stored: times now, one link, generation by chance, flags inherited from the parent. Regular
    /// files and directories have an empty extent root when the volume has extents; symbolic links have none
    /// (`fields.make_extent_root()` gives one to a long link). Credits: [`Volume::credits_create_inode`].
    pub async fn create_inode(&self, _handle: &mut Handle, _new: NewInode<'_>) -> Result<Rc<Inode>> {
        todo!()
    }

    /// Frees an inode without links and content. Credits: [`Volume::credits_free_inode`].
    pub async fn free_inode(&self, _handle: &mut Handle, _inode: &Inode) -> Result<()> {
        todo!()
    }

    /// The kernel got a reference (each LOOKUP, CREATE... answered).
    pub fn remember(&self, inode: &Inode) {
        inode.lookups.set(inode.lookups.get() + 1);
    }
    /// The kernel dropped `count` references. The last one of an inode without links frees it.
    pub async fn forget(self: &Rc<Self>, _number: InodeNumber, _count: u64) -> Result<()> {
        todo!()
    }
    /// A door opened a descriptor.
    pub fn opened(&self, inode: &Inode) {
        inode.opens.set(inode.opens.get() + 1);
    }
    /// A door closed a descriptor. The last one gives back preallocated blocks, and frees an inode without links.
    pub async fn closed(self: &Rc<Self>, _number: InodeNumber) -> Result<()> {
        todo!()
    }

    /// Notes a read in the access time, as the mount option says; stored later, with the next change or sync.
    pub fn note_access(&self, _inode: &Inode) {}
    /// Sets `changed` (and `modified`) to now and counts `version`. The caller stores the inode.
    pub fn note_change(&self, _inode: &Inode) {}
    pub fn note_modification(&self, _inode: &Inode) {}
}
