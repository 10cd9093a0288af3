//! Delays a commit for the writers that the last one answered, if they return soon. Otherwise
//! writers fall into two groups whose commits alternate, and a writer that returns just after a
//! commit was issued waits for all of it.
//!
//! 1. The delay is a part of what a commit takes. A disk with an arm writes what follows its last
//!    write one revolution later, whenever within the revolution it was issued, so there the delay
//!    costs nothing. Where commits take less than a revolution, there is no delay.
//! 2. A writer is waited for once. A single writer waits for nobody.

use journal::Writers;
use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Commits that take less come from no disk with an arm: the fastest revolution takes 4 ms.
const REVOLUTION_MIN: Duration = Duration::from_millis(2);
/// Part of a commit's usual time that the delay may take.
const PART: u32 = 4;
/// Number of commits over which the usual time is averaged.
const MEMORY: u32 = 8;

#[derive(Default)]
pub(crate) struct Gathering {
    /// Writers that wait for the running transaction.
    waiting: Cell<usize>,
    writers: Writers,
    usual: Cell<Duration>,
}

impl Gathering {
    /// Counts a writer that waits for the running transaction. Returns whether all are back.
    pub fn came(&self) -> bool {
        self.waiting.set(self.waiting.get() + 1);
        self.writers.came_back();
        self.are_back()
    }
    pub fn are_back(&self) -> bool {
        self.writers.are_back()
    }
    /// Returns until when the commit stays open for the writers that are still away.
    pub fn until(&self) -> Option<Instant> {
        let until = self.writers.hold(self.waiting.get(), self.usual.get() / PART);
        until.filter(|_| self.usual.get() >= REVOLUTION_MIN)
    }
    /// Issues the transaction. Returns how many writers wait for it.
    pub fn issue(&self) -> usize {
        self.writers.give_up();
        self.waiting.take()
    }
    /// Records that the transaction is durable and its `count` writers are answered.
    pub fn answers(&self, count: usize, begun: Instant, now: Instant) {
        self.writers.answered(count, now);
        let usual = self.usual.get();
        self.usual.set(usual - usual / MEMORY + now.since(begun) / MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_answered_together_are_waited_for_a_part_of_a_commit() {
        let gathering = Gathering::default();
        assert!(gathering.came());
        assert_eq!(gathering.until(), None, "nobody is away");
        gathering.came();
        for revolution in 0..100 {
            assert_eq!(gathering.issue(), 2);
            gathering.answers(
                2,
                Instant(revolution * 4_000_000),
                Instant((revolution + 1) * 4_000_000),
            );
            assert_eq!(gathering.until(), None, "nobody waits");
            assert!(!gathering.came(), "one is away");
            match gathering.until() {
                Some(until) => assert!(until <= Instant((revolution + 1) * 4_000_000 + 1_000_000)),
                None => assert!(revolution < 8, "it knows the disk's revolution by now"),
            }
            assert!(gathering.came() && gathering.are_back());
            assert_eq!(gathering.until(), None);
        }
        assert_eq!(gathering.issue(), 2);
        gathering.answers(2, Instant(400_000_000), Instant(404_000_000));
        gathering.came();
        assert!(gathering.until() > Some(Instant(404_900_000)), "about a quarter");
        // The other stays away: once.
        assert_eq!(gathering.issue(), 1);
        gathering.answers(1, Instant(405_000_000), Instant(409_000_000));
        assert!(gathering.came());
        assert_eq!(gathering.until(), None);
    }

    #[test]
    fn no_commit_shorter_than_a_revolution_is_delayed() {
        let gathering = Gathering::default();
        for commit in 0..100 {
            gathering.came();
            gathering.issue();
            gathering.answers(2, Instant(commit * 300_000), Instant((commit + 1) * 300_000));
            gathering.came();
            assert_eq!(gathering.until(), None);
        }
    }
}
