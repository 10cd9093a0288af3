//! Disks: a file or block device through the ring, memory with a volatile cache for tests, RAID-0
//! over any, and disks in front of others.
#![deny(unsafe_code)]

mod check;
mod elevator;
pub mod explored;
mod file;
mod memory;
mod raid0;
mod traced;
mod watched;

pub use check::check;
pub use elevator::{Elevator, HostScheduler};
pub use file::{
    Claim, DiskAccess, DiskOpenError, FileDisk, Handover, hold_unlocked, honours_dsync,
    is_open_elsewhere, lock_image, lock_range, loop_device_over, next_data, page_cache_under,
    range_lock_against, sees_all_processes,
};
pub use memory::{
    Atomicity, CrashPolicy, Effect, Fault, FaultTimes, Image, Latency, LineReplacement, Logged,
    Lying, MemoryDisk, MemoryStatistics,
};
pub use raid0::Raid0;
pub use traced::TraceFile;
pub use watched::{Watch, Watched};
