//! Recovery in three passes, none of which does I/O: each says which log block it wants and is given its bytes.
//!
//! `while let Some(at) = pass.wants() { pass.give(&read(at))?; }` (blocks are wanted in log order, so that the
//! reader may read ahead); then `finish`. For scattered logs [`FindRuns`] comes first. [`ScanPass`] -> [`Scanned`] -> [`RevokePass`] -> `RevokeTable` ->
//! [`ReplayPass`] -> [`ReplayImages`] -> home.
//!
//! Invariants:
//! 1. The scan reads each log block at most once: one turn round the log, whatever the blocks say.
//! 2. Nothing is written home before the scan has verified every checksum of every committed transaction.
//! 3. Replaying again, after a crash within recovery, gives the same result: the log is left alone until all is home.
//!
//! Source: paper, section 3.3; kernel `fs/jbd2/recovery.c` and e2fsprogs `e2fsck/recovery.c` for what counts as the
//! end of the log and what as damage.

mod again;
mod decide;
mod find_runs;
mod images;
mod read_table;
mod replay;
mod revoke_pass;
mod scan;

pub(crate) use decide::{Facts, ScanDecision, decide};
pub use find_runs::{FindRuns, FoundRuns, look_ahead};
pub use images::{ReplayImage, ReplayImages};
pub use read_table::{ReadTable, TableRefused};
pub use replay::{ReplayAction, ReplayPass, ReplayedRecord};
pub use revoke_pass::RevokePass;
pub use scan::{IN_FLIGHT_MAX, LogStart, ScanPass, Scanned};

use format::jbd2::JournalFormatError;
use std::ops::Range;
use units::{HomeBlock, LogBlock, TransactionId};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Format(#[from] JournalFormatError),
    #[error(
        "{at}: {transaction} is committed, but {what}: the log is damaged; \
         okeanos recover --until-damage replays what lies before and gives up the rest"
    )]
    Damaged { at: LogBlock, transaction: TransactionId, what: String },
    #[error("{at}: a record of {transaction} is for {home}, {why}")]
    ForbiddenHome { at: LogBlock, transaction: TransactionId, home: HomeBlock, why: &'static str },
    #[error(
        "the journal holds live fast commits of {transaction}, which okeanos does not replay; \
         mount and unmount the volume with the kernel once"
    )]
    FastCommits { transaction: TransactionId },
    #[error("the log lies in the volume's scattered logs, which were not found")]
    LogsMissing,
}

/// Where replay may write: which addresses are blocks of home, and no others'.
pub trait Bounds {
    /// Why no record may name `home`; `None` if one may.
    fn refuses(&self, home: HomeBlock) -> Option<&'static str>;
}

/// The bounds of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeBounds {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that no record may name: the journal's own, sorted. Empty for an external journal.
    pub forbidden: Vec<Range<u64>>,
}

impl Bounds for HomeBounds {
    fn refuses(&self, home: HomeBlock) -> Option<&'static str> {
        if home.get() >= self.blocks {
            return Some("which lies outside the volume");
        }
        let next = self.forbidden.partition_point(|range| range.end <= home.get());
        let inside = self.forbidden.get(next).is_some_and(|range| range.contains(&home.get()));
        inside.then_some("which belongs to the journal itself")
    }
}

/// What one pass saw.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PassCounts {
    pub log_blocks_read: u64,
    /// Committed ones.
    pub transactions: u64,
    pub descriptors: u64,
    pub multiwrite_blocks: u64,
    pub regular_blocks: u64,
    pub revoke_blocks: u64,
    pub commit_blocks: u64,
    /// Revoke pass: records in revoke blocks. Replay pass: tags hidden by a revoke.
    pub revokes: u64,
    /// Tags for whole blocks and for bytes: seen (scan), replayed (replay).
    pub whole_records: u64,
    pub fragment_records: u64,
}

impl PassCounts {
    pub(crate) fn add(&mut self, more: &PassCounts) {
        self.log_blocks_read += more.log_blocks_read;
        self.transactions += more.transactions;
        self.descriptors += more.descriptors;
        self.multiwrite_blocks += more.multiwrite_blocks;
        self.regular_blocks += more.regular_blocks;
        self.revoke_blocks += more.revoke_blocks;
        self.commit_blocks += more.commit_blocks;
        self.revokes += more.revokes;
        self.whole_records += more.whole_records;
        self.fragment_records += more.fragment_records;
    }
}

/// A pass that is fed log blocks.
pub trait Pass {
    /// The log block to give next; `None` when the pass is over.
    fn wants(&self) -> Option<LogBlock>;
    /// `block`: the bytes of the wanted log block.
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError>;
    fn counts(&self) -> PassCounts;
}
