//! Home of a block volume: the data of its disk, beside its log.

use crate::layout::CurrentLayout;
use device::{Buffer, DeviceError, Disk, Durability, LocalFuture, Operation};
use engine::{DiskHome, DurabilityScope, Home};
use std::rc::Rc;
use units::HomeBlock;

/// The home of a volume's data. Addresses are blocks of the disk, so that a scattered log is found
/// near the disk's arm.
///
/// Invariant: only data blocks are written back, whatever a record in the log says.
pub(crate) struct VolumeHome {
    disk: Rc<dyn Disk>,
    whole: DiskHome,
    layout: CurrentLayout,
}

impl VolumeHome {
    pub fn new(disk: Rc<dyn Disk>, layout: CurrentLayout) -> VolumeHome {
        let block_size = layout.get().block_size();
        VolumeHome { whole: DiskHome::whole(disk.clone(), block_size), disk, layout }
    }
}

impl Home for VolumeHome {
    /// Includes blocks of the log: a journal inside the volume has them among the blocks of home.
    fn contains(&self, at: HomeBlock, count: u64) -> bool {
        let used = self.layout.get().used();
        at.get() >= used.start && at.get().checked_add(count).is_some_and(|end| end <= used.end)
    }
    fn end(&self) -> u64 {
        self.layout.get().used().end
    }
    fn read(&self, at: HomeBlock, count: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.whole.read(at, count)
    }
    fn write(
        &self,
        at: HomeBlock,
        blocks: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let layout = self.layout.get();
        let shift = layout.block_size().shift();
        let length: u64 = blocks.iter().map(|part| part.len() as u64).sum();
        if layout.is_data(at, length >> shift) || units::fault!("blocks-home-unchecked") {
            return self.whole.write(at, blocks, durability);
        }
        let refused = DeviceError::OutOfRange {
            disk: format!("{}: the data of the block volume", self.disk.name()),
            operation: Operation::Write,
            at: at.get() << shift,
            length,
            size: layout.used().end << shift,
        };
        Box::pin(async { Err(refused) })
    }
    fn write_log(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.whole.write_log(at, parts, durability)
    }
    fn read_log(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.whole.read_log(at, length)
    }
    fn physical_sector(&self) -> u32 {
        self.whole.physical_sector()
    }
    fn logical_sector(&self) -> u32 {
        self.whole.logical_sector()
    }
    fn make_durable(&self, what: DurabilityScope) -> LocalFuture<Result<(), DeviceError>> {
        self.whole.make_durable(what)
    }
    fn head(&self) -> HomeBlock {
        self.whole.head()
    }
    fn has_durable_writes(&self) -> bool {
        self.whole.has_durable_writes()
    }
}
