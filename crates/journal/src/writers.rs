//! Writers that the last commit has answered. A next commit that waits for them to come back is
//! shared by them.
//!
//! Without that wait they fall into two halves that commit in turns: twice the commits, half-filled
//! blocks.

use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Callers decide how long the writers are worth waiting for.
#[derive(Default)]
pub struct Writers {
    /// Writers that the last commit answered and that are not back yet.
    away: Cell<usize>,
    answered: Cell<Instant>,
}

impl Writers {
    pub fn answered(&self, count: usize, now: Instant) {
        self.away.set(count);
        self.answered.set(now);
    }
    /// Counts one writer as back. Returns whether it was the last.
    pub fn came_back(&self) -> bool {
        let Some(away) = self.away.get().checked_sub(1) else { return false };
        self.away.set(away);
        away == 0
    }
    pub fn are_back(&self) -> bool {
        self.away.get() == 0
    }
    pub fn away(&self) -> usize {
        self.away.get()
    }
    /// Stops waiting for them.
    pub fn give_up(&self) {
        self.away.set(0);
    }
    /// Returns until when a commit with `waiting` waiters stays open for writers that are away:
    /// `time` after the last replies. `None` if nobody waits, or nobody is away.
    pub fn hold(&self, waiting: usize, time: Duration) -> Option<Instant> {
        let is_worth = waiting > 0 && self.away.get() > 0;
        is_worth.then(|| self.answered.get().plus(time))
    }
}
