//! The content and the attributes of files: the calls of the front ends. Every function takes the
//! inode's lock itself, except those called `..._locked`.

mod address;
mod allocate;
mod attributes;
mod inline;
mod kernel_pages;
mod layout;
mod plan;
mod read;
mod sync;
mod truncate;
mod user_flags;
mod write;

pub use allocate::FileRange;
pub(crate) use kernel_pages::PAGE_MAX;
pub use kernel_pages::{KernelPages, PageAccess};
pub use sync::SyncWhat;
pub use write::WriteData;

use crate::{Inode, MappingState, Result, Volume};
use device::Buffer;
use engine::{Base, FileUpdate, Handle};
use format::ext4::{feature, inode::flags};
use std::rc::Rc;
use units::Refusal;
use units::{BlockRange, FileBlock, InodeNumber, Timestamp, TransactionId};

const S_IFCHR: u16 = 0x2000;
const S_IFDIR: u16 = 0x4000;
const S_IFBLK: u16 = 0x6000;
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// A piece of a file's content, shared with the block cache.
#[derive(Clone, Debug)]
pub enum Piece {
    Zeros(usize),
    Bytes { buffer: Rc<Buffer>, range: std::ops::Range<usize> },
}

/// Result of a read, in order. Shorter than requested at the file's end.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub pieces: Vec<Piece>,
}

impl Content {
    pub fn len(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Zeros(length) => *length,
            Piece::Bytes { range, .. } => range.len(),
        };
        self.pieces.iter().map(length).sum()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for piece in &self.pieces {
            match piece {
                Piece::Zeros(length) => bytes.resize(bytes.len() + length, 0),
                Piece::Bytes { buffer, range } => bytes.extend_from_slice(&buffer[range.clone()]),
            }
        }
        bytes
    }
}

/// Set-id bits that a change of a file takes away (Linux: `setattr_should_drop_suidgid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KillPrivileges {
    #[default]
    No,
    /// Set-user-id, and set-group-id where the group may execute. The caller belongs to the file's
    /// group, or may set the bits.
    ByMember,
    /// Set-user-id and set-group-id.
    ByStranger,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// Write at the file's end, and ignore the offset.
    pub append: bool,
    /// Set-id bits to clear (FUSE: `FUSE_WRITE_KILL_SUIDGID`).
    pub kill_privileges: KillPrivileges,
    /// Decides whether file capabilities are cleared: by every write, but not by the write-back of
    /// a mapping, of which the writer is unknown.
    pub origin: WriteOrigin,
}

/// Relation of a write to the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteOrigin {
    /// A write(2) whose bytes are in the cache as well.
    #[default]
    ThroughCache,
    /// A write(2) that the cache knows nothing of.
    PastCache,
    /// Pages of the cache that were changed through a mapping. Permission was checked when the
    /// mapping was made.
    WriteBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes; fewer than given when space or the largest file size ran out on the way.
    pub count: usize,
    /// The last transaction that has a part of the write.
    pub transaction: TransactionId,
}

/// Operation of `fallocate` on a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeMode {
    Allocate,
    PunchHole,
    Zero,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekWhat {
    Data,
    Hole,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits; the file type is kept.
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
    pub changed: Option<SetTime>,
    /// Set-id bits to clear as a write does, and capabilities with them (FUSE:
    /// `FATTR_KILL_SUIDGID`).
    pub kill_privileges: KillPrivileges,
    /// Clear the set-group-id bit of a new mode: the caller is neither privileged nor in the file's
    /// group.
    pub clear_set_group: bool,
}

/// The attributes that `stat` and `statx` report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub inode: InodeNumber,
    pub generation: u32,
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Linux `dev_t` as encoded by the kernel's `new_encode_dev`; 0 unless a device node.
    pub device: u32,
    pub size: u64,
    /// 512-byte units.
    pub sectors: u64,
    pub block_size: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// ext4 inode flags (`format::ext4::inode::flags`), for statx attributes.
    pub flags: u32,
    pub version: u64,
}

impl Volume {
    /// The attributes that `stat` reports.
    pub fn getattr(&self, inode: &Inode) -> Attributes {
        let fields = inode.fields.borrow();
        Attributes {
            inode: inode.number,
            generation: fields.generation,
            mode: fields.mode,
            links: fields.links.into(),
            uid: fields.uid,
            gid: fields.gid,
            device: device_of(&fields),
            size: fields.size,
            sectors: fields.sectors,
            block_size: self.block_size().bytes() as u32,
            accessed: fields.accessed,
            modified: fields.modified,
            changed: fields.changed,
            created: fields.created,
            flags: fields.flags,
            version: fields.version,
        }
    }

    /// First byte that a file of this kind cannot have.
    pub(crate) fn file_size_max(&self, inode: &Inode) -> u64 {
        self.file_size_max_of(self.file_blocks_max(inode))
    }

    /// First byte that no file of the volume can have (Linux: `s_maxbytes`).
    pub(crate) fn volume_file_size_max(&self) -> u64 {
        self.file_size_max_of((1 << 32) - 1)
    }

