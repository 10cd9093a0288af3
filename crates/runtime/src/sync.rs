//! Waiting for one another on one thread: no atomics, first come first served, deterministic.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A condition that changes: waiters look again whenever [`Event::notify`] is called.
#[derive(Default)]
pub struct Event {
    waiters: RefCell<Vec<Waker>>,
}

impl Event {
    /// Wakes all that wait now.
    pub fn notify(&self) {
        for waker in self.waiters.take() {
            waker.wake();
        }
    }
    /// Waits until `ready` gives a value; it is asked at once and after every [`Event::notify`].
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiters.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// Many readers or one writer; those who wait are served in the order they came, so nobody starves.
#[derive(Default)]
pub struct RwLock {
    /// Number of readers, or -1 for a writer.
    holders: Cell<isize>,
    queue: RefCell<VecDeque<(u64, bool, Waker)>>,
    tickets: Cell<u64>,
}

pub struct ReadGuard(Rc<RwLock>);
pub struct WriteGuard(Rc<RwLock>);

impl RwLock {
    pub async fn read(self: &Rc<Self>) -> ReadGuard {
        self.acquire(false).await;
        ReadGuard(self.clone())
    }
    pub async fn write(self: &Rc<Self>) -> WriteGuard {
        self.acquire(true).await;
        WriteGuard(self.clone())
    }

    async fn acquire(&self, exclusive: bool) {
        let mut waiting = Waiting { lock: self, ticket: None };
        poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            let first = match waiting.ticket {
                None => queue.is_empty(),
                Some(ticket) => queue.front().is_some_and(|(front, _, _)| *front == ticket),
            };
            let free = if exclusive { self.holders.get() == 0 } else { self.holders.get() >= 0 };
            if first && free {
                if waiting.ticket.take().is_some() {
                    queue.pop_front();
                }
                self.holders.set(if exclusive { -1 } else { self.holders.get() + 1 });
                // A reader lets the readers right behind it in as well.
                if !exclusive && let Some((_, false, waker)) = queue.front() {
                    waker.wake_by_ref();
                }
                return Poll::Ready(());
            }
            match waiting.ticket {
                None => {
                    let ticket = self.tickets.get();
                    self.tickets.set(ticket + 1);
                    queue.push_back((ticket, exclusive, context.waker().clone()));
                    waiting.ticket = Some(ticket);
                }
                Some(ticket) => {
                    if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == ticket) {
                        entry.2 = context.waker().clone();
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    fn wake_first(&self) {
        if let Some((_, _, waker)) = self.queue.borrow().front() {
            waker.wake_by_ref();
        }
    }
}

/// Leaves the queue when the waiting future is dropped.
struct Waiting<'a> {
    lock: &'a RwLock,
    ticket: Option<u64>,
}
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.lock.queue.borrow_mut().retain(|entry| entry.0 != ticket);
            self.lock.wake_first();
        }
    }
}
impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.0.holders.set(self.0.holders.get() - 1);
        self.0.wake_first();
    }
}
impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.holders.set(0);
        self.0.wake_first();
    }
}
