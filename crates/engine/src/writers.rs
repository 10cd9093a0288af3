//! The writers that a commit has answered, and how long the next one waits for them to come back.
//!
//! Without that wait the writers fall into two halves that commit in turns: twice the commits, half-filled blocks.

use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// With at most this many writers about, an answer of the disk is worth staying awake for.
const FEW_WRITERS: usize = 32;
/// How long a commit is held for writers on their way back: once, and for each of them. The time for each is
/// about what a writer costs the processors. So a group that comes back at once is not waited for in vain.
const HOLD: Duration = Duration::from_micros(100);
const HOLD_EACH: Duration = Duration::from_micros(5);

/// A moment to wait for, as long as nothing else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub until: Instant,
    pub few_writers: bool,
}

#[derive(Default)]
pub(crate) struct Writers {
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
    /// Nobody waits for them any longer.
    pub fn give_up(&self) {
        self.away.set(0);
    }
    /// Whether few enough are about to make staying awake for the disk worth while: `waiting` for a commit, or away.
    pub fn are_few(&self, waiting: usize) -> bool {
        waiting > 0 && waiting + self.away.get() <= FEW_WRITERS
    }
    /// Those who are away are worth a short wait: if they come back, they share the commit that `waiting` others wait for.
    pub fn hold(&self, waiting: usize) -> Option<Hold> {
        let away = self.away.get();
        if waiting == 0 || away == 0 {
            return None;
        }
        let until = self.answered.get().plus(HOLD + HOLD_EACH * away as u32);
        Some(Hold { until, few_writers: self.are_few(waiting) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_held_while_some_wait_and_some_are_away() {
        let writers = Writers::default();
        assert_eq!(writers.hold(5), None);
        writers.answered(3, Instant(9000));
        assert_eq!(writers.hold(0), None);
        assert!(!writers.came_back());
        let until = Instant(9000).plus(HOLD + HOLD_EACH * 2);
        assert_eq!(writers.hold(1), Some(Hold { until, few_writers: true }));
        assert_eq!(writers.hold(FEW_WRITERS), Some(Hold { until, few_writers: false }));
        assert!(!writers.came_back() && writers.came_back() && !writers.came_back());
        assert!(writers.are_back() && writers.hold(1).is_none());
    }

    #[test]
    fn whoever_stays_away_is_waited_for_once() {
        let writers = Writers::default();
        writers.answered(3, Instant(0));
        writers.give_up();
        assert!(writers.hold(1).is_none() && !writers.came_back());
    }
}
