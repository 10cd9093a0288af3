//! Transport of operations to the kernel: a ring, or threads and epoll in its place.

mod aio;
mod call;
mod classic;
mod refusal;
mod threads;
mod uring;
mod watches;

pub(super) use call::{Call, Completion, LENGTH_MAX, Source};
pub use refusal::{IoChoice, NoRing, RingRefusal};
pub(super) use uring::command_to;

use classic::Classic;
use std::io;
use std::time::{Duration, Instant};
use uring::Uring;

#[allow(clippy::large_enum_variant, reason = "there is one for each world")]
pub(super) enum Kernel {
    Uring(Uring),
    Classic(Classic),
}

impl Kernel {
    /// Creates the transport, with the reason why there is no ring, if there is none.
    pub fn new(choice: IoChoice) -> io::Result<(Kernel, Option<NoRing>)> {
        if choice == IoChoice::Classic {
            return Ok((Kernel::Classic(Classic::new()?), Some(NoRing::NotWanted)));
        }
        match Uring::new() {
            Ok(uring) => Ok((Kernel::Uring(uring), None)),
            Err(error) if choice == IoChoice::Ring => Err(error),
            Err(error) => {
                let Some(refusal) = RingRefusal::of(&error) else { return Err(error) };
                Ok((Kernel::Classic(Classic::new()?), Some(NoRing::Refused(refusal))))
            }
        }
    }

    pub fn has_completions(&mut self) -> bool {
        match self {
            Kernel::Uring(uring) => uring.has_completions(),
            Kernel::Classic(classic) => classic.has_completions(),
        }
    }

    /// Fetches completions that [`Kernel::has_completions`] cannot show yet, without waiting.
    /// Returns whether there were any.
    pub fn find_deferred(&mut self) -> io::Result<bool> {
        match self {
            Kernel::Uring(uring) => uring.find_deferred(),
            Kernel::Classic(classic) => classic.find_events(),
        }
    }

    /// Whether there is anything to submit or to fetch.
    pub fn has_pending(&mut self) -> bool {
        match self {
            Kernel::Uring(uring) => uring.has_pending(),
            Kernel::Classic(_) => true,
        }
    }

    /// Submits, and takes available completions.
    pub fn look(&mut self) -> io::Result<()> {
        match self {
            Kernel::Uring(uring) => uring.look(),
            Kernel::Classic(classic) => classic.look(),
        }
    }

    /// Submits, and waits for a completion, for at most `limit` (else ETIME).
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Kernel::Uring(uring) => uring.wait(limit),
            Kernel::Classic(classic) => classic.wait(limit),
        }
    }

    pub fn collect(&mut self, arrived: &mut Vec<Completion>) {
        match self {
            Kernel::Uring(uring) => uring.collect(arrived),
            Kernel::Classic(classic) => classic.collect(arrived),
        }
    }

    /// Cancels `running` operations where possible and waits for the rest until `deadline`. Returns
    /// whether none is left.
    pub fn end(&mut self, running: usize, deadline: Instant) -> bool {
        match self {
            Kernel::Uring(uring) => uring.end(running, deadline),
            Kernel::Classic(classic) => classic.end(deadline),
        }
    }
}

/// Whether a failed look or wait is to be repeated: interrupted, timed out, or out of resources for
/// now.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}
