//! WHERE the log lies. A log owns its space, the order in which space is reserved and freed, and
//! the order in which it is read.
//!
//! Invariants of every log:
//! 1. Transactions reserve space in the order of their ids, without gaps. Reserved space belongs to
//!    its transaction until that is released.
//! 2. A log may choose addresses late: a plan names slots (the n-th block of a transaction), and
//!    `bind` gives their addresses. It is called once for each transaction, in order, before any of
//!    its blocks is written.
//! 3. A transaction is released by its id, in any order, and only once no recovery can need it: all
//!    that it logged is durable at home, and so is the beginning of the log that the disk records.
//!    The log decides when the space can be used again.
//! 4. From where the oldest unreleased transaction starts, [`LogWalk::next`] visits the blocks of
//!    all transactions in the order of ids and slots. No other code knows how to walk a log.

mod circular;
mod free_space;
mod gaps;
mod held;
mod run_table;
mod scattered;
mod scattered_log_map;
mod swap;

pub use circular::{CircularLog, LogRing};
pub use gaps::{Gaps, LogGap, TimedCommit};
pub use run_table::TablePage;
pub(crate) use scattered::ANNOUNCED_LENGTH_MIN;
pub use scattered::ScatteredLog;
pub use scattered_log_map::{Logs, ScatteredLogMap};
pub use swap::{LogSwap, SwappedRun};

use device::Buffer;
use format::jbd2::JournalSuperblock;
use format::scattered::ActiveLogs;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use units::{HomeBlock, LogBlock, TransactionId};

/// The `log=` option of a mount: where the log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogKind {
    #[default]
    Circular,
    Scattered,
}

impl LogKind {
    pub const ALL: [LogKind; 2] = [LogKind::Circular, LogKind::Scattered];

    pub fn name(self) -> &'static str {
        match self {
            LogKind::Circular => "circular",
            LogKind::Scattered => "scattered",
        }
    }
}

impl FromStr for LogKind {
    type Err = String;
    fn from_str(name: &str) -> Result<LogKind, String> {
        let found = LogKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            format!("log={name}: unknown kind of log; known are circular, scattered")
        })
    }
}

/// Consecutive log blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRun {
    pub start: LogBlock,
    pub count: u32,
}

/// The log blocks of one transaction, in log order: one run, or two where the log wraps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogRuns(pub Vec<LogRun>);

impl LogRuns {
    pub fn count(&self) -> u32 {
        self.0.iter().map(|run| run.count).sum()
    }
    pub fn start(&self) -> Option<LogBlock> {
        self.0.first().map(|run| run.start)
    }
    /// Returns where `count` blocks from the one with the number `index` lie. All of them exist.
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

/// A block of a transaction's log, whatever its address will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSlot {
    pub transaction: TransactionId,
    /// Index, counted from the transaction's first block.
    pub index: u32,
}

/// Error: more blocks were requested than are free. Reservation (credits) must make this
/// impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has {free} free blocks and the transaction needs {needed}")]
pub struct LogFull {
    pub needed: u32,
    pub free: u32,
}

/// The order in which the blocks of a log are read, as recovery finds it before there is a
/// [`LogSpace`]. Does no I/O.
pub trait LogWalk: fmt::Debug {
    /// Returns the block that follows `at` in the order of the log; `None` if the log ends there.
    fn next(&self, at: LogBlock) -> Option<LogBlock>;
    /// Returns how many blocks, `at` included, are consecutive both in the log and by address.
    fn together(&self, at: LogBlock) -> u32;
    /// Returns the most blocks of a walk.
    fn blocks(&self) -> u32;
}

/// Maximum number of bytes of a transaction, however long the log is: a header counts them in 32
/// bits, and a commit holds them in memory.
const TRANSACTION_BYTES_MAX: u64 = 1 << 30;

/// Returns [`TRANSACTION_BYTES_MAX`] in log blocks of `unit` bytes.
fn transaction_blocks_max(unit: usize) -> u32 {
    if units::fault!("transaction-unbounded") {
        return u32::MAX;
    }
    (TRANSACTION_BYTES_MAX / unit as u64) as u32
}

