//! The content and the attributes of files: what doors call. Every function takes the inode's lock itself,
//! except those called `..._locked`.

use crate::{Caller, Error, Inode, Volume};
use device::Buffer;
use std::rc::Rc;
use units::{InodeNumber, Timestamp, TransactionId};

/// A piece of a file's content, shared with the block cache.
#[derive(Clone, Debug)]
pub enum Piece {
    Zeros(usize),
    Bytes { buffer: Rc<Buffer>, range: std::ops::Range<usize> },
}

/// What a read found, in order. Shorter than asked for at the file's end.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// Write at the file's end, whatever offset was given.
    pub append: bool,
    /// Clear set-id bits and file capabilities (FUSE: `FUSE_WRITE_KILL_SUIDGID`).
    pub kill_privileges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes; fewer than given when space or the largest file size ran out on the way.
    pub count: usize,
    /// The last transaction that has a part of the write.
    pub transaction: TransactionId,
}

/// What `fallocate` does to a range.
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

/// What is to change; `None` leaves as is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits; the file type stays.
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
    pub changed: Option<SetTime>,
    /// Clear set-id bits (and capabilities) as a write does (FUSE: `FATTR_KILL_SUIDGID`).
    pub kill_privileges: bool,
    /// Clear the set-group-id bit of a new mode: the caller is neither privileged nor in the file's group.
    pub clear_set_group: bool,
}

/// Everything that `stat` and `statx` tell.
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
    /// Up to `length` bytes from `offset` on. Holes and unwritten blocks read as zeros.
    pub async fn read(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        length: usize,
    ) -> Result<Content, Error> {
        let _ = (inode, offset, length);
        todo!()
    }
    pub async fn write(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<Written, Error> {
        let _ = (inode, caller, offset, bytes, flags);
        todo!()
    }
    pub async fn truncate(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> Result<TransactionId, Error> {
        let _ = (inode, size);
        todo!()
    }
    /// Frees all blocks of an inode that is on the orphan list, before the inode itself is freed. The caller
    /// holds the lock, or is the last that knows the inode.
    pub async fn truncate_all_locked(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<(), Error> {
        let _ = inode;
        todo!()
    }
    pub async fn fallocate(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        mode: RangeMode,
        keep_size: bool,
        offset: u64,
        length: u64,
    ) -> Result<TransactionId, Error> {
        let _ = (inode, mode, keep_size, offset, length);
        todo!()
    }
    /// `ENXIO` when there is none.
    pub async fn seek(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, what: SeekWhat) -> Result<u64, Error> {
        let _ = (inode, offset, what);
        todo!()
    }
    /// Makes the file durable; `data_only` leaves out what reading it back does not need (`fdatasync`).
    pub async fn fsync(self: &Rc<Self>, inode: &Rc<Inode>, data_only: bool) -> Result<(), Error> {
        let _ = (inode, data_only);
        todo!()
    }
    pub async fn setattr(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller,
        change: SetAttributes,
    ) -> Result<Attributes, Error> {
        let _ = (inode, caller, change);
        todo!()
    }
    pub fn getattr(&self, inode: &Inode) -> Attributes {
        let _ = inode;
        todo!()
    }
}
