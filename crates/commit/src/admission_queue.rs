//! A queue of callers that wait to start a handle, first come first served: a large change is not
//! starved by small ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Default)]
pub struct AdmissionQueue {
    queue: RefCell<VecDeque<(u64, Waker)>>,
    tickets: Cell<u64>,
}

impl AdmissionQueue {
    pub fn is_free(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Wakes the first in the queue, which looks again. Call it whenever a start may have become
    /// possible.
    pub fn wake_first(&self) {
        if let Some((_, waker)) = self.queue.borrow().front() {
            waker.wake_by_ref();
        }
    }

    /// Waits in order of arrival, and until `ready` gives a value.
    pub async fn enter<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut queued = Queued { queue: self, ticket: None };
        poll_fn(|context| {
            let first = match queued.ticket {
                None => self.is_free(),
                Some(ticket) => {
                    self.queue.borrow().front().is_some_and(|(front, _)| *front == ticket)
                }
            };
            if first {
                if let Some(value) = ready() {
                    return Poll::Ready(value);
                }
            }
            let mut queue = self.queue.borrow_mut();
            match queued.ticket {
                None => {
                    let ticket = self.tickets.get();
                    self.tickets.set(ticket + 1);
                    queue.push_back((ticket, context.waker().clone()));
                    queued.ticket = Some(ticket);
                }
                Some(ticket) => {
                    if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == ticket) {
                        entry.1.clone_from(context.waker());
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Leaves the queue when its owner has passed or has given up.
struct Queued<'a> {
    queue: &'a AdmissionQueue,
    ticket: Option<u64>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut queue = self.queue.queue.borrow_mut();
            match queue.front() {
                Some((front, _)) if *front == ticket => drop(queue.pop_front()),
                _ => queue.retain(|entry| entry.0 != ticket),
            }
            drop(queue);
            self.queue.wake_first();
        }
    }
}
