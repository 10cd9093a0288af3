//! The crash explorer. Scripts of many writers run on whole volumes, are cut at every write,
//! recovered and judged. The same scripts run on disks that fail, and under bitmaps that lie.
#![forbid(unsafe_code)]

mod ace;
mod bytes_read;
mod case;
mod choices;
mod counts;
mod crash;
mod earlier_life;
pub mod enumerate;
mod explorer;
pub mod faults;
mod hostile;
mod judge;
mod lives;
pub mod lying_disk;
mod memory_disks;
pub mod model;
pub mod proof;
mod run_table;
pub mod script;
pub mod script_text;
pub mod setup;
pub mod small_world;
mod snapshot;
pub mod stalls;
mod tree;
mod writer;
mod written_log;

pub use ace::{Ace, Workload};
pub use case::{CACHE_BYTES, Case, CaseReport, Failure, LEAST_CACHE, Scripts, run, shrink};
pub use choices::SNAPSHOT_EACH_RUN;
pub use explorer::Explorer;
