//! Locks that programs take on files: they advise, and bind those who ask for locks.

use std::ops::Range;

/// The end of a range that goes as far as a file can.
pub const LOCK_END: u64 = 1 << 63;

/// Which of the two kinds of Linux. They do not see each other.
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
    /// Beside others that are shared.
    Shared,
    Exclusive,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLock {
    pub owner: LockOwner,
    /// `None`: the owner has no lock of the range any more.
    pub mode: Option<LockMode>,
    /// In bytes, not beyond [`LOCK_END`]. All of it for [`LockKind::Whole`].
    pub range: Range<u64>,
}

impl FileLock {
    /// That nothing is locked any more.
    pub fn none_of(owner: LockOwner) -> FileLock {
        FileLock { owner, mode: None, range: 0..LOCK_END }
    }
    /// Whether the whole file is meant.
    pub fn is_whole(&self) -> bool {
        self.range == (0..LOCK_END)
    }
}
