//! Values in inodes of their own (feature ea_inode): reading, reference counts, release.
//!
//! Such an inode has no name. Each entry that refers to it counts as a reference; entries of a
//! block that several inodes share count once. The count stands where other inodes keep the time of
//! change (upper half) and the version (lower half). The value's checksum stands where they keep
//! the access time. The last reference frees the inode, as an orphan.

use super::names::Name;
use super::stored::Stored;
use crate::{Error, Inode, Result, Volume};
use engine::{Block, Credits, Handle};
use format::ext4::checksum::crc32c;
use format::ext4::feature;
use format::ext4::inode::flags;
use format::ext4::xattr::{Attribute, Outside};
use std::rc::Rc;
use units::Refusal;

/// The longest value that system calls take, in bytes.
pub(super) const VALUE_MAX: u32 = 64 << 10;
/// Resources of a change of attributes, known before its handle starts: credits, and all blocks
/// that it would otherwise read.
pub(crate) struct XattrChange {
    pub credits: Credits,
    _holders: Vec<Rc<Inode>>,
    _held: Vec<Block>,
}

/// References added and dropped by a change.
pub(super) struct References {
    changes: Vec<(Rc<Inode>, bool)>,
}

/// Values that one operation replaces or removes.
const VALUES_CHANGED_MAX: usize = 2;

impl Volume {
    /// The value of an attribute of `owner`.
    pub(super) async fn value_of(&self, owner: &Inode, attribute: &Attribute) -> Result<Vec<u8>> {
        let Some(outside) = attribute.outside else { return Ok(attribute.value.clone()) };
        if outside.length > VALUE_MAX {
            return Err(Refusal::TooLong.into());
        }
        let holder = self.holder_of(owner, outside).await?;
        let _lock = holder.lock.read().await;
        let value = self.read_locked(&holder, 0, outside.length as usize).await?.to_vec();
        let checksum = crc32c(self.superblock.borrow().checksum_seed, &value);
        let stored = holder.fields.borrow().accessed.seconds as u32;
        if stored != checksum || !attribute.means(checksum) {
            let why = "the attribute's value that it holds has a wrong checksum";
            return Err(self.note_damage(Error::corrupt_inode(holder.number, why)));
        }
        Ok(value)
    }

    /// The inode that holds a value.
    async fn holder_of(&self, owner: &Inode, outside: Outside) -> Result<Rc<Inode>> {
        let wrong = |why: &str| {
            let why = format!("an attribute's value should lie in {}, {why}", outside.inode);
            self.note_damage(Error::corrupt_inode(owner.number, why))
        };
        if !self.has(feature::EA_INODE) {
            return Err(wrong("but the volume has no such inodes"));
        }
        let holder = self.inode(outside.inode).await.map_err(|error| match error {
            Error::Refused(Refusal::Stale) => wrong("which is free"),
            error => error,
        })?;
        let (links, size) = (holder.fields.borrow().links, holder.fields.borrow().size);
        if !holder.has_flag(flags::EA_INODE) || !holder.is_regular() || links == 0 {
            return Err(wrong("which is no such inode"));
        }
        match size == u64::from(outside.length) {
            true => Ok(holder),
            false => Err(wrong("which has another length")),
        }
    }

    /// Prepares, before its handle starts, a change of the attributes of `owner` by
    /// [`Volume::store_xattrs`]. The caller holds its lock.
    pub(crate) async fn xattr_change(&self, owner: &Inode) -> Result<XattrChange> {
        let mut change =
            XattrChange { credits: self.credits_xattr(), _holders: Vec::new(), _held: Vec::new() };
        // The change itself reports what cannot be read.
        let outside = match self.has(feature::EA_INODE) {
            true => {
                self.stored_xattrs(owner).await.map(|stored| stored.outside()).unwrap_or_default()
            }
            false => Vec::new(),
        };
        // Leaving a shared block adds a reference to each value in it. Otherwise a change drops one
        // value, or a capability and an access list.
        let is_shared = outside.is_empty() || self.shares_block(owner).await.unwrap_or(true);
        let counted = if is_shared { outside.len() } else { outside.len().min(VALUES_CHANGED_MAX) };
        change.credits = change.credits + self.credits_reference() * counted as u32;
        for outside in outside {
            if let Ok(holder) = self.holder_of(owner, outside).await {
                change._held.extend(self.hold(&[&holder]).await?);
                change._holders.push(holder);
            }
        }
        Ok(change)
    }

    /// Returns the credits for one reference more or less to a value: its inode, which may become
    /// an orphan or stop being one.
    pub(super) fn credits_reference(&self) -> Credits {
        self.credits_inode() + self.credits_orphan()
    }

