//! Signals to the callers of requests that wait.
//!
//! 1. Any signal ends a wait for a lock, as fcntl(2) says. A write ends early only if its caller is
//!    about to die: programs do not expect EINTR of a write to a file, and get signals all the
//!    time, from timers and from runtimes.
//! 2. The kernel reports the first signal to a caller, and no later one. So a caller that has got
//!    one is looked at again and again while its write waits.

use crate::privilege;
use host::{Host, Interrupt};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

/// Requests that wait for a lock hold memory of the session.
const LOCKS_MAX: usize = 1024;
/// Signals may be reported before their requests begin.
const EARLY_MAX: usize = 64;
/// Pause between two looks at a caller.
const LOOK: Duration = Duration::from_millis(100);

/// Requests of which signals are heard.
#[derive(Default)]
pub(super) struct WaitingRequests {
    by_request: RefCell<BTreeMap<u64, Rc<Interrupt>>>,
    locks: RefCell<BTreeMap<u64, Rc<Interrupt>>>,
    early: RefCell<VecDeque<u64>>,
    stopped: Cell<bool>,
}

/// The first signal to the caller of a request, for as long as that is served.
pub(super) struct Signal<'a> {
    waiting: &'a WaitingRequests,
    unique: u64,
    interrupt: Rc<Interrupt>,
}

impl Deref for Signal<'_> {
    type Target = Interrupt;
    fn deref(&self) -> &Interrupt {
        &self.interrupt
    }
}
impl Drop for Signal<'_> {
    fn drop(&mut self) {
        self.waiting.by_request.borrow_mut().remove(&self.unique);
        self.waiting.locks.borrow_mut().remove(&self.unique);
    }
}

impl Signal<'_> {
    /// Ends `work` when the caller is about to die.
    pub async fn end_if_killed(&self, host: &Host, caller: u32, work: &Interrupt) -> Infallible {
        self.until_set().await;
        while !privilege::is_dying(caller) {
            host.pause_for(LOOK).await;
        }
        work.set();
        std::future::pending().await
    }
}

impl WaitingRequests {
    pub fn interrupt(&self, unique: u64) {
        if let Some(waiting) = self.by_request.borrow().get(&unique) {
            return waiting.set();
        }
        let mut early = self.early.borrow_mut();
        // Most are of other operations, whose requests do not look here.
        early.push_back(unique);
        if early.len() > EARLY_MAX {
            early.pop_front();
        }
    }
    /// Ends all waits for locks, also later ones.
    pub fn stop_locks(&self) {
        self.stopped.set(true);
        self.locks.borrow().values().for_each(|waiting| waiting.set());
    }
    /// Begins to wait for a lock; `None` if too many requests do.
    pub fn begin_lock(&self, unique: u64) -> Option<Signal<'_>> {
        if self.locks.borrow().len() >= LOCKS_MAX {
            return None;
        }
        let signal = self.begin(unique);
        self.locks.borrow_mut().insert(unique, signal.interrupt.clone());
        if self.stopped.get() {
            signal.set();
        }
        Some(signal)
    }
    pub fn begin(&self, unique: u64) -> Signal<'_> {
        let interrupt = self.by_request.borrow_mut().entry(unique).or_default().clone();
        let mut early = self.early.borrow_mut();
        let came = early.iter().position(|&other| other == unique);
        if came.and_then(|at| early.remove(at)).is_some() {
            interrupt.set();
        }
        Signal { waiting: self, unique, interrupt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_first_ends_the_wait() {
        let waiting = WaitingRequests::default();
        waiting.interrupt(8);
        assert!(waiting.begin_lock(8).unwrap().is_set());
        let later = waiting.begin(10);
        assert!(!later.is_set());
        waiting.interrupt(10);
        assert!(later.is_set());
        drop(later);
        assert!(!waiting.begin(10).is_set(), "a signal to an earlier request");
        // Those of other requests, younger and older ones, stay for a while.
        (100..100 + 2 * EARLY_MAX as u64).for_each(|unique| waiting.interrupt(unique));
        waiting.interrupt(12);
        assert!(waiting.begin(12).is_set());
        let write = waiting.begin(14);
        let requests = 1000..1000 + 2 * LOCKS_MAX as u64;
        let begun: Vec<_> = requests.filter_map(|unique| waiting.begin_lock(unique)).collect();
        assert_eq!(begun.len(), LOCKS_MAX);
        waiting.stop_locks();
        assert!(begun.iter().all(|lock| lock.is_set()) && !write.is_set());
        drop(begun);
        assert!(waiting.begin_lock(16).unwrap().is_set());
    }
}
