//! Tracks which committed transactions still need which home blocks, and how far the log tail may
//! move.
//!
//! A transaction is needed while replaying it would write something that is not home yet.
//! Invariants:
//! 1. A whole-block record supersedes all older records of its block, so those transactions no
//!    longer need the block. A fragment supersedes nothing.
//! 2. A block counts as home only up to the transaction whose content was written.
//! 3. The tail is the oldest needed transaction; it never moves back, and never past a needed one.
//!
//! The log itself knows where each transaction lies (`LogSpace::start_of`).

use crate::transaction::{CommittedTransaction, Coverage, LockedTransaction};
use std::collections::{BTreeSet, VecDeque};
use units::{BlockMap, HomeBlock, TransactionId};

/// The committed transactions in the log, oldest first. Bounded by the log.
#[derive(Debug)]
pub struct Checkpoint {
    entries: VecDeque<Entry>,
    /// Blocks whose newest records are not known to be home. Used for look-ups only.
    needs: BlockMap<Need>,
    /// The transaction that commits next.
    next: TransactionId,
    /// Log blocks of all transactions so far.
    logged: u64,
}

#[derive(Debug)]
struct Entry {
    id: TransactionId,
    log_blocks: u32,
    /// Log blocks of all transactions before this one.
    logged_before: u64,
    /// Number of blocks whose oldest needed record is in this transaction.
    needed: usize,
    /// Blocks that were once counted in `needed`; `needs` has those that still are.
    candidates: Vec<HomeBlock>,
}

#[derive(Clone, Copy, Debug)]
struct Need {
    /// The oldest transaction that replay of the block must begin with.
    oldest: TransactionId,
    newest: TransactionId,
}

impl Checkpoint {
    /// Creates an empty checkpoint state. `next`: the transaction that will commit first.
    pub fn new(next: TransactionId) -> Checkpoint {
        Checkpoint { entries: VecDeque::new(), needs: BlockMap::default(), next, logged: 0 }
    }

    /// Adds `transaction`, which is durable in the log. Transactions come in order, without gaps.
    pub fn committed(&mut self, transaction: &CommittedTransaction) {
        assert_eq!(transaction.id, self.next, "transactions commit in order");
        let id = transaction.id;
        self.entries.push_back(Entry {
            id,
            log_blocks: transaction.log_blocks,
            logged_before: self.logged,
            needed: 0,
            candidates: Vec::new(),
        });
        self.logged += u64::from(transaction.log_blocks);
        self.next = id.next();
        for block in &transaction.revoked {
            self.release_up_to(*block, id);
        }
        for (block, coverage) in &transaction.records {
            self.record(*block, *coverage, id);
        }
        self.drop_unneeded();
    }

    fn record(&mut self, block: HomeBlock, coverage: Coverage, id: TransactionId) {
        match (self.needs.get_mut(&block), coverage) {
            (Some(need), Coverage::Fragment) => need.newest = id,
            (Some(_), Coverage::Whole) => {
                self.release(block);
                self.require(block, Need { oldest: id, newest: id });
            }
            (None, _) => self.require(block, Need { oldest: id, newest: id }),
        }
    }

    /// Records that the content of `block` with all updates up to `as_of` has been written home.
    /// The barrier is still to come.
    pub fn home_written(&mut self, block: HomeBlock, as_of: TransactionId) {
        self.release_up_to(block, as_of);
        self.drop_unneeded();
    }

    fn release_up_to(&mut self, block: HomeBlock, as_of: TransactionId) {
        let Some(need) = self.needs.get(&block).copied() else { return };
        if need.oldest.is_after(as_of) {
            return;
        }
        self.release(block);
        if need.newest.is_after(as_of) {
            // Some record after `as_of` is still needed. The first such was not kept, so assume the
            // next.
            self.require(block, Need { oldest: as_of.next(), newest: need.newest });
        }
    }

    /// Records that `by` revoked `block` and is committed, so replay of the block from transactions
    /// up to `by` is no longer needed. (`committed` does this itself for the revokes of a
    /// transaction.)
    pub fn forgotten(&mut self, block: HomeBlock, by: TransactionId) {
        self.home_written(block, by);
    }

    /// Returns the oldest transaction that replay still needs, or the next one to commit when
    /// nothing is needed. True on disk only after [`crate::plan_tail_update`] has been carried out.
    pub fn tail(&self) -> TransactionId {
        self.entries
            .back()
            .filter(|_| units::fault!("tail-past-needed"))
            .or(self.entries.front())
            .map_or(self.next, |entry| entry.id)
    }

