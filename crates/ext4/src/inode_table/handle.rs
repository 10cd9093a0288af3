//! File handles, which outlive the kernel's memory of an inode, and which any privileged user may
//! forge.

use crate::groups::Bits;
use crate::{Inode, Result, Volume};
use format::ext4::bitmap;
use format::ext4::inode::flags;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

impl Volume {
    /// The inode that a file handle names. ESTALE when there is no such file any more, or never
    /// was. A forged number is no damage, so it is checked against the bitmap before the table is
    /// trusted.
    pub async fn inode_by_handle(&self, number: InodeNumber) -> Result<Rc<Inode>> {
        let in_range = (1..=self.superblock.borrow().inodes).contains(&number.get());
        if !in_range || self.is_internal(number) || !self.is_inode_used(number).await? {
            return Err(Refusal::Stale.into());
        }
        let inode = self.inode(number).await?;
        if inode.fields.borrow().links == 0 || inode.has_flag(flags::EA_INODE) {
            return Err(Refusal::Stale.into());
        }
        Ok(inode)
    }

    async fn is_inode_used(&self, number: InodeNumber) -> Result<bool> {
        let (group, index) = self.superblock.borrow().group_of_inode(number);
        Ok(match self.inode_bitmap(group).await? {
            Bits::Stored(block) => bitmap::is_set(&block.bytes(), index),
            Bits::Initial(bits) => bitmap::is_set(&bits, index),
        })
    }
}
