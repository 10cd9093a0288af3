//! Pacing of commits, which an experiment replaces to model a host of other times.

use units::{Instant, Owner};

/// Observes syncs and handles, and decides how long a requested commit waits. The default methods
/// are the pacing of a mount.
pub trait CommitPacing {
    /// Notes that a sync of this owner's data was requested.
    fn synced(&self, _owner: Owner, _now: Instant) {}
    /// Notes that a handle has joined the running transaction.
    fn joined(&self, _now: Instant) {}
    /// Notes that the running transaction was locked, and another one runs.
    fn locked(&self) {}
    /// Returns when to ask again; `None` if the transaction may be committed.
    fn wait_until(&self, _now: Instant) -> Option<Instant> {
        None
    }
    /// Whether a sync of data that lies in place is a commit, too.
    fn commits_every_sync(&self) -> bool {
        false
    }
    /// Whether each point of a commit behind which something must be durable has a barrier of its
    /// own. They are data, log, commit block, and what a checkpoint sends home. Slower, and no
    /// safer.
    fn separates_barriers(&self) -> bool {
        false
    }
}

/// A commit begins as soon as the one before is done.
pub struct NoPacing;

impl CommitPacing for NoPacing {}