    /// Whether no transaction needs replay.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of log blocks of transactions at or after the tail.
    pub fn blocks_needed(&self) -> u32 {
        self.entries.iter().map(|entry| entry.log_blocks).sum()
    }

    /// Returns the home blocks to write so that at least `log_blocks` log blocks can be freed:
    /// those the oldest transactions need, sorted by address, each once. At most `max`; call again
    /// for more.
    pub fn blocks_to_write(&self, log_blocks: u32, max: usize) -> Vec<HomeBlock> {
        let (mut freed, mut blocks) = (0, BTreeSet::new());
        for entry in &self.entries {
            if freed >= log_blocks || blocks.len() >= max {
                break;
            }
            freed += entry.log_blocks;
            let room = max - blocks.len();
            blocks.extend(self.needed_by(entry).take(room));
        }
        blocks.into_iter().collect()
    }

    /// Returns every block that any transaction still needs, sorted.
    pub fn all_blocks(&self) -> Vec<HomeBlock> {
        let mut blocks: Vec<HomeBlock> = self.needs.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// Returns the oldest transaction that replay of `block` must begin with, if home lacks any of
    /// it.
    pub fn oldest(&self, block: HomeBlock) -> Option<TransactionId> {
        self.needs.get(&block).map(|need| need.oldest)
    }

    /// Returns the newest transaction that holds a record of `block` not known to be home.
    pub fn newest(&self, block: HomeBlock) -> Option<TransactionId> {
        self.needs.get(&block).map(|need| need.newest)
    }

    /// Whether the oldest record that `block` needs lies in the oldest quarter of what write-back
    /// leaves of a log of `capacity` blocks. Write-back keeps half of the log free.
    pub fn holds_up_tail(&self, block: HomeBlock, capacity: u32) -> bool {
        const KEPT_OLDEST_QUARTER: u64 = 2 * 4;
        let Some(need) = self.needs.get(&block) else { return false };
        let since = self.logged - self.entries[self.index_of(need.oldest)].logged_before;
        since > u64::from(capacity) * 3 / KEPT_OLDEST_QUARTER
    }

    /// Marks metadata blocks of `transaction` that hold up the tail of a log of `capacity` blocks
    /// to be logged whole. Otherwise constantly changing blocks would pin the tail, as each
    /// fragment needs all earlier ones.
    pub fn log_hot_blocks_whole(&self, transaction: &mut LockedTransaction, capacity: u32) {
        let never = units::fault!("hot-blocks-as-fragments");
        transaction.log_whole(|block| !never && self.holds_up_tail(block, capacity));
    }

    fn needed_by<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = HomeBlock> + 'a {
        let is_needed =
            |block: &HomeBlock| self.needs.get(block).is_some_and(|need| need.oldest == entry.id);
        entry.candidates.iter().copied().filter(is_needed)
    }

    fn index_of(&self, id: TransactionId) -> usize {
        let front = self.entries.front().expect("a needed transaction is in the log").id;
        id.0.wrapping_sub(front.0) as usize
    }

    fn entry(&mut self, id: TransactionId) -> &mut Entry {
        let index = self.index_of(id);
        &mut self.entries[index]
    }

    fn require(&mut self, block: HomeBlock, need: Need) {
        let entry = self.entry(need.oldest);
        entry.needed += 1;
        entry.candidates.push(block);
        self.needs.insert(block, need);
    }

    fn release(&mut self, block: HomeBlock) {
        let need = self.needs.remove(&block).expect("a needed block");
        self.entry(need.oldest).needed -= 1;
    }

    /// Drops unneeded transactions from the front only: those behind a needed one stay in the log
    /// anyway.
    fn drop_unneeded(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.needed == 0) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HomeBlock = HomeBlock(100);
    const B: HomeBlock = HomeBlock(50);

    /// Commits transactions of two log blocks each, the first one just before the wrap of ids.
    struct Log {
        checkpoint: Checkpoint,
        next: u32,
    }
    impl Log {
        fn new() -> Log {
            Log { checkpoint: Checkpoint::new(id(0)), next: 0 }
        }
        fn commit(&mut self, records: &[(HomeBlock, Coverage)], revoked: &[HomeBlock]) {
            let transaction = CommittedTransaction {
                id: id(self.next),
                log_blocks: 2,
                records: records.to_vec(),
                revoked: revoked.to_vec(),
            };
            self.next += 1;
            self.checkpoint.committed(&transaction);
        }
        fn tail(&self) -> u32 {
            self.checkpoint.tail().0.wrapping_sub(id(0).0)
        }
    }
    fn id(number: u32) -> TransactionId {
        TransactionId((u32::MAX - 1).wrapping_add(number))
    }

