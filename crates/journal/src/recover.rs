//! Recovery in three passes, none of which does I/O: each says which log block it wants and is given its bytes.
//!
//! `while let Some(at) = pass.wants() { pass.give(&read(at))?; }` (blocks are wanted in log order, so that the
//! reader may read ahead); then `finish`. Scan -> [`Scanned`] -> revoke -> [`RevokeTable`] -> replay.

use crate::revoke::RevokeTable;
use device::Buffer;
use format::jbd2::{FormatError, JournalSuperblock};
use std::ops::Range;
use units::{BlockRange, BlockSize, HomeBlock, LogBlock, TransactionId};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(
        "{at}: {transaction} is committed, but {what}: the log is damaged; e2fsck -fy replays what can be replayed"
    )]
    Damaged { at: LogBlock, transaction: TransactionId, what: String },
    #[error("{at}: a record of {transaction} is for {home}, {why}")]
    ForbiddenHome { at: LogBlock, transaction: TransactionId, home: HomeBlock, why: &'static str },
    #[error(
        "the journal holds live fast commits of {transaction}, which okeanos does not replay; \
         run e2fsck -fy, or mount and unmount the volume with the kernel"
    )]
    FastCommits { transaction: TransactionId },
}

/// Where replay may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeBounds {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that no record may name: the journal's own, sorted. Empty for an external journal.
    pub forbidden: Vec<Range<u64>>,
}

/// What one pass saw.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PassCounts {
    pub log_blocks_read: u64,
    pub transactions: u64,
    pub descriptors: u64,
    pub multiwrite_blocks: u64,
    pub regular_blocks: u64,
    pub revoke_blocks: u64,
    pub commit_blocks: u64,
    /// Revoke pass: records in revoke blocks. Replay pass: tags hidden by a revoke.
    pub revokes: u64,
    /// Tags for whole blocks / for bytes that were replayed (replay pass), or seen (scan).
    pub whole_records: u64,
    pub fragment_records: u64,
}

/// A pass that is fed log blocks.
pub trait Pass {
    /// The log block to give next; `None` when the pass is over.
    fn wants(&self) -> Option<LogBlock>;
    /// `block`: the bytes of the wanted log block, one file-system block.
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError>;
    fn counts(&self) -> PassCounts;
}

/// Finds the last committed transaction.
pub struct ScanPass {}

/// What the scan found. Bounded by the log.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The first transaction of the log and the first that is not committed.
    pub first: TransactionId,
    pub end: TransactionId,
    /// The id that the next new transaction must have.
    pub next: TransactionId,
}

pub struct RevokePass {}

pub struct ReplayPass {}

/// One record to replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayAction {
    WriteWhole { home: HomeBlock, bytes: Vec<u8> },
    Merge { home: HomeBlock, range: BlockRange, bytes: Vec<u8>, base_zero: bool },
}

/// The merged outcome of all records of one block so far.
#[derive(Clone, Debug)]
pub struct ReplayImage {
    pub home: HomeBlock,
    pub content: Buffer,
    /// Bytes that no record gave: to be read from home first. Empty if the block is whole.
    pub missing: Vec<BlockRange>,
}

/// Merges records block by block in memory, so that a block updated a hundred times is written once.
pub struct ReplayImages {}

impl ScanPass {
    /// The superblock must say that there is something to recover (`is_clean` is false).
    pub fn new(superblock: &JournalSuperblock) -> Result<ScanPass, RecoverError> {
        todo!()
    }
    pub fn finish(self) -> Scanned {
        todo!()
    }
}
impl Pass for ScanPass {
    fn wants(&self) -> Option<LogBlock> {
        todo!()
    }
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        todo!()
    }
    fn counts(&self) -> PassCounts {
        todo!()
    }
}

impl RevokePass {
    pub fn new(scanned: &Scanned) -> RevokePass {
        todo!()
    }
    pub fn finish(self) -> RevokeTable {
        todo!()
    }
}
impl Pass for RevokePass {
    fn wants(&self) -> Option<LogBlock> {
        todo!()
    }
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        todo!()
    }
    fn counts(&self) -> PassCounts {
        todo!()
    }
}

impl ReplayPass {
    pub fn new(scanned: &Scanned, revokes: RevokeTable, bounds: HomeBounds) -> ReplayPass {
        todo!()
    }
    /// The records read since the last call, in log order. Take them after each `give`.
    pub fn take_actions(&mut self) -> Vec<ReplayAction> {
        todo!()
    }
}
impl Pass for ReplayPass {
    fn wants(&self) -> Option<LogBlock> {
        todo!()
    }
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        todo!()
    }
    fn counts(&self) -> PassCounts {
        todo!()
    }
}

impl ReplayImages {
    pub fn new(block_size: BlockSize) -> ReplayImages {
        todo!()
    }
    pub fn apply(&mut self, action: ReplayAction) {
        todo!()
    }
    /// Blocks held in memory: when there are too many, write what `take` gives and go on.
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All images, sorted by home address; the set is empty afterwards.
    pub fn take(&mut self) -> Vec<ReplayImage> {
        todo!()
    }
}

impl ReplayImage {
    /// Fills the missing bytes from what home holds; the image is then whole.
    pub fn fill_from(&mut self, home: &[u8]) {
        for range in self.missing.drain(..) {
            self.content[range.as_usize()].copy_from_slice(&home[range.as_usize()]);
        }
    }
}
