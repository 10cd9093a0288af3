//! Which committed transactions still need which home blocks, and how far the log tail may move.

use crate::plan::Plan;
use crate::transaction::CommittedTransaction;
use device::Buffer;
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// The committed transactions in the log, oldest first. Bounded by the log.
#[derive(Debug, Default)]
pub struct Checkpoint {}

impl Checkpoint {
    /// `next`: the transaction that will commit first, and where it will begin.
    pub fn new(next: TransactionId, head: LogBlock) -> Checkpoint {
        todo!()
    }
    /// `transaction` is durable in the log. `head` is where the one after it will begin.
    pub fn committed(&mut self, transaction: &CommittedTransaction, head: LogBlock) {
        todo!()
    }
    /// The content of `block` with all updates up to `as_of` has been written home (a barrier is still due).
    pub fn home_written(&mut self, block: HomeBlock, as_of: TransactionId) {
        todo!()
    }
    /// Replay of `block` from transactions up to `by` is no longer needed: `by` revoked it and is committed.
    /// (`committed` does this by itself for the revokes of a transaction.)
    pub fn forgotten(&mut self, block: HomeBlock, by: TransactionId) {
        todo!()
    }
    /// The oldest transaction that replay still needs and where it begins; the next one to commit and the log
    /// head when nothing is needed. True on disk only after `plan_tail_update` has been carried out.
    pub fn tail(&self) -> (TransactionId, LogBlock) {
        todo!()
    }
    /// No transaction needs replay.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Log blocks taken by transactions at or after the tail.
    pub fn blocks_needed(&self) -> u32 {
        todo!()
    }
    /// Home blocks to write so that at least `log_blocks` log blocks can be freed: those the oldest
    /// transactions need, sorted by address, each once. At most `max`; call again for more.
    pub fn blocks_to_write(&self, log_blocks: u32, max: usize) -> Vec<HomeBlock> {
        todo!()
    }
    /// Every block that any transaction still needs, sorted.
    pub fn all_blocks(&self) -> Vec<HomeBlock> {
        todo!()
    }
    /// The newest transaction that holds a record of `block` which is not known to be home.
    pub fn newest(&self, block: HomeBlock) -> Option<TransactionId> {
        todo!()
    }
}

/// HomeBeforeLogTail, the journal superblock `image` (a whole block) at `at`, TailBeforeReuse.
pub fn plan_tail_update(at: LogBlock, image: Rc<Buffer>) -> Plan {
    todo!()
}
