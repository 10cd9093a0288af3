//! Advisory locks that programs take on files; they bind only programs that ask for locks.

use std::ops::Range;

/// The end of a range that goes to the greatest possible offset.
pub const LOCK_END: u64 = 1 << 63;

/// One of the two kinds of Linux locks, which do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// Ranges of bytes: fcntl(2).
    Bytes,
    /// The file as a whole: flock(2).
    Whole,
}

/// A program, or a descriptor, of this connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner {
    pub kind: LockKind,
    pub number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    Exclusive,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLock {
    pub owner: LockOwner,
    /// Mode of the lock; `None` if the owner releases the range.
    pub mode: Option<LockMode>,
    /// Bytes, not beyond [`LOCK_END`]; everything for [`LockKind::Whole`].
    pub range: Range<u64>,
}

impl FileLock {
    /// Creates the request that releases all locks of an owner.
    pub fn none_of(owner: LockOwner) -> FileLock {
        FileLock { owner, mode: None, range: 0..LOCK_END }
    }
    /// Returns whether the lock covers the whole file.
    pub fn is_whole(&self) -> bool {
        self.range == (0..LOCK_END)
    }
}
