//! Opening, reading, writing, and attributes.

use super::{HostFrontEnd, Result, set_id};
use crate::error::RequestError;
use fuse_session::abi::{self, *};
use fuse_session::{MAX_WRITE, Reply};
use host::{Durable, HostWrite, Interrupt, Position, interruptible};
use runtime::{Either, race};
use std::time::Duration;
use store::{
    Allocation, AttributeChange, FileAttributes, FileKind, Refusal, StoreError, TimeChange,
};
use units::Timestamp;

const PERMISSIONS: u32 = 0o7777;
const BLOCK_BYTES: u32 = 4096;
/// The access list that decides, beside which a directory has one for new files.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Open flags that bypass the page cache, because other clients may change the file. Closes are
/// requests, as they end locks.
const OPENED: u32 = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;

impl HostFrontEnd {
    pub(super) async fn open(&self, header: &InHeader, _arguments: OpenIn) -> Result {
        self.host.open_file(self.file(header.nodeid)?).await?;
        Ok(Reply::of(&self.opened()))
    }
    /// Opens a separate descriptor, which identifies its locks.
    pub(super) fn opened(&self) -> OpenOut {
        OpenOut { fh: self.next_descriptor(), open_flags: OPENED, ..Default::default() }
    }

    pub(super) async fn read(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let length = arguments.size.min(MAX_WRITE) as usize;
        let bytes = self.host.read(self.file(header.nodeid)?, arguments.offset, length).await?;
        if arguments.read_flags & abi::read::LOCK_OWNER == 0 {
            let range = arguments.offset..arguments.offset.saturating_add(length as u64);
            self.pages.of(header.nodeid).filled(range);
        }
        Ok(Reply::bytes(&bytes))
    }

    /// Writes. A caller that is killed waits for nothing: it gets EINTR, and nothing was written.
    pub(super) async fn write(&self, header: &InHeader, arguments: WriteIn, data: &[u8]) -> Result {
        let (signal, interrupt) = (self.waiting.begin(header.unique), Interrupt::default());
        let written = self.write_unless(header, arguments, data, &interrupt);
        let killed = signal.end_if_killed(&self.host, header.pid, &interrupt);
        match race(written, killed).await {
            Either::Left(written) => written,
            Either::Right(never) => match never {},
        }
    }
    async fn write_unless(
        &self,
        header: &InHeader,
        arguments: WriteIn,
        data: &[u8],
        interrupt: &Interrupt,
    ) -> Result {
        let file = self.file(header.nodeid)?;
        let durable = match arguments.flags & libc::O_DSYNC as u32 {
            0 => Durable::Soon,
            _ => Durable::Now,
        };
        if arguments.write_flags & abi::write::KILL_SUIDGID != 0 {
            let attributes = interruptible(Some(interrupt), self.host.attributes(file)).await??;
            self.drop_privileges(header, &attributes).await?;
        }
        let (pages, length) = (self.pages.of(header.nodeid), data.len() as u64);
        let write = HostWrite {
            position: Position::At(arguments.offset),
            bytes: data,
            durable,
            interrupt: None,
        };
        if arguments.write_flags & abi::write::CACHE != 0 {
            let _alone = pages.writing_back().await;
            let at = arguments.offset;
            for piece in pages.not_older(at..at.saturating_add(length)) {
                let bytes = &data[(piece.start - at) as usize..(piece.end - at) as usize];
                let position = Position::At(piece.start);
                self.host.write_at(file, HostWrite { position, bytes, ..write }).await?;
            }
        } else {
            let _shared = interruptible(Some(interrupt), pages.changing()).await?;
            // The kernel has set the offset to what it believes is the end.
            let appends = arguments.flags & libc::O_APPEND as u32 != 0;
            let position = Position::of_descriptor(arguments.offset, appends);
            let write = HostWrite { position, interrupt: Some(interrupt), ..write };
            let written = self.host.write_at(file, write).await?;
            let at = match position {
                Position::At(at) => at,
                Position::End => written.version.size.saturating_sub(length),
            };
            pages.written(at..at + length);
        }
        Ok(Reply::of(&WriteOut { size: data.len() as u32, padding: 0 }))
    }

    /// Punches holes to zero ranges: stores have no call for anything else.
    pub(super) async fn fallocate(&self, header: &InHeader, arguments: FallocateIn) -> Result {
        const KEEPS_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEPS_SIZE;
        let what = match arguments.mode {
            0 => Allocation::Reserve,
            KEEPS_SIZE => Allocation::ReserveKeepingSize,
            HOLE => Allocation::PunchHole,
            _ => return Err(RequestError::Refused(libc::EOPNOTSUPP)),
        };
        let file = self.file(header.nodeid)?;
        let end = arguments
            .offset
            .checked_add(arguments.length)
            .ok_or(RequestError::Refused(libc::EFBIG))?;
        // Before the change: a crash between the two must not leave a program of others with them.
        if what == Allocation::PunchHole || self.host.may_end_at(file, end) {
            self.drop_privileges_of_any(header, file).await?;
            self.host.forget_capabilities(file).await?;
        }
        let (pages, range) = (self.pages.of(header.nodeid), arguments.offset..end);
        let shared = pages.changing().await;
        self.host.allocate(file, what, range.clone()).await?;
        if what == Allocation::PunchHole {
            pages.zeroed(range.clone());
            drop(shared);
            pages.zeros_settled(range).await;
        }
        Ok(Reply::empty().with_stale_attributes(header.nodeid))
    }

    pub(super) async fn getattr(&self, header: &InHeader) -> Result {
        let (attributes, kept) = self.host.attributes_to_cache(self.file(header.nodeid)?).await?;
        self.reply_attributes(&attributes, kept)
    }

