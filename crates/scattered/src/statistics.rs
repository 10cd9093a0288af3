use serde::Serialize;

/// Counts since the disk was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScatteredStatistics {
    pub reads: u64,
    /// Reads of which at least one block lay in a log.
    pub redirected_reads: u64,
    /// Writes that went to logs, and their blocks.
    pub logged_writes: u64,
    pub logged_blocks: u64,
    /// Records that carried them: one request to the disk each.
    pub records: u64,
    /// Records that followed another at once and lost a revolution, as far as that is known.
    pub late_records: u64,
    /// Writes larger than the logged size.
    pub home_writes: u64,
    /// Small writes that were written home because that was as near to the arm as any log.
    pub near_home_writes: u64,
    /// Small writes that were written home because every log was full.
    pub bypassed_writes: u64,
    pub flushes: u64,
    pub trims: u64,
    pub drop_records: u64,
    pub snapshots: u64,
    /// Times that the open list was written before a record.
    pub openings: u64,
    pub swaps: u64,
    pub swapped_blocks: u64,
    pub checkpoints: u64,
    /// Entries now, and the bytes of memory they take.
    pub table_entries: u64,
    pub table_memory: u64,
    pub logs: u32,
    pub logs_in_use: u32,
    pub log_blocks_free: u64,
}
