use crate::{Reply, Request};
use std::rc::Rc;

/// A file system served by a session.
pub trait FileSystem: 'static {
    /// Whether locks of programs come as requests. Otherwise the kernel keeps them, and they bind
    /// this host alone.
    const REMOTE_LOCKS: bool = false;

    /// Serves one request; many run concurrently. The session handles INIT itself. Results of
    /// requests that want no reply (FORGET, BATCH_FORGET, INTERRUPT) are dropped.
    ///
    /// DESTROY comes last, when nothing else is in flight: reply when everything is written back,
    /// as umount(2) waits for it. A plain `fuse` mount ends without DESTROY; then only
    /// [`FileSystem::end`] is called.
    fn serve(self: Rc<Self>, request: Request) -> impl Future<Output = Reply>;

    /// Called when the kernel and the session have negotiated. With `over_ring`, a request that
    /// waits for long occupies one of few ring entries.
    fn started(&self, _over_ring: bool) {}
    /// Called when the caller of a request got a signal. The request is answered all the same, with
    /// EINTR if it waits for something that may never come.
    fn interrupt(&self, _unique: u64) {}
    /// Called when no request is taken any more: waiting for other requests is now in vain.
    fn stopping(&self) {}

    /// Called when the kernel has forgotten the file system and nothing is in flight, after DESTROY
    /// or instead of it.
    fn end(self: Rc<Self>) -> impl Future<Output = ()>;
}
