//! Commits: plans are carried out, and become durable. A log alone; there is no cache here, and no
//! write-back.
//!
//! `engine` uses this with a cache and a home that its blocks are written back to, `host` with a
//! log in front of a shared store. What differs between the two comes in from outside:
//!
//! | what | type | of a volume | of a host |
//! |---|---|---|---|
//! | the home of a plan's blocks | [`Home`] | blocks of its disk | none ([`PlanDisks::log_only`]) |
//! | the blocks of the log | [`LogArea`] | blocks of home, or a disk | the journal device |
//! | a commit waits for writers | [`CommitDelayPolicy`] | as long as they cost | a part of a commit |
//! | in flight at once | [`Pipeline`] | two at most | one |
//!
//! The [`Pipeline`] says which transaction runs, which are in flight, and who waits for which. The
//! task that commits is its user's: it takes the running transaction ([`Pipeline::lock`]), has
//! `journal` plan it, gives the plan to the [`PlanExecutor`], and reports the end
//! ([`Pipeline::finish`]).
#![forbid(unsafe_code)]

mod admission_queue;
mod claims;
mod commit_error;
mod completion;
mod durability;
mod executor;
mod home;
mod log_area;
mod log_writes;
mod pipeline;
mod plan_disks;
mod running;
mod shutdown;
mod superblock;
mod write_counts;
mod writers;

pub use claims::{HomeClaim, HomeClaims};
pub use commit_error::CommitError;
pub use completion::Completion;
pub use durability::{Durability, HomeWrites};
pub use executor::PlanExecutor;
pub use home::{DiskHome, DurabilityScope, Home};
pub use log_area::{LogArea, LogDevice, LogExtent};
pub use pipeline::{IN_FLIGHT_MAX, Pipeline};
pub use plan_disks::PlanDisks;
pub use running::{Freed, RunningContent};
pub use superblock::{ERRNO_DAMAGED, LogSuperblock, SuperblockChange, image_of};
pub use write_counts::{WriteCounts, WrittenCount};
pub use writers::CommitDelayPolicy;
