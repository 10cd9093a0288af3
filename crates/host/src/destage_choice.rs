//! Which dirty files go to the store now, and of which the records are logged anew instead.
//!
//! This is the one place that decides it. Recalls, names, sizes and the unmount bring a file to the store whatever is decided here.
//!
//! 1. A file that has been dirty for `destage=` goes, however often it was written since. Nothing here makes it wait.
//! 2. Memory is short: the oldest files go, until what they hold is no more than `dirty=`.
//! 3. The journal is short: those files give way whose records lie nearest to its tail. A file of which most was written over is logged
//!    anew, if that frees at least as much of the log as it takes. The store gets nothing of it then.
//! 4. Too many files are dirty: the oldest go.

use std::time::Duration;
use units::Instant;

/// Files that give way at least, under pressure, if there are so many.
const GIVE_WAY_LEAST: usize = 64;

/// What is known of one dirty file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyFacts {
    /// When it became dirty.
    pub since: Instant,
    /// When its slot was begun: its records lie no nearer to the tail.
    pub slot_since: Instant,
    /// What the store may not have, each byte once, with what each piece takes.
    pub held_bytes: u64,
    /// What the log has of it, each byte once in each transaction.
    pub logged_bytes: u64,
    /// The store can only be in the state that the slot builds on, or in its last one.
    pub may_be_logged_anew: bool,
}

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GiveWay {
    ToStore,
    LoggedAnew,
}

/// What there is too much of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Short {
    Journal,
    /// Too many files are dirty.
    Files,
}

/// Of all dirty files those that go to the store when nothing is short but perhaps memory, the oldest first. `expire`: see `destage=`.
pub(crate) fn due(
    files: &[DirtyFacts],
    now: Instant,
    expire: Option<Duration>,
    dirty_bytes_max: u64,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|file| files[*file].since);
    let held: u64 = files.iter().map(|file| file.held_bytes).sum();
    let mut excess = held.saturating_sub(dirty_bytes_max);
    order.retain(|file| {
        let facts = &files[*file];
        let is_old = expire.is_some_and(|expire| now.since(facts.since) >= expire);
        let goes = is_old || excess > 0;
        // The oldest come first, so those that are old count before any other.
        excess = excess.saturating_sub(if goes { facts.held_bytes } else { 0 });
        goes
    });
    order
}

/// Which files give way, and how: a quarter of all.
pub(crate) fn under_pressure(files: &[DirtyFacts], short: Short) -> Vec<(usize, GiveWay)> {
    let count = files.len().div_ceil(4).max(GIVE_WAY_LEAST).min(files.len());
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|file| match short {
        Short::Journal => files[*file].slot_since,
        Short::Files => files[*file].since,
    });
    order.truncate(count);
    let way = |file: &DirtyFacts| {
        let frees = file.logged_bytes.saturating_sub(file.held_bytes);
        // A change of attributes alone has no bytes.
        let pays = file.held_bytes > 0 && frees >= file.held_bytes;
        match short == Short::Journal && file.may_be_logged_anew && pays {
            true => GiveWay::LoggedAnew,
            false => GiveWay::ToStore,
        }
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
    fn dirty(since: u64, held_bytes: u64) -> DirtyFacts {
        let since = at(since);
        DirtyFacts {
            since,
            slot_since: since,
            held_bytes,
            logged_bytes: held_bytes,
            may_be_logged_anew: true,
        }
    }
    fn written_over(times: u64) -> DirtyFacts {
        DirtyFacts { logged_bytes: 100 * times, ..dirty(0, 100) }
    }

    #[test]
    fn old_files_go_however_often_they_were_written() {
        let files = [dirty(30, 10), DirtyFacts { logged_bytes: 10_000, ..dirty(10, 10) }, dirty(11, 10)];
        assert_eq!(due(&files, at(69), Some(MINUTE), 1000), Vec::<usize>::new());
        assert_eq!(due(&files, at(70), Some(MINUTE), 1000), [1]);
        assert_eq!(due(&files, at(90), Some(MINUTE), 1000), [1, 2, 0]);
        assert_eq!(due(&files, at(9000), None, 1000), Vec::<usize>::new());
    }

    #[test]
    fn memory_that_is_short_sends_the_oldest_files_and_no_more() {
        let files = [dirty(30, 10), dirty(10, 10), dirty(20, 10)];
        assert_eq!(due(&files, at(31), None, 30), Vec::<usize>::new());
        assert_eq!(due(&files, at(31), None, 29), [1]);
        assert_eq!(due(&files, at(31), None, 19), [1, 2]);
        // What goes by age counts.
        assert_eq!(due(&files, at(70), Some(MINUTE), 20), [1]);
    }

    #[test]
    fn a_short_journal_logs_anew_what_frees_more_than_it_takes() {
        let files = [written_over(1), written_over(2), written_over(9)];
        let ways = under_pressure(&files, Short::Journal);
        assert_eq!(ways, [(0, GiveWay::ToStore), (1, GiveWay::LoggedAnew), (2, GiveWay::LoggedAnew)]);
        let other = DirtyFacts { may_be_logged_anew: false, ..written_over(9) };
        assert_eq!(under_pressure(&[other], Short::Journal), [(0, GiveWay::ToStore)]);
        let attributes = dirty(0, 0);
        assert_eq!(under_pressure(&[attributes], Short::Journal), [(0, GiveWay::ToStore)]);
        assert_eq!(under_pressure(&[written_over(9)], Short::Files), [(0, GiveWay::ToStore)]);
    }

    #[test]
    fn those_give_way_whose_records_hold_the_tail_a_quarter_of_many() {
        let young = DirtyFacts { slot_since: at(99), ..dirty(0, 1) };
        let mut files = vec![young; 400];
        (300..400).for_each(|file| files[file] = dirty(50, 1));
        let journal = under_pressure(&files, Short::Journal);
        assert_eq!(journal.iter().map(|(file, _)| *file).collect::<Vec<_>>(), (300..400).collect::<Vec<_>>());
        let crowd = under_pressure(&files, Short::Files);
        assert_eq!(crowd.iter().map(|(file, _)| *file).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert_eq!(under_pressure(&files[..70], Short::Files).len(), 64);
        assert_eq!(under_pressure(&[], Short::Files), []);
    }
}
