//! A transaction in flight to the log, and in the log: what checkpoint and revoke need of it.

use super::Coverage;
use units::{HomeBlock, TransactionId};

/// A transaction whose commit plan is being carried out.
#[derive(Debug)]
pub struct CommittingTransaction {
    id: TransactionId,
    revoked: Vec<HomeBlock>,
}

/// A transaction whose commit block is durable.
#[derive(Clone, Debug)]
pub struct CommittedTransaction {
    pub id: TransactionId,
    /// Number of its log blocks.
    pub log_blocks: u32,
    /// Records that it logged, sorted by block.
    pub records: Vec<(HomeBlock, Coverage)>,
    pub revoked: Vec<HomeBlock>,
}

impl CommittingTransaction {
    pub(super) fn new(
        id: TransactionId,
        revoked: impl IntoIterator<Item = HomeBlock>,
    ) -> CommittingTransaction {
        CommittingTransaction { id, revoked: revoked.into_iter().collect() }
    }
    pub fn id(&self) -> TransactionId {
        self.id
    }
    /// Returns the committed transaction: its commit block is durable, the last of `log_blocks`.
    /// `records`: what it logged, sorted by block.
    pub(crate) fn committed(
        self,
        log_blocks: u32,
        records: Vec<(HomeBlock, Coverage)>,
    ) -> CommittedTransaction {
        CommittedTransaction { id: self.id, log_blocks, records, revoked: self.revoked }
    }
}
