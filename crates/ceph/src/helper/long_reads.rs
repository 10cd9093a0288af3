//! Reads that last long, and lookups of their files by another thread.
//!
//! T13: a read that meets the recall of what may be cached was seen to wait for ever, for a right
//! that it had. A lookup of the file by another client ended it: the servers sent a message about
//! the file again. So the helper looks the file up itself. Whether that ends such a read is not
//! shown, since none was met again. A lookup changes nothing, and a read that waits for another
//! client continues to wait.

use super::files::{File, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub struct LongReads<T>(Mutex<State<T>>);

struct State<T> {
    running: BTreeMap<u64, T>,
    /// Number of reads that have begun.
    count: u64,
    /// Number that had begun at the last check.
    seen: u64,
}

/// Counts a read until it is dropped.
pub struct Reading<'a, T: Clone> {
    reads: &'a LongReads<T>,
    number: u64,
}
impl<T: Clone> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        lock(&self.reads.0).running.remove(&self.number);
    }
}

impl<T: Clone> LongReads<T> {
    fn none() -> LongReads<T> {
        LongReads(Mutex::new(State { running: BTreeMap::new(), count: 0, seen: 0 }))
    }
    pub fn begin(&self, of: T) -> Reading<'_, T> {
        let mut state = lock(&self.0);
        state.count += 1;
        let number = state.count;
        state.running.insert(number, of);
        Reading { reads: self, number }
    }
    /// Returns the reads that were in flight at the last check, too.
    fn lasting(&self) -> Vec<T> {
        let mut state = lock(&self.0);
        let count = state.count;
        let seen = std::mem::replace(&mut state.seen, count);
        state.running.range(..=seen).map(|(_, of)| of.clone()).collect()
    }
}

impl LongReads<Arc<File>> {
    pub fn watched() -> Arc<LongReads<Arc<File>>> {
        let reads = Arc::new(Self::none());
        let watched = reads.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(CHECK_INTERVAL);
                for file in watched.lasting() {
                    // The read gets the error, too.
                    let _ = file.inode.attributes();
                }
            }
        });
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_counts_as_long_from_the_second_check() {
        let reads = LongReads::none();
        let first = reads.begin("first");
        assert!(reads.lasting().is_empty());
        let second = reads.begin("second");
        assert_eq!(reads.lasting(), ["first"]);
        drop(first);
        assert_eq!(reads.lasting(), ["second"]);
        drop(second);
        assert!(reads.lasting().is_empty());
    }
}
