//! Opening, reading and writing, and the effect of a descriptor's flags on the page cache. A
//! synchronous write through the cache comes as WRITE and FSYNC. Past the cache it comes as one
//! WRITE with the flag.

use super::{Result, VolumeFrontEnd, caller, creator};
use crate::error::RequestError;
use ext4::{
    Attributes, Content, FileRange, Inode, PageAccess, Piece, RangeMode, SeekWhat, SyncWhat,
    WriteData, WriteFlags, WriteOrigin, Written, flags,
};
use fuse_session::abi::{self, *};
use fuse_session::{MAX_WRITE, Reply, SecurityLabel};
use runtime::Slice;
use std::rc::Rc;

/// Length, in bytes, up to which copying is cheaper than passing pieces to the kernel.
const COPIED_MAX: usize = 16 << 10;
/// Maximum number of pieces in one message; further pieces are copied.
const SLICES_MAX: usize = 512;
/// Bytes that one copy moves at most: its caller cannot be killed before it is answered.
const COPY_MAX: u64 = 16 << 20;

impl VolumeFrontEnd {
    pub(super) async fn open(&self, header: &InHeader, arguments: OpenIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        check_flags(&inode, arguments.flags as i32)?;
        let wants = self.wanted_access(&inode, arguments.flags);
        Ok(Reply::of(&self.note_opened(&inode, arguments.flags, wants)))
    }

    fn note_opened(&self, inode: &Inode, flags: u32, wants: PageAccess) -> OpenOut {
        // With `noopen` the kernel sends no close either, not even of a descriptor that made its
        // file: one that was counted would keep the file's space for ever. The kernel's reference
        // to the inode keeps what is open.
        if !self.options.without_open || units::fault!("created-counts-as-open") {
            self.volume.opened(inode);
            if is_mappable(flags) {
                inode.pages.mappable_opened();
            }
        }
        let access = match (self.options.kernel_drops_written_pages, self.options.without_open) {
            (true, _) => wants,
            (false, false) => inode.pages.open(wants, is_writable(flags.into())),
            // The kernel opens other descriptors through the cache by itself.
            (false, true) => PageAccess::Cached,
        };
        opened(flags, access)
    }

    /// Returns the access that a descriptor of these flags has where no other is open. When we no
    /// longer know which of the kernel's pages are holes, they are dropped before a program may
    /// change them.
    fn wanted_access(&self, inode: &Inode, flags: u32) -> PageAccess {
        let forgets = inode.opens.get() == 0 && is_mappable(flags) && inode.pages.is_forgotten();
        if forgets {
            inode.pages.to_be_dropped();
        }
        match forgets {
            _ if is_direct(flags) => PageAccess::Direct,
            true => PageAccess::Emptied,
            false => PageAccess::Cached,
        }
    }

    pub(super) async fn create(
        &self,
        header: &InHeader,
        arguments: CreateIn,
        name: &[u8],
        labels: &[SecurityLabel<'_>],
    ) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let caller = creator(header, arguments.umask, labels);
        let mode = self.mode_of_new(header, &parent, regular(arguments.mode));
        let made = self.volume.mknod(&parent, name, &caller, mode, 0).await?;
        let reply = self.reply_created(&made.value, arguments.flags);
        self.settle(&parent, made.transaction).await?;
        Ok(reply)
    }

    pub(super) async fn tmpfile(
        &self,
        header: &InHeader,
        arguments: CreateIn,
        labels: &[SecurityLabel<'_>],
    ) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let caller = creator(header, arguments.umask, labels);
        let mode = self.mode_of_new(header, &parent, regular(arguments.mode));
        let made = self.volume.tmpfile(&parent, &caller, mode).await?;
        Ok(self.reply_created(&made.value, arguments.flags))
    }

    fn reply_created(&self, inode: &Rc<Inode>, flags: u32) -> Reply {
        let wants = if is_direct(flags) { PageAccess::Direct } else { PageAccess::Cached };
        let opened = self.note_opened(inode, flags, wants);
        let mut reply = Reply::of(&self.entry(inode));
        reply.append(&opened);
        reply
    }

