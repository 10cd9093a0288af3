//! The set-id bits that an operation clears, and the meaning of a request without a field.
//!
//! Linux announces two things by a SETATTR without a field: chown(2) of -1 and -1, and a write,
//! fallocate(2) or copy by a caller that may not keep set-id bits (`file_remove_privs`). The latter
//! come from any caller that may write, and a separate request follows that clears the bits. The
//! former is for owners (`setattr_prepare` in ext4 demands it, since the mode changes), and FUSE
//! does not check it: it leaves the mode out.

use super::{Result, VolumeFrontEnd};
use crate::error::RequestError;
use crate::privilege::{self, Capability};
use ext4::{Attributes, Inode, KillPrivileges};
use fuse_session::abi::{InHeader, NO_ID};

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o0010;
const DIRECTORY: u16 = 0o040000;

impl VolumeFrontEnd {
    /// Returns the bits to clear when the caller changes content. `is_asked`: the kernel reports
    /// that the caller lacks CAP_FSETID.
    pub(super) fn killed_by_change(
        &self,
        header: &InHeader,
        inode: &Inode,
        is_asked: bool,
    ) -> KillPrivileges {
        if !is_asked {
            return KillPrivileges::No;
        }
        let attributes = self.volume.getattr(inode);
        let is_stranger =
            has_group_bit_alone(&attributes) && !privilege::is_member(header, attributes.gid);
        if is_stranger { KillPrivileges::ByStranger } else { KillPrivileges::ByMember }
    }

    /// Returns the mode of a file that the caller makes in a directory.
    pub(super) fn mode_of_new(&self, header: &InHeader, parent: &Inode, mode: u16) -> u16 {
        let Attributes { mode: directory, gid, .. } = self.volume.getattr(parent);
        let is_taken = !self.options.kernel_strips_set_group
            && privilege::gives_group_away(header, (directory.into(), gid), mode.into());
        if is_taken { mode & !SET_GROUP } else { mode }
    }

    /// Returns the bits to clear when the caller changes content by a request that does not report
    /// its capabilities.
    pub(super) fn killed_by_any_change(&self, header: &InHeader, inode: &Inode) -> KillPrivileges {
        let has_bits = self.volume.getattr(inode).mode & (SET_USER | SET_GROUP) != 0;
        let is_asked = has_bits && !privilege::holds(header.pid, Capability::SetId);
        self.killed_by_change(header, inode, is_asked)
    }

    /// Returns the bits to clear when the caller changes the owner. Set-user-id is cleared for any
    /// caller.
    pub(super) fn killed_by_new_owner(&self, header: &InHeader, inode: &Inode) -> KillPrivileges {
        let attributes = self.volume.getattr(inode);
        let group_alone = has_group_bit_alone(&attributes);
        let keeps_group = group_alone
            && (privilege::is_member(header, attributes.gid)
                || privilege::holds(header.pid, Capability::SetId));
        match attributes.mode & (SET_USER | SET_GROUP) {
            _ if attributes.mode & 0o170000 == DIRECTORY => KillPrivileges::No,
            0 => KillPrivileges::No,
            SET_GROUP if keeps_group => KillPrivileges::No,
            _ if group_alone && !keeps_group => KillPrivileges::ByStranger,
            _ => KillPrivileges::ByMember,
        }
    }

    /// Returns whether a SETATTR without a field is chown(2) of -1 and -1 by a caller that may do
    /// it. False for a write, whose own request does the rest; also where the caller is not visible
    /// and does not own the file.
    ///
    /// # Errors
    /// EPERM: bits would be cleared, and the caller is neither the owner nor has CAP_FOWNER.
    pub(super) async fn is_empty_chown(&self, header: &InHeader, inode: &Inode) -> Result<bool> {
        let mark = Some((header.nodeid, header.pid));
        let follows_capabilities = self.capabilities_taken.get() == mark;
        if follows_capabilities {
            self.capabilities_taken.set(None);
        }
        if inode.is_directory() || units::fault!("empty-setattr-unchecked") {
            return Ok(true);
        }
        match privilege::changes_owner(header.pid).await {
            Some(true) => self.check_empty_chown(header, inode).map(|()| true),
            Some(false) => Ok(false),
            // Where they cannot be distinguished, the usual case is assumed: before a write the
            // kernel removes capabilities, and leaves set-id bits to a caller that may keep them.
            None if follows_capabilities => Ok(header.pid != 0
                && self.owns(header, inode)
                && !privilege::holds(header.pid, Capability::SetId)),
            None => Ok(self.owns(header, inode)),
        }
    }

    /// Refuses a removal of file capabilities that is the first half of a chown(2) which may not
    /// clear set-id bits. ext4 checks the latter first; alone, capabilities are removed for
    /// anybody.
    pub(super) async fn check_capability_removal(
        &self,
        header: &InHeader,
        inode: &Inode,
    ) -> Result<()> {
        let has_bits = self.volume.getattr(inode).mode & (SET_USER | SET_GROUP) != 0;
        if has_bits && privilege::changes_owner(header.pid).await == Some(true) {
            self.check_empty_chown(header, inode)?;
        }
        Ok(())
    }

    fn check_empty_chown(&self, header: &InHeader, inode: &Inode) -> Result<()> {
        let kills = self.killed_by_new_owner(header, inode) != KillPrivileges::No;
        match kills && !self.owns(header, inode) {
            true => Err(RequestError::Refused(libc::EPERM)),
            false => Ok(()),
        }
    }

    /// Returns whether the caller owns the file or may act as its owner. On mounts that may map
    /// users the former is not known.
    pub(super) fn owns(&self, header: &InHeader, inode: &Inode) -> bool {
        header.uid != NO_ID && header.uid == self.volume.getattr(inode).uid
            || privilege::holds(header.pid, Capability::FileOwner)
    }
}

/// Returns whether set-group-id is set without execution by the group: callers outside the group
/// clear it.
fn has_group_bit_alone(attributes: &Attributes) -> bool {
    attributes.mode & (SET_GROUP | GROUP_EXECUTES) == SET_GROUP
}
