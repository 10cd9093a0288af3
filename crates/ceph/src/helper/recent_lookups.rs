//! Predicts whether the library answers lookups of a file, or of a name in a directory, from
//! memory.
//!
//! It does while the servers let it cache what it knows. They revoke that when another client
//! changes something, without a report by the library. So the next lookup is judged by the last
//! ones: whether the thread had to wait.

use crate::library::waits;

/// Lookups in a row without waiting after which the next counts as short: two that wait do not
/// follow each other soon.
const SURE: u32 = 8;

#[derive(Clone, Copy, Default)]
pub struct RecentLookups(u32);

impl RecentLookups {
    pub fn note(&mut self, has_waited: bool) {
        self.0 = if has_waited { 0 } else { self.0.saturating_add(1) };
    }
    pub fn are_short(self) -> bool {
        self.0 >= SURE
    }
}

/// Returns the result of `look`, and whether it waited for anything.
pub fn watched<T>(look: impl FnOnce() -> T) -> (T, bool) {
    let before = waits();
    let answer = look();
    (answer, waits() != before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lookups_are_short_after_some_that_did_not_wait() {
        let mut recent_lookups = RecentLookups::default();
        for _ in 0..SURE {
            assert!(!recent_lookups.are_short());
            recent_lookups.note(false);
        }
        assert!(recent_lookups.are_short());
        recent_lookups.note(true);
        assert!(!recent_lookups.are_short());
    }

    #[test]
    fn a_thread_that_sleeps_has_waited() {
        let ((), has_waited) = watched(|| std::thread::sleep(Duration::from_millis(1)));
        assert!(has_waited);
        // Code may have to be paged in first. A thread that only loses the processor does not wait.
        assert!((0..100).any(|round| watched(|| round * round) == (round * round, false)));
    }
}
