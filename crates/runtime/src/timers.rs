//! Timers of sleeping tasks. A dropped sleep leaves no trace, so that virtual time never leaps to a
//! timer without a sleeper.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;
use units::Instant;

/// A moment, and a number that orders sleepers of the same moment (first come, first woken).
pub type Ticket = (Instant, u64);

#[derive(Default)]
pub struct Timers {
    waiting: RefCell<BTreeMap<Ticket, Waker>>,
    count: Cell<u64>,
}

impl Timers {
    pub fn register(&self, at: Instant, ticket: &mut Option<Ticket>, waker: &Waker) {
        let key = *ticket.get_or_insert_with(|| {
            self.count.set(self.count.get() + 1);
            (at, self.count.get())
        });
        self.waiting.borrow_mut().insert(key, waker.clone());
    }
    pub fn cancel(&self, ticket: Ticket) {
        self.waiting.borrow_mut().remove(&ticket);
    }
    pub fn next(&self) -> Option<Instant> {
        self.waiting.borrow().first_key_value().map(|((at, _), _)| *at)
    }
    /// Removes the next sleeper whose moment is `now` or earlier.
    pub fn pop_due(&self, now: Instant) -> Option<Waker> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
