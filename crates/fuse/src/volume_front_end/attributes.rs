//! stat, statx, chmod, chown, utimes, truncate and statfs.

use super::{Result, VALID_SECONDS, VolumeFrontEnd, caller, node_of};
use ext4::{Attributes, Inode, KillPrivileges, SetAttributes, SetTime};
use fuse_session::Reply;
use fuse_session::abi::*;
use std::rc::Rc;
use units::Timestamp;

/// `STATX_BASIC_STATS | STATX_BTIME` (linux/stat.h).
const STATX_MASK: u32 = 0xfff;
/// Compressed, immutable, append-only, no-dump: the same bits in statx and in ext4's flags.
const STATX_ATTRIBUTES: u32 = 0x04 | 0x10 | 0x20 | 0x40;
const PERMISSIONS: u32 = 0o7777;
/// Fields that a request can change; the other bits only describe it.
const ASKED: u32 = fattr::MODE
    | fattr::UID
    | fattr::GID
    | fattr::SIZE
    | fattr::ATIME
    | fattr::MTIME
    | fattr::ATIME_NOW
    | fattr::MTIME_NOW
    | fattr::CTIME
    | fattr::KILL_SUIDGID;

impl VolumeFrontEnd {
    pub(super) async fn getattr(&self, header: &InHeader) -> Result {
        let inode = self.inode(header.nodeid).await?;
        Ok(reply_attributes(&self.volume.getattr(&inode)))
    }

    pub(super) async fn statx(&self, header: &InHeader) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let stat = statx_of(&self.volume.getattr(&inode));
        Ok(Reply::of(&StatxOut { attr_valid: VALID_SECONDS, stat, ..Default::default() }))
    }

    pub(super) async fn setattr(&self, header: &InHeader, arguments: SetattrIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        if asks_for_nothing(&arguments) && !self.is_empty_chown(header, &inode).await? {
            return Ok(reply_attributes(&self.volume.getattr(&inode)));
        }
        let mut change = change_of(&arguments);
        // Under HANDLE_KILLPRIV_V2 the kernel sends this when truncating, and leaves chown to us.
        change.kill_privileges = match arguments.valid & (fattr::UID | fattr::GID) != 0
            || asks_for_nothing(&arguments)
        {
            true => self.killed_by_new_owner(header, &inode),
            false => {
                let is_asked = arguments.valid & fattr::KILL_SUIDGID != 0;
                self.killed_by_change(header, &inode, is_asked)
            }
        };
        let before = self.volume.getattr(&inode);
        match self.change(header, &inode, arguments, change).await {
            Ok(reply) => Ok(reply),
            // A new size is stored before the blocks behind it are freed.
            failed => self.with_changed_attributes(header, &inode, &before, failed),
        }
    }

    async fn change(
        &self,
        header: &InHeader,
        inode: &Rc<Inode>,
        arguments: SetattrIn,
        change: SetAttributes,
    ) -> Result {
        let attributes = self.volume.setattr(inode, &caller(header), change).await?;
        let has_handle = arguments.valid & fattr::FH != 0;
        let asked = if has_handle { self.asked_by_handle(arguments.fh) } else { None };
        self.settle_change(inode, inode.last_change.get(), asked).await?;
        Ok(reply_attributes(&attributes))
    }

    pub(super) async fn statfs(&self) -> Result {
        let statfs = self.volume.statfs().await?;
        Ok(Reply::of(&StatfsOut {
            blocks: statfs.blocks,
            bfree: statfs.blocks_free,
            bavail: statfs.blocks_available,
            files: statfs.inodes,
            ffree: statfs.inodes_free,
            bsize: statfs.block_size,
            namelen: statfs.name_length,
            frsize: statfs.block_size,
            ..Default::default()
        }))
    }

    /// Creates an entry for the kernel to remember: it counts as one more reference.
    pub(super) fn entry(&self, inode: &Rc<Inode>) -> EntryOut {
        self.volume.remember(inode);
        let attributes = self.volume.getattr(inode);
        let nodeid = node_of(inode.number);
        EntryOut {
            nodeid,
            // The kernel knows the root without a lookup, and takes its generation for zero.
            generation: if nodeid == ROOT_NODE { 0 } else { attributes.generation.into() },
            entry_valid: VALID_SECONDS,
            attr_valid: VALID_SECONDS,
            attr: attr_of(&attributes),
            ..Default::default()
        }
    }
}

