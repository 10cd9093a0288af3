//! The set-id bits that a change takes from a file: set-user-id, and set-group-id where the group
//! may execute, or where the caller is not in the group.

use super::{HostFrontEnd, Result};
use crate::privilege::{self, Capability};
use fuse_session::abi::InHeader;
use store::{AttributeChange, FileAttributes, FileId, FileKind};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

impl HostFrontEnd {
    /// Clears set-id bits before the caller changes content. The kernel reports that the caller
    /// lacks CAP_FSETID.
    pub(super) async fn drop_privileges(
        &self,
        header: &InHeader,
        attributes: &FileAttributes,
    ) -> Result<()> {
        self.set_mode(attributes, mode_of_changed(header, attributes)).await
    }
    /// Drops what [`HostFrontEnd::drop_privileges`] drops, for a request that does not report
    /// capabilities.
    pub(super) async fn drop_privileges_of_any(
        &self,
        header: &InHeader,
        file: FileId,
    ) -> Result<()> {
        let attributes = self.host.attributes(file).await?;
        let left = mode_of_changed(header, &attributes);
        match left == attributes.mode || privilege::holds(header.pid, Capability::SetId) {
            true => Ok(()),
            false => self.set_mode(&attributes, left).await,
        }
    }
    pub(super) async fn drop_set_group(&self, file: FileId) -> Result<()> {
        let attributes = self.host.attributes(file).await?;
        self.set_mode(&attributes, attributes.mode & !SET_GROUP).await
    }
    async fn set_mode(&self, attributes: &FileAttributes, mode: u32) -> Result<()> {
        if mode != attributes.mode {
            let change = AttributeChange { mode: Some(mode), ..Default::default() };
            self.host.set_attributes(attributes.file, change).await?;
        }
        Ok(())
    }
}

/// Returns the mode after a change of content by a caller without CAP_FSETID.
pub(super) fn mode_of_changed(header: &InHeader, attributes: &FileAttributes) -> u32 {
    let FileAttributes { mode, gid, .. } = *attributes;
    if attributes.kind == FileKind::Directory || mode & (SET_USER | SET_GROUP) == 0 {
        return mode;
    }
    let takes_group = mode & GROUP_EXECUTES != 0
        || mode & SET_GROUP != 0
            && !privilege::is_member(header, gid)
            && !units::fault!("host-set-gid-kept");
    mode & !if takes_group { SET_USER | SET_GROUP } else { SET_USER }
}

/// Returns the mode after a change of the owner: set-user-id goes for any caller, set-group-id
/// without execution by the group stays for one with CAP_FSETID.
pub(super) fn mode_for_new_owner(header: &InHeader, attributes: &FileAttributes) -> u32 {
    let (mode, left) = (attributes.mode, mode_of_changed(header, attributes));
    let goes_for_strangers = left & SET_GROUP != mode & SET_GROUP && mode & GROUP_EXECUTES == 0;
    match goes_for_strangers && privilege::holds(header.pid, Capability::SetId) {
        true => left | SET_GROUP,
        false => left,
    }
}
