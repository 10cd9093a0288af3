//! Which dirty files go to the store now, and of which the records are logged anew instead.
//!
//! This is the one place that decides it. Recalls, names, sizes and the unmount bring a file to the
//! store whatever is decided here.
//!
//! 1. A file that has been dirty for `destage=` goes, however often it was written since. Nothing
//!    here makes it wait.
//! 2. Memory is short: the oldest files go, until what they hold is no more than `dirty=`.
//! 3. The journal is short: those files give way whose records lie nearest to its tail. A file of
//!    which most was written over is logged anew, if that frees at least as much of the log as it
//!    takes. The store gets nothing of it then.
//! 4. Too many files are dirty: the oldest go.

use std::time::Duration;
use units::Instant;

/// Files that give way at least, under pressure, if there are so many.
const GIVE_WAY_LEAST: usize = 64;

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GiveWay {
    ToStore,
    LoggedAnew,
}

/// What the journal has of one dirty file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedFacts {
    /// When its slot was begun: its records lie no nearer to the tail.
    pub slot_since: Instant,
    /// What the store may not have, each byte once, with what each piece takes.
    pub held_bytes: u64,
    /// What the log has of it, each byte once in each transaction.
    pub logged_bytes: u64,
    /// The store can only be in the state that the slot builds on, or in its last one.
    pub may_be_logged_anew: bool,
}

/// How many of all dirty files go to the store when nothing is short but perhaps memory. `files`:
/// when each became dirty and what it holds, the oldest first, which go first. `expire`: see
/// `destage=`.
pub(crate) fn due(
    files: &[(Instant, u64)],
    now: Instant,
    expire: Option<Duration>,
    dirty_bytes_max: u64,
) -> usize {
    let held: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let mut excess = held.saturating_sub(dirty_bytes_max);
    let goes = |&&(since, bytes): &&(Instant, u64)| {
        let is_old = expire.is_some_and(|expire| now.since(since) >= expire);
        let goes = is_old || excess > 0;
        excess = excess.saturating_sub(bytes);
        goes
    };
    files.iter().take_while(goes).count()
}

/// How many files give way at once under pressure, of so many dirty ones.
pub(crate) fn share_of(dirty: usize) -> usize {
    dirty.div_ceil(4).max(GIVE_WAY_LEAST).min(dirty)
}

/// The journal is short: which files give way, and how.
pub(crate) fn for_journal(files: &[LoggedFacts]) -> Vec<(usize, GiveWay)> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|file| files[*file].slot_since);
    order.truncate(share_of(files.len()));
    let way = |file: &LoggedFacts| {
        let frees = file.logged_bytes.saturating_sub(file.held_bytes);
        // A change of attributes alone has no bytes.
        let pays = file.held_bytes > 0 && frees >= file.held_bytes;
        if file.may_be_logged_anew && pays { GiveWay::LoggedAnew } else { GiveWay::ToStore }
    };
    order.into_iter().map(|file| (file, way(&files[file]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant(0).plus(Duration::from_secs(seconds))
    }
    fn written_over(times: u64) -> LoggedFacts {
        LoggedFacts {
            slot_since: at(0),
            held_bytes: 100,
            logged_bytes: 100 * times,
            may_be_logged_anew: true,
        }
    }

    #[test]
    fn files_go_when_they_are_old() {
        let files = [(at(10), 10), (at(11), 10), (at(30), 10)];
        assert_eq!(due(&files, at(69), Some(MINUTE), 1000), 0);
        assert_eq!(due(&files, at(70), Some(MINUTE), 1000), 1);
        assert_eq!(due(&files, at(90), Some(MINUTE), 1000), 3);
        assert_eq!(due(&files, at(9000), None, 1000), 0);
    }

    #[test]
    fn memory_that_is_short_sends_the_oldest_files_and_no_more() {
        let files = [(at(10), 10), (at(20), 10), (at(30), 10)];
        assert_eq!(due(&files, at(31), None, 30), 0);
        assert_eq!(due(&files, at(31), None, 29), 1);
        assert_eq!(due(&files, at(31), None, 19), 2);
        assert_eq!(due(&files, at(31), None, 0), 3);
        // What goes by age counts.
        assert_eq!(due(&files, at(70), Some(MINUTE), 20), 1);
    }

    #[test]
    fn a_short_journal_logs_anew_what_frees_more_than_it_takes() {
        let files = [written_over(1), written_over(2), written_over(9)];
        let ways = for_journal(&files);
        assert_eq!(
            ways,
            [(0, GiveWay::ToStore), (1, GiveWay::LoggedAnew), (2, GiveWay::LoggedAnew)]
        );
        let other = LoggedFacts { may_be_logged_anew: false, ..written_over(9) };
        assert_eq!(for_journal(&[other]), [(0, GiveWay::ToStore)]);
        let attributes = LoggedFacts { held_bytes: 0, ..written_over(0) };
        assert_eq!(for_journal(&[attributes]), [(0, GiveWay::ToStore)]);
    }

    #[test]
    fn those_give_way_whose_records_hold_the_tail_a_quarter_of_many() {
        let mut files = vec![LoggedFacts { slot_since: at(99), ..written_over(1) }; 400];
        (300..400).for_each(|file| files[file].slot_since = at(50));
        let journal = for_journal(&files);
        assert_eq!(
            journal.iter().map(|(file, _)| *file).collect::<Vec<_>>(),
            (300..400).collect::<Vec<_>>()
        );
        assert_eq!([0, 1, 64, 70, 300].map(share_of), [0, 1, 64, 64, 75]);
    }
}
