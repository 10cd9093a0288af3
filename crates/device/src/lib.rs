//! Traits of disks, clocks and random numbers.
//!
//! A disk has a volatile cache. A completed write may be lost, reordered and torn by a power cut
//! until a later [`Disk::flush`] completes, unless it was written [`Durability::Durable`]. Tearing:
//! see `docs/CRASH_MODEL.md`.
#![forbid(unsafe_code)]

mod buffer;
mod steps;
mod world;

pub use buffer::Buffer;
pub use steps::{LongSteps, STEP_LONG};
pub use world::{LocalFuture, World};

use std::rc::Rc;

/// The sizes that a disk reports, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size: u64,
    /// Logical sector in bytes: every address and length is a multiple of it.
    pub logical_sector: u32,
    pub discard: bool,
    /// A durable write costs less than a write and a flush (FUA), or its cost is unknown. Without
    /// it a durable write is a write and a flush of the disk's own.
    pub forced_unit_access: bool,
}

/// Guarantee when a write completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The disk has the data, perhaps only in its cache.
    Cached,
    /// Durable: this write, and only this one, survives a power cut (FUA, or write and flush).
    Durable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The disk returned an error. `code` is an errno.
    #[error("{disk}: {operation:?} of {length} bytes at byte {at} failed: {}", std::io::Error::from_raw_os_error(*code))]
    Failed { disk: String, operation: Operation, at: u64, length: u64, code: i32 },
    #[error(
        "{disk}: {operation:?} of {length} bytes at byte {at} reaches beyond the end ({size} bytes)"
    )]
    OutOfRange { disk: String, operation: Operation, at: u64, length: u64, size: u64 },
    #[error(
        "{disk}: {operation:?} of {length} bytes at byte {at} is not aligned to {sector} bytes"
    )]
    Unaligned { disk: String, operation: Operation, at: u64, length: u64, sector: u32 },
}

/// A block device. Calls start the operation when the future is first polled. The future owns the
/// operation's resources, so dropping it is harmless: the operation then still completes,
/// unobserved.
pub trait Disk {
    /// A name for errors and tables, such as a path.
    fn name(&self) -> &str;
    fn geometry(&self) -> Geometry;
    /// Bytes that the disk writes as one, at least its logical sector. For a shorter write it reads
    /// and rewrites the bytes around, and a power cut may damage them. Implementations that do not
    /// know return 4096 or more.
    fn physical_sector(&self) -> u32 {
        self.geometry().logical_sector.max(4096)
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>>;
    /// Writes the parts one after the other from byte `at` on, as one request where the disk allows
    /// it.
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>>;
    /// Makes every write completed before this call durable.
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>>;
    /// Declares the content of the range worthless; it is undefined afterwards.
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>>;
}
