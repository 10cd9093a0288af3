//! The writers that a commit has answered. A next one that waits for them to come back is shared by
//! them.
//!
//! Without that wait they fall into two halves that commit in turns: twice the commits, half-filled
//! blocks.

use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// How long they are worth waiting for is for others to say.
#[derive(Default)]
pub struct Writers {
    /// Answered by the last commit, and not back yet.
    away: Cell<usize>,
    answered: Cell<Instant>,
}

impl Writers {
    pub fn answered(&self, count: usize, now: Instant) {
        self.away.set(count);
        self.answered.set(now);
    }
    /// One is back. True if he was the last.
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
    /// Nobody waits for them any longer.
    pub fn give_up(&self) {
        self.away.set(0);
    }
    /// Until when the commit that `waiting` others wait for stays open for those who are away:
    /// `time` behind the last answers. `None` if nobody waits, or nobody is away.
    pub fn hold(&self, waiting: usize, time: Duration) -> Option<Instant> {
        let is_worth = waiting > 0 && self.away.get() > 0;
        is_worth.then(|| self.answered.get().plus(time))
    }
}
