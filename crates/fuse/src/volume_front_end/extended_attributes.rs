//! Extended attributes. A caller that passes size zero asks for the length.

use super::{AttributeOptions, Result, VolumeFrontEnd, caller};
use crate::error::RequestError;
use crate::privilege::{self, Capability};
use ext4::{Existence, SetXattr};
use fuse_session::Reply;
use fuse_session::abi::{self, *};

impl VolumeFrontEnd {
    pub(super) async fn setxattr(
        &self,
        header: &InHeader,
        arguments: SetxattrIn,
        name: &[u8],
        value: &[u8],
    ) -> Result {
        self.check_served(name)?;
        let inode = self.inode(header.nodeid).await?;
        const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        let existence = match arguments.flags as i32 {
            0 => Existence::Any,
            BOTH if units::fault!("create-and-replace-sets") => Existence::Any,
            BOTH => Existence::NewAndOld,
            libc::XATTR_CREATE => Existence::New,
            libc::XATTR_REPLACE => Existence::Old,
            _ => return Err(RequestError::Refused(libc::EINVAL)),
        };
        let clear_set_group = arguments.setxattr_flags & abi::setxattr::ACL_KILL_SGID != 0;
        let set = SetXattr { name, value, existence, clear_set_group };
        let change = self.volume.set_xattr(&inode, &caller(header), set).await?;
        self.settle_change(&inode, change, None).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn getxattr(&self, header: &InHeader, size_max: u32, name: &[u8]) -> Result {
        self.check_served(name)?;
        let inode = self.inode(header.nodeid).await?;
        let value = self.volume.get_xattr(&inode, name).await?;
        reply_within(&value, size_max)
    }

    pub(super) async fn listxattr(&self, header: &InHeader, size_max: u32) -> Result {
        self.check_served(b"")?;
        let inode = self.inode(header.nodeid).await?;
        let sees_trusted = || privilege::holds(header.pid, Capability::SystemAdministration);
        let mut names = self.volume.list_xattrs(&inode, sees_trusted).await?;
        if self.options.attributes != AttributeOptions::default() {
            let is_served = |name: &&[u8]| self.check_served(name).is_ok();
            names = names
                .split_inclusive(|byte| *byte == 0)
                .filter(is_served)
                .flatten()
                .copied()
                .collect();
        }
        reply_within(&names, size_max)
    }

    pub(super) async fn removexattr(&self, header: &InHeader, name: &[u8]) -> Result {
        self.check_served(name)?;
        let inode = self.inode(header.nodeid).await?;
        let is_capability = name == b"security.capability";
        if is_capability {
            self.check_capability_removal(header, &inode).await?;
        }
        let change = self.volume.remove_xattr(&inode, name).await?;
        if is_capability {
            self.capabilities_taken.set(Some((header.nodeid, header.pid)));
        }
        self.settle_change(&inode, change, None).await?;
        Ok(Reply::empty())
    }
}

impl VolumeFrontEnd {
    /// # Errors
    /// EOPNOTSUPP, as ext4 has it for a kind of attribute that is turned off. ENOSYS where none is
    /// served: the kernel returns EOPNOTSUPP for it, and does not ask again.
    fn check_served(&self, name: &[u8]) -> Result<()> {
        let AttributeOptions { without_user, without_access_lists, without_any } =
            self.options.attributes;
        let is_off = without_user && name.starts_with(b"user.")
            || without_access_lists && name.starts_with(b"system.posix_acl_");
        match (without_any, is_off) {
            (true, _) => Err(RequestError::Refused(libc::ENOSYS)),
            (false, true) => Err(RequestError::Refused(libc::EOPNOTSUPP)),
            (false, false) => Ok(()),
        }
    }
}

fn reply_within(value: &[u8], size_max: u32) -> Result {
    match size_max as usize {
        0 => Ok(Reply::of(&GetxattrOut { size: value.len() as u32, padding: 0 })),
        size_max if value.len() <= size_max => Ok(Reply::bytes(value)),
        _ => Err(RequestError::Refused(libc::ERANGE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_zero_asks_for_the_length_and_too_little_is_an_error() {
        assert_eq!(reply_within(b"value", 0).unwrap().payload_length(), size_of::<GetxattrOut>());
        assert_eq!(reply_within(b"value", 5).unwrap().payload_length(), 5);
        assert!(matches!(reply_within(b"value", 4), Err(RequestError::Refused(libc::ERANGE))));
    }
}
