//! Bound on the requests and bytes in flight of clients. The next request is not read before there
//! is space.
//!
//! Invariants: all clients together hold at most [`POOL`] bytes and an allowance for each, which is
//! its own. So a client with large requests cannot keep others from requests of usual size. Waiters
//! for the pool are served in the order of arrival.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const REQUESTS_MAX: usize = 128;
const BYTES_MAX: usize = 64 << 20;
/// Bytes of each client's own allowance.
const ALLOWANCE: usize = 1 << 20;
/// Bytes that all clients share beyond that. The largest request fits.
const POOL: usize = 192 << 20;

/// The pool that the windows of all clients share.
#[derive(Default)]
pub struct Pool {
    bytes: Cell<usize>,
    tickets: Cell<u64>,
    waiting: RefCell<VecDeque<u64>>,
    changed: Event,
}

impl Pool {
    /// Whether a request waits for space that others hold.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.borrow().is_empty() && !units::fault!("nbd-stall-waited-for")
    }
}

pub struct Window {
    pool: Rc<Pool>,
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

/// Reservation for one request, until it is dropped.
pub struct Reservation(Rc<Window>, usize);

/// A place in the queue for the pool.
struct Queued<'a>(&'a Pool, u64);

impl Window {
    pub fn new(pool: &Rc<Pool>) -> Window {
        Window { pool: pool.clone(), requests: Cell::new(0), bytes: Cell::new(0) }
    }
    /// Waits for space for a request, whose size is bounded elsewhere. One task of a client calls
    /// it.
    pub async fn enter(self: &Rc<Self>, bytes: usize) -> Reservation {
        let fits = || {
            let requests = self.requests.get();
            let fits =
                requests == 0 || (requests < REQUESTS_MAX && self.bytes.get() + bytes <= BYTES_MAX);
            fits.then_some(())
        };
        self.pool.changed.until(fits).await;
        // Requests in flight may end during the wait: then it takes less of the pool.
        if self.taken_with(bytes) > self.taken_with(0) {
            let queued = Queued::last(&self.pool);
            let fits = || {
                let more = self.taken_with(bytes) - self.taken_with(0);
                (queued.is_first() && self.pool.bytes.get() + more <= POOL).then_some(())
            };
            self.pool.changed.until(fits).await;
        }
        self.change(self.requests.get() + 1, self.bytes.get() + bytes);
        Reservation(self.clone(), bytes)
    }
    /// Bytes taken of the pool, with `more` bytes of the client.
    fn taken_with(&self, more: usize) -> usize {
        (self.bytes.get() + more).saturating_sub(ALLOWANCE)
    }
    fn change(&self, requests: usize, bytes: usize) {
        let before = self.taken_with(0);
        self.requests.set(requests);
        self.bytes.set(bytes);
        self.pool.bytes.set(self.pool.bytes.get() + self.taken_with(0) - before);
    }
    /// Waits until no request is in flight.
    pub async fn empty(&self) {
        self.pool.changed.until(|| (self.requests.get() == 0).then_some(())).await
    }
}
impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.change(self.0.requests.get() - 1, self.0.bytes.get() - self.1);
        self.0.pool.changed.notify();
    }
}

impl Queued<'_> {
    fn last(pool: &Pool) -> Queued<'_> {
        let ticket = pool.tickets.get();
        pool.tickets.set(ticket + 1);
        pool.waiting.borrow_mut().push_back(ticket);
        Queued(pool, ticket)
    }
    fn is_first(&self) -> bool {
        self.0.waiting.borrow().front() == Some(&self.1)
    }
}
impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.waiting.borrow_mut().retain(|ticket| *ticket != self.1);
        self.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::VirtualWorld;
    use std::time::Duration;

    const CLIENTS: usize = 64;
    const LARGEST: usize = crate::request::PAYLOAD_MAX as usize;

    #[test]
    fn sixty_four_clients_hold_a_quarter_of_a_gigabyte_and_small_requests_go_on() {
        let world = VirtualWorld::new(5);
        let inner = world.clone();
        world.run(async move {
            let pool = Rc::new(Pool::default());
            let (held, done) = (Rc::new(Cell::new(0usize)), Rc::new(Cell::new(0)));
            for _ in 0..CLIENTS {
                let window = Rc::new(Window::new(&pool));
                let (held, done, world) = (held.clone(), done.clone(), inner.clone());
                inner.spawn(Box::pin(async move {
                    for _ in 0..4 {
                        let reservation = window.enter(LARGEST).await;
                        held.set(held.get() + LARGEST);
                        assert!(held.get() <= POOL + CLIENTS * ALLOWANCE, "{} bytes", held.get());
                        world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
                        held.set(held.get() - LARGEST);
                        drop(reservation);
                        done.set(done.get() + 1);
                    }
                }));
            }
            inner.sleep_until(inner.now().plus(Duration::from_millis(500))).await;
            let begin = inner.now();
            drop(Rc::new(Window::new(&pool)).enter(ALLOWANCE).await);
            assert_eq!(inner.now(), begin, "its own allowance is free");
            inner.sleep_until(begin.plus(Duration::from_secs(1000))).await;
            assert_eq!(
                (done.get(), held.get(), pool.bytes.get()),
                (4 * CLIENTS, 0, 0),
                "all came in"
            );
        });
    }
}