    pub(super) async fn release(&self, header: &InHeader, arguments: ReleaseIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        if is_mappable(arguments.flags) {
            inode.pages.mappable_closed();
        }
        if !self.options.kernel_drops_written_pages {
            inode.pages.close(access_of(arguments.fh), is_writable(arguments.fh));
        }
        self.volume.closed(inode.number).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn read(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let length = arguments.size.min(MAX_WRITE) as usize;
        let content = match arguments.read_flags & abi::read::LOCK_OWNER {
            0 => self.volume.read_for_cache(&inode, arguments.offset, length).await?,
            _ => self.volume.read(&inode, arguments.offset, length).await?,
        };
        Ok(reply_content(content))
    }

    pub(super) async fn write(
        &self,
        header: &InHeader,
        arguments: WriteIn,
        data: &WriteData<'_>,
    ) -> Result {
        let WriteIn { offset, write_flags, flags, .. } = arguments;
        let inode = self.inode(header.nodeid).await?;
        let is_asked = write_flags & abi::write::KILL_SUIDGID != 0;
        let how = WriteFlags {
            kill_privileges: self.killed_by_change(header, &inode, is_asked),
            // The kernel has put the offset at the end already.
            append: false,
            origin: origin_of(write_flags),
        };
        let before = self.mode(&inode);
        let result = match self.volume.write_data(&inode, &caller(header), offset, data, how).await
        {
            Ok(written) => self.settle_write(&inode, written, flags).await,
            Err(error) => Err(error.into()),
        };
        // A write-back clears nothing, and no process holds the inode for it: the kernel may be
        // evicting it, waits for this reply, and would have a notification wait for the eviction.
        match write_flags & abi::write::CACHE != 0 && !units::fault!("write-back-notifies") {
            true => result,
            false => self.with_changed_privileges(header, &inode, before, result),
        }
    }

    async fn settle_write(&self, inode: &Rc<Inode>, written: Written, flags: u32) -> Result {
        self.volume.settle_write(inode, &written, sync_asked(flags)).await?;
        self.volume.keep_home(inode).await?;
        Ok(Reply::of(&WriteOut { size: written.count as u32, padding: 0 }))
    }

    /// Copies a part of the range, which is a valid reply; the caller asks again for the rest.
    /// Each mebibyte is a separate write.
    pub(super) async fn copy_file_range(
        &self,
        header: &InHeader,
        arguments: CopyFileRangeIn,
    ) -> Result {
        let (from, to) =
            (self.inode(header.nodeid).await?, self.inode(arguments.nodeid_out).await?);
        let written_to = InHeader { nodeid: arguments.nodeid_out, ..*header };
        let before = self.volume.getattr(&to);
        let copied = self.copy(header, &from, &to, arguments).await;
        self.with_changed_attributes(&written_to, &to, &before, copied)
    }

    async fn copy(
        &self,
        header: &InHeader,
        from: &Rc<Inode>,
        to: &Rc<Inode>,
        arguments: CopyFileRangeIn,
    ) -> Result {
        let flags = WriteFlags {
            kill_privileges: self.killed_by_any_change(header, to),
            append: false,
            // The kernel writes its pages back before, and drops them after the copy.
            origin: WriteOrigin::PastCache,
        };
        let wanted = arguments.length.min(COPY_MAX);
        let (mut copied, mut last) = (0, None);
        while copied < wanted {
            let length = (wanted - copied).min(MAX_WRITE.into()) as usize;
            let step = async {
                let content = self
                    .volume
                    .read(from, arguments.offset_in.saturating_add(copied), length)
                    .await?;
                let at = arguments.offset_out.saturating_add(copied);
                self.volume.write(to, &caller(header), at, &content.to_vec(), flags).await
            };
            match step.await {
                Ok(written) => {
                    copied += written.count as u64;
                    last = Some(written);
                    if written.count < length {
                        break;
                    }
                }
                Err(error) if copied == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        if let Some(written) = last {
            let asked = self.asked_by_handle(arguments.fh_out);
            self.settle_change(to, written.transaction, asked).await?;
            self.volume.keep_home(to).await?;
        }
        Ok(Reply::of(&CopyFileRangeOut { bytes_copied: copied }))
    }

    pub(super) async fn fsync(&self, header: &InHeader, arguments: FsyncIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let what = match arguments.fsync_flags & abi::fsync::DATA_ONLY {
            0 => SyncWhat::All,
            _ => SyncWhat::Data,
        };
        self.volume.sync_file(&inode, what).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn fallocate(&self, header: &InHeader, arguments: FallocateIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let keep_size = arguments.mode & libc::FALLOC_FL_KEEP_SIZE as u32 != 0;
        let mode = match arguments.mode as i32 & !libc::FALLOC_FL_KEEP_SIZE {
            0 => RangeMode::Allocate,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => RangeMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => RangeMode::Zero,
            _ => return Err(RequestError::Refused(libc::EOPNOTSUPP)),
        };
        let FallocateIn { offset, length, .. } = arguments;
        let range = FileRange { mode, keep_size, offset, length };
        let before = self.volume.getattr(&inode);
        let kill = self.killed_by_any_change(header, &inode);
        let done = self.volume.fallocate_range(&inode, &caller(header), range, kill).await;
        let settled = match done {
            Ok(change) => {
                let asked = self.asked_by_handle(arguments.fh);
                let settled = self.settle_change(&inode, change, asked).await;
                if mode != RangeMode::Allocate {
                    let zeros = offset..offset.saturating_add(length);
                    self.volume.zeros_settled(&inode, zeros, settled.is_ok()).await;
                }
                settled
            }
            Err(error) => Err(error.into()),
        };
        let result = settled.map(|()| Reply::empty());
        self.with_changed_attributes(header, &inode, &before, result)
    }

    /// Replies to an operation on a file that had the mode `before` it.
    ///
    /// The kernel caches a file's mode, and starts programs by it. An operation may clear set-id
    /// bits although its reply does not report the mode, even one that fails later. The kernel
    /// must then look the mode up again.
    fn with_changed_privileges(
        &self,
        header: &InHeader,
        inode: &Inode,
        before: u16,
        result: Result,
    ) -> Result {
        if self.mode(inode) == before {
            return result;
        }
        Ok(self.reporter.reply(header, result).with_stale_attributes(header.nodeid))
    }

    /// Replies to an operation on a file that had the attributes `before` it, as
    /// [`VolumeFrontEnd::with_changed_privileges`] does. One that fails may have done a part of its
    /// work, and then the kernel keeps what it knew, unless it must ask again.
    pub(super) fn with_changed_attributes(
        &self,
        header: &InHeader,
        inode: &Inode,
        before: &Attributes,
        result: Result,
    ) -> Result {
        if result.is_ok() || self.volume.getattr(inode) == *before {
            return self.with_changed_privileges(header, inode, before.mode, result);
        }
        Ok(self.reporter.reply(header, result).with_stale_attributes(header.nodeid))
    }

    fn mode(&self, inode: &Inode) -> u16 {
        inode.fields.borrow().mode
    }

    /// Returns what a change through the descriptor of this handle waits for.
    ///
    /// With `noopen` the kernel opens files that exist by itself. Their handle is 0 and does not
    /// state the flags, so each may have O_SYNC. No truncation by open(2), nor by a path, has a
    /// handle, and a descriptor that made its file and may change it has another.
    pub(super) fn asked_by_handle(&self, handle: u64) -> Option<SyncWhat> {
        let is_unknown = self.options.without_open && handle == 0;
        match is_unknown && !units::fault!("unknown-descriptor-answered") {
            true => Some(SyncWhat::All),
            false => sync_asked(handle as u32),
        }
    }

    pub(super) async fn lseek(&self, header: &InHeader, arguments: LseekIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let what = match arguments.whence as i32 {
            libc::SEEK_DATA => SeekWhat::Data,
            libc::SEEK_HOLE => SeekWhat::Hole,
            _ => return Err(RequestError::Refused(libc::EINVAL)),
        };
        let offset = self.volume.seek(&inode, arguments.offset, what).await?;
        Ok(Reply::of(&LseekOut { offset }))
    }
}

fn regular(mode: u32) -> u16 {
    (libc::S_IFREG | mode & 0o7777) as u16
}

/// Checks flags of inodes, which the kernel does not know.
fn check_flags(inode: &Inode, open_flags: i32) -> Result<()> {
    let changes = open_flags & libc::O_ACCMODE != libc::O_RDONLY;
    let only_adds = open_flags & libc::O_APPEND != 0;
    if changes && (inode.has_flag(flags::IMMUTABLE) || inode.has_flag(flags::APPEND) && !only_adds)
    {
        return Err(RequestError::Refused(libc::EPERM));
    }
    Ok(())
}

/// Returns what a write through a descriptor of these flags, or with them, waits for.
fn sync_asked(flags: u32) -> Option<SyncWhat> {
    let (data, all) = (libc::O_DSYNC as u32, libc::O_SYNC as u32);
    match flags {
        flags if flags & all == all => Some(SyncWhat::All),
        flags if flags & data != 0 => Some(SyncWhat::Data),
        _ => None,
    }
}

/// Returns whether reads and writes past the page cache suit a descriptor of these flags. O_SYNC
/// contains the bit of O_DSYNC.
fn is_direct(flags: u32) -> bool {
    let synchronous = if units::fault!("synchronous-write-split") { 0 } else { libc::O_DSYNC };
    flags & (synchronous | libc::O_DIRECT) as u32 != 0
}

/// Bits of a handle above those of flags: how its descriptor was opened.
const DIRECT: u64 = 1 << 32;
const EMPTIED: u64 = 1 << 33;

/// Replies to an open. No other client changes the volume, so cached data stay valid.
fn opened(flags: u32, access: PageAccess) -> OpenOut {
    let (open_flags, kind) = match access {
        PageAccess::Direct => (fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES, DIRECT),
        PageAccess::Cached => (fopen::KEEP_CACHE, 0),
        PageAccess::Emptied => (0, EMPTIED),
    };
    // A copy to the descriptor, and an ioctl of it, pass its handle and not its flags.
    let reported = (libc::O_SYNC | libc::O_ACCMODE) as u32;
    OpenOut { fh: u64::from(flags & reported) | kind, open_flags, ..Default::default() }
}

fn access_of(handle: u64) -> PageAccess {
    match handle {
        handle if handle & DIRECT != 0 => PageAccess::Direct,
        handle if handle & EMPTIED != 0 => PageAccess::Emptied,
        _ => PageAccess::Cached,
    }
}

/// Returns whether a descriptor can be mapped shared and for writing.
fn is_mappable(flags: u32) -> bool {
    flags as i32 & libc::O_ACCMODE == libc::O_RDWR
}

/// Returns whether the descriptor of this handle was opened for writing.
pub(super) fn is_writable(handle: u64) -> bool {
    matches!(handle as i32 & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
}

fn origin_of(write_flags: u32) -> WriteOrigin {
    match write_flags {
        flags if flags & abi::write::CACHE != 0 => WriteOrigin::WriteBack,
        flags if flags & abi::write::LOCK_OWNER != 0 => WriteOrigin::PastCache,
        _ => WriteOrigin::ThroughCache,
    }
}

fn reply_content(content: Content) -> Reply {
    let length = content.len();
    let is_data = |piece: &Piece| matches!(piece, Piece::Bytes { .. });
    if length > COPIED_MAX
        && content.pieces.len() <= SLICES_MAX
        && content.pieces.iter().all(is_data)
    {
        let slice = |piece| match piece {
            Piece::Bytes { buffer, range } => Slice { buffer, range },
            Piece::Zeros(_) => unreachable!("all are data"),
        };
        return Reply::slices(content.pieces.into_iter().map(slice).collect());
    }
    let mut reply = Reply::with_capacity(length);
    for piece in &content.pieces {
        match piece {
            Piece::Bytes { buffer, range } => reply.append_bytes(&buffer[range.clone()]),
            Piece::Zeros(count) => reply.append_zeros(*count),
        }
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Buffer;

    #[test]
    fn synchronous_and_direct_descriptors_bypass_the_page_cache() {
        for flag in [libc::O_SYNC, libc::O_DSYNC, libc::O_DIRECT] {
            assert!(is_direct((libc::O_RDWR | flag) as u32));
        }
        assert!(!is_direct((libc::O_RDWR | libc::O_APPEND) as u32));
    }

    #[test]
    fn a_handle_keeps_how_its_descriptor_was_opened() {
        for access in [PageAccess::Direct, PageAccess::Cached, PageAccess::Emptied] {
            let OpenOut { fh, open_flags, .. } =
                opened((libc::O_RDWR | libc::O_SYNC) as u32, access);
            assert_eq!((access_of(fh), is_writable(fh)), (access, true));
            assert_eq!(open_flags & fopen::DIRECT_IO != 0, access == PageAccess::Direct);
            assert_eq!(open_flags & fopen::KEEP_CACHE != 0, access == PageAccess::Cached);
            assert_eq!(sync_asked(fh as u32), Some(SyncWhat::All));
        }
    }

    #[test]
    fn content_arrives_whole_whatever_its_pieces_are() {
        let mut buffer = Buffer::zeroed(32 << 10);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let bytes = |range| Piece::Bytes { buffer: Rc::new(buffer.clone()), range };
        for pieces in [
            vec![],
            vec![bytes(1..5)],
            vec![bytes(0..32 << 10), bytes(7..9)],
            vec![bytes(0..32 << 10), Piece::Zeros(5), bytes(0..2)],
            (0..1024).map(|at| bytes(at..at + 30)).collect(),
        ] {
            let content = Content { pieces };
            let expected = content.to_vec();
            assert!(reply_content(content).payload() == expected);
        }
    }
}
