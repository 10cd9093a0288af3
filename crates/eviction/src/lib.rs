//! Drives whose flush cannot be trusted (Rajimwale et al., DSN 2011, "Coerced Cache Eviction").
//!
//! Such a drive answers a flush and keeps the data in its cache. But its cache is finite: enough
//! other writes evict the data. An [`EvictionWorkload`] describes such writes, a [`Profile`] adds
//! the drive on which it was found. A [`CoercedDisk`] replaces every flush by the workload, written
//! to a [`FlushZone`] of the disk. The layers above do not see the difference.
#![forbid(unsafe_code)]

mod coerced_disk;
pub mod fingerprint;
mod flush_test;
mod flush_zone;
mod profile;
mod shipped;
mod workload;

pub use coerced_disk::{CoercedDisk, CoercionStatistics};
pub use flush_test::{FlushTest, Verdict, flush_test};
pub use flush_zone::{FlushZone, ZoneError};
pub use profile::{Profile, ProfileError};
pub use workload::{EvictionWorkload, Pattern};