pub trait LogSpace {
    /// Returns the most blocks that can be in use at once.
    fn capacity(&self) -> u32;
    /// Returns the blocks that are neither in use nor reserved.
    fn free(&self) -> u32;
    /// Returns the number of blocks that one transaction can reserve now.
    fn reservable_blocks(&self) -> u32 {
        self.free()
    }
    /// Returns the most blocks of a transaction. As in JBD2: a quarter, so that the next one and a
    /// checkpoint fit beside it; and no more than its header can count.
    fn transaction_max(&self) -> u32 {
        self.capacity() / 4
    }
    /// Returns the blocks used up by a transaction of `count` blocks.
    fn taken(&self, count: u32) -> u32 {
        count
    }
    /// Returns how many blocks of transactions that are not home may stay when the others are
    /// written back: half.
    fn retained_after_checkpoint(&self) -> u32 {
        self.capacity() / 2
    }
    /// Returns how many of the `needed` blocks of transactions that are not home are to be written
    /// back, oldest first. Then no more than [`LogSpace::retained_after_checkpoint`] are left, and
    /// a transaction of `largest` blocks fits.
    fn to_free(&self, needed: u32, largest: u32) -> u32 {
        needed.saturating_sub(
            self.retained_after_checkpoint().min(self.capacity().saturating_sub(largest)),
        )
    }
    /// Requests that the next transaction that reserves space begin `_blocks` blocks behind the one
    /// before it, if there is space to spare.
    fn leave_gap(&mut self, _blocks: u32) {}
    /// Returns how many blocks in front of `transaction` are used up with it, and hold nothing.
    fn gap_before(&self, _transaction: TransactionId) -> u32 {
        0
    }
    /// Reserves `count` (> 0) blocks for `transaction`, which follows the last one that reserved
    /// some.
    fn reserve(&mut self, transaction: TransactionId, count: u32) -> Result<(), LogFull>;
    /// Chooses the place of `transaction`, which is about to be bound. `head`: where the arm of the
    /// home disk is.
    fn choose(&mut self, _transaction: TransactionId, _head: HomeBlock) {}
    /// Returns where the blocks of `transaction` lie, as late as possible: its plan is being
    /// issued.
    fn bind(&mut self, transaction: TransactionId) -> LogRuns;
    /// Returns the header in front of the blocks of `transaction`, which is bound: to be written
    /// with the first of them. `durable`: that transaction and all before it are.
    fn header(
        &self,
        _transaction: TransactionId,
        _durable: TransactionId,
    ) -> Option<(LogBlock, Rc<Buffer>)> {
        None
    }
    /// Returns where the blocks of `transaction`, which is bound, begin, if a power cut may have
    /// left a run of the same number there: its first block must not be on disk any more when the
    /// new header is written, or a table of runs lists it.
    fn stale_start(&self, _transaction: TransactionId) -> Option<LogBlock> {
        None
    }
    /// Returns how many numbers behind the last transaction runs on the disk may bear that a power
    /// cut of an earlier life tore. Once the log is empty nothing else keeps a later life from
    /// giving them again, and the body of such a run would be taken for that of a new one.
    fn numbers_left_over(&self) -> u32 {
        0
    }
    /// Returns the pages of the table of runs that must be durable before the blocks of
    /// `transaction`, which is bound, are written.
    fn table_pages(&mut self, _transaction: TransactionId) -> Vec<TablePage> {
        Vec::new()
    }
    /// Returns the pages that invalidate the table of runs until a transaction has recorded all of
    /// it again. No transaction is in flight.
    fn forget_table(&mut self) -> Vec<TablePage> {
        Vec::new()
    }
    /// Records in the superblock what recovery must know besides where the log begins: the logs of
    /// all transactions from `tail` on, or, without one, the log that was chosen; also the greatest
    /// length of a transaction. Returns whether that is more than the superblock recorded before.
    fn announce(&self, _superblock: &mut JournalSuperblock, _tail: Option<TransactionId>) -> bool {
        false
    }
    /// Returns where the blocks of `transaction`, which is bound, lie, if they are one run behind a
    /// header.
    fn run_of(&self, _transaction: TransactionId) -> Option<LogRun> {
        None
    }
    /// Returns the logs in which a restart is to look for runs from `end` on, if it knows all
    /// others. `said`: the logs in which it would look otherwise.
    fn since(&self, _end: TransactionId, _said: &ActiveLogs) -> ActiveLogs {
        ActiveLogs::none()
    }
    /// Returns how many log blocks the longest run from `first` on takes, its header included, as a
    /// restart must know it; 0 if it need not.
    fn longest_from(&self, _first: TransactionId) -> u32 {
        0
    }
    /// Whether `since` has more logs than a restart should look into.
    fn are_many(&self, _since: &ActiveLogs) -> bool {
        false
    }
    /// Returns where recovery begins to read so that it finds `transaction`, if that is bound; for
    /// the next one, if the log knows already.
    fn start_of(&self, transaction: TransactionId) -> Option<LogBlock>;
    /// Returns the oldest transaction that has not been released.
    fn oldest(&self) -> Option<TransactionId>;
    /// Releases `transaction`, which no recovery can need any more.
    fn release(&mut self, transaction: TransactionId);
    /// Releases every transaction before `tail`.
    fn release_before(&mut self, tail: TransactionId) {
        while let Some(oldest) = self.oldest().filter(|oldest| tail.is_after(*oldest)) {
            self.release(oldest);
        }
    }
    /// Begins to move the runs of a log that is filled above `percent` away from `head`, if there
    /// is one and a place for them. No transaction may be in flight. Until the end of the swap less
    /// space is free.
    fn begin_swap(&mut self, _percent: u32, _head: HomeBlock) -> Option<LogSwap> {
        None
    }
    /// Whether `bytes`, which were read where `run` was, begin with its header.
    fn is_run_of_swap(&self, _run: &SwappedRun, _bytes: &[u8]) -> bool {
        false
    }
    /// Returns the header to write in front of each copy, once the copies are durable. `durable`:
    /// that transaction and all before it are.
    fn headers_of_swap(
        &self,
        _swap: &LogSwap,
        _durable: TransactionId,
    ) -> Vec<(LogBlock, Rc<Buffer>)> {
        Vec::new()
    }
    /// Makes the copies count: the superblock says so from now on.
    fn count_copies(&mut self) {}
    /// Ends a swap whose copies and headers are durable, and count. Returns the runs that have
    /// moved: those whose transactions were not released during the swap.
    fn end_swap(&mut self, _swap: &LogSwap) -> Vec<SwappedRun> {
        Vec::new()
    }
    /// Abandons a swap without having written a header. `again`: it may be tried again before the
    /// log gets new transactions.
    fn give_up_swap(&mut self, _swap: &LogSwap, _again: bool) {}
}
