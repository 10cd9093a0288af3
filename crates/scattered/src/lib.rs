//! Scattered logs as a block device (Patana-anake et al., MSST 2016, "Manylogs": MLB).
//!
//! A [`ScatteredDisk`] stands in front of another disk. Small writes are appended to the log
//! nearest the arm; a mapping table says which blocks lie in logs, and reads follow it. Large
//! writes are written home. The table is durable because each append describes itself, and
//! snapshots of the table bound what a restart reads. Bytes: `docs/ON_DISK.md`; promises and order:
//! `docs/modes/scattered.md`.
#![forbid(unsafe_code)]

mod append;
mod checkpoint;
mod choose_log;
mod claims;
mod disk;
mod drops;
mod fields;
mod gap;
mod home;
mod in_flight;
mod inspect;
mod layout;
mod logs;
mod open_list;
mod pending;
mod piece;
mod policy;
mod read;
mod record;
mod restart;
mod restart_time;
mod snapshot;
mod snapshot_writer;
mod state;
mod statistics;
mod swap;
mod table;
mod writer;

pub use checkpoint::{CheckpointRequests, ScatteredCheckpointReport};
pub use disk::ScatteredDisk;
pub use inspect::{LogState, LogsState};
pub use layout::{FormatError, Layout, Sizes, Superblock};
pub use open_list::OpenList;
pub use policy::{CheckpointPolicy, NearHome, Settings};
pub use record::{Header, MAX_ENTRIES, RecordEntry};
pub use restart::{OpenError, RestartReport};
pub use snapshot::SnapshotHeader;
pub use statistics::ScatteredStatistics;
pub use table::MappingTable;

/// Bytes of a block: what the table maps, and what a logged write is atomic in.
pub const BLOCK: usize = 4096;
/// Bytes of the smallest request.
pub const SECTOR: usize = 512;
/// Mask of a block whose sectors all lie in a log.
pub const WHOLE: u8 = 0xff;