fn reply_attributes(attributes: &Attributes) -> Reply {
    let attr = attr_of(attributes);
    Reply::of(&AttrOut { attr_valid: VALID_SECONDS, attr, ..Default::default() })
}

fn attr_of(attributes: &Attributes) -> Attr {
    Attr {
        ino: u64::from(attributes.inode.get()),
        size: attributes.size,
        blocks: attributes.sectors,
        atime: attributes.accessed.seconds as u64,
        mtime: attributes.modified.seconds as u64,
        ctime: attributes.changed.seconds as u64,
        atimensec: attributes.accessed.nanoseconds,
        mtimensec: attributes.modified.nanoseconds,
        ctimensec: attributes.changed.nanoseconds,
        mode: u32::from(attributes.mode),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

fn statx_of(attributes: &Attributes) -> Statx {
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    };
    Statx {
        mask: STATX_MASK,
        blksize: attributes.block_size,
        attributes: u64::from(attributes.flags & STATX_ATTRIBUTES),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode,
        ino: u64::from(attributes.inode.get()),
        size: attributes.size,
        blocks: attributes.sectors,
        attributes_mask: u64::from(STATX_ATTRIBUTES),
        atime: time(attributes.accessed),
        btime: time(attributes.created),
        ctime: time(attributes.changed),
        mtime: time(attributes.modified),
        // The kernel's 32-bit encoding: minor 0-7, major 8-19, minor 20-31.
        rdev_major: attributes.device >> 8 & 0xfff,
        rdev_minor: attributes.device & 0xff | attributes.device >> 12 & 0xfff00,
        ..Default::default()
    }
}

fn asks_for_nothing(arguments: &SetattrIn) -> bool {
    arguments.valid & ASKED == 0
}

/// Returns the change without its effect on set-id bits.
fn change_of(arguments: &SetattrIn) -> SetAttributes {
    let has = |bit: u32| arguments.valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { seconds: seconds as i64, nanoseconds })),
        (false, false) => None,
    };
    SetAttributes {
        mode: has(fattr::MODE).then_some((arguments.mode & PERMISSIONS) as u16),
        uid: has(fattr::UID).then_some(arguments.uid),
        gid: has(fattr::GID).then_some(arguments.gid),
        size: has(fattr::SIZE).then_some(arguments.size),
        accessed: time(fattr::ATIME, fattr::ATIME_NOW, arguments.atime, arguments.atimensec),
        modified: time(fattr::MTIME, fattr::MTIME_NOW, arguments.mtime, arguments.mtimensec),
        changed: match asks_for_nothing(arguments) {
            true => Some(SetTime::Now),
            false => time(fattr::CTIME, 0, arguments.ctime, arguments.ctimensec),
        },
        kill_privileges: KillPrivileges::No,
        // The kernel has cleared the bit in the mode already (setattr_prepare).
        clear_set_group: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_marked_is_changed() {
        let arguments =
            SetattrIn { mode: 0o100644, uid: 7, size: 9, atime: 5, ..Default::default() };
        // FATTR_FH only means that a file handle is given.
        let asks = SetattrIn { valid: 1 << 6, ..arguments };
        let touched = SetAttributes { changed: Some(SetTime::Now), ..Default::default() };
        assert_eq!(change_of(&asks), touched, "chown(-1, -1)");
        let valid = fattr::MODE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW;
        let change = change_of(&SetattrIn { valid, ..arguments });
        let accessed = Some(SetTime::At(Timestamp { seconds: 5, nanoseconds: 0 }));
        let modified = Some(SetTime::Now);
        assert_eq!(
            change,
            SetAttributes { mode: Some(0o644), accessed, modified, ..Default::default() }
        );
    }

    #[test]
    fn device_numbers_are_decoded_as_the_kernel_encodes_them() {
        // new_encode_dev(MKDEV(259, 70000)): (70000 & 0xff) | (259 << 8) | ((70000 & !0xff) << 12)
        let device = (70000 & 0xff) | (259 << 8) | ((70000u32 & !0xff) << 12);
        assert_eq!((device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00), (259, 70000));
    }
}
