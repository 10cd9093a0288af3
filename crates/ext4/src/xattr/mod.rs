//! Extended attributes and access control lists: the calls of front ends.
//!
//! Every function that takes no handle takes the inode's lock itself and starts its own handle.

mod access_control;
mod names;
mod outside;
mod stored;
mod value_inode;

use crate::{Caller, Error, Inode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::inode::flags;
use format::ext4::xattr::Attribute;
pub(crate) use names::Name;
use names::{ACL_ACCESS, ACL_DEFAULT, TRUSTED, USER};
use std::rc::Rc;
use stored::Stored;
use units::Refusal;
use units::TransactionId;

/// Whether the attribute may or must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existence {
    #[default]
    Any,
    /// XATTR_CREATE: EEXIST if it is there.
    New,
    /// XATTR_REPLACE: ENODATA if it is not there.
    Old,
    /// Both flags set, which no attribute can satisfy: EEXIST or ENODATA.
    NewAndOld,
}

/// An attribute to be set.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'a> {
    /// Name with its prefix, such as `user.colour`.
    pub name: &'a [u8],
    pub value: &'a [u8],
    pub existence: Existence,
    /// An access control list that is set takes the set-group-id bit away
    /// (`FUSE_SETXATTR_ACL_KILL_SGID`).
    pub clear_set_group: bool,
}

/// A change of an inode's attributes.
struct AttributeChange {
    before: Stored,
    after: Stored,
    mode: Option<u16>,
    /// The inode that holds the new value.
    holder: Option<Rc<Inode>>,
}

impl Volume {
    /// The value of an attribute; ENODATA when there is none.
    pub async fn get_xattr(self: &Rc<Self>, inode: &Rc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        let name = Name::parse(name)?;
        let _lock = inode.lock.read().await;
        let stored = self.stored_xattrs(inode).await?;
        let attribute = stored.find(name).ok_or(Error::Refused(Refusal::NoAttribute))?;
        match name.index {
            ACL_ACCESS | ACL_DEFAULT => Ok(self.acl_of(inode, &attribute.value)?.to_call()),
            _ => self.value_of(inode, attribute).await,
        }
    }

    /// Lists all names, each with a zero byte behind it. Those with the prefix `trusted.` only if
    /// `sees_trusted`, called where there are any, returns true: the caller needs CAP_SYS_ADMIN.
    pub async fn list_xattrs(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        sees_trusted: impl FnOnce() -> bool,
    ) -> Result<Vec<u8>> {
        let _lock = inode.lock.read().await;
        let stored = self.stored_xattrs(inode).await?;
        let is_trusted = |attribute: &Attribute| attribute.index == TRUSTED;
        let shown =
            units::fault!("trusted-shown-to-all") || stored.all().any(is_trusted) && sees_trusted();
        let visible = stored.all().filter(|attribute| shown || !is_trusted(attribute));
        let mut list = Vec::new();
        for name in visible.filter_map(names::full_name) {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Sets an attribute. ENOSPC when it fits neither in the inode nor in its attribute block, nor
    /// may lie in an inode of its own.
    pub async fn set_xattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller<'_>,
        set: SetXattr<'_>,
    ) -> Result<TransactionId> {
        let name = Name::parse(set.name)?;
        may_change(inode, name)?;
        let _lock = inode.lock.write().await;
        let before = self.stored_xattrs(inode).await?;
        match (set.existence, before.get(name)) {
            (Existence::New | Existence::NewAndOld, Some(_)) => {
                return Err(Refusal::Exists.into());
            }
            (Existence::Old | Existence::NewAndOld, None) => {
                return Err(Refusal::NoAttribute.into());
            }
            _ => {}
        }
        inode.durable_by_attribute.set(None);
        let is_acl = matches!(name.index, ACL_ACCESS | ACL_DEFAULT);
        let same =
            |attribute: &Attribute| attribute.outside.is_none() && attribute.value == set.value;
        if !is_acl && before.find(name).is_some_and(same) {
            // As in the kernel, not even the time of change records it.
            return Ok(inode.last_change.get());
        }
        let mut after = before.clone();
        let (mut mode, mut holder) = (None, None);
        match name.index {
            ACL_ACCESS | ACL_DEFAULT => mode = self.set_acl(inode, name, set, &mut after)?,
            _ => match after.set(name, set.value, self.xattr_space(inode)) {
                Err(Error::Refused(Refusal::NoSpace)) if self.takes_values_outside(set.value) => {
                    holder =
                        Some(self.set_outside(inode, caller, name, set.value, &mut after).await?);
                }
                fitted => fitted?,
            },
        }
        let changed =
            self.change_xattrs(inode, AttributeChange { before, after, mode, holder }).await;
        self.free_or_leave_values().await?;
        changed
    }

    /// Removes an attribute. ENODATA when there is none, unless it is an access control list.
    pub async fn remove_xattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        name: &[u8],
    ) -> Result<TransactionId> {
        let name = Name::parse(name)?;
        may_change(inode, name)?;
        let _lock = inode.lock.write().await;
        let before = self.stored_xattrs(inode).await?;
        if before.get(name).is_none() {
            return match name.index {
                ACL_ACCESS | ACL_DEFAULT => Ok(inode.last_change.get()),
                _ => Err(Refusal::NoAttribute.into()),
            };
        }
        inode.durable_by_attribute.set(None);
        let mut after = before.clone();
        after.remove(name);
        let change = AttributeChange { before, after, mode: None, holder: None };
        let transaction = self.change_xattrs(inode, change).await?;
        self.free_or_leave_values().await?;
        Ok(transaction)
    }

