use journal::records::RecordFormat;
use std::time::Duration;

/// When files go to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destage {
    /// When they have been dirty for this long.
    After(Duration),
    /// Only when the journal or memory is short, or another wants the file.
    UnderPressure,
}

#[derive(Clone, Debug)]
pub struct HostOptions {
    pub records: RecordFormat,
    /// How long an asynchronous write may wait for the journal.
    pub journal_flush: Duration,
    pub destage: Destage,
    /// How often files are looked through for old ones.
    pub writeback: Duration,
    /// Bytes that the store may buffer for us, each once however often it was written: above it,
    /// the oldest files go to the store.
    pub dirty_bytes_max: u64,
    /// Files that may be dirty: each is an open one at the store. Above it the oldest go there;
    /// above twice as many, who closes one waits for that.
    pub dirty_files_max: usize,
    /// For how long a door's kernel may keep names and attributes of directories. These have no
    /// tokens, so others' changes are seen that much later. Zero: not at all.
    pub directories: Duration,
    /// A connection that is lost comes back: how long an operation waits for that. `None`: it stays
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
