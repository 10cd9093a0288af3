//! The locked transaction: sorted, and as it will be written.

use super::{CommittingTransaction, Record};
use crate::ranges::RangeSet;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockSize, HomeBlock, Instant, TransactionId};

/// A transaction that no handle can join any more; nothing in it changes.
#[derive(Debug)]
pub struct LockedTransaction {
    pub(crate) id: TransactionId,
    pub(crate) started: Instant,
    pub(crate) block_size: BlockSize,
    pub(crate) handles: u64,
    pub(crate) metadata: BTreeMap<HomeBlock, RangeSet>,
    pub(crate) data: BTreeMap<HomeBlock, Record>,
    /// Blocks of data whose files need only durability.
    pub(crate) durable_only: BTreeSet<HomeBlock>,
    /// Blocks to be written home before the commit, sorted.
    pub(crate) home_data: Vec<HomeBlock>,
    /// Whether some were written early, so that the barrier before the commit is needed though no
    /// block is left.
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
    /// Returns every block whose image the commit needs, sorted within each kind.
    pub fn metadata(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.metadata.keys().copied()
    }
    /// Returns the metadata blocks, sorted, each with its changed ranges.
    pub fn metadata_ranges(&self) -> impl Iterator<Item = (HomeBlock, &RangeSet)> + '_ {
        self.metadata.iter().map(|(block, ranges)| (*block, ranges))
    }
    pub fn data(&self) -> impl Iterator<Item = (HomeBlock, &Record)> + '_ {
        self.data.iter().map(|(block, record)| (*block, record))
    }
    /// Returns the number of blocks that it logs.
    pub fn logged_blocks(&self) -> u64 {
        (self.metadata.len() + self.data.len()) as u64
    }
    /// Whether durability is enough for the file of a block of data.
    pub fn is_durable_only(&self, block: HomeBlock) -> bool {
        self.durable_only.contains(&block)
    }
    pub fn home_data(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.home_data.iter().copied()
    }
    pub fn revoked(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.revoked.iter().copied()
    }
    /// Returns the bytes of file data that callers wrote in this transaction.
    pub fn payload(&self) -> u64 {
        self.payload
    }
    /// Whether there is nothing to write, so that it is committed as it stands.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty()
            && self.data.is_empty()
            && self.home_data.is_empty()
            && !self.home_written_early
            && self.revoked.is_empty()
    }
    /// Marks the metadata blocks for which `is_hot` is true to be logged whole.
    pub(crate) fn log_whole(&mut self, is_hot: impl Fn(HomeBlock) -> bool) {
        for (_, ranges) in self.metadata.iter_mut().filter(|(block, _)| is_hot(**block)) {
            *ranges = RangeSet::of(self.block_size.whole());
        }
    }
    /// Starts the commit: the plan has been made and is being carried out.
    pub fn start_commit(self) -> CommittingTransaction {
        CommittingTransaction::new(self.id, self.revoked)
    }
}