    /// Removes the file capabilities, as every write must. The caller holds the
    /// inode's lock. Credits: [`Volume::xattr_change`].
    pub async fn clear_capabilities(
        &self,
        handle: &mut engine::Handle,
        inode: &Inode,
    ) -> Result<()> {
        let name = Name { index: names::SECURITY, rest: b"capability" };
        let before = self.stored_xattrs(inode).await?;
        if before.get(name).is_none() {
            inode.has_no_capabilities.set(true);
            return Ok(());
        }
        let mut after = before.clone();
        after.remove(name);
        self.store_xattrs(handle, inode, &before, &after).await
    }

    /// Stores the attributes and, if given, the mode, in one handle. Tries again after ENOSPC when
    /// a commit set blocks free.
    async fn change_xattrs(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        change: AttributeChange,
    ) -> Result<TransactionId> {
        let changed = self.try_to_change_xattrs(inode, &change).await;
        if let (Some(holder), Err(_)) = (&change.holder, &changed) {
            self.free_if_unused(holder).await?;
        }
        changed
    }

    async fn try_to_change_xattrs(
        &self,
        inode: &Inode,
        change: &AttributeChange,
    ) -> Result<TransactionId> {
        let _tables = self.hold(&[inode]).await?;
        let needed = self.xattr_change(inode).await?;
        let holder = change.holder.as_ref();
        let _holders = self.hold(&holder.map_or(vec![], |holder| vec![&**holder])).await?;
        let adopting = holder.map_or(Credits(0), |_| self.credits_reference());
        let store = async |handle: &mut Handle| {
            let attributes = self.before(handle, inode);
            if let Some(mode) = change.mode {
                inode.fields.borrow_mut().mode = mode;
            }
            let mut stored = self.store_xattrs(handle, inode, &change.before, &change.after).await;
            if let (Some(holder), Ok(())) = (holder, &stored) {
                stored = self.take_over(handle, holder).await;
            }
            self.whole(handle, attributes, stored)
        };
        Ok(self.with_space(|| needed.credits + adopting, store).await?.transaction)
    }
}

/// Checks the rules of xattr(7) that depend on file type and flags. Those that depend on the caller
/// are the front end's.
fn may_change(inode: &Inode, name: Name) -> Result<()> {
    if inode.has_flag(flags::IMMUTABLE) || inode.has_flag(flags::APPEND) {
        return Err(Refusal::NotPermitted.into());
    }
    match name.index {
        USER if !inode.is_regular() && !inode.is_directory() => Err(Refusal::NotPermitted.into()),
        ACL_ACCESS | ACL_DEFAULT if inode.is_symlink() => Err(Refusal::Unsupported.into()),
        _ => Ok(()),
    }
}
