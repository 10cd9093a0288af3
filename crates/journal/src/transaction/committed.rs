//! A transaction on its way to the log, and in the log: what checkpoint and revoke need of it.

use super::Coverage;
use units::{HomeBlock, TransactionId};

/// Its commit plan is being carried out.
#[derive(Debug)]
pub struct CommittingTransaction {
    id: TransactionId,
    revoked: Vec<HomeBlock>,
}

/// Its commit block is durable.
#[derive(Clone, Debug)]
pub struct CommittedTransaction {
    pub id: TransactionId,
    /// How many log blocks it takes.
    pub log_blocks: u32,
    /// What it logged, sorted by block.
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
    /// Its commit block is durable, the last of `log_blocks`. `records`: what it logged, sorted by
    /// block.
    pub(crate) fn committed(
        self,
        log_blocks: u32,
        records: Vec<(HomeBlock, Coverage)>,
    ) -> CommittedTransaction {
        CommittedTransaction { id: self.id, log_blocks, records, revoked: self.revoked }
    }
}
