//! The log: its space, superblock, tail, live records and snapshot.

pub(crate) mod live_records;
pub(crate) mod log_format;
pub(crate) mod log_state;
pub(crate) mod move_tail;
pub(crate) mod revokes;
pub(crate) mod snapshot;
pub(crate) mod snapshot_writer;
pub(crate) mod swap;
pub(crate) mod tail;
