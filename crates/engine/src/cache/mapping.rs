//! The mapping table: blocks that the log holds whole and home does not hold yet, of which memory
//! may hold nothing.
//!
//! Invariants
//! 1. An entry names the newest record of its block that is whole. It leaves when home has that
//!    content, a later transaction logs the block whole, or one revokes it. That is just when the
//!    checkpoint needs its transaction no more. So the log keeps what an entry names.
//! 2. What is read there is that record: the entry knows its checksum.
//! 3. The cache counts the memory of the table after every change of it.

use crate::interface::update::Contents;
use device::Buffer;
use format::jbd2::Seed;
use journal::{Records, SwappedRun, WholeBlockLocation};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::{CompactMap, HomeBlock, Instant, LogBlock, TransactionId, is_within};

/// Maximum memory in bytes for a block.
pub(crate) const COPY_BYTES: usize = 32;

/// Returns the checksum by which a later read is verified.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    Seed(!0).with(bytes).0
}

/// Place at which the log holds a block whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogCopy {
    pub by: TransactionId,
    pub sum: u32,
    at: LogBlock,
    offset: u16,
    pub contents: Contents,
    /// Whether it is written home only if there is no other way.
    pub durable_only: bool,
}

impl LogCopy {
    pub fn new(
        by: TransactionId,
        place: WholeBlockLocation,
        sum: u32,
        contents: Contents,
        durable_only: bool,
    ) -> LogCopy {
        LogCopy { by, sum, at: place.at, offset: place.offset, contents, durable_only }
    }
    pub fn place(&self) -> WholeBlockLocation {
        WholeBlockLocation { at: self.at, offset: self.offset }
    }
    /// Reads the block, whose log blocks begin with `log`; returns `None` where they are not, or no
    /// longer, what was logged.
    pub fn read_from(
        &self,
        records: &dyn Records,
        log: &[u8],
        block_bytes: usize,
    ) -> Option<Buffer> {
        let mut block = Buffer::zeroed(block_bytes);
        records.read_whole(log, self.offset.into(), &mut block);
        (sum(&block) == self.sum).then_some(block)
    }
}

#[derive(Default)]
pub(crate) struct Mapping {
    copies: CompactMap<LogCopy>,
    /// Time of the last insertion.
    newest: Instant,
    memory: Rc<Cell<usize>>,
}

impl Mapping {
    pub fn len(&self) -> usize {
        self.copies.len()
    }
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
    pub fn get(&self, block: HomeBlock) -> Option<LogCopy> {
        self.copies.get(block.get())
    }
    pub fn insert(&mut self, block: HomeBlock, copy: LogCopy, now: Instant) {
        self.newest = now;
        self.copies.insert(block.get(), copy);
        self.count();
    }
    /// Forgets the log's copy of `block` if it is of `by` or an earlier transaction.
    pub fn forget(&mut self, block: HomeBlock, by: TransactionId) {
        if self.get(block).is_some_and(|copy| !copy.by.is_after(by)) {
            self.copies.remove(block.get());
            self.count();
        }
    }
    /// Notes that `run` now lies elsewhere in the log.
    pub fn moved(&mut self, block: HomeBlock, run: &SwappedRun) {
        if let Some(copy) = self.get(block).filter(|copy| copy.by == run.transaction) {
            self.copies.insert(block.get(), LogCopy { at: run.moved(copy.at), ..copy });
        }
    }
    pub fn forget_all(&mut self) {
        self.copies = CompactMap::default();
        self.count();
    }
    /// Whether there are some, and none was entered less than `age` ago.
    pub fn is_older_than(&self, age: Duration, now: Instant) -> bool {
        !self.is_empty() && self.newest.plus(age) <= now
    }
    pub fn first_within(&self, blocks: &Range<HomeBlock>) -> Option<HomeBlock> {
        let mut found = self.copies.range(blocks.start.get(), blocks.end.get());
        found.next().map(|(block, _)| HomeBlock(block))
    }
    pub fn has_some_to_write_back(&self) -> bool {
        self.copies.iter().any(|(_, copy)| !copy.durable_only)
    }
    /// Returns the blocks, sorted: all, or those that are not to stay in the log.
    pub fn blocks(&self, with_those_that_stay: bool) -> Vec<HomeBlock> {
        let found =
            self.copies.iter().filter(|(_, copy)| with_those_that_stay || !copy.durable_only);
        found.map(|(block, _)| HomeBlock(block)).collect()
    }
    /// Returns the blocks within `runs` (first block and count, in order and apart), sorted.
    pub fn within(&self, runs: &[(HomeBlock, u64)]) -> Vec<HomeBlock> {
        let (Some((first, _)), Some((last, count))) = (runs.first(), runs.last()) else {
            return Vec::new();
        };
        let found = self.copies.range(first.get(), last.plus(*count).get());
        found.map(|(block, _)| HomeBlock(block)).filter(|block| is_within(runs, *block)).collect()
    }
    /// Bytes of memory: always what it takes now.
    pub fn memory(&self) -> Rc<Cell<usize>> {
        self.memory.clone()
    }
    fn count(&self) {
        self.memory.set(self.copies.memory());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`CompactMap`] promises at most 32 bytes for an entry of this size.
    #[test]
    fn an_entry_has_24_bytes() {
        assert_eq!(size_of::<(HomeBlock, LogCopy)>(), 24);
    }

    #[test]
    fn an_entry_stays_until_what_it_names_is_needed_no_more() {
        let mut mapping = Mapping::default();
        let copy = |by| {
            LogCopy::new(
                TransactionId(by),
                WholeBlockLocation { at: LogBlock(9), offset: 3 },
                7,
                Contents::Data,
                false,
            )
        };
        [3, 4, 8]
            .into_iter()
            .for_each(|block| mapping.insert(HomeBlock(block), copy(u32::MAX), Instant(1)));
        mapping.forget(HomeBlock(3), TransactionId(u32::MAX - 1));
        mapping.forget(HomeBlock(4), TransactionId(0));
        assert_eq!(mapping.blocks(true), [3, 8].map(HomeBlock));
        mapping.insert(HomeBlock(3), copy(1), Instant(5));
        let age = Duration::from_nanos(2);
        assert!(mapping.is_older_than(age, Instant(7)) && !mapping.is_older_than(age, Instant(6)));
        assert_eq!(mapping.first_within(&(HomeBlock(4)..HomeBlock(9))), Some(HomeBlock(8)));
        mapping.forget(HomeBlock(3), TransactionId(0));
        assert_eq!(mapping.get(HomeBlock(3)), Some(copy(1)));
        let runs = [(HomeBlock(0), 3), (HomeBlock(8), 1)];
        assert_eq!(mapping.within(&runs), [HomeBlock(8)]);
    }
}
