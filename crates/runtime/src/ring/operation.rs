use super::Ring;
use super::slots::{Owned, Waiter};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation in flight. Dropping it early is harmless: the slot then waits for the completion
/// alone.
pub(super) struct Operation {
    pub ring: Ring,
    /// Slot of the operation; `None` once the result has been returned.
    pub index: Option<u32>,
}

impl Future for Operation {
    type Output = (i32, Owned);
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(i32, Owned)> {
        let index = self.index.expect("a finished operation is not polled again");
        let ring = self.ring.clone();
        let mut slots = ring.0.slots.borrow_mut();
        match &mut slots.get(index).waiter {
            Waiter::Done(result) => {
                let result = *result;
                self.index = None;
                Poll::Ready((result, slots.remove(index).owned))
            }
            Waiter::Task(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            Waiter::Nobody { .. } | Waiter::Stream { .. } => unreachable!("a future's slot"),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut slots = self.ring.0.slots.borrow_mut();
        let slot = slots.get(index);
        let finished = match slot.waiter {
            Waiter::Done(_) => Some(slots.remove(index)),
            _ => {
                slot.waiter = Waiter::Nobody { counted: false };
                None
            }
        };
        drop(slots);
        drop(finished);
    }
}
