//! Orphans: inodes that a crash must not leave behind (no links but open, or a truncate under way).

use crate::{Inode, Result, Volume};
use engine::Handle;

impl Volume {
    /// Puts the inode among the orphans; nothing happens when it is one. It must be stored by the same handle
    /// afterwards only if the caller changes it besides. Credits: [`Volume::credits_orphan`].
    pub async fn orphan_add(&self, _handle: &mut Handle, _inode: &Inode) -> Result<()> {
        todo!()
    }

    /// Takes it off; nothing happens when it is none. Credits: [`Volume::credits_orphan`].
    pub async fn orphan_remove(&self, _handle: &mut Handle, _inode: &Inode) -> Result<()> {
        todo!()
    }
}
