//! Results of a pass over a log: counts of what it read, and the error that stopped it.

use format::jbd2::JournalFormatError;
use serde::Serialize;
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
    #[error(
        "{at} cannot be read, and {transaction} may be there; if it never can be again, \
         okeanos recover --until-damage replays what lies before"
    )]
    Unreadable { at: LogBlock, transaction: TransactionId },
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

/// Counts of one pass over the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct PassCounts {
    pub log_blocks_read: u64,
    /// Committed transactions.
    pub transactions: u64,
    pub descriptors: u64,
    pub multiwrite_blocks: u64,
    pub regular_blocks: u64,
    pub revoke_blocks: u64,
    pub commit_blocks: u64,
    /// Revoke pass: records in revoke blocks. Replay pass: tags hidden by a revoke.
    pub revokes: u64,
    /// Tags for whole blocks and for bytes: seen (scan) or replayed (replay).
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
