//! Synchronization of tasks on one thread: no atomics, first come first served, deterministic.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A condition that changes: waiters check again whenever [`Event::notify`] is called.
#[derive(Default)]
pub struct Event {
    waiters: RefCell<Vec<Option<Waker>>>,
    /// Number of times the list was emptied: shows a waiter whether its place in it is still its
    /// own.
    round: Cell<u64>,
}

impl Event {
    /// Wakes all that wait now.
    pub fn notify(&self) {
        self.round.set(self.round.get() + 1);
        for waker in self.waiters.take().into_iter().flatten() {
            waker.wake();
        }
    }
    /// Waits until `ready` returns a value; it is called at once, after every [`Event::notify`],
    /// and whenever the task wakes for another reason.
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut place = InRound { event: self, at: None };
        poll_fn(|context| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                place.wait(context.waker());
                Poll::Pending
            }
        })
        .await
    }
}

/// A waiter's place in the list of its round; freed when the waiting future is dropped.
struct InRound<'a> {
    event: &'a Event,
    at: Option<(u64, usize)>,
}
impl InRound<'_> {
    fn wait(&mut self, waker: &Waker) {
        let round = self.event.round.get();
        let mut waiters = self.event.waiters.borrow_mut();
        match self.at {
            Some((own, index)) if own == round => waiters[index] = Some(waker.clone()),
            _ => {
                self.at = Some((round, waiters.len()));
                waiters.push(Some(waker.clone()));
            }
        }
    }
}
impl Drop for InRound<'_> {
    fn drop(&mut self) {
        if let Some((round, index)) = self.at {
            if round == self.event.round.get() {
                let mut waiters = self.event.waiters.borrow_mut();
                waiters[index] = None;
                while waiters.last().is_some_and(Option::is_none) {
                    waiters.pop();
                }
            }
        }
    }
}

/// Lock for many readers or one writer; waiters are served in the order they came, so none starves.
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

    /// Whether a writer holds the lock now.
    pub fn is_written(&self) -> bool {
        self.holders.get() < 0
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
                // A reader admits the readers right behind it as well.
                if !exclusive {
                    if let Some((_, false, waker)) = queue.front() {
                        waker.wake_by_ref();
                    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Either, VirtualWorld, race, yield_now};
    use device::World;
    use units::Instant;

    /// Starts one task for each letter of `script`, in this order: `r` reads, `w` writes; each
    /// holds the lock for 10 ns. Returns how many held it at each moment, as seen by each task
    /// while it held it.
    fn run(script: &str, seed: u64) -> Vec<(usize, char, Instant)> {
        let world = VirtualWorld::new(seed);
        let lock = Rc::new(RwLock::default());
        let log = Rc::new(RefCell::new(Vec::new()));
        for (index, letter) in script.chars().enumerate() {
            let (world, lock, log) = (world.clone(), lock.clone(), log.clone());
            world.clone().spawn(Box::pin(async move {
                world.sleep_until(Instant(index as u64 + 1)).await;
                let guards = if letter == 'r' {
                    (Some(lock.read().await), None)
                } else {
                    (None, Some(lock.write().await))
                };
                log.borrow_mut().push((index, letter, world.now()));
                world.sleep_until(Instant(world.now().0 + 100)).await;
                drop(guards);
            }));
        }
        let inner = world.clone();
        world.run(async move { inner.sleep_until(Instant(100_000)).await });
        log.take()
    }

    #[test]
    fn readers_share_writers_do_not_and_nobody_overtakes() {
        for seed in 0..20 {
            let order = run("rrwrrw", seed);
            let times: Vec<u64> = order.iter().map(|(_, _, at)| at.0).collect();
            assert_eq!(times, [1, 2, 102, 202, 202, 302], "seed {seed}: {order:?}");
            let letters: String = order.iter().map(|(_, letter, _)| *letter).collect();
            assert_eq!(letters, "rrwrrw", "seed {seed}");
        }
    }
    #[test]
    fn a_waiter_that_gives_up_does_not_block_those_behind_it() {
        for seed in 0..20 {
            let world = VirtualWorld::new(seed);
            let lock = Rc::new(RwLock::default());
            let (inner, shared) = (world.clone(), lock.clone());
            world.run(async move {
                let first = shared.read().await;
                let (sleep, writer) = (inner.sleep_until(Instant(50)), shared.clone());
                inner.spawn(Box::pin(async move {
                    let gave_up = race(sleep, writer.write()).await;
                    assert!(matches!(gave_up, Either::Left(())));
                }));
                yield_now().await;
                inner.sleep_until(Instant(10)).await;
                drop(shared.read().await);
                assert_eq!(inner.now(), Instant(50));
                drop(first);
                drop(shared.write().await);
            });
        }
    }
    #[test]
    fn notify_wakes_all_who_wait() {
        let world = VirtualWorld::new(3);
        let (event, count) = (Rc::new(Event::default()), Rc::new(Cell::new(0)));
        let done = Rc::new(Cell::new(0));
        for wanted in 1..=3 {
            let (event, count, done) = (event.clone(), count.clone(), done.clone());
            world.spawn(Box::pin(async move {
                event.until(|| (count.get() >= wanted).then_some(())).await;
                done.set(done.get() + 1);
            }));
        }
        let inner = world.clone();
        world.run(async move {
            for round in 0..=3 {
                count.set(round);
                event.notify();
                inner.sleep_until(inner.now().plus(std::time::Duration::from_nanos(1))).await;
                assert_eq!(done.get(), round);
            }
        });
    }
    #[test]
    fn waiters_that_give_up_leave_nothing_behind() {
        let world = VirtualWorld::new(3);
        let event = Rc::new(Event::default());
        let shared = event.clone();
        world.run(async move {
            for _ in 0..100 {
                race(shared.until(|| None::<()>), yield_now()).await;
            }
        });
        assert!(event.waiters.borrow().is_empty());
    }
}
