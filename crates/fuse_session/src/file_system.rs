use crate::{Reply, Request};
use std::rc::Rc;

/// A file system served by a [`Session`](crate::Session).
///
/// The session calls these functions on its own thread. [`FileSystem::serve`] is the one that
/// every file system writes.
pub trait FileSystem: 'static {
    /// Whether locks of programs (fcntl(2), flock(2)) come as requests. Otherwise the kernel keeps
    /// them, and they bind this host alone.
    const REMOTE_LOCKS: bool = false;

    /// Whether requests that make a file carry the labels that a security module gives it
    /// ([`SecurityLabel`](crate::SecurityLabel)). The kernel does not set them afterwards.
    const SECURITY_LABELS: bool = false;

    /// Serves one request; many run concurrently, and replies may come in any order.
    ///
    /// The session handles INIT and INTERRUPT itself. Replies to requests that want none (FORGET,
    /// BATCH_FORGET) are dropped. `ENOSYS` for an operation makes the kernel do without it from
    /// then on, where it can. A request that waits for another one asks
    /// [`Request::begin_wait`] before.
    ///
    /// DESTROY comes last, when nothing else is in flight: reply when everything is written back,
    /// as umount(2) waits for it. A plain `fuse` mount ends without DESTROY; then only
    /// [`FileSystem::end`] is called.
    ///
    /// # Panics
    /// The session panics if the request outlives this call: the transport's memory may be lent to
    /// it.
    fn serve(self: Rc<Self>, request: Request) -> impl Future<Output = Reply>;

    /// Called when the caller of the request `unique` got a signal. The request is answered all the
    /// same, with EINTR if it waits for something that may never come. It may not have arrived yet.
    fn interrupt(&self, _unique: u64) {}
    /// Called when no request is taken any more: waiting for other requests is now in vain.
    fn stopping(&self) {}

    /// Called when the kernel has forgotten the file system and nothing is in flight, after DESTROY
    /// or instead of it. [`Session::serve`](crate::Session::serve) returns when this has ended.
    fn end(self: Rc<Self>) -> impl Future<Output = ()>;
}
