//! Location of a log: the disk and its blocks.

use crate::commit_error::CommitError;
use crate::home::Home;
use device::{Buffer, DeviceError, Disk, Durability, LocalFuture};
use format::jbd2::JournalSuperblock;
use journal::{Logs, ScatteredLogMap};
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock};

/// Consecutive log blocks that lie one after the other on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogExtent {
    pub first: LogBlock,
    pub count: u32,
    /// First block on the disk: a home block, or one of the log's own disk.
    pub disk_block: u64,
}

/// Owner of the blocks that the log takes. The caller that puts the parts together sets it: nobody
/// else can find out.
#[derive(Clone)]
pub enum LogDevice {
    /// Blocks of home (hidden inode): what is flushed for one of them is flushed for both.
    Inside,
    Own(Rc<dyn Disk>),
}

/// Place of the log on its disk.
#[derive(Clone)]
pub struct LogArea {
    pub device: LogDevice,
    /// Sorted by `first`, without overlap; together they hold every block that the journal
    /// superblock names.
    pub extents: Vec<LogExtent>,
    /// The block that holds the journal superblock: 0 in a hidden inode. A journal device counts
    /// log blocks from its start, and has it in block 1 (2 with 1 KiB blocks).
    pub superblock: LogBlock,
    /// The volume's scattered logs: blocks of home behind those of the journal.
    pub logs: Option<ScatteredLogMap>,
}

impl LogArea {
    /// Checks that every block that the superblock names exists: on its disk, or within home.
    pub fn check(
        &self,
        superblock: &JournalSuperblock,
        home: &dyn Home,
    ) -> Result<(), CommitError> {
        self.locate(self.superblock)?;
        for at in self.logs.iter().flat_map(|logs| &logs.homes) {
            if !home.contains(*at, self.logs.as_ref().map_or(0, |logs| logs.blocks.into())) {
                return Err(CommitError::BadJournal {
                    why: format!("the log at {at} lies beyond the end"),
                });
            }
        }
        self.check_apart()?;
        let is_there = |at: u64, count: u32| match &self.device {
            LogDevice::Inside => home.contains(HomeBlock(at), u64::from(count)),
            LogDevice::Own(disk) => {
                let blocks = disk.geometry().size >> superblock.block_size.shift();
                at.checked_add(u64::from(count)).is_some_and(|end| end <= blocks)
            }
        };
        let mut at = superblock.first;
        while at < superblock.log_end() {
            let (place, together) = self.locate(at)?;
            let count = together.min(superblock.log_end().get() - at.get());
            if !is_there(place, count) {
                return Err(CommitError::BadJournal {
                    why: format!("{at} lies beyond the end of its disk"),
                });
            }
            at = at.plus(count);
        }
        Ok(())
    }

    /// Checks that no block of the disk is two blocks of the log: one transaction would overwrite
    /// another.
    pub fn check_apart(&self) -> Result<(), CommitError> {
        let mut extents: Vec<_> = self.extents.iter().collect();
        extents.sort_by_key(|extent| extent.disk_block);
        let overlap = |pair: &&[&LogExtent]| {
            pair[0].disk_block + u64::from(pair[0].count) > pair[1].disk_block
        };
        match extents.windows(2).find(overlap) {
            Some(pair) => {
                let (at, other) = (pair[1].disk_block, pair[0].disk_block);
                let why =
                    format!("the parts of the log at blocks {other} and {at} overlap; run e2fsck");
                Err(CommitError::BadJournal { why })
            }
            None => Ok(()),
        }
    }

    /// Blocks of the journal itself.
    pub fn journal_blocks(&self) -> u64 {
        let last = self.extents.last();
        let all = last.map_or(0, |last| u64::from(last.first.get()) + u64::from(last.count));
        self.logs.as_ref().map_or(all, |logs| logs.first.get().into())
    }

    /// The scattered logs, in log blocks of which a block has `each`.
    pub fn logs(&self, each: u32) -> Result<Logs, CommitError> {
        let why = match &self.logs {
            _ if self.is_separate() => "scattered logs need the journal inside the volume",
            None => "the volume has no scattered logs (okeanos mkfs --scattered-logs)",
            Some(logs) => match logs.in_units(each) {
                Some(logs) => return Ok(logs),
                None => {
                    "the scattered logs are too long for their log blocks; mount with a larger log_unit="
                }
            },
        };
        Err(CommitError::BadJournal { why: why.to_owned() })
    }

    /// Whether the log shares no disk with home.
    pub fn is_separate(&self) -> bool {
        matches!(self.device, LogDevice::Own(_))
    }

    /// Writes to the log's disk, from its byte `at` on.
    pub fn write(
        &self,
        home: &dyn Home,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        match &self.device {
            LogDevice::Inside => home.write_log(at, parts, durability),
            LogDevice::Own(disk) => disk.write(at, parts, durability),
        }
    }

    /// Sectors of the log's disk, from its byte `at` on.
    pub fn read(
        &self,
        home: &dyn Home,
        at: u64,
        length: usize,
    ) -> LocalFuture<Result<Buffer, DeviceError>> {
        match &self.device {
            LogDevice::Inside => home.read_log(at, length),
            LogDevice::Own(disk) => disk.read(at, length),
        }
    }

    /// Returns the unit in which the log's disk writes.
    pub fn physical_sector(&self, home: &dyn Home) -> u32 {
        match &self.device {
            LogDevice::Inside => home.physical_sector(),
            LogDevice::Own(disk) => disk.physical_sector(),
        }
    }

    pub fn logical_sector(&self, home: &dyn Home) -> u32 {
        match &self.device {
            LogDevice::Inside => home.logical_sector(),
            LogDevice::Own(disk) => disk.geometry().logical_sector,
        }
    }

    /// Returns where byte `at` of the journal lies on its disk, and how many bytes follow it there,
    /// itself included.
    pub fn locate_byte(&self, at: u64, block_size: BlockSize) -> Result<(u64, u64), CommitError> {
        let within = at & (block_size.bytes() as u64 - 1);
        let block = u32::try_from(at >> block_size.shift()).unwrap_or(u32::MAX);
        let (place, together) = self.locate(LogBlock(block))?;
        let shift = block_size.shift();
        Ok(((place << shift) + within, (u64::from(together) << shift) - within))
    }

    /// The disk block of `at` and how many log blocks follow it there, itself included.
    pub fn locate(&self, at: LogBlock) -> Result<(u64, u32), CommitError> {
        let after = self.extents.partition_point(|extent| extent.first <= at);
        let found = after.checked_sub(1).map(|index| self.extents[index]);
        match found {
            Some(extent) if at.get() - extent.first.get() < extent.count => {
                let offset = at.get() - extent.first.get();
                Ok((extent.disk_block + u64::from(offset), extent.count - offset))
            }
            _ => Err(CommitError::BadJournal {
                why: format!("{at} lies outside the journal's blocks"),
            }),
        }
    }
}
