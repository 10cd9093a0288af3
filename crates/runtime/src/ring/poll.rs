//! Repeated waits for a file to become readable, with one operation.

use super::kernel::Call;
use super::slots::{Owned, Slot, Waiter};
use super::{File, Ring};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::task::Poll;

/// A multishot poll. The kernel reports *changes*: after each event, read until EAGAIN.
pub struct PollStream {
    ring: Ring,
    file: File,
    mask: i16,
    index: Option<u32>,
}

impl Ring {
    /// Watches `file` for `mask` (`libc::POLLIN` and so on), until the stream is dropped.
    pub fn poll(&self, file: &File, mask: i16) -> PollStream {
        let mut stream = PollStream { ring: self.clone(), file: file.clone(), mask, index: None };
        stream.arm();
        stream
    }
}

impl PollStream {
    /// Returns the events seen since the last call, waiting for the first. An error (such as of a
    /// closed ring) ends the stream only when it comes again.
    pub async fn next(&mut self) -> io::Result<i16> {
        poll_fn(|context| {
            if self.index.is_none() {
                self.arm();
            }
            let index = self.index.expect("armed");
            let mut slots = self.ring.0.slots.borrow_mut();
            let Waiter::Stream { events, error, ended, waker } = &mut slots.get(index).waiter
            else {
                unreachable!("a stream's slot")
            };
            let (seen, failed, over) = (std::mem::take(events), std::mem::take(error), *ended);
            if seen == 0 && failed == 0 && !over {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            if over {
                // The kernel ends a multishot poll when completions pile up. The next call begins
                // anew, and checks the file's state first, so no event is lost.
                self.index = None;
                slots.remove(index);
            }
            match (seen, failed) {
                (0, 0) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                (0, failed) => Poll::Ready(Err(io::Error::from_raw_os_error(-failed))),
                (seen, _) => Poll::Ready(Ok(seen as i16)),
            }
        })
        .await
    }

    fn arm(&mut self) {
        let call = Call::Poll { file: self.file.as_raw_fd(), mask: self.mask };
        let waiter = Waiter::Stream { events: 0, error: 0, ended: false, waker: None };
        let slot =
            Slot { waiter, owned: Owned::Nothing, file: Some(self.file.clone()), guard: None };
        // SAFETY: a poll points to no memory, and the waiter is a stream.
        self.index = Some(unsafe { self.ring.enqueue(call, slot) });
    }
}

impl Drop for PollStream {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut slots = self.ring.0.slots.borrow_mut();
        let slot = slots.get(index);
        if matches!(slot.waiter, Waiter::Stream { ended: true, .. }) {
            let ended = slots.remove(index);
            drop(slots);
            drop(ended);
        } else {
            slot.waiter = Waiter::Nobody { counted: false };
            drop(slots);
            self.ring.cancel(index);
        }
    }
}
