//! Access control lists: set by hand, inherited, and following chmod. (Kernel: `fs/posix_acl.c`.)

use crate::xattr::SetXattr;
use crate::xattr::names::{ACL_ACCESS, ACL_DEFAULT, Name};
use crate::xattr::stored::Stored;
use crate::{Caller, Error, Inode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::acl::{Acl, AclError};
use units::Refusal;

const PERMISSIONS: u16 = 0o777;
const SET_GROUP: u16 = 0o2000;
const ACCESS: Name = Name { index: ACL_ACCESS, rest: b"" };
const DEFAULT: Name = Name { index: ACL_DEFAULT, rest: b"" };

impl Volume {
    /// Gives a new inode its labels and permissions: those of its directory's default list,
    /// restricted to the inode's mode, or without one the mode less the umask. The inode's mode is
    /// as requested before; afterwards it is final and stored. The caller holds the parent's lock.
    /// ENOSPC: the caller undoes what it made. Credits: [`Volume::credits_inherit_attributes`].
    pub async fn inherit_attributes(
        &self,
        handle: &mut Handle,
        parent: &Inode,
        inode: &Inode,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let mut after = Stored::default();
        for (name, value) in caller.labels {
            after.set(Name::parse(name)?, value, self.xattr_space(inode))?;
        }
        if !inode.is_symlink() {
            self.inherit_acl(parent, inode, caller.umask, &mut after).await?;
        }
        match after == Stored::default() {
            true => self.store(handle, inode).await,
            false => self.store_xattrs(handle, inode, &Stored::default(), &after).await,
        }
    }

    pub fn credits_inherit_attributes(&self) -> Credits {
        self.credits_xattr()
    }

    /// Sets the mode of a new inode, and adds its lists to `attributes`.
    async fn inherit_acl(
        &self,
        parent: &Inode,
        inode: &Inode,
        umask: u16,
        attributes: &mut Stored,
    ) -> Result<()> {
        let of_parent = self.stored_xattrs(parent).await?;
        let default = of_parent.get(DEFAULT).filter(|_| !self.options.ignores_access_lists);
        let Some(value) = default else {
            inode.fields.borrow_mut().mode &= !(umask & PERMISSIONS);
            return Ok(());
        };
        let default = self.acl_of(parent, value)?;
        let mut access = default.clone();
        let asked = inode.fields.borrow().mode;
        access.restrict_to_mode(asked);
        let (permissions, says_all) = access.mode();
        inode.fields.borrow_mut().mode = asked & !PERMISSIONS | permissions;
        let space = self.xattr_space(inode);
        if !says_all {
            attributes.set(ACCESS, &access.to_disk(), space)?;
        }
        if inode.is_directory() {
            attributes.set(DEFAULT, &default.to_disk(), space)?;
        }
        Ok(())
    }

    /// Makes the access list agree with the inode's new mode after chmod, if there is a list. The
    /// caller holds the inode's lock and stores the inode. Credits: [`Volume::xattr_change`].
    pub async fn chmod_acl(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        if self.options.ignores_access_lists {
            return Ok(());
        }
        let before = self.stored_xattrs(inode).await?;
        let Some(value) = before.get(ACCESS) else { return Ok(()) };
        let mut access = self.acl_of(inode, value)?;
        access.set_mode(inode.fields.borrow().mode);
        let mut after = before.clone();
        // The list keeps its length, so it fits where it was.
        after.set(ACCESS, &access.to_disk(), self.xattr_space(inode))?;
        Box::pin(self.store_xattrs(handle, inode, &before, &after)).await
    }

    /// Puts a list of setxattr(2) into `after`; returns the inode's new mode, if it changes. A list
    /// that the mode bits can express is not stored.
    pub(super) fn set_acl(
        &self,
        inode: &Inode,
        name: Name,
        set: SetXattr<'_>,
        after: &mut Stored,
    ) -> Result<Option<u16>> {
        let Some(acl) = Acl::from_call(set.value).map_err(refusal)? else {
            after.remove(name);
            return Ok(None);
        };
        let space = self.xattr_space(inode);
        if name == DEFAULT {
            if !inode.is_directory() {
                return Err(Refusal::AccessDenied.into());
            }
            after.set(DEFAULT, &acl.to_disk(), space)?;
            return Ok(None);
        }
        let (permissions, says_all) = acl.mode();
        match says_all {
            true => after.remove(ACCESS),
            false => after.set(ACCESS, &acl.to_disk(), space)?,
        }
        let kept = if set.clear_set_group { !(PERMISSIONS | SET_GROUP) } else { !PERMISSIONS };
        Ok(Some(inode.fields.borrow().mode & kept | permissions))
    }

    pub(super) fn acl_of(&self, inode: &Inode, value: &[u8]) -> Result<Acl> {
        let damaged =
            |error| Error::corrupt_inode(inode.number, format!("its access control list: {error}"));
        Acl::from_disk(value).map_err(damaged)
    }
}

fn refusal(error: AclError) -> Error {
    Error::Refused(match error {
        AclError::Version => Refusal::Unsupported,
        AclError::Length | AclError::Rules => Refusal::Invalid,
    })
}
