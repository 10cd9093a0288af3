//! Blocks that are free on the disk but not to be had now: windows preallocated for growing files (in memory
//! only), and blocks freed by a transaction that is not committed yet. Were the latter given out, a crash could
//! leave a file of the older transaction with the new owner's data.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use units::{InodeNumber, TransactionId};

#[derive(Default)]
pub(crate) struct Withheld {
    /// Start to end, of windows and freed runs alike. Disjoint, each within one group.
    ranges: BTreeMap<u64, u64>,
    windows: BTreeMap<InodeNumber, Range<u64>>,
    freed: VecDeque<(TransactionId, Range<u64>)>,
    /// The sum of the lengths in `freed`.
    freed_blocks: u64,
}

impl Withheld {
    pub fn window(&self, inode: InodeNumber) -> Option<Range<u64>> {
        self.windows.get(&inode).cloned()
    }
    pub fn window_count(&self) -> usize {
        self.windows.len()
    }
    /// The inode has no window yet; the range is withheld for no other.
    pub fn add_window(&mut self, inode: InodeNumber, range: Range<u64>) {
        self.insert(&range);
        assert!(self.windows.insert(inode, range).is_none());
    }
    pub fn remove_window(&mut self, inode: InodeNumber) -> Option<Range<u64>> {
        let range = self.windows.remove(&inode)?;
        self.ranges.remove(&range.start);
        Some(range)
    }
    pub fn remove_all_windows(&mut self) -> Vec<Range<u64>> {
        let ranges: Vec<_> = std::mem::take(&mut self.windows).into_values().collect();
        for range in &ranges {
            self.ranges.remove(&range.start);
        }
        ranges
    }

    /// Keeps free blocks from everybody for a while.
    pub fn hold(&mut self, range: Range<u64>) {
        self.insert(&range);
    }
    pub fn let_go(&mut self, range: &Range<u64>) {
        self.ranges.remove(&range.start);
    }

    /// Freed by `transaction`; calls come in the order of transactions.
    pub fn add_freed(&mut self, transaction: TransactionId, range: Range<u64>) {
        self.insert(&range);
        self.freed_blocks += range.end - range.start;
        self.freed.push_back((transaction, range));
    }
    /// The runs freed by transactions up to `committed`: they may be used again.
    pub fn take_committed(&mut self, committed: TransactionId) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        while let Some((transaction, _)) = self.freed.front()
            && !transaction.is_after(committed)
        {
            let (_, range) = self.freed.pop_front().expect("just seen");
            self.ranges.remove(&range.start);
            self.freed_blocks -= range.end - range.start;
            taken.push(range);
        }
        taken
    }
    /// The last transaction whose freed blocks wait for their commit.
    pub fn last_freed(&self) -> Option<TransactionId> {
        self.freed.back().map(|(transaction, _)| *transaction)
    }
    pub fn freed_blocks(&self) -> u64 {
        self.freed_blocks
    }

    /// The withheld parts of `within`, in order.
    pub fn ranges(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        // Ranges do not cross groups, but `within` may begin inside one.
        let before = self.ranges.range(..within.start).next_back();
        let before = before.filter(|(_, end)| **end > within.start);
        let from = before.map_or(within.start, |(start, _)| *start);
        self.ranges
            .range(from..within.end)
            .map(move |(start, end)| (*start).max(within.start)..(*end).min(within.end))
    }

    fn insert(&mut self, range: &Range<u64>) {
        assert!(range.start < range.end);
        assert!(self.ranges(range.clone()).next().is_none(), "{range:?} is withheld already");
        self.ranges.insert(range.start, range.end);
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
}
