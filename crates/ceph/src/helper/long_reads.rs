//! Reads that last, and a look at their files by another thread.
//!
//! T13: a read that meets the recall of what may be cached was seen to wait for ever, for a right
//! that it had. A look at the file by another client ended it: the servers wrote of the file again.
//! So the helper looks itself. Whether that ends such a read is not shown, since none was met
//! again. A look changes nothing, and a read that waits for another client waits on.

use super::files::{File, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

pub struct LongReads<T>(Mutex<State<T>>);

struct State<T> {
    under_way: BTreeMap<u64, T>,
    /// How many began.
    count: u64,
    /// How many had begun at the last look.
    seen: u64,
}

/// A read, for as long as this lives.
pub struct Reading<'a, T: Clone> {
    reads: &'a LongReads<T>,
    number: u64,
}
impl<T: Clone> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        lock(&self.reads.0).under_way.remove(&self.number);
    }
}

impl<T: Clone> LongReads<T> {
    fn none() -> LongReads<T> {
        LongReads(Mutex::new(State { under_way: BTreeMap::new(), count: 0, seen: 0 }))
    }
    pub fn begin(&self, of: T) -> Reading<'_, T> {
        let mut state = lock(&self.0);
        state.count += 1;
        let number = state.count;
        state.under_way.insert(number, of);
        Reading { reads: self, number }
    }
    /// Those that were under way at the last look, too.
    fn lasting(&self) -> Vec<T> {
        let mut state = lock(&self.0);
        let count = state.count;
        let seen = std::mem::replace(&mut state.seen, count);
        state.under_way.range(..=seen).map(|(_, of)| of.clone()).collect()
    }
}

impl LongReads<Arc<File>> {
    pub fn watched() -> Arc<LongReads<Arc<File>>> {
        let reads = Arc::new(Self::none());
        let watched = reads.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                for file in watched.lasting() {
                    // What goes wrong the read is told, too.
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
    fn a_read_lasts_from_the_second_look_until_its_end() {
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
