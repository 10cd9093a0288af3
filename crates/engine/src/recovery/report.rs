//! Reports of recovery.

use journal::PassCounts;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct PassReport {
    pub nanoseconds: u64,
    #[serde(flatten)]
    pub counts: PassCounts,
}

/// Findings and actions of a recovery.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryReport {
    /// The log was empty: nothing was read but its superblock.
    pub clean: bool,
    /// A negative errno if the journal was aborted when it was last used, or an earlier recovery
    /// left something out: the file system wants a check.
    pub recorded_error: i32,
    /// Whether this was a dry run, which writes nothing.
    pub dry_run: bool,
    pub transactions: u64,
    pub first_transaction: u32,
    /// Scattered logs that were looked at, the blocks of them that were, and how long that took,
    /// before the scan.
    pub logs_read: u32,
    pub run_headers_read: u64,
    pub find_nanoseconds: u64,
    /// Pages of the table of runs (`mtl=`) that were read, and the time for that. Why the table was
    /// refused, and the logs were searched.
    pub table_pages_read: u64,
    pub table_nanoseconds: u64,
    pub table_refused: Option<String>,
    /// Log blocks of the snapshot of the mapping table that were read, and the time for that.
    /// Transactions that were not read because the snapshot covers them. Why it was refused, and
    /// all of the log was read.
    pub snapshot_blocks_read: u64,
    pub snapshot_nanoseconds: u64,
    pub snapshot_transactions: u64,
    pub snapshot_refused: Option<String>,
    pub scan: PassReport,
    /// The last part of the scan: where the log seemed to end it looked ahead for what would prove
    /// damage.
    pub look_ahead_nanoseconds: u64,
    pub revoke: PassReport,
    pub replay: PassReport,
    /// Blocks that stay in scattered logs, which the mount goes on with: nobody waits for them to
    /// be written home.
    pub blocks_kept: u64,
    /// Blocks among these of which the logs hold parts: memory holds them until they are home.
    pub blocks_in_part: u64,
    /// Blocks written home, and those of them that first had to be read.
    pub home_blocks_written: u64,
    pub home_blocks_read: u64,
    pub nanoseconds: u64,
    /// The log was damaged, and what had been committed behind the damage was given up: the file
    /// system wants a check.
    pub gave_up: bool,
    /// Home blocks that were left as they are, because what the log holds of them is a part, and
    /// the rest cannot be read at home (`skip_unreadable`). Sorted.
    pub skipped_blocks: Vec<u64>,
    /// Forecast of what a restart with scattered logs would read; only in a dry run.
    pub restart: Option<RestartForecast>,
}

impl RecoveryReport {
    /// Whether anything that was committed was left out, so that the file system wants a check.
    pub fn is_incomplete(&self) -> bool {
        self.gave_up || !self.skipped_blocks.is_empty()
    }
}

/// Blocks that a restart would read of scattered logs by the snapshot of the mapping table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RestartForecast {
    /// Reason why no snapshot is used: then a restart would read all of the log.
    pub refused: Option<String>,
    /// Pieces of the snapshot, and log blocks of them.
    pub pieces: u64,
    pub snapshot_blocks: u64,
    /// Home blocks that it records, and the first transaction that it does not cover.
    pub blocks_covered: u64,
    pub end: u32,
    /// Logs that are looked into for later runs, and the log blocks of them that are read.
    pub logs: u32,
    pub run_headers: u64,
    /// First transaction whose runs are read in spite of the snapshot, their number, and their log
    /// blocks.
    pub read_from: u32,
    pub transactions: u64,
    pub run_blocks: u64,
}
