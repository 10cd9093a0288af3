//! Decides what must be written, in what order and why. Does no I/O: plans are data.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod commit;
mod home_data;
pub mod log_space;
mod pass_outcome;
mod plan;
pub mod policy;
mod ranges;
pub mod records;
pub mod recover;
pub mod revoke;
mod snapshot;
mod swap;
mod tail;
pub mod transaction;

pub use checkpoint::Checkpoint;
pub use commit::{CommitPlan, plan_commit, plan_commit_home, plan_written};
pub use log_space::{
    CircularLog, Gaps, LogFull, LogGap, LogKind, LogRing, LogRun, LogRuns, LogSlot, LogSpace,
    LogSwap, LogWalk, Logs, ScatteredLog, ScatteredLogMap, SwappedRun, TablePage, TimedCommit,
};
pub use pass_outcome::{PassCounts, RecoverError};
pub use plan::{Address, Barrier, BlockKind, Plan, Step, Write};
pub use policy::{
    AutoThreshold, CommitCost, DataMode, Decision, LOGGED_WRITE_SIZE, Policy, PolicyOverrides,
    TimedWrites, UnknownMode, Update, UpdateSequence, WriteThreshold, with_overrides,
};
pub use ranges::RangeSet;
pub use records::{CommitStamp, Records, WholeBlockLocation};
pub use recover::{
    Bounds, FindCopies, FindRuns, FoundRuns, HomeBounds, IN_FLIGHT_MAX, LogStart, Pass,
    ReadSnapshot, ReadTable, ReplayAction, ReplayImage, ReplayImages, ReplayPass, ReplayedRecord,
    RevokePass, ScanPass, Scanned, SnapshotBlock, SnapshotContents, SnapshotRefused, TableRefused,
    look_ahead,
};
pub use revoke::RevokeTable;
pub use snapshot::{NewPiece, SnapshotPiece, SnapshotRing, plan_piece, plan_snapshot_superblock};
pub use swap::{plan_copies, plan_run_headers, plan_table_forgotten};
pub use tail::{
    SuperblockImage, begin_log, plan_announcement, plan_empty_log, plan_flush_on_open,
    plan_home_durable, plan_retained_log, plan_tail_update, take_tail_along,
};

pub use transaction::{
    CommittedTransaction, CommittingTransaction, Coverage, Holdings, LockedTransaction, Record,
    RunningTransaction,
};
