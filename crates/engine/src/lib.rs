//! Carries plans out: block cache, handles, commit, write-back, checkpoint, recovery. One thread,
//! no locks.
//!
//! Interface to the layer above: [`crate::Engine`], [`Block`], [`Handle`], [`FileUpdate`],
//! [`Credits`]; how it is opened: [`EngineParts`], [`recover`].
#![forbid(unsafe_code)]

mod cache;
mod commit;
mod engine;
mod interface;
mod log;
mod open;
mod recovery;
mod transaction;
mod writeback;

pub use ::commit::{
    DiskHome, DurabilityScope, ERRNO_DAMAGED, Home, LogArea, LogDevice, LogExtent, WrittenCount,
};
pub use cache::block::{Block, KnownBlock};
pub use engine::Engine;
pub use interface::commit_pacing::{CommitPacing, NoPacing};
pub use interface::error::EngineError;
pub use interface::options::{BarrierKind, DurableMemory, EngineOptions, EngineParts};
pub use interface::stats::{CacheUse, LatencyClass, LogUse, RequestClass, Statistics, SyncLatency};
pub use interface::update::{Base, Contents, Credits, FileRun, FileUpdate};
pub use journal::records::RecordFormat;
pub use journal::{DataMode, LogGap, LogKind, ScatteredLogMap, WriteThreshold};
pub use recovery::passes::{clear_recorded_error, flush_found, recover};
pub use recovery::replay_preview::{PreviewedBlock, PreviewedTransaction, replay_preview};
pub use recovery::report::{PassReport, RecoveryReport, RestartForecast};
pub use recovery::restart::{forecast_restart, restart};
pub use recovery::retained_log::RetainedLog;
pub use transaction::handle::Handle;
pub use transaction::range_check::Declared;
pub use writeback::checkpoints::{CheckpointProgress, CheckpointReport, CheckpointTimes, OffHours};
