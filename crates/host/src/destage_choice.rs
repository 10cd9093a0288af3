//! Chooses which dirty files are destaged now, and which have their records logged again instead.
//!
//! No other place decides that. Recalls, changes of names and sizes, and the unmount destage a file
//! whatever is decided here.
//!
//! 1. A file that has been dirty for `destage=` is destaged, however often it was written since.
//!    Nothing here delays it.
//! 2. If memory is short, the oldest files are destaged until the rest holds no more than `dirty=`.
//! 3. If the journal is short, the files whose records lie nearest to its tail are chosen. A file
//!    that was mostly overwritten is relogged, if that frees at least as much of the log as it
//!    takes; the store gets nothing of it.
//! 4. If too many files are dirty, the oldest are destaged.

use std::time::Duration;
use units::Instant;

/// Files chosen at least, under pressure, as far as there are as many.
const RELIEF_FILES_MIN: usize = 64;

/// Way in which a file leaves the log's tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DestageChoice {
    ToStore,
    Relogged,
    /// Relogs a file that the store refuses, whatever that costs, or left as it is.
    RefusedRelogged,
}

/// Facts about the records that the journal has of one dirty file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedFacts {
    /// Time at which its slot was begun; no record of it lies nearer to the tail.
    pub slot_since: Instant,
    /// Bytes that the store may lack, each counted once, and the overhead of each range.
    pub held_bytes: u64,
    /// Bytes that the log has of the file, each counted once in each transaction.
    pub logged_bytes: u64,
    /// Whether the store can only be in the state that the slot builds on, or in its last one.
    pub may_be_relogged: bool,
}

/// Returns how many dirty files are destaged when the journal is not short. `files` has when each
/// became dirty and the bytes that it holds, oldest first; the oldest are destaged first. `expire`:
/// see `destage=`.
pub(crate) fn count_expired(
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

/// Returns how many of `dirty` files are chosen at once under pressure.
pub(crate) fn share_of(dirty: usize) -> usize {
    dirty.div_ceil(4).max(RELIEF_FILES_MIN).min(dirty)
}

/// Chooses the files that relieve a short journal, and how.
pub(crate) fn for_journal(files: &[LoggedFacts]) -> Vec<(usize, DestageChoice)> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|file| files[*file].slot_since);
    order.truncate(share_of(files.len()));
    let way = |file: &LoggedFacts| {
        let frees = file.logged_bytes.saturating_sub(file.held_bytes);
        // A change of attributes alone has no bytes.
        let is_worthwhile = file.held_bytes > 0 && frees >= file.held_bytes;
        if file.may_be_relogged && is_worthwhile {
            DestageChoice::Relogged
        } else {
            DestageChoice::ToStore
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
    fn written_over(times: u64) -> LoggedFacts {
        LoggedFacts {
            slot_since: at(0),
            held_bytes: 100,
            logged_bytes: 100 * times,
            may_be_relogged: true,
        }
    }

    #[test]
    fn files_go_when_they_are_old() {
        let files = [(at(10), 10), (at(11), 10), (at(30), 10)];
        assert_eq!(count_expired(&files, at(69), Some(MINUTE), 1000), 0);
        assert_eq!(count_expired(&files, at(70), Some(MINUTE), 1000), 1);
        assert_eq!(count_expired(&files, at(90), Some(MINUTE), 1000), 3);
        assert_eq!(count_expired(&files, at(9000), None, 1000), 0);
    }

    #[test]
    fn memory_that_is_short_sends_the_oldest_files_and_no_more() {
        let files = [(at(10), 10), (at(20), 10), (at(30), 10)];
        assert_eq!(count_expired(&files, at(31), None, 30), 0);
        assert_eq!(count_expired(&files, at(31), None, 29), 1);
        assert_eq!(count_expired(&files, at(31), None, 19), 2);
        assert_eq!(count_expired(&files, at(31), None, 0), 3);
        // Files destaged by age count.
        assert_eq!(count_expired(&files, at(70), Some(MINUTE), 20), 1);
    }

    #[test]
    fn a_short_journal_relogs_what_frees_more_than_it_takes() {
        let files = [written_over(1), written_over(2), written_over(9)];
        let ways = for_journal(&files);
        assert_eq!(
            ways,
            [
                (0, DestageChoice::ToStore),
                (1, DestageChoice::Relogged),
                (2, DestageChoice::Relogged)
            ]
        );
        let other = LoggedFacts { may_be_relogged: false, ..written_over(9) };
        assert_eq!(for_journal(&[other]), [(0, DestageChoice::ToStore)]);
        let attributes = LoggedFacts { held_bytes: 0, ..written_over(0) };
        assert_eq!(for_journal(&[attributes]), [(0, DestageChoice::ToStore)]);
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
