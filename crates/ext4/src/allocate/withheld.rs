//! Blocks that are free on the disk but not available: windows preallocated for growing files (in
//! memory only), and blocks freed by a transaction that is not committed yet. If the latter were
//! allocated, a crash could leave a file of the older transaction with the new owner's data.

use super::block_set::{BlockSet, BlockSetWords};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use units::{InodeNumber, TransactionId};

#[derive(Default)]
pub(crate) struct Withheld {
    /// Windows and freed runs together; they are disjoint.
    held: BlockSet,
    windows: BTreeMap<InodeNumber, Range<u64>>,
    freed: VecDeque<(TransactionId, Range<u64>)>,
    /// The sum of the lengths in `freed`.
    freed_blocks: u64,
    /// Number of times that freed blocks became available.
    releases: u64,
}

impl Withheld {
    pub fn window(&self, inode: InodeNumber) -> Option<Range<u64>> {
        self.windows.get(&inode).cloned()
    }
    pub fn window_count(&self) -> usize {
        self.windows.len()
    }
    /// Adds a window for an inode that has none; the range is not withheld otherwise.
    pub fn add_window(&mut self, inode: InodeNumber, range: Range<u64>) {
        self.held.insert(&range);
        assert!(self.windows.insert(inode, range).is_none());
    }
    pub fn remove_window(&mut self, inode: InodeNumber) -> Option<Range<u64>> {
        let range = self.windows.remove(&inode)?;
        self.held.remove(&range);
        Some(range)
    }
    pub fn remove_all_windows(&mut self) -> Vec<Range<u64>> {
        let ranges: Vec<_> = std::mem::take(&mut self.windows).into_values().collect();
        for range in &ranges {
            self.held.remove(range);
        }
        ranges
    }

    /// Withholds free blocks until [`Withheld::release`].
    pub fn hold(&mut self, range: Range<u64>) {
        self.held.insert(&range);
    }
    pub fn release(&mut self, range: &Range<u64>) {
        self.held.remove(range);
    }

    /// Adds blocks freed by `transaction`; calls come in the order of transactions.
    pub fn add_freed(&mut self, transaction: TransactionId, range: Range<u64>) {
        self.held.insert(&range);
        self.freed_blocks += range.end - range.start;
        self.freed.push_back((transaction, range));
    }
    /// The runs freed by transactions up to `committed`, which may be allocated again.
    pub fn take_committed(&mut self, committed: TransactionId) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        let is_committed = |(transaction, _): &(TransactionId, Range<u64>)| {
            !transaction.is_after(committed) || units::fault!("freed-reused")
        };
        while self.freed.front().is_some_and(is_committed) {
            let (_, range) = self.freed.pop_front().expect("just seen");
            self.held.remove(&range);
            self.freed_blocks -= range.end - range.start;
            taken.push(range);
        }
        self.releases += u64::from(!taken.is_empty());
        taken
    }
    /// The last transaction whose freed blocks wait for their commit.
    pub fn last_freed(&self) -> Option<TransactionId> {
        self.freed.back().map(|(transaction, _)| *transaction)
    }
    /// Number of times that freed blocks became available.
    pub fn releases(&self) -> u64 {
        self.releases
    }
    pub fn freed_blocks(&self) -> u64 {
        self.freed_blocks
    }

    /// The withheld parts of `within`, in order.
    pub fn ranges(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.held.runs(within)
    }
    /// The withheld part of `within`, as bits.
    pub fn words(&self, within: Range<u64>) -> BlockSetWords<'_> {
        self.held.words(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vec_of(range: Range<u64>) -> Vec<Range<u64>> {
        Vec::from([range])
    }

    #[test]
    fn freed_blocks_come_back_only_with_their_commit() {
        let mut withheld = Withheld::default();
        withheld.add_freed(TransactionId(7), 10..20);
        withheld.add_freed(TransactionId(8), 30..31);
        assert!(withheld.take_committed(TransactionId(6)).is_empty());
        assert_eq!(withheld.take_committed(TransactionId(7)), vec_of(10..20));
        assert_eq!(withheld.ranges(0..100).collect::<Vec<_>>(), vec_of(30..31));
        assert_eq!(withheld.last_freed(), Some(TransactionId(8)));
    }

    #[test]
    fn a_range_that_begins_inside_a_window_sees_its_rest() {
        let mut withheld = Withheld::default();
        withheld.add_window(InodeNumber(12), 10..20);
        assert_eq!(withheld.ranges(15..40).collect::<Vec<_>>(), vec_of(15..20));
        assert_eq!(withheld.ranges(20..40).count(), 0);
        assert_eq!(withheld.ranges(0..11).collect::<Vec<_>>(), vec_of(10..11));
    }

    #[test]
    fn neighbours_are_one_range_and_come_apart_again() {
        let mut withheld = Withheld::default();
        let held = |withheld: &Withheld| withheld.ranges(0..100).collect::<Vec<_>>();
        for (id, range) in [(1, 10..20), (2, 30..40), (3, 20..30), (4, 5..10)] {
            withheld.add_freed(TransactionId(id), range);
        }
        withheld.add_window(InodeNumber(12), 40..41);
        assert_eq!(held(&withheld), vec_of(5..41));
        withheld.take_committed(TransactionId(1));
        assert_eq!(held(&withheld), [5..10, 20..41]);
        withheld.take_committed(TransactionId(3));
        withheld.remove_window(InodeNumber(12));
        assert_eq!(held(&withheld), vec_of(5..10));
        withheld.take_committed(TransactionId(4));
        assert!(held(&withheld).is_empty());
    }
}
