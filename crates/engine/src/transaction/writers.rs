//! How long a commit waits for the writers whom the last one answered.

use journal::Writers;
use std::time::Duration;
use units::Instant;

/// With at most this many writers about, an answer of the disk is worth staying awake for.
const FEW_WRITERS: usize = 32;
/// How long a commit is held for writers about to return: once, and for each of them. The time
/// for each is about what a writer costs the processors. So a group that comes back at once is not
/// waited for in vain.
const HOLD: Duration = Duration::from_micros(100);
const HOLD_EACH: Duration = Duration::from_micros(5);

/// A moment to wait for, as long as nothing else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub until: Instant,
    pub few_writers: bool,
}

/// Whether few enough are about to make staying awake for the disk worth while: `waiting` for a
/// commit, or away.
pub(crate) fn are_few(writers: &Writers, waiting: usize) -> bool {
    waiting > 0 && waiting + writers.away() <= FEW_WRITERS
}
/// Decides whether to wait shortly for writers that are away: if they come back, they share the
/// commit that `waiting` others wait for.
pub(crate) fn hold(writers: &Writers, waiting: usize) -> Option<Hold> {
    let until = writers.hold(waiting, HOLD + HOLD_EACH * writers.away() as u32)?;
    Some(Hold { until, few_writers: are_few(writers, waiting) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_held_while_some_wait_and_some_are_away() {
        let writers = Writers::default();
        assert_eq!(hold(&writers, 5), None);
        writers.answered(3, Instant(9000));
        assert_eq!(hold(&writers, 0), None);
        assert!(!writers.came_back());
        let until = Instant(9000).plus(HOLD + HOLD_EACH * 2);
        assert_eq!(hold(&writers, 1), Some(Hold { until, few_writers: true }));
        assert_eq!(hold(&writers, FEW_WRITERS), Some(Hold { until, few_writers: false }));
        assert!(!writers.came_back() && writers.came_back() && !writers.came_back());
        assert!(writers.are_back() && hold(&writers, 1).is_none());
    }

    #[test]
    fn a_writer_that_stays_away_is_awaited_once() {
        let writers = Writers::default();
        writers.answered(3, Instant(0));
        writers.give_up();
        assert!(hold(&writers, 1).is_none() && !writers.came_back());
    }
}
