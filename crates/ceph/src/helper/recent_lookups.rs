//! Whether the library answers looks at a file, or at a name in a directory, out of its memory.
//!
//! It does while the servers let it keep what it knows. They take that away when another client
//! changes something, and the library does not tell. So the last looks are what the next one is
//! judged by: whether the thread had to wait.

use crate::library::waits;

/// So many in a row: one that waits is not followed by a second soon.
const SURE: u32 = 8;

#[derive(Clone, Copy, Default)]
pub struct Looks(u32);

impl Looks {
    pub fn note(&mut self, has_waited: bool) {
        self.0 = if has_waited { 0 } else { self.0.saturating_add(1) };
    }
    pub fn are_short(self) -> bool {
        self.0 >= SURE
    }
}

/// What `look` says, and whether it waited for anything.
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
    fn looks_are_short_after_some_that_did_not_wait_and_until_one_does() {
        let mut looks = Looks::default();
        for _ in 0..SURE {
            assert!(!looks.are_short());
            looks.note(false);
        }
        assert!(looks.are_short());
        looks.note(true);
        assert!(!looks.are_short());
    }

    #[test]
    fn a_thread_that_sleeps_has_waited() {
        let ((), has_waited) = watched(|| std::thread::sleep(Duration::from_millis(1)));
        assert!(has_waited);
        // Code may have to be read first. Who loses the processor to others does not wait.
        assert!((0..100).any(|round| watched(|| round * round) == (round * round, false)));
    }
}
