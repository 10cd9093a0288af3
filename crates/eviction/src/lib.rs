//! Drives whose flush is not to be trusted (Rajimwale et al., DSN 2011, "Coerced Cache Eviction").
//!
//! Such a drive answers a flush and keeps the data in its cache. But it has only so much cache:
//! enough other writes push the data out. An [`EvictionWorkload`] says which writes do that, a
//! [`Profile`] on which drive it was found. Wherever a flush is asked for, a [`CoercedDisk`]
//! carries the workload out, to a [`FlushZone`] of the disk. The floors above do not know the
//! difference.
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
