//! Callbacks of the library, on its own threads.

use super::abi::{RawHandle, SnapshotInode};
use std::ffi::c_void;
use std::sync::OnceLock;

/// Receives the library's callbacks: the number that [`super::Handle::take_token`] was given; a
/// file that changed.
pub struct Listener {
    pub recalled: Box<dyn Fn(u64) + Send + Sync>,
    pub changed: Box<dyn Fn(u64) + Send + Sync>,
}
pub(super) static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Called by the library on its own thread, with its lock held.
pub(super) unsafe extern "C" fn recalled(_: *mut RawHandle, token: *mut c_void) {
    if let Some(listener) = LISTENER.get() {
        (listener.recalled)(token.addr() as u64);
    }
}
pub(super) unsafe extern "C" fn inode_changed(
    _: *mut c_void,
    inode: SnapshotInode,
    _: i64,
    _: i64,
) {
    if let Some(listener) = LISTENER.get() {
        (listener.changed)(inode.inode.value);
    }
}
