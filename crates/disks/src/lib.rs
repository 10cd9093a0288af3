//! Disks: a file or block device through the ring, memory with a volatile cache for tests, and RAID-0 over any.
#![deny(unsafe_code)]

mod check;
mod file;
mod memory;
mod raid0;

pub use check::check;
pub use file::{Access, Claim, FileDisk, Handover, OpenError, lock_image, loop_device_over, next_data};
pub use memory::{
    Atomicity, CrashPolicy, Effect, Fault, Image, Latency, Logged, Lying, MemoryDisk, MemoryStatistics,
    Replacement, Times,
};
pub use raid0::Raid0;
