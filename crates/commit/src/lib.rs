//! Commits: plans are carried out, and become durable. A log alone; there is no cache here, and no
//! write-back.
//!
//! `engine` uses this with a cache and a home that its blocks are written back to, `host` with a
//! log in front of a shared store. What differs between the two comes in from outside:
//!
//! | what | the trait or type | of a volume | of a host |
//! |---|---|---|---|
//! | the home of a plan's blocks | [`Home`] | blocks of its disk | none: [`PlanDisks::log_alone`] |
//! | the blocks of the log | [`LogArea`] | blocks of home, or of a disk of its own | the journal device |
#![forbid(unsafe_code)]

mod claims;
mod commit_error;
mod durability;
mod executor;
mod home;
mod log_area;
mod plan_disks;
mod write_counts;
mod writers;

pub use claims::{HomeClaim, HomeClaims};
pub use commit_error::CommitError;
pub use durability::{Durability, HomeWrites};
pub use executor::Runner;
pub use home::{Completed, DiskHome, Home};
pub use log_area::{LogArea, LogExtent, LogPlace};
pub use plan_disks::PlanDisks;
pub use write_counts::{WriteCounts, WrittenCount};
pub use writers::{Hold, HoldTime, Writers};