    /// Size limit as far as `blocks` that an inode can map, and its fields, allow.
    fn file_size_max_of(&self, blocks: u64) -> u64 {
        let mapped = blocks << self.block_size().shift();
        // Without huge_file an inode counts its space in 32 bits of 512-byte sectors, its own
        // blocks included; an eighth of that covers any tree.
        let counted = if self.has(feature::HUGE_FILE) { u64::MAX } else { (1 << 32) * 512 / 8 * 7 };
        let sized = if self.has(feature::LARGE_FILE) { i64::MAX as u64 } else { (1 << 31) - 1 };
        mapped.min(counted).min(sized)
    }

    fn block_of(&self, byte: u64) -> FileBlock {
        FileBlock((byte >> self.block_size().shift()) as u32)
    }
    /// Offset of a byte in its block.
    fn place_of(&self, byte: u64) -> u32 {
        (byte & (self.block_size().bytes() as u64 - 1)) as u32
    }

    /// Zeros the bytes `from .. to`, which lie in one block, if that block is written.
    async fn zero_part(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let mapping = self.map(inode, self.block_of(from), 1).await?;
        let MappingState::Written(home) = mapping.state else { return Ok(()) };
        if units::fault!("tail-not-zeroed") {
            return Ok(());
        }
        let start = self.place_of(from);
        let range = BlockRange::new(start, start + (to - from) as u32);
        let zeros = Buffer::zeroed(self.block_size().bytes());
        let update = FileUpdate {
            owner: inode.number.into(),
            home,
            range,
            bytes: &zeros[..range.len()],
            base: Base::Home,
            request: range.len() as u64,
            sequential: false,
            // The end of the file may move over it with this very handle.
            in_place: false,
            durable_only: self.is_durable_only(inode),
        };
        handle.write_file_data(update).await?;
        inode.last_data_change.set(handle.transaction());
        Ok(())
    }

    /// Zeros the bytes behind the end of the file in its last block, `to` at most. Callers that
    /// move the end of the file further than they write call this, so that no stale byte becomes
    /// visible.
    async fn zero_behind_end(&self, handle: &mut Handle, inode: &Inode, to: u64) -> Result<()> {
        let size = inode.fields.borrow().size;
        if self.place_of(size) == 0 || size >= to {
            return Ok(());
        }
        let block_end = (size | (self.block_size().bytes() as u64 - 1)) + 1;
        Box::pin(self.zero_part(handle, inode, size, block_end.min(to))).await
    }

    /// Notes that content begins or ends at `at` in a page that the kernel may hold: it puts zeros
    /// into the rest of that page itself. A page within one block has no other block's holes.
    fn note_cut(&self, inode: &Inode, at: u64) {
        if self.kernel_page.get() > self.block_size().bytes() as u64 {
            inode.pages.cut_at(at, self.kernel_page.get());
        }
    }

    /// Whether there are set-id bits, or may be capabilities.
    fn may_have_privileges(&self, inode: &Inode) -> bool {
        has_set_id_bits(inode) || may_have_capabilities(inode)
    }
}

/// Fails unless the inode is a regular file that may be changed. `append`: only added to.
fn check_changeable(inode: &Inode, append: bool) -> Result<()> {
    if inode.is_directory() {
        return Err(Refusal::IsDirectory.into());
    }
    if !inode.is_regular() {
        return Err(Refusal::Invalid.into());
    }
    if inode.has_flag(flags::IMMUTABLE) || (inode.has_flag(flags::APPEND) && !append) {
        return Err(Refusal::NotPermitted.into());
    }
    Ok(())
}

fn has_set_id_bits(inode: &Inode) -> bool {
    inode.fields.borrow().mode & (S_ISUID | S_ISGID) != 0
}

/// Whether the inode may have capabilities. Called for every write: the attributes, and whether
/// there are any, are looked at only once.
fn may_have_capabilities(inode: &Inode) -> bool {
    if inode.has_no_capabilities.get() {
        return false;
    }
    let fields = inode.fields.borrow();
    let has_attributes = fields.xattr_block.get() != 0 || !is_zeros(&fields.xattr_area);
    // Until some are stored.
    inode.has_no_capabilities.set(!has_attributes);
    has_attributes
}

/// Whether all bytes are zero. Looks at all of them, many at a time.
fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// Clears the set-id bits that a change by this kind of caller takes away. Directories keep theirs.
fn clear_set_id_bits(inode: &Inode, kill: KillPrivileges) {
    let mut fields = inode.fields.borrow_mut();
    if fields.mode & 0xf000 == S_IFDIR || kill == KillPrivileges::No {
        return;
    }
    let takes_group = fields.mode & S_IXGRP != 0
        || kill == KillPrivileges::ByStranger && !units::fault!("set-gid-kept");
    fields.mode &= if takes_group { !(S_ISUID | S_ISGID) } else { !S_ISUID };
}

/// The device number: old inodes keep 16 bits in the first word, others 32 bits in the second. Both
/// read the same in the kernel's new encoding.
fn device_of(fields: &format::ext4::RawInode) -> u32 {
    if !matches!(fields.mode & 0xf000, S_IFCHR | S_IFBLK) {
        return 0;
    }
    let word = |at: usize| {
        fields.block.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    match word(0) {
        0 => word(4),
        old => old & 0xffff,
    }
}
