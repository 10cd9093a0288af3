//! A directory of CephFS as a [`store::Store`].
//!
//! libcephfs is loaded at run time, in a *helper process*. It has no asynchronous calls, so it
//! needs threads. It may crash (T4), which must not end the mount. [`CephStore`] talks to the
//! helper over a socket and restarts it. Known faults of the library are numbered, and named where
//! they are handled:
//!
//! - T1: a write or a change of attributes waits for ever while the token of its file is recalled
//!   (`helper/recalls`).
//! - T2: two histories of a file may reach the same version number (`library/mount`: what a version
//!   is made of).
//! - T3: attributes may reach the servers before the data that they describe (`library/mount`: the
//!   settings).
//! - T4: calls after a lost connection may crash, and an fsync after a failed one reports success
//!   (`helper/serve`).
//! - T5: a dead client keeps others from its files *and* its directories until it is reset
//!   (`library/mount`: connect).
//! - T6: between a reset and the next open any client may have the file (`helper/tokens`:
//!   attributes are read after the grant).
//! - T7: a client that was excluded drops its buffer, and its next fsync reports success
//!   (`library/objects`).
//! - T8: when a file grows beyond half of the size granted last, its attributes are sent to the
//!   servers during the write: the new size, with number and time of the write before
//!   (`client/store`: held_below).
//! - T9: a sync of the whole file system reports success whatever happened to content, and no later
//!   fsync reports it. So content is sent before, file by file (`library/mount`: send_attributes).
//! - T10: a file without a name stays at the servers as long as a client that has closed it holds
//!   back its attributes (`helper/tokens`: discard).
//! - T11: others extend a file while its end is read. Then the read may return the last piece
//!   alone, as if it were the first, or zeros for what is being written (`library/objects`: read).
//! - T12: size, time and number are sent to the servers with the library's own answer to a recall,
//!   before any content. An fsync sends both at once. A client that dies in between leaves zeros up
//!   to a size that it had not filled (`helper/gate`, `helper/tokens`: sync).
//! - T13: a read that meets the recall of what may be cached may wait for ever, for a right that it
//!   has (`helper/long_reads`).
//! - T14: a lost session is replaced without a word, and buffered attributes are dropped; a client
//!   that was excluded notices nothing if that ended before its next request (`library/session`).
//! - T15: a sync of a directory covers no renames out of it (`helper/files`: sync_names).
//! - T16: a pool that becomes full has the library drop what is buffered of its files, and their
//!   syncs succeed (`library/drop_detector`).
//!
//! Unsafe code is in `library` alone.
#![deny(unsafe_code)]

mod client;
mod helper;
#[allow(unsafe_code)]
mod library;
mod wire;

pub use client::{CephStore, Options};
pub use helper::run as run_helper;
/// Re-exported for tests that send invalid messages.
#[doc(hidden)]
pub use wire::{
    FRAME_BYTES_MAX, Frames, Hello, HelloReply, HelperReply, HelperRequest, MalformedMessage,
    Numbered, Report, WIRE_VERSION, frame,
};
