//! Carries plans out: block cache, handles, commit, write-back, checkpoint, recovery. One thread,
//! no locks.
//!
//! What the floor above sees: [`Engine`], [`Block`], [`Handle`], [`FileUpdate`], [`Credits`]; how
//! it is opened: [`EngineParts`], [`recover`].
#![forbid(unsafe_code)]

mod admit;
mod believed;
mod block;
mod bring_home;
mod busy;
mod cache;
mod checkpoint;
mod checkpoints;
mod clocks;
mod commit;
mod completion;
mod differing;
mod durability;
mod ending;
mod engine;
mod error;
mod file_data;
mod gate;
mod handle;
mod home;
mod home_claims;
mod home_queue;
mod home_runs;
mod image;
mod images;
mod in_memory;
mod in_place;
mod kept;
mod limits;
mod live_records;
mod log;
mod log_format;
mod log_reader;
mod log_superblock;
mod long_writes;
mod loose;
mod mapped;
mod mapping;
mod move_tail;
mod open;
mod options;
mod overlap;
mod overwrite;
mod pace;
mod past_cache;
mod pipeline;
mod promise;
mod read;
mod recovery;
mod recovery_report;
mod rest;
mod restart;
mod revokes;
mod run_plan;
mod running;
mod sequence_relief;
mod sequences;
mod snapshot;
mod state;
mod stats;
mod swap;
mod sync;
mod tail;
mod tell;
mod update;
mod went_home;
mod whose;
mod write_back;
mod writers;

pub use believed::{BelievedBlock, BelievedTransaction, believed};
pub use block::Block;
pub use checkpoints::{CheckpointProgress, CheckpointReport, CheckpointTimes, OffHours};
pub use engine::Engine;
pub use error::EngineError;
pub use handle::Handle;
pub use journal::records::RecordFormat;
pub use journal::{DataMode, LogGap, LogKind, LogPlaces, WriteThreshold};
pub use kept::KeptLog;
pub use options::{
    BarrierKind, DurableMemory, EngineOptions, EngineParts, LogArea, LogExtent, LogPlace,
};
pub use pace::{CommitPace, NoPace};
pub use promise::Declared;
pub use recovery::recover;
pub use recovery_report::{PassReport, RecoveryReport, RestartForecast};
pub use restart::{foretell_restart, restart};
pub use stats::{
    CacheUse, LatencyClass, LogUse, RequestClass, Statistics, SyncLatency, WrittenCount,
};
pub use update::{Base, Contents, Credits, FileRun, FileUpdate};
pub use whose::{Completed, DiskHome, Home};
