//! A disk exported over the engine: blocks with a journal in front of them, for any file system of
//! the kernel's, a virtual machine or a database above.
//!
//! [`BlockVolume`] is a [`device::Disk`], with a disk's contract: a flush makes durable what was
//! acknowledged before it, and a durable write (FUA) itself. A write of blocks is one handle of the
//! engine. For blocks in memory only the bytes that differ are logged. The contract:
//! `docs/modes/blocks.md`.
#![forbid(unsafe_code)]

mod discard;
mod error;
mod find;
mod freed;
mod grow;
mod home;
mod layout;
mod make;
mod open;
mod parts;
mod read;
mod report;
mod requests;
mod shared;
mod volume;
mod write;
mod writing;
mod zone;

pub use error::BlocksError;
pub use find::{BlocksDisk, FoundSuperblock, find_superblock, has_copy};
pub use grow::grow;
pub use layout::BlocksLayout;
pub use make::{BlocksFormatOptions, GroupBytes, NewDisk, format, format_volume};
pub use open::{check_journal, clear_recorded_error, recover, replay_preview};
pub use parts::BlockParts;
pub use report::BlocksReport;
pub use requests::BlockRequests;
pub use shared::Persistence;
pub use volume::BlockVolume;
pub use zone::{FlushZoneResult, NewFlushZone, find_flush_zones};
