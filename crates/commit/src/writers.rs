//! Time that a commit waits for the writers that the last one answered. If they come back soon,
//! they share it.
//!
//! Without that wait they fall into two halves that commit in turns: twice the commits, half-filled
//! blocks, and a writer that comes back just after a commit was issued waits for all of it. A
//! writer is waited for once, and a single writer waits for nobody.

use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Maximum number of active writers for which it is worthwhile to stay awake for the disk's answer.
const FEW_WRITERS: usize = 32;
/// Number of commits over which their usual time is averaged.
const MEMORY: u32 = 8;

/// Time for which a commit is held, from the last answers on.
#[derive(Clone, Copy, Debug)]
pub enum CommitDelayPolicy {
    /// Time that writers take to come back at once: `once`, and `each` for every one of them.
    PerWriter { once: Duration, each: Duration },
    /// The `part`th part of what a commit usually takes. Where that is less than `commit_min`,
    /// commits are not held.
    PerCommit { part: u32, commit_min: Duration },
}

/// A moment to wait for, as long as nothing else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitDelay {
    pub until: Instant,
    /// Whether the wait is short enough, and for few enough writers, that staying awake is
    /// worthwhile.
    pub is_worth_polling: bool,
}

pub struct Writers {
    time: CommitDelayPolicy,
    /// Writers that the last commit answered and that are not back yet.
    away: Cell<usize>,
    answered: Cell<Instant>,
    /// Usual duration of a commit.
    usual: Cell<Duration>,
}

impl Writers {
    pub fn new(time: CommitDelayPolicy) -> Writers {
        let (away, answered, usual) = Default::default();
        Writers { time, away, answered, usual }
    }
    /// Notes the end of a commit, which took `took` and answers `count` writers.
    pub fn answered(&self, count: usize, took: Duration, now: Instant) {
        self.away.set(count);
        self.answered.set(now);
        let usual = self.usual.get();
        self.usual.set(usual - usual / MEMORY + took / MEMORY);
    }
    /// Counts one writer as back. Returns whether it was the last.
    pub fn note_arrival(&self) -> bool {
        let Some(away) = self.away.get().checked_sub(1) else { return false };
        self.away.set(away);
        away == 0
    }
    pub fn all_arrived(&self) -> bool {
        self.away.get() == 0
    }
    /// Stops waiting for them.
    pub fn give_up(&self) {
        self.away.set(0);
    }
    /// Whether few enough are about to make staying awake for the disk worth while: `waiting` for a
    /// commit, or away.
    pub fn is_worth_polling(&self, waiting: usize) -> bool {
        waiting > 0 && waiting + self.away.get() <= FEW_WRITERS
    }
    /// Returns until when a commit with `waiting` waiters stays open for writers that are away.
    /// `None`: not at all.
    pub fn commit_delay(&self, waiting: usize) -> Option<CommitDelay> {
        if waiting == 0 || self.all_arrived() {
            return None;
        }
        let (time, is_short) = match self.time {
            CommitDelayPolicy::PerWriter { once, each } => {
                (once + each * self.away.get() as u32, true)
            }
            CommitDelayPolicy::PerCommit { commit_min, .. } if self.usual.get() < commit_min => {
                return None;
            }
            CommitDelayPolicy::PerCommit { part, .. } => (self.usual.get() / part, false),
        };
        let is_worth_polling = is_short && self.is_worth_polling(waiting);
        Some(CommitDelay { until: self.answered.get().plus(time), is_worth_polling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: Duration = Duration::from_micros(100);
    const EACH: Duration = Duration::from_micros(5);
    const REVOLUTION: Duration = Duration::from_millis(4);

    fn per_writer() -> Writers {
        Writers::new(CommitDelayPolicy::PerWriter { once: ONCE, each: EACH })
    }
    fn per_commit() -> Writers {
        Writers::new(CommitDelayPolicy::PerCommit { part: 4, commit_min: Duration::from_millis(2) })
    }
    fn until(writers: &Writers, waiting: usize) -> Option<Instant> {
        writers.commit_delay(waiting).map(|delay| delay.until)
    }

    #[test]
    fn a_commit_is_held_while_some_wait_and_some_are_away() {
        let writers = per_writer();
        assert_eq!(writers.commit_delay(5), None);
        writers.answered(3, Duration::ZERO, Instant(9000));
        assert_eq!(writers.commit_delay(0), None);
        assert!(!writers.note_arrival());
        let until = Instant(9000).plus(ONCE + EACH * 2);
        assert_eq!(writers.commit_delay(1), Some(CommitDelay { until, is_worth_polling: true }));
        assert_eq!(
            writers.commit_delay(FEW_WRITERS),
            Some(CommitDelay { until, is_worth_polling: false })
        );
        assert!(!writers.note_arrival() && writers.note_arrival() && !writers.note_arrival());
        assert!(writers.all_arrived() && writers.commit_delay(1).is_none());
    }

    #[test]
    fn a_writer_that_stays_away_is_awaited_once() {
        let writers = per_writer();
        writers.answered(3, Duration::ZERO, Instant(0));
        writers.give_up();
        assert!(writers.commit_delay(1).is_none() && !writers.note_arrival());
    }

    #[test]
    fn those_answered_together_are_waited_for_a_part_of_a_commit() {
        let writers = per_commit();
        assert_eq!(writers.commit_delay(1), None, "nobody is away");
        for revolution in 1..=100 {
            let now = Instant(revolution * 4_000_000);
            writers.answered(2, REVOLUTION, now);
            assert_eq!(writers.commit_delay(0), None, "nobody waits");
            assert!(!writers.note_arrival(), "one is away");
            match until(&writers, 1) {
                Some(until) => assert!(until <= now.plus(REVOLUTION / 4)),
                None => assert!(revolution <= 8, "it knows the disk's revolution by now"),
            }
            assert!(writers.note_arrival() && writers.all_arrived());
            assert_eq!(writers.commit_delay(2), None);
        }
        writers.answered(2, REVOLUTION, Instant(404_000_000));
        writers.note_arrival();
        assert!(until(&writers, 1) > Some(Instant(404_900_000)), "about a quarter");
        // The other stays away: once.
        writers.give_up();
        writers.answered(1, REVOLUTION, Instant(409_000_000));
        assert!(writers.note_arrival());
        assert_eq!(writers.commit_delay(1), None);
    }

    #[test]
    fn no_commit_shorter_than_a_revolution_is_delayed() {
        let writers = per_commit();
        for commit in 1..=100 {
            let took = Duration::from_micros(300);
            writers.answered(2, took, Instant(0).plus(took * commit));
            assert!(!writers.note_arrival());
            assert_eq!(writers.commit_delay(1), None);
        }
    }
}
