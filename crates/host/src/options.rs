use journal::records::RecordFormat;
use std::time::Duration;

/// Rule by which files are destaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destage {
    /// Destaged after they have been dirty for this long.
    After(Duration),
    /// Destaged only when the journal or memory is short, or another client wants the file.
    UnderPressure,
}

#[derive(Clone, Debug)]
pub struct HostOptions {
    pub records: RecordFormat,
    /// Maximum time that an asynchronous write waits for the journal.
    pub journal_flush: Duration,
    pub destage: Destage,
    /// Interval at which files are checked for old ones.
    pub writeback: Duration,
    /// Bytes that the store may buffer for this host, each counted once however often it was
    /// written. Above it the oldest files are destaged.
    pub dirty_bytes_max: u64,
    /// Files that may be dirty: each is open at the store. Above it the oldest are destaged; above
    /// twice as many, closing a file waits for that.
    pub dirty_files_max: usize,
    /// Time for which a front end's kernel may cache names and attributes of directories. These
    /// have no tokens, so others' changes are seen that much later. Zero: not at all.
    pub directories: Duration,
    /// Time for which an operation waits for a lost connection to be restored. `None`: it stays
    /// lost.
    pub reconnect: Option<Duration>,
}

impl Default for HostOptions {
    fn default() -> HostOptions {
        HostOptions {
            // Writes change parts of blocks.
            records: RecordFormat::by_default(true),
            journal_flush: Duration::from_secs(1),
            destage: Destage::After(Duration::from_secs(60)),
            writeback: Duration::from_secs(60),
            dirty_bytes_max: 256 << 20,
            dirty_files_max: 8192,
            directories: Duration::ZERO,
            reconnect: Some(Duration::from_secs(60)),
        }
    }
}
