//! FUSE over io_uring (Linux 6.14).
//!
//! Each ring entry owns two buffers, named once by REGISTER. A request arrives as the completion of
//! the entry's last command. Its header is in `in_out`, its fixed structure in `op_in`, names and
//! data in the payload buffer. The reply goes the same way up: `OutHeader` in `in_out`, everything
//! else in the payload.

use super::wire;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `sqe.cmd_op`: gives an entry to the kernel.
pub const URING_REGISTER: u32 = 1;
/// `sqe.cmd_op`: replies to a request and waits for the next.
pub const URING_COMMIT_AND_FETCH: u32 = 2;

wire! {
    /// The first 24 of the 80 bytes of command area (`fuse_uring_cmd_req`).
    UringCommand = 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
    UringEntryInOut = 32 { flags: u64, commit_id: u64, payload_size: u32, padding: u32,
        reserved: u64 }
}

/// The header buffer of an entry (`fuse_uring_req_header`).
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
pub struct UringHeaders {
    pub in_out: [u8; 128],
    pub op_in: [u8; 128],
    pub entry: UringEntryInOut,
}
const _: () = assert!(size_of::<UringHeaders>() == 288);
