use crate::{Answer, Request};
use std::rc::Rc;

/// What stands behind the door.
pub trait FileSystem: 'static {
    /// Locks of programs come as requests. Else the kernel keeps them: they bind this host alone.
    const SHARES_LOCKS: bool = false;

    /// Answers one request; many run at a time. The session keeps INIT to itself. For requests that
    /// want no answer (FORGET, BATCH_FORGET, INTERRUPT) the result is thrown away.
    ///
    /// DESTROY comes last, when nothing else is under way: answer when everything is home, as
    /// umount(2) waits for it. A plain `fuse` mount ends without; then [`FileSystem::end`] is all
    /// there is.
    fn serve(self: Rc<Self>, request: Request) -> impl Future<Output = Answer>;

    /// The kernel and the session have agreed. With `over_ring`, a request that waits for long
    /// keeps one of few places.
    fn begun(&self, _over_ring: bool) {}
    /// The caller of a request got a signal. The request is answered all the same, with EINTR if it
    /// waits for something that may never come.
    fn interrupt(&self, _unique: u64) {}
    /// No request is taken any more: what waits for other requests waits in vain.
    fn stopping(&self) {}

    /// The kernel has forgotten the file system and nothing is under way. Comes after DESTROY or
    /// instead of it.
    fn end(self: Rc<Self>) -> impl Future<Output = ()>;
}
