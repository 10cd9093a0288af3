//! The driver's side of a device: slots that requests arrive in.

use crate::abi::Descriptor;
use device::LocalFuture;
use std::io;

/// A queue of requests. Each slot holds one request at a time, from [`Queue::next`] until the next
/// call of it for the same slot.
pub trait Queue {
    /// Number of slots.
    fn depth(&self) -> u16;
    /// Answers the slot's request with `result` (bytes, or a negative errno; `None` where there
    /// was none), and waits for the next one. Both begin at the call, not when it is awaited.
    ///
    /// # Errors
    /// The device was removed: no request comes.
    fn next(&self, slot: u16, result: Option<i32>) -> LocalFuture<io::Result<Descriptor>>;
    /// Copies the data of the slot's write. Does not wait.
    ///
    /// # Errors
    /// The request has ended: the device was stopped.
    fn copy_from_request(&self, slot: u16, bytes: &mut [u8]) -> io::Result<()>;
    /// Copies data to the slot's read. Does not wait.
    ///
    /// # Errors
    /// As of [`Queue::copy_from_request`].
    fn copy_to_request(&self, slot: u16, bytes: &[u8]) -> io::Result<()>;
}
