//! Changing attributes: chmod, chown, utimes, truncate.

use super::{
    Attributes, KillPrivileges, S_ISGID, SetAttributes, SetTime, clear_set_id_bits,
    may_have_capabilities,
};
use crate::{Caller, Inode, Result, Volume};
use engine::Handle;
use format::ext4::inode::flags;
use std::rc::Rc;
use units::Refusal;

impl Volume {
    /// Changes the attributes given, by the rules of POSIX for set-id bits. Durable with
    /// [`Volume::sync_file`].
    pub async fn setattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        _caller: &Caller<'_>,
        change: SetAttributes,
    ) -> Result<Attributes> {
        let _guard = inode.lock.write().await;
        if change != SetAttributes::default()
            && (inode.has_flag(flags::IMMUTABLE)
                || inode.has_flag(flags::APPEND)
                    && (!is_touch(&change) || units::fault!("append-only-without-times")))
        {
            return Err(Refusal::NotPermitted.into());
        }
        if let Some(size) = change.size {
            // In a box, so that a change of other attributes is short.
            Box::pin(self.truncate_locked(inode, size, change.kill_privileges)).await?;
        }
        let mut rest = SetAttributes { size: None, ..change };
        if change.size.is_some() {
            rest.kill_privileges = KillPrivileges::No;
        }
        if rest != SetAttributes::default() {
            self.change_fields(inode, &change).await?;
        }
        Ok(self.getattr(inode))
    }

    async fn change_fields(&self, inode: &Inode, change: &SetAttributes) -> Result<()> {
        let _table = self.hold(&[inode]).await?;
        // Capabilities and the access list are attributes.
        let attributes = self.xattr_change(inode).await?;
        let mut handle = self.engine().start(self.credits_inode() + attributes.credits * 2).await?;
        let before = self.before(&handle, inode);
        let changed = self.change_fields_within(&mut handle, inode, change).await;
        let changed = self.whole(&handle, before, changed);
        handle.stop();
        changed
    }

    async fn change_fields_within(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        change: &SetAttributes,
    ) -> Result<()> {
        let owner_changes = change.uid.is_some() || change.gid.is_some();
        if !inode.is_directory() && (owner_changes || change.kill_privileges != KillPrivileges::No)
        {
            // A file that is given away must not be left as a program that runs as its new owner.
            let kill = match change.kill_privileges {
                KillPrivileges::No => KillPrivileges::ByMember,
                kill => kill,
            };
            clear_set_id_bits(inode, kill);
            if may_have_capabilities(inode) {
                Box::pin(self.clear_capabilities(handle, inode)).await?;
            }
        }
        self.set_fields(inode, change);
        if change.modified.is_some() {
            inode.pages.time_set(self.engine().world().now());
        }
        if change.mode.is_some() {
            self.chmod_acl(handle, inode).await?;
        }
        self.store(handle, inode).await
    }

    fn set_fields(&self, inode: &Inode, change: &SetAttributes) {
        let now = self.now();
        let given = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => self.storable(time),
        };
        self.note_change(inode);
        let mut fields = inode.fields.borrow_mut();
        fields.uid = change.uid.unwrap_or(fields.uid);
        fields.gid = change.gid.unwrap_or(fields.gid);
        if let Some(mode) = change.mode {
            let dropped = if change.clear_set_group { S_ISGID } else { 0 };
            fields.mode = fields.mode & 0xf000 | mode & 0o7777 & !dropped;
        }
        fields.accessed = change.accessed.map_or(fields.accessed, given);
        fields.modified = change.modified.map_or(fields.modified, given);
        fields.changed = change.changed.map_or(fields.changed, given);
    }
}

/// Whether nothing but times change, and to now: an append does that, too.
fn is_touch(change: &SetAttributes) -> bool {
    let is_now = |time| matches!(time, None | Some(SetTime::Now));
    let times = SetAttributes {
        accessed: change.accessed,
        modified: change.modified,
        changed: change.changed,
        ..Default::default()
    };
    [change.accessed, change.modified, change.changed].into_iter().all(is_now) && *change == times
}
