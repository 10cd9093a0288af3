//! Counts of requests.

use serde::Serialize;

/// Requests of clients since the volume was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize)]
pub struct BlockRequests {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Writes that were to be durable when they were acknowledged.
    pub durable_writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub discarded_bytes: u64,
}
