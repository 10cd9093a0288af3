//! WHOSE home a record's address belongs to. The engine writes and reads home through [`Home`]
//! alone. An address is 64 bits that only the home understands: a block of a volume, or a block in
//! a file's slot of a store.

use device::{Buffer, DeviceError, Disk, Durability, LocalFuture};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use units::{BlockSize, HomeBlock};

/// Final location of the blocks of the journaled layer.
///
/// Invariants: the addresses of one write or read are consecutive. A write that has completed is
/// read by all later reads. [`Home::make_durable`] covers writes that had completed when it was
/// called, and no others.
pub trait Home {
    /// Whether all of `at .. at + count` are blocks of this home: no others are ever read or
    /// written.
    fn contains(&self, at: HomeBlock, count: u64) -> bool;
    /// Returns the first address beyond this home.
    fn end(&self) -> u64;
    fn read(&self, at: HomeBlock, count: usize) -> LocalFuture<Result<Buffer, DeviceError>>;
    /// Writes whole blocks, one after the other from `at` on.
    fn write(
        &self,
        at: HomeBlock,
        blocks: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>>;
    /// Sectors from byte `at` on: of a log that lies inside this home.
    fn write_log(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>>;
    fn read_log(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>>;
    /// Returns the unit in which the disk writes: [`Disk::physical_sector`].
    fn physical_sector(&self) -> u32;
    /// Returns the logical sector in bytes: nothing shorter can be written. Who does not know says
    /// what is written as one.
    fn logical_sector(&self) -> u32 {
        self.physical_sector()
    }
    fn make_durable(&self, what: DurabilityScope) -> LocalFuture<Result<(), DeviceError>>;
    /// Returns the block behind the last read or write of home outside the log, where the disk's
    /// arm is or will be.
    fn head(&self) -> HomeBlock {
        HomeBlock(0)
    }
    /// Whether a durable write costs less than a write and [`Home::make_durable`].
    fn has_durable_writes(&self) -> bool;
}

/// Completed writes that shall be durable. A home may make more durable than that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DurabilityScope {
    /// All writes: those of a log inside this home, and those of earlier runs, too.
    Everything,
    /// The writes of these blocks of home: for a store, of the files that hold them.
    Of(Vec<Range<HomeBlock>>),
}

/// The blocks of a local volume: one disk.
#[derive(Clone)]
pub struct DiskHome {
    disk: Rc<dyn Disk>,
    block_size: BlockSize,
    blocks: u64,
    head: Rc<Cell<HomeBlock>>,
}

impl DiskHome {
    /// Creates a home of `blocks` blocks at the start of the disk.
    pub fn new(disk: Rc<dyn Disk>, block_size: BlockSize, blocks: u64) -> DiskHome {
        let on_disk = disk.geometry().size >> block_size.shift();
        DiskHome { disk, block_size, blocks: blocks.min(on_disk), head: Rc::default() }
    }
    /// Creates a home that fills its disk.
    pub fn whole(disk: Rc<dyn Disk>, block_size: BlockSize) -> DiskHome {
        DiskHome::new(disk, block_size, u64::MAX)
    }
}

impl Home for DiskHome {
    fn contains(&self, at: HomeBlock, count: u64) -> bool {
        at.get().checked_add(count).is_some_and(|end| end <= self.blocks)
    }
    fn end(&self) -> u64 {
        self.blocks
    }
    fn read(&self, at: HomeBlock, count: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.head.set(at.plus(count as u64));
        self.disk.read(at.get() << self.block_size.shift(), count << self.block_size.shift())
    }
    fn write(
        &self,
        at: HomeBlock,
        blocks: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let bytes: usize = blocks.iter().map(|part| part.len()).sum();
        self.head.set(at.plus(bytes as u64 >> self.block_size.shift()));
        self.disk.write(at.get() << self.block_size.shift(), blocks, durability)
    }
    fn write_log(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.write(at, parts, durability)
    }
    fn read_log(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.disk.read(at, length)
    }
    fn physical_sector(&self) -> u32 {
        self.disk.physical_sector()
    }
    fn logical_sector(&self) -> u32 {
        self.disk.geometry().logical_sector
    }
    /// Flushes the whole disk, since a flush has no smaller unit.
    fn make_durable(&self, _what: DurabilityScope) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.flush()
    }
    fn head(&self) -> HomeBlock {
        self.head.get()
    }
    fn has_durable_writes(&self) -> bool {
        self.disk.geometry().forced_unit_access
    }
}
