use super::Mapping;
use std::cell::Cell;
use units::{FileBlock, HomeBlock, TransactionId};

/// The last mappings looked up, so that a hot append or overwrite walks no tree. Part of every
/// inode; code that changes the mapping calls [`MappingCache::clear`] first.
#[derive(Default)]
pub struct MappingCache {
    /// The latest first. Two, for a reader and a writer at different places.
    entries: Cell<[Option<Mapping>; 2]>,
    /// First byte behind the last write, its transaction, and the number of consecutive bytes that
    /// end there. Distinguishes sequential writes from others.
    pub(crate) row: Cell<WriteRow>,
    /// Wanted home of the file's first block, if not in its inode's group.
    pub(crate) first_goal: Cell<Option<HomeBlock>>,
    /// Wanted home of the next blocks, wherever their neighbours are.
    pub(crate) next_goal: Cell<Option<HomeBlock>>,
}

/// Writes of one transaction, each of which began where the one before ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteRow {
    transaction: Option<TransactionId>,
    end: u64,
    bytes: u64,
}

/// Length in bytes beyond which a stream is sequential: the longest request that adaptive
/// journaling logs.
const SEQUENTIAL_ROW: u64 = 32 << 10;

impl WriteRow {
    /// Whether a write at `at` in `transaction` continues a sequential stream.
    pub fn is_sequential(&self, transaction: TransactionId, at: u64) -> bool {
        self.bytes_before(transaction, at) >= SEQUENTIAL_ROW
    }
    /// Bytes of the stream that a write at `at` in `transaction` continues.
    pub fn bytes_before(&self, transaction: TransactionId, at: u64) -> u64 {
        if self.continues(transaction, at) { self.bytes } else { 0 }
    }
    fn continues(&self, transaction: TransactionId, at: u64) -> bool {
        self.transaction == Some(transaction) && self.end == at
    }
    /// The stream after a write of `count` bytes.
    #[must_use]
    pub fn after(self, transaction: TransactionId, at: u64, count: u64) -> WriteRow {
        let before = self.bytes_before(transaction, at);
        WriteRow { transaction: Some(transaction), end: at + count, bytes: before + count }
    }
}

impl MappingCache {
    pub(super) fn find(&self, at: FileBlock, max: u32) -> Option<Mapping> {
        self.entries.get().iter().flatten().find_map(|mapping| mapping.part(at, max))
    }
    pub(super) fn remember(&self, mapping: Mapping) {
        let [latest, _] = self.entries.get();
        self.entries.set([Some(mapping), latest]);
    }
    /// The runs of blocks that are known to be the file's.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (HomeBlock, u64)> {
        let known = self.entries.get().into_iter().flatten();
        known.filter_map(|mapping| Some((mapping.home()?, u64::from(mapping.count))))
    }
    pub(crate) fn clear(&self) {
        self.entries.set([None; 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_sequential_once_it_is_long_and_ends_with_its_transaction() {
        let [first, second] = [TransactionId(u32::MAX), TransactionId(0)];
        let mut row = WriteRow::default();
        for at in (0..SEQUENTIAL_ROW).step_by(4096) {
            assert!(!row.is_sequential(first, at));
            row = row.after(first, at, 4096);
        }
        assert!(row.is_sequential(first, SEQUENTIAL_ROW));
        assert!(
            !row.is_sequential(first, SEQUENTIAL_ROW + 1)
                && !row.is_sequential(second, SEQUENTIAL_ROW)
        );
        let after_a_sync = row.after(second, SEQUENTIAL_ROW, 4096);
        assert!(!after_a_sync.is_sequential(second, SEQUENTIAL_ROW + 4096));
    }
}
