//! Calls: requests of operations to the kernel, independent of their transport.

use device::Durability;
use io_uring::squeue::Entry128;
use std::os::fd::RawFd;

/// Maximum number of bytes that Linux transfers in one call (MAX_RW_COUNT, rounded down).
pub(in crate::ring) const LENGTH_MAX: usize = 0x7fff_0000;

/// Bytes to write. They are heap memory that the operation's slot owns.
#[derive(Clone, Copy)]
pub(in crate::ring) enum Source {
    /// A single buffer of at most [`LENGTH_MAX`] bytes.
    One {
        start: *const u8,
        length: u32,
    },
    Many {
        vectors: *const libc::iovec,
        count: u32,
    },
}

/// One operation. Pointers lead to memory that its slot owns until its last completion, and `file`
/// is open until then.
pub(in crate::ring) enum Call {
    Read {
        file: RawFd,
        start: *mut u8,
        length: u32,
        at: u64,
    },
    Write {
        file: RawFd,
        source: Source,
        at: u64,
        durability: Durability,
    },
    SyncData {
        file: RawFd,
    },
    Allocate {
        file: RawFd,
        mode: i32,
        at: u64,
        length: u64,
    },
    /// Discard of a range of a block device.
    Discard {
        file: RawFd,
        at: u64,
        length: u64,
    },
    /// A read of something without positions, which waits until data is available.
    Receive {
        file: RawFd,
        start: *mut u8,
        length: u32,
    },
    /// A send to a stream socket, which waits for buffer space there.
    Send {
        file: RawFd,
        start: *const u8,
        length: u32,
    },
    /// A write of one message to something without positions, which accepts it at once.
    Message {
        file: RawFd,
        source: Source,
    },
    /// A poll, which completes again and again.
    Poll {
        file: RawFd,
        mask: i16,
    },
    /// Cancel of another operation; has no completion of its own.
    Cancel {
        user_data: u64,
    },
    /// A command that only a ring understands.
    Raw(Entry128),
}

/// Result of an operation, or one of several.
#[derive(Clone, Copy)]
pub(in crate::ring) struct Completion {
    pub user_data: u64,
    /// Result; negative: an errno.
    pub result: i32,
    /// Whether others follow.
    pub more: bool,
}

impl Completion {
    pub fn last(user_data: u64, result: i32) -> Completion {
        Completion { user_data, result, more: false }
    }
}
