//! Disks: a file or block device through the ring, and memory with a volatile cache for tests.
#![deny(unsafe_code)]

mod check;
mod file;
mod memory;

pub use check::check;
pub use file::{Access, FileDisk, OpenError};
pub use memory::{
    Atomicity, CrashPolicy, Effect, Fault, Image, Latency, Logged, MemoryDisk, MemoryStatistics, Times,
};