    /// The change of references when `after` is stored instead of `before`. `shared`: other inodes
    /// keep the block as it was.
    pub(super) async fn references(
        &self,
        owner: &Inode,
        before: &Stored,
        after: &Stored,
        shared: bool,
    ) -> Result<References> {
        let lost = |attribute: &&Attribute| attribute.outside.is_some() && !after.has(attribute);
        let mut changed: Vec<(Outside, bool)> = Vec::new();
        changed.extend(before.area.iter().filter(lost).filter_map(|it| Some((it.outside?, false))));
        if before.block != after.block {
            let (entries, comes) =
                if shared { (&after.block, true) } else { (&before.block, false) };
            let stays = |attribute: &&Attribute| comes && before.block.contains(attribute);
            let concerned =
                entries.iter().filter(|attribute| stays(attribute) || !comes && lost(attribute));
            changed.extend(concerned.filter_map(|attribute| Some((attribute.outside?, comes))));
        }
        let mut references = References { changes: Vec::new() };
        for (outside, comes) in changed {
            let holder = self.holder_of(owner, outside).await?;
            if !comes && count(&holder) == 0 {
                let why = "its reference count is zero, but an attribute refers to it";
                return Err(self.note_damage(Error::corrupt_inode(holder.number, why)));
            }
            references.changes.push((holder, comes));
        }
        Ok(references)
    }

    /// Counts the references; an inode without any becomes an orphan. Credits:
    /// [`Volume::credits_reference`] for each.
    pub(super) async fn count_references(
        &self,
        handle: &mut Handle,
        references: References,
    ) -> Result<()> {
        for (holder, comes) in &references.changes {
            let now = if *comes {
                count(holder).saturating_add(1)
            } else {
                count(holder).saturating_sub(1)
            };
            set_count(holder, now);
            if now == 0 && holder.fields.borrow().links != 0 {
                holder.fields.borrow_mut().links = 0;
                self.orphan_add(handle, holder);
                self.unreferenced.borrow_mut().push(holder.clone());
            }
            self.store(handle, holder).await?;
        }
        Ok(())
    }

    /// Charges the space of values to their owner.
    pub(super) fn charge_values(&self, owner: &Inode, before: &Stored, after: &Stored) {
        let per_block = self.sectors_per_block();
        let sectors = |stored: &Stored| -> u64 {
            let blocks = |outside: Outside| {
                u64::from(outside.length).div_ceil(self.block_size().bytes() as u64)
            };
            stored.outside().into_iter().map(blocks).sum::<u64>() * per_block
        };
        let mut fields = owner.fields.borrow_mut();
        fields.sectors = (fields.sectors + sectors(after)).saturating_sub(sectors(before));
    }

    /// Frees the values without references. No handle is open. One by one: on a damaged volume a
    /// value may have attributes with values of their own, and so on.
    pub(crate) async fn free_values(self: &Rc<Self>) -> Result<()> {
        loop {
            let Some(holder) = self.unreferenced.borrow_mut().pop() else { return Ok(()) };
            self.free_without_values(&holder).await?;
        }
    }

    /// Frees the values without references. They may be another task's: one that cannot be freed
    /// now stays an orphan, and is no failure of the caller's.
    pub(crate) async fn free_or_leave_values(self: &Rc<Self>) -> Result<()> {
        loop {
            match self.free_values().await {
                // Each failure takes one from the list.
                Err(error) if self.may_stay_orphan(&error) => drop(self.note_damage(error)),
                freed => return freed,
            }
        }
    }

    /// Drops all values that an inode without links has outside, one after the other. The caller
    /// holds its lock.
    pub(crate) async fn drop_values(self: &Rc<Self>, owner: &Inode) -> Result<()> {
        if !self.has(feature::EA_INODE) {
            return Ok(());
        }
        loop {
            let before = match self.stored_xattrs(owner).await {
                Err(Error::Corrupt { .. } | Error::Refused(_)) => return Ok(()),
                before => before?,
            };
            let Some(attribute) = before.first_outside() else { return Ok(()) };
            if before.area.iter().all(|attribute| attribute.outside.is_none())
                && self.shares_block(owner).await?
            {
                self.drop_shared_block(owner).await?;
                continue;
            }
            let mut after = before.clone();
            after.remove(Name { index: attribute.index, rest: &attribute.name });
            let _table = self.hold(&[owner]).await?;
            let mut handle =
                self.engine().start(self.credits_xattr() + self.credits_reference()).await?;
            let unchanged = self.before(&handle, owner);
            let dropped = self.store_xattrs(&mut handle, owner, &before, &after).await;
            let dropped = self.whole(&handle, unchanged, dropped);
            handle.stop();
            match dropped {
                Ok(()) => {}
                // A count that cannot be changed is left to e2fsck; the inode is freed all the
                // same.
                Err(Error::Corrupt { .. } | Error::Refused(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

pub(super) fn count(holder: &Inode) -> u64 {
    let fields = holder.fields.borrow();
    (fields.changed.seconds as u64) << 32 | fields.version & 0xffff_ffff
}
pub(super) fn set_count(holder: &Inode, count: u64) {
    let mut fields = holder.fields.borrow_mut();
    fields.changed.seconds = (count >> 32) as i64;
    fields.version = fields.version >> 32 << 32 | count & 0xffff_ffff;
}
