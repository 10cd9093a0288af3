//! Home blocks with records in the log on disk that a replay would carry out.
//!
//! Invariants
//! 1. Of a block the newest transaction that has a record counts, until the tail has passed it or a
//!    later one revokes it.
//! 2. The transactions follow each other without gaps, oldest first.

use std::collections::VecDeque;
use units::{BlockAreas, BlockMap, HomeBlock, TransactionId};

/// Freeing one of them needs a revoke.
#[derive(Default)]
pub(crate) struct LiveRecords {
    latest: BlockMap<TransactionId>,
    areas: BlockAreas,
    transactions: VecDeque<(TransactionId, Vec<HomeBlock>)>,
}

impl LiveRecords {
    pub fn len(&self) -> usize {
        self.latest.len()
    }
    /// Returns the blocks of which `transaction` has records.
    pub fn blocks_of(&self, transaction: TransactionId) -> &[HomeBlock] {
        let Some((oldest, _)) = self.transactions.front() else { return &[] };
        let index = transaction.0.wrapping_sub(oldest.0) as usize;
        let found = self.transactions.get(index).filter(|(id, _)| *id == transaction);
        found.map_or(&[], |(_, blocks)| blocks)
    }
    pub fn contains(&self, block: HomeBlock) -> bool {
        self.latest.contains_key(&block)
    }
    /// The blocks with records within `runs` (first block and count, in order and apart), sorted.
    pub fn within(&self, runs: &[(HomeBlock, u64)]) -> Vec<HomeBlock> {
        runs.iter().flat_map(|(at, count)| self.in_run(*at, *count)).collect()
    }
    /// The blocks with records among the `count` from `at` on, sorted. Visits only areas that have
    /// one.
    pub fn in_run(&self, at: HomeBlock, count: u64) -> impl Iterator<Item = HomeBlock> + '_ {
        let parts = self.areas.parts(at, count);
        let blocks = parts.flat_map(|(at, count)| (0..count).map(move |index| at.plus(index)));
        blocks.filter(|block| self.contains(*block))
    }
    /// Returns the number of look-ups that [`LiveRecords::in_run`] makes for the range.
    pub fn visits(&self, at: HomeBlock, count: u64) -> u64 {
        self.areas.visits(at, count)
    }
    /// Notes that `by` is committed and revokes these blocks: no replay carries out what older
    /// transactions hold of them.
    pub fn revoked(&mut self, by: TransactionId, blocks: &[HomeBlock]) {
        for block in blocks {
            if self.latest.get(block).is_some_and(|transaction| by.is_after(*transaction)) {
                self.latest.remove(block);
                self.areas.remove(*block);
            }
        }
    }
    /// Adds the records of `transaction`, which is about to be written to the log.
    pub fn add(&mut self, transaction: TransactionId, blocks: Vec<HomeBlock>) {
        for block in &blocks {
            if self.latest.insert(*block, transaction).is_none() {
                self.areas.add(*block);
            }
        }
        self.transactions.push_back((transaction, blocks));
    }
    /// The log on disk now begins with `tail`.
    pub fn release_before(&mut self, tail: TransactionId) {
        while self.transactions.front().is_some_and(|(transaction, _)| tail.is_after(*transaction))
        {
            let (transaction, blocks) = self.transactions.pop_front().expect("a front");
            for block in blocks {
                if self.latest.get(&block) == Some(&transaction) {
                    self.latest.remove(&block);
                    self.areas.remove(block);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_live_records_until_its_last_transaction_leaves_the_log() {
        let mut live = LiveRecords::default();
        let [first, second] = [TransactionId(u32::MAX), TransactionId(0)];
        live.add(first, vec![HomeBlock(1), HomeBlock(2)]);
        live.add(second, vec![HomeBlock(2)]);
        live.release_before(second);
        assert_eq!(
            (live.contains(HomeBlock(1)), live.contains(HomeBlock(2)), live.len()),
            (false, true, 1)
        );
        live.release_before(second.next());
        assert_eq!(live.len(), 0);
    }

    /// Memory of a record, as `docs/MOUNT_OPTIONS.md` states it.
    const BYTES_A_RECORD: usize = 64;

    impl LiveRecords {
        /// Returns the bytes of the table: a pair and a byte for each slot, of which an eighth
        /// stays empty.
        fn bytes(&self) -> usize {
            let places = self.latest.capacity().div_ceil(7) * 8;
            let lists = self
                .transactions
                .iter()
                .map(|(_, blocks)| blocks.capacity() * size_of::<HomeBlock>());
            let entries =
                self.transactions.capacity() * size_of::<(TransactionId, Vec<HomeBlock>)>();
            places * (size_of::<(HomeBlock, TransactionId)>() + 1) + lists.sum::<usize>() + entries
        }
    }

    #[test]
    fn a_record_in_the_log_takes_no_more_memory_than_the_manual_says() {
        let mut live = LiveRecords::default();
        let mut records = 0;
        // Tables have just grown where they are dearest.
        for (transaction, count) in
            (1..).zip([7, 1, 57, 1000, 15_000, 40_000, 58_000].into_iter().cycle().take(40))
        {
            live.add(
                TransactionId(transaction),
                (records..records + count).map(HomeBlock).collect(),
            );
            records += count;
            if records > 100 {
                let (bytes, most) = (live.bytes(), records as usize * BYTES_A_RECORD);
                assert!(bytes <= most, "{records} records: {bytes} bytes");
            }
        }
        assert!(
            live.bytes() > records as usize * BYTES_A_RECORD / 4,
            "the count misses most of it"
        );
        live.release_before(TransactionId(41));
        assert_eq!(live.len(), 0);
    }
}
