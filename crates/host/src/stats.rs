use crate::log::HostLogUse;
use serde::Serialize;

/// Counts of dirty bytes by place, and of the work done. All sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct HostStatistics {
    /// File data in memory alone: lost if the host crashes now.
    pub dirty_in_memory: u64,
    /// File data in the journal that is not durable at the store.
    pub dirty_in_journal: u64,
    /// File data made durable at the store since the mount.
    pub destaged_bytes: u64,
    pub destaged_files: u64,
    /// File data logged again because the journal had too much of it.
    pub logged_anew_bytes: u64,
    /// Files that the store refuses and is asked again to take, or does not answer for, and their
    /// file data.
    pub failed_files: u64,
    pub failed_bytes: u64,
    /// Bytes that the store buffers of files in memory.
    pub held_bytes: u64,
    /// Files of which bytes were set aside since the mount.
    pub set_aside_files: u64,
    pub recalls: u64,
    /// Connections that were lost and came back.
    pub reconnections: u64,
    /// File data written past the journal, under a token for shared writing.
    pub shared_bytes: u64,
    pub commits: u64,
    pub log_bytes_written: u64,
    pub log_capacity: u64,
    pub log_used: u64,
}

impl HostStatistics {
    pub(crate) fn with_log(
        self,
        usage: HostLogUse,
        (commits, log_bytes_written): (u64, u64),
    ) -> HostStatistics {
        HostStatistics {
            dirty_in_memory: usage.running_bytes,
            dirty_in_journal: usage.live_bytes,
            log_capacity: usage.capacity,
            log_used: usage.used,
            commits,
            log_bytes_written,
            ..self
        }
    }
}
