//! A journal on this host in front of a shared store. What an application has synced survives a
//! crash of this host, before the store has it.
//!
//! [`Host`] serves a front end; [`recover`] runs before it. The engine is not used here: it writes
//! blocks back itself and replays blindly, while a store already has the data in its buffer and
//! each file has a guard of its own. Plans, record formats, the log and the passes of recovery are
//! `journal`'s.
#![forbid(unsafe_code)]

mod allocate;
mod conflict;
mod conflicting_destage;
mod connection;
mod creation;
mod creations;
mod departure;
mod departures;
mod destage;
mod destage_choice;
mod dirty_ranges;
mod error;
mod failed_destage;
mod files;
mod host;
mod interrupt;
mod journal_disk;
mod kept_tokens;
mod kernel_cache;
mod lease;
mod lease_proof;
mod ledger;
mod lock_owners;
mod log;
mod log_reader;
mod names;
mod options;
mod pauses;
mod program_locks;
mod record;
mod recover;
mod recovery_window;
mod relog;
mod removals;
mod replay;
mod shared_lookups;
mod stats;
mod superblock;
mod takeover;

mod unsynced_names;
pub use conflict::CONFLICT_DIRECTORY;
pub use error::HostError;
pub use host::{Durable, Host, HostWrite, Position};
pub use interrupt::{Interrupt, interruptible};
pub use journal::records::RecordFormat;
pub use kernel_cache::ATTRIBUTE_TIMEOUT;
pub use lease::while_answered;
pub use log::{HostLog, HostLogUse};
pub use options::{Destage, HostOptions};
pub use record::{FileRecord, STATES_MAX, Slot};
pub use recover::{FileFate, FileOutcome, HostRecoveryReport, recover, recover_reconnecting};
pub use stats::HostStatistics;
pub use superblock::{HostJournal, JournalHead};
pub use unsynced_names::DirectoryDescriptor;
