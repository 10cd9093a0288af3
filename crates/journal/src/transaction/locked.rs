//! The locked transaction: sorted, and as it will be written.

use super::{CommittingTransaction, Coverage, Record};
use crate::checkpoint::Checkpoint;
use crate::ranges::RangeSet;
use crate::records::Records;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockSize, HomeBlock, Instant, TransactionId};

/// No handle can join any more; nothing changes any more.
#[derive(Debug)]
pub struct LockedTransaction {
    pub(crate) id: TransactionId,
    pub(crate) started: Instant,
    pub(crate) block_size: BlockSize,
    pub(crate) handles: u64,
    pub(crate) metadata: BTreeMap<HomeBlock, RangeSet>,
    pub(crate) data: BTreeMap<HomeBlock, Record>,
    /// Of the data, the blocks of files for which durability is enough.
    pub(crate) stays: BTreeSet<HomeBlock>,
    /// Sorted.
    pub(crate) home_data: Vec<HomeBlock>,
    /// Some were written early, so that the barrier before the commit is due though no block is left.
    pub(crate) home_written_early: bool,
    pub(crate) revoked: BTreeSet<HomeBlock>,
    pub(crate) payload: u64,
}

impl LockedTransaction {
    pub fn id(&self) -> TransactionId {
        self.id
    }
    pub fn started(&self) -> Instant {
        self.started
    }
    pub fn handles(&self) -> u64 {
        self.handles
    }
    /// Every block whose image the commit needs, sorted within each kind.
    pub fn metadata(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.metadata.keys().copied()
    }
    /// The same, with what changed of each.
    pub fn metadata_ranges(&self) -> impl Iterator<Item = (HomeBlock, &RangeSet)> + '_ {
        self.metadata.iter().map(|(block, ranges)| (*block, ranges))
    }
    pub fn data(&self) -> impl Iterator<Item = (HomeBlock, &Record)> + '_ {
        self.data.iter().map(|(block, record)| (*block, record))
    }
    /// Whether durability is enough for the file of a block of data.
    pub fn stays(&self, block: HomeBlock) -> bool {
        self.stays.contains(&block)
    }
    pub fn home_data(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.home_data.iter().copied()
    }
    pub fn revoked(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.revoked.iter().copied()
    }
    /// Bytes of file data that callers wrote in this transaction.
    pub fn payload(&self) -> u64 {
        self.payload
    }
    /// Nothing to write: it is committed as it stands.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty()
            && self.data.is_empty()
            && self.home_data.is_empty()
            && !self.home_written_early
            && self.revoked.is_empty()
    }
    /// What replaying each record needs, sorted by block.
    pub(crate) fn coverage(&self, format: &dyn Records) -> Vec<(HomeBlock, Coverage)> {
        let metadata = self.metadata.iter().map(|(block, ranges)| (*block, format.metadata_coverage(ranges)));
        let data = self.data.iter().map(|(block, record)| (*block, record.coverage()));
        let mut records: Vec<_> = metadata.chain(data).collect();
        records.sort_unstable_by_key(|(block, _)| *block);
        records
    }
    /// Logs metadata blocks whole whose oldest needed record lies far back in a log of `capacity` blocks. Blocks that
    /// change all the time would else keep the log's tail where it is, as each fragment needs all that were before.
    pub fn log_hot_blocks_whole(&mut self, checkpoint: &Checkpoint, capacity: u32) {
        for (block, ranges) in &mut self.metadata {
            if checkpoint.holds_up_tail(*block, capacity) {
                *ranges = RangeSet::of(self.block_size.whole());
            }
        }
    }
    /// The plan has been made and is being carried out.
    pub fn start_commit(self) -> CommittingTransaction {
        CommittingTransaction::new(self.id, self.revoked)
    }
}
