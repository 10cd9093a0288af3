use crate::{Answer, Request};
use std::rc::Rc;

/// What stands behind the door.
pub trait FileSystem: 'static {
    /// Answers one request; many run at a time. The session keeps INIT to itself. For requests that
    /// want no answer (FORGET, BATCH_FORGET, INTERRUPT) the result is thrown away.
    ///
    /// DESTROY comes last, when nothing else is under way: answer when everything is home, as
    /// umount(2) waits for it. A plain `fuse` mount ends without; then [`FileSystem::end`] is all
    /// there is.
    fn serve(self: Rc<Self>, request: Request) -> impl Future<Output = Answer>;

    /// The kernel has forgotten the file system and nothing is under way. Comes after DESTROY or
    /// instead of it.
    fn end(self: Rc<Self>) -> impl Future<Output = ()>;
}