    #[test]
    fn the_tail_stays_until_the_oldest_record_is_home() {
        let mut log = Log::new();
        log.commit(&[(A, Coverage::Fragment)], &[]);
        log.commit(&[(A, Coverage::Fragment), (B, Coverage::Whole)], &[]);
        log.commit(&[(A, Coverage::Fragment)], &[]);
        assert_eq!((log.tail(), log.checkpoint.blocks_needed()), (0, 6));
        log.checkpoint.home_written(B, id(1));
        assert_eq!(log.tail(), 0);
        log.checkpoint.home_written(A, id(0));
        assert_eq!(log.tail(), 1);
        log.checkpoint.home_written(A, id(2));
        assert_eq!(log.tail(), 3);
        assert!(log.checkpoint.is_empty());
    }

    #[test]
    fn a_whole_block_supersedes_older_records_and_a_fragment_does_not() {
        let mut log = Log::new();
        log.commit(&[(A, Coverage::Whole)], &[]);
        log.commit(&[(A, Coverage::Fragment)], &[]);
        assert_eq!(log.tail(), 0);
        log.commit(&[(A, Coverage::Whole)], &[]);
        assert_eq!((log.tail(), log.checkpoint.newest(A)), (2, Some(id(2))));
    }

    #[test]
    fn an_old_home_write_does_not_release_newer_records() {
        let mut log = Log::new();
        log.commit(&[(A, Coverage::Whole)], &[]);
        log.commit(&[(B, Coverage::Whole)], &[]);
        log.commit(&[(A, Coverage::Whole)], &[]);
        log.checkpoint.home_written(A, id(1));
        assert_eq!(log.tail(), 1);
        log.checkpoint.home_written(B, id(1));
        assert_eq!((log.tail(), log.checkpoint.all_blocks()), (2, vec![A]));
    }

    #[test]
    fn a_committed_revoke_releases_the_block_but_not_its_later_life() {
        let mut log = Log::new();
        log.commit(&[(A, Coverage::Whole)], &[]);
        log.commit(&[(B, Coverage::Whole)], &[A]);
        assert_eq!((log.tail(), log.checkpoint.newest(A)), (1, None));
        log.commit(&[(A, Coverage::Fragment)], &[]);
        assert_eq!(log.checkpoint.all_blocks(), [B, A]);
    }

    #[test]
    fn under_pressure_the_blocks_of_the_oldest_transactions_are_written_first() {
        let mut log = Log::new();
        for number in 0..10 {
            log.commit(&[(HomeBlock(10 - number), Coverage::Whole), (A, Coverage::Fragment)], &[]);
        }
        let three = [HomeBlock(8), HomeBlock(9), HomeBlock(10), A];
        assert_eq!(log.checkpoint.blocks_to_write(5, 100), three);
        assert_eq!(log.checkpoint.blocks_to_write(5, 2).len(), 2);
        for block in three {
            log.checkpoint.home_written(block, id(9));
        }
        assert_eq!(log.tail(), 3);
    }

    #[test]
    fn an_ever_changing_block_is_known_before_it_holds_up_the_tail() {
        let mut log = Log::new();
        let capacity = 2 * 16;
        for _ in 0..6 {
            assert!(!log.checkpoint.holds_up_tail(A, capacity));
            log.commit(&[(A, Coverage::Fragment), (B, Coverage::Whole)], &[]);
        }
        log.commit(&[], &[]);
        assert!(
            log.checkpoint.holds_up_tail(A, capacity) && !log.checkpoint.holds_up_tail(B, capacity)
        );
        log.commit(&[(A, Coverage::Whole)], &[]);
        assert!(!log.checkpoint.holds_up_tail(A, capacity));
        assert_eq!(log.tail(), 5);
    }

    #[test]
    fn a_transaction_with_nothing_to_replay_is_not_kept() {
        let mut log = Log::new();
        log.commit(&[], &[]);
        assert_eq!(log.tail(), 1);
        assert!(log.checkpoint.is_empty());
    }
}
