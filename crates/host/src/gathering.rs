//! For whom a commit waits: those whom the last one answered, if they are back soon. Without that
//! they fall into two groups, whose commits go in turns: who is back right behind one waits for the
//! whole of the other.
//!
//! 1. It is a part of what a commit takes. A disk with an arm writes what follows its last write a
//!    turn later, whenever within the turn it is told. So there it costs nothing. Elsewhere, where
//!    commits take less than a turn, nobody is waited for.
//! 2. Nobody is waited for twice. Who writes alone waits for nobody.

use journal::Writers;
use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// What takes less is no disk with an arm: the fastest turn in 4 ms.
const TURN_MIN: Duration = Duration::from_millis(2);
/// Of what commits take.
const PART: u32 = 4;
/// How many commits their usual time follows.
const MEMORY: u32 = 8;

#[derive(Default)]
pub(crate) struct Gathering {
    /// For the running transaction.
    waiting: Cell<usize>,
    writers: Writers,
    usual: Cell<Duration>,
}

impl Gathering {
    /// Someone waits for the running transaction. True: all are back.
    pub fn came(&self) -> bool {
        self.waiting.set(self.waiting.get() + 1);
        self.writers.came_back();
        self.are_back()
    }
    pub fn are_back(&self) -> bool {
        self.writers.are_back()
    }
    /// Until when the commit for those who wait stays open for those who are away.
    pub fn until(&self) -> Option<Instant> {
        let until = self.writers.hold(self.waiting.get(), self.usual.get() / PART);
        until.filter(|_| self.usual.get() >= TURN_MIN)
    }
    /// The transaction sets out. How many wait for it.
    pub fn sets_out(&self) -> usize {
        self.writers.give_up();
        self.waiting.take()
    }
    /// It is durable.
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
        for turn in 0..100 {
            assert_eq!(gathering.sets_out(), 2);
            gathering.answers(2, Instant(turn * 4_000_000), Instant((turn + 1) * 4_000_000));
            assert_eq!(gathering.until(), None, "nobody waits");
            assert!(!gathering.came(), "one is away");
            match gathering.until() {
                Some(until) => assert!(until <= Instant((turn + 1) * 4_000_000 + 1_000_000)),
                None => assert!(turn < 8, "it knows the disk's turn by now"),
            }
            assert!(gathering.came() && gathering.are_back());
            assert_eq!(gathering.until(), None);
        }
        assert_eq!(gathering.sets_out(), 2);
        gathering.answers(2, Instant(400_000_000), Instant(404_000_000));
        gathering.came();
        assert!(gathering.until() > Some(Instant(404_900_000)), "about a quarter");
        // The other stays away: once.
        assert_eq!(gathering.sets_out(), 1);
        gathering.answers(1, Instant(405_000_000), Instant(409_000_000));
        assert!(gathering.came());
        assert_eq!(gathering.until(), None);
    }

    #[test]
    fn nobody_is_waited_for_where_commits_take_less_than_a_turn() {
        let gathering = Gathering::default();
        for commit in 0..100 {
            gathering.came();
            gathering.sets_out();
            gathering.answers(2, Instant(commit * 300_000), Instant((commit + 1) * 300_000));
            gathering.came();
            assert_eq!(gathering.until(), None);
        }
    }
}
