//! Carries plans out: block cache, handles, commit, write-back, checkpoint, recovery. One thread, no locks.
//!
//! What the floor above sees: [`Engine`], [`Block`], [`Handle`], [`FileUpdate`], [`Credits`]; how it is opened:
//! [`EngineParts`], [`recover`].
#![forbid(unsafe_code)]

mod bring_home;
mod cache;
mod commit;
mod completion;
mod engine;
mod error;
mod gate;
mod handle;
mod home;
mod home_claims;
mod in_memory;
mod log;
mod options;
mod read;
mod recovery;
mod run_plan;
mod stats;
mod tail;
mod ticks;
mod update;
mod whose;

pub use engine::{Block, Engine};
pub use error::EngineError;
pub use handle::Handle;
pub use journal::records::RecordFormat;
pub use journal::{DataMode, WriteThreshold};
pub use options::{BarrierKind, EngineOptions, EngineParts, LogArea, LogExtent, LogPlace};
pub use recovery::{PassReport, RecoveryReport, recover};
pub use stats::{CacheUse, LogUse, Statistics, SyncLatency, Written};
pub use update::{Base, Contents, Credits, FileUpdate};
pub use whose::{DiskHome, Home};
