//! Decides what must be written, in what order and why. Touches no disk: plans are data.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod commit;
pub mod log_space;
mod plan;
pub mod policy;
mod ranges;
pub mod recover;
pub mod revoke;
pub mod transaction;

pub use checkpoint::{Checkpoint, plan_tail_update};
pub use commit::{CommitPlan, FormatOptions, plan_commit};
pub use log_space::{CircularLog, LogFull, LogRun, LogRuns, LogSpace};
pub use plan::{Address, Barrier, BlockKind, Plan, Step, Write};
pub use policy::{DataMode, Decision, Policy, UnknownMode, Update, UpdateSequence, WriteThreshold};
pub use ranges::RangeSet;
pub use recover::{
    HomeBounds, Pass, PassCounts, RecoverError, ReplayAction, ReplayImage, ReplayImages, ReplayPass,
    RevokePass, ScanPass, Scanned,
};
pub use revoke::RevokeTable;
pub use transaction::{
    CommittedTransaction, CommittingTransaction, Coverage, LockedTransaction, Record, RunningTransaction,
};