    pub(super) async fn setattr(&self, header: &InHeader, arguments: SetattrIn) -> Result {
        let file = self.file(header.nodeid)?;
        let mut change = change_of(&arguments);
        let has = |bit: u32| arguments.valid & bit != 0;
        if has(fattr::UID) || has(fattr::GID) || has(fattr::KILL_SUIDGID) {
            let mut attributes = self.host.attributes(file).await?;
            attributes.mode = change.mode.unwrap_or(attributes.mode);
            let left = match has(fattr::UID) || has(fattr::GID) {
                true => set_id::mode_for_new_owner(header, &attributes),
                false => set_id::mode_of_changed(header, &attributes),
            };
            if left != attributes.mode {
                change.mode = Some(left);
            }
        }
        if has(fattr::UID) || has(fattr::GID) || has(fattr::SIZE) || has(fattr::KILL_SUIDGID) {
            self.host.forget_capabilities(file).await?;
        }
        if change == AttributeChange::default() {
            return self.getattr(header).await;
        }
        let attributes = self.host.set_attributes(file, change).await?;
        // The kernel accepts these even if it was asked to forget them while the reply was in
        // flight.
        self.reply_attributes(&attributes, Duration::ZERO)
    }

    pub(super) async fn statfs(&self) -> Result {
        let mut reply = StatfsOut { namelen: store::NAME_BYTES_MAX as u32, ..Default::default() };
        (reply.bsize, reply.frsize) = (BLOCK_BYTES, BLOCK_BYTES);
        match self.host.space().await {
            Ok(space) => {
                (reply.bsize, reply.frsize) = (space.block_bytes, space.block_bytes);
                (reply.blocks, reply.bfree) = (space.blocks, space.blocks_free);
                (reply.bavail, reply.files) = (space.blocks_available, space.files);
                reply.ffree = space.files_free;
            }
            Err(host::HostError::Store(StoreError::Refused(Refusal::Unsupported))) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Reply::of(&reply))
    }

    fn reply_attributes(&self, attributes: &FileAttributes, kept: Duration) -> Result {
        let attr = attr_of(self.node(attributes.file)?, attributes);
        let (attr_valid, attr_valid_nsec) = (kept.as_secs(), kept.subsec_nanos());
        Ok(Reply::of(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr }))
    }

    /// Creates an entry for the kernel to remember: it counts as one more reference.
    pub(super) fn entry(&self, attributes: &FileAttributes) -> Result<EntryOut> {
        let nodeid = self.node(attributes.file)?;
        self.remember(nodeid);
        let kept = self.host.lookup_timeout(attributes);
        let (seconds, nanoseconds) = (kept.as_secs(), kept.subsec_nanos());
        Ok(EntryOut {
            nodeid,
            entry_valid: seconds,
            entry_valid_nsec: nanoseconds,
            attr_valid: seconds,
            attr_valid_nsec: nanoseconds,
            attr: attr_of(nodeid, attributes),
            ..Default::default()
        })
    }
}

pub(super) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Special(bits) => bits & libc::S_IFMT,
    }
}

fn attr_of(ino: u64, attributes: &FileAttributes) -> Attr {
    let FileAttributes { accessed, modified, changed, .. } = *attributes;
    Attr {
        ino,
        size: attributes.version.size,
        blocks: attributes.blocks,
        atime: accessed.seconds as u64,
        mtime: modified.seconds as u64,
        ctime: changed.seconds as u64,
        atimensec: accessed.nanoseconds,
        mtimensec: modified.nanoseconds,
        ctimensec: changed.nanoseconds,
        mode: kind_bits(attributes.kind) | attributes.mode & PERMISSIONS,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn change_of(arguments: &SetattrIn) -> AttributeChange {
    let has = |bit: u32| arguments.valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(bit), has(now)) {
        (_, true) => Some(TimeChange::Now),
        (true, false) => Some(TimeChange::To(Timestamp { seconds: seconds as i64, nanoseconds })),
        (false, false) => None,
    };
    AttributeChange {
        size: has(fattr::SIZE).then_some(arguments.size),
        mode: has(fattr::MODE).then_some(arguments.mode & PERMISSIONS),
        uid: has(fattr::UID).then_some(arguments.uid),
        gid: has(fattr::GID).then_some(arguments.gid),
        accessed: time(fattr::ATIME, fattr::ATIME_NOW, arguments.atime, arguments.atimensec),
        modified: time(fattr::MTIME, fattr::MTIME_NOW, arguments.mtime, arguments.mtimensec),
    }
}

impl HostFrontEnd {
    pub(super) async fn setxattr(
        &self,
        header: &InHeader,
        arguments: SetxattrIn,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result {
        const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        let file = self.file(header.nodeid)?;
        let mode = match arguments.flags as i32 {
            0 => store::XattrMode::Set,
            libc::XATTR_CREATE => store::XattrMode::Create,
            libc::XATTR_REPLACE => store::XattrMode::Replace,
            // Which of the two stands in the way; no store has a call for it.
            BOTH => {
                self.host.xattr(file, name).await?;
                return Err(RequestError::Refused(libc::EEXIST));
            }
            _ => return Err(RequestError::Refused(libc::EINVAL)),
        };
        if name == ACCESS_LIST && arguments.setxattr_flags & abi::setxattr::ACL_KILL_SGID != 0 {
            // First: the list may let the group execute the file.
            self.drop_set_group(file).await?;
        }
        self.host.set_xattr(file, name, value, mode).await?;
        Ok(Reply::empty())
    }
}
