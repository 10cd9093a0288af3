//! WHERE the log lies: a log owns its space, the order in which room is handed out and taken back, and the order in
//! which it is read.
//!
//! Invariants of every log:
//! 1. Transactions reserve room in the order of their ids, without gaps. What one has reserved is its own until it is
//!    released.
//! 2. A log may choose addresses late: a plan names slots (the n-th block of a transaction), and `bind` says where they
//!    lie. It is called once for each transaction, in order, before any of its blocks is written.
//! 3. A transaction is released by its id, in any order, and only once no recovery can need it: what it logged is durable
//!    at home, and what the log says on disk about its beginning is durable, too. When its room can be used again is the
//!    log's own matter.
//! 4. From where the oldest unreleased transaction starts, [`LogWalk::next`] visits the blocks of all transactions in the
//!    order of ids and slots. Nobody else knows how to walk a log.

mod circular;

pub use circular::{CircularLog, Ring};

use std::fmt;
use units::{LogBlock, TransactionId};

/// Consecutive log blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRun {
    pub start: LogBlock,
    pub count: u32,
}

/// The log blocks of one transaction, in log order: one run, or two where the log wraps (scattered logs: more).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogRuns(pub Vec<LogRun>);

impl LogRuns {
    pub fn count(&self) -> u32 {
        self.0.iter().map(|run| run.count).sum()
    }
    pub fn start(&self) -> Option<LogBlock> {
        self.0.first().map(|run| run.start)
    }
    /// Where `count` blocks from the one with the number `index` lie. All of them are there.
    pub fn part(&self, index: u32, count: u32) -> Vec<LogRun> {
        let (mut skip, mut left, mut part) = (index, count, Vec::new());
        for run in &self.0 {
            let skipped = skip.min(run.count);
            let taken = left.min(run.count - skipped);
            (skip, left) = (skip - skipped, left - taken);
            if taken > 0 {
                part.push(LogRun { start: run.start.plus(skipped), count: taken });
            }
        }
        assert_eq!(left, 0, "blocks {index}+{count} of a transaction of {}", self.count());
        part
    }
}

/// A block of a transaction's log, wherever it will lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSlot {
    pub transaction: TransactionId,
    /// Counted from the transaction's first block.
    pub index: u32,
}

/// More blocks were asked for than are free. Reservation (credits) must make this impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has {free} free blocks and the transaction needs {needed}")]
pub struct LogFull {
    pub needed: u32,
    pub free: u32,
}

/// The order in which the blocks of a log are read, as recovery finds it before there is a [`LogSpace`]. Asks no disk.
pub trait LogWalk: fmt::Debug {
    /// The block that follows `at` in the order of the log; `None` if it ends there.
    fn next(&self, at: LogBlock) -> Option<LogBlock>;
    /// How many blocks, `at` included, follow each other both in the log and by address.
    fn together(&self, at: LogBlock) -> u32;
    /// No walk is longer.
    fn blocks(&self) -> u32;
}

pub trait LogSpace {
    /// Blocks that can ever be in use at once.
    fn capacity(&self) -> u32;
    /// Blocks that `reserve` can hand out now.
    fn free(&self) -> u32;
    /// Takes `count` (> 0) blocks for `transaction`, which follows the last one that took some.
    fn reserve(&mut self, transaction: TransactionId, count: u32) -> Result<(), LogFull>;
    /// Says where the blocks of `transaction` lie, at the latest moment: its plan is being issued.
    fn bind(&mut self, transaction: TransactionId) -> LogRuns;
    /// Where `transaction` starts, if it is bound; where the next one will, if the log knows already.
    fn start_of(&self, transaction: TransactionId) -> Option<LogBlock>;
    /// The oldest transaction that has not been released.
    fn oldest(&self) -> Option<TransactionId>;
    /// No recovery can need `transaction` any more.
    fn release(&mut self, transaction: TransactionId);
    /// Releases every transaction before `tail`.
    fn release_before(&mut self, tail: TransactionId) {
        while let Some(oldest) = self.oldest().filter(|oldest| tail.is_after(*oldest)) {
            self.release(oldest);
        }
    }
}
