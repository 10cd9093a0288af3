//! A directory of CephFS as a [`store::Store`].
//!
//! libcephfs is loaded at run time, in a *helper process*. It has no asynchronous calls, so it
//! wants threads. It may crash (T4), which must not take the mount along. [`CephStore`] speaks to
//! the helper over a socket and starts it again. What is known to go wrong with the library is
//! numbered, and named where it is dealt with:
//!
//! - T1: a write or a change of attributes waits for ever while the token of its file is recalled
//!   (`helper/recalls`).
//! - T2: two histories of a file may reach the same version number (`library/mount`: what a version
//!   is made of).
//! - T3: attributes may reach the servers before the data that they tell of (`library/mount`: the
//!   settings).
//! - T4: calls after a lost connection may crash, and an fsync after a failed one says that all is
//!   well (`helper/serve`).
//! - T5: a client that died keeps others from its files *and* its directories until it is reset
//!   (`library/mount`: connect).
//! - T6: between a reset and the next opening anybody may have the file (`helper/tokens`:
//!   attributes are told after the grant).
//! - T7: a client that was excluded drops what it has buffered, and its next fsync says that all is
//!   well (`library/objects`).
//! - T8: when a file grows beyond half of the room that it got last, its attributes go to the
//!   servers amid the write. They are the new size, with number and time of the write before
//!   (`client/store`: held_below).
//! - T9: a sync of the whole file system says that all is well whatever went wrong with content,
//!   and no later fsync tells of it. So content goes before, file by file (`library/mount`:
//!   send_attributes).
//! - T10: a file without a name stays at the servers as long as a client that has closed it holds
//!   back its attributes (`helper/tokens`: discard).
//! - T11: others make a file longer while its end is read. Then the read may tell of the last piece
//!   alone, as if it were the first. Or it tells zeros for what is written meanwhile
//!   (`library/objects`: read).
//! - T12: size, time and number go to the servers with the library's own answer to a recall, before
//!   any content. An fsync sends both at once. A client that dies in between leaves zeros up to a
//!   size that it had not filled (`helper/gate`, `helper/tokens`: sync).
//! - T13: a read that meets the recall of what may be cached may wait for ever, for a right that it
//!   has (`helper/long_reads`).
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
/// For tests that send what nobody should.
#[doc(hidden)]
pub use wire::{
    FRAME_BYTES_MAX, Frames, Hello, HelperRequest, MalformedMessage, Numbered, Reply, Report,
    Welcome, frame,
};
