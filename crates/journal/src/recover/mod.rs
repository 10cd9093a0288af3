//! Recovery in three passes, none of which does I/O: each returns which log block it wants and is
//! given its bytes.
//!
//! `while let Some(at) = pass.wants() { pass.give(&read(at))?; }` (blocks are wanted in log order,
//! so that the reader may read ahead); then `finish`. For scattered logs [`FindRuns`] comes first.
//! [`ScanPass`] -> [`Scanned`] -> [`RevokePass`] -> `RevokeTable` -> [`ReplayPass`] ->
//! [`ReplayImages`] -> home.
//!
//! Invariants:
//! 1. The scan reads each log block at most once: one wrap of the log, whatever the blocks say. At
//!    its end, as many as a gap may have are read again.
//! 2. Nothing is written home before the scan has verified every checksum of every committed
//!    transaction.
//! 3. Replaying again, after a crash within recovery, gives the same result: the log is unchanged
//!    until all is home.
//!
//! Source: paper, section 3.3; kernel `fs/jbd2/recovery.c` and e2fsprogs `e2fsck/recovery.c` for
//! what counts as the end of the log and what as damage.

mod find_copies;
mod find_runs;
mod images;
mod read_snapshot;
mod read_table;
mod replay;
mod replay_walk;
mod revoke_pass;
mod scan;

pub use find_copies::FindCopies;
pub use find_runs::{FindRuns, FoundRuns, look_ahead};
pub use images::{ReplayImage, ReplayImages};
pub use read_snapshot::{ReadSnapshot, SnapshotBlock, SnapshotContents, SnapshotRefused};
pub use read_table::{ReadTable, TableRefused};
pub use replay::{ReplayAction, ReplayPass, ReplayedRecord};
pub use revoke_pass::RevokePass;
pub use scan::{IN_FLIGHT_MAX, LogStart, ScanPass, Scanned};

use crate::pass_outcome::{PassCounts, RecoverError};
use std::ops::Range;
use units::{HomeBlock, LogBlock};

/// Addresses that replay may write: only blocks of home.
pub trait Bounds {
    /// Returns why no record may name `home`; `None` if one may.
    fn refuses(&self, home: HomeBlock) -> Option<&'static str>;
}

/// The bounds of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeBounds {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that no record may name: the journal's own, sorted. Empty for an external journal.
    pub forbidden: Vec<Range<u64>>,
}

impl Bounds for HomeBounds {
    fn refuses(&self, home: HomeBlock) -> Option<&'static str> {
        if home.get() >= self.blocks {
            return Some("which lies outside the volume");
        }
        let next = self.forbidden.partition_point(|range| range.end <= home.get());
        let inside = self.forbidden.get(next).is_some_and(|range| range.contains(&home.get()));
        inside.then_some("which belongs to the journal itself")
    }
}

/// A pass that is fed with log blocks.
pub trait Pass {
    /// Returns the log block to give next; `None` when the pass has ended.
    fn wants(&self) -> Option<LogBlock>;
    /// Takes `block`, the bytes of the wanted log block.
    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError>;
    fn counts(&self) -> PassCounts;
}
