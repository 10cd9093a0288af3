use crate::log::HostLogUse;
use serde::Serialize;

/// Where dirty bytes are, and what was done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct HostStatistics {
    /// Of file data in memory alone: lost when the host crashes now.
    pub dirty_in_memory: u64,
    /// Of file data in the journal, and not durable at the store.
    pub dirty_in_journal: u64,
    /// Of file data made durable at the store since the mount.
    pub destaged_bytes: u64,
    pub destaged_files: u64,
    /// Of file data that the journal has again, as it had too much of it.
    pub logged_anew_bytes: u64,
    /// The store refuses to take them, and is asked again: files, and file data of them.
    pub failed_files: u64,
    pub failed_bytes: u64,
    /// What the store buffers of files in memory.
    pub held_bytes: u64,
    /// Files of which something was set aside, since the mount.
    pub set_aside_files: u64,
    pub recalls: u64,
    /// Connections that were lost and came back.
    pub reconnections: u64,
    /// Written past the journal, under a token for shared writing.
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
