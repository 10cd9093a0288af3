//! Waits of jbd's commits for other synchronous writers to join (Linux 2.6.18, `journal_stop`). A
//! synchronous handle sleeps until the next tick of the clock, and again as long as the transaction
//! got more handles during the sleep. It does not sleep if the same process was the last to sync.
//!
//! Processes are not known here: the owner of what is synced, a file, stands for them.

use engine::CommitPacing;
use std::cell::Cell;
use std::time::Duration;
use units::{Instant, Owner};

#[derive(Default)]
pub(crate) struct Ticks {
    /// Length of a tick. Zero: no waits.
    length: Duration,
    /// Upper bound of a wait.
    longest: Duration,
    pub separates_barriers: bool,
    last_synced: Cell<Option<Owner>>,
    /// Time of the first request to commit the running transaction.
    asked: Cell<Option<Instant>>,
    /// Time at which the last handle joined it.
    joined: Cell<Instant>,
}

impl Ticks {
    pub fn new(length: Duration, longest: Duration) -> Ticks {
        Ticks { length, longest, ..Ticks::default() }
    }

    /// Returns the first tick after a moment.
    fn after(&self, moment: Instant) -> Instant {
        let length = self.length.as_nanos() as u64;
        Instant((moment.0 / length + 1) * length)
    }
}

impl CommitPacing for Ticks {
    fn synced(&self, owner: Owner, now: Instant) {
        // A sync joins with a handle of its own.
        self.joined.set(now);
        if self.last_synced.replace(Some(owner)) != Some(owner) && self.asked.get().is_none() {
            self.asked.set(Some(now));
        }
    }
    fn joined(&self, now: Instant) {
        self.joined.set(now);
    }
    fn locked(&self) {
        self.asked.set(None);
    }
    fn commits_every_sync(&self) -> bool {
        !self.length.is_zero()
    }
    fn separates_barriers(&self) -> bool {
        self.separates_barriers
    }

    fn wait_until(&self, now: Instant) -> Option<Instant> {
        if self.length.is_zero() {
            return None;
        }
        let (asked, joined) = (self.asked.get()?, self.joined.get());
        let quiet = match joined > asked {
            true => self.after(joined).plus(self.length),
            false => self.after(asked),
        };
        let until = quiet.min(asked.plus(self.longest));
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;
    fn ticks() -> Ticks {
        Ticks::new(Duration::from_nanos(TICK), Duration::from_secs(5))
    }

    #[test]
    fn a_writer_alone_waits_once_and_for_a_tick() {
        let ticks = ticks();
        ticks.synced(Owner(7), Instant(TICK / 2));
        assert_eq!(ticks.wait_until(Instant(TICK / 2)), Some(Instant(TICK)));
        assert_eq!(ticks.wait_until(Instant(TICK)), None);
        ticks.locked();
        ticks.synced(Owner(7), Instant(TICK * 2));
        assert_eq!(ticks.wait_until(Instant(TICK * 2)), None);
    }

    #[test]
    fn as_long_as_others_join_the_wait_goes_on() {
        let ticks = ticks();
        ticks.synced(Owner(7), Instant(1));
        ticks.joined(Instant(TICK - 1));
        assert_eq!(ticks.wait_until(Instant(TICK - 1)), Some(Instant(2 * TICK)));
        ticks.joined(Instant(TICK + 1));
        assert_eq!(ticks.wait_until(Instant(2 * TICK)), Some(Instant(3 * TICK)));
        assert_eq!(ticks.wait_until(Instant(3 * TICK)), None);
    }

    #[test]
    fn without_ticks_nobody_waits() {
        let ticks = Ticks::default();
        ticks.synced(Owner(7), Instant(1));
        assert_eq!(ticks.wait_until(Instant(1)), None);
    }
}
