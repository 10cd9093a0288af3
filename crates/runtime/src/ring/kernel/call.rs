//! Calls: what an operation asks of the kernel, whoever hands it over.

use device::Durability;
use io_uring::squeue::Entry128;
use std::os::fd::RawFd;

/// Linux transfers at most this much in one call (MAX_RW_COUNT, rounded down).
pub(in crate::ring) const LENGTH_MAX: usize = 0x7fff_0000;

/// Bytes to write. They are heap memory that the operation's slot owns.
#[derive(Clone, Copy)]
pub(in crate::ring) enum Source {
    /// At most [`LENGTH_MAX`].
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
    /// Of a block device.
    Discard {
        file: RawFd,
        at: u64,
        length: u64,
    },
    /// A read of something without positions, which waits until there is something.
    Receive {
        file: RawFd,
        start: *mut u8,
        length: u32,
    },
    /// A send to a stream socket, which waits for room there.
    Send {
        file: RawFd,
        start: *const u8,
        length: u32,
    },
    /// A write of one message to something without positions, which takes it at once.
    Message {
        file: RawFd,
        source: Source,
    },
    /// Completes again and again.
    Poll {
        file: RawFd,
        mask: i16,
    },
    /// Ends another operation early; has no completion of its own.
    Cancel {
        user_data: u64,
    },
    /// What only a ring understands.
    Raw(Entry128),
}

/// Result of an operation, or one of several.
#[derive(Clone, Copy)]
pub(in crate::ring) struct Completion {
    pub user_data: u64,
    /// Negative: an errno.
    pub result: i32,
    /// Others follow.
    pub more: bool,
}

impl Completion {
    pub fn last(user_data: u64, result: i32) -> Completion {
        Completion { user_data, result, more: false }
    }
}
