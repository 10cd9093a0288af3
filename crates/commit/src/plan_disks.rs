use crate::home::{DiskHome, Home};
use crate::log_area::{LogArea, LogDevice, LogExtent};
use device::{Disk, World};
use std::ops::Range;
use std::rc::Rc;
use units::{BlockSize, Instant, LogBlock};

/// The disks that plans are written to.
#[derive(Clone)]
pub struct PlanDisks {
    /// Says how old data is that write-back has written home, which no log does.
    clock: Option<Rc<dyn World>>,
    pub(crate) home: Rc<dyn Home>,
    pub(crate) log: Option<LogArea>,
    /// Memory that has the table of runs.
    pub(crate) table: Option<Rc<dyn Disk>>,
    pub(crate) block_size: BlockSize,
}

impl PlanDisks {
    /// Creates the disks of a home, and of its log if it has one. `table`: memory that has the
    /// table of runs.
    pub fn new(
        world: Rc<dyn World>,
        home: Rc<dyn Home>,
        log: Option<LogArea>,
        table: Option<Rc<dyn Disk>>,
        block_size: BlockSize,
    ) -> PlanDisks {
        PlanDisks { clock: Some(world), home, log, table, block_size }
    }

    /// Creates the disks of a log alone: no block of home is ever written.
    /// `blocks`: those of the disk that are the log's, its superblock first.
    pub fn log_only(disk: Rc<dyn Disk>, block_size: BlockSize, blocks: Range<u64>) -> PlanDisks {
        let home = Rc::new(DiskHome::new(disk.clone(), block_size, 0));
        let (first, count) = (LogBlock(0), (blocks.end - blocks.start) as u32);
        let extents = vec![LogExtent { first, count, disk_block: blocks.start }];
        let device = LogDevice::Own(disk);
        let log = Some(LogArea { device, extents, superblock: first, logs: None });
        PlanDisks { clock: None, home, log, table: None, block_size }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(Instant::default, |world| world.now())
    }
}
