//! Location and workload of evictions of `barrier=coerce`; on a volume, and on a journal device.

use super::reader::Reader;
use crate::error::CliError;
use crate::look::open_to_look;
use eviction::EvictionWorkload;
use format::ext4::superblock::{JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use format::flush_zone::{FLUSH_ZONE_SUPERBLOCK_SIZE, FlushZoneError, FlushZoneSuperblock};
use format::uuid_text;
use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(serde::Serialize)]
#[serde(untagged)]
pub enum FlushZoneReport {
    Zone {
        /// Inode that owns it; 0 on a journal device.
        inode: u32,
        /// First block of its superblock.
        first_block: u64,
        bytes: u64,
        workload: EvictionWorkload,
        trials: u32,
        /// Size of the drive that was fingerprinted; 0 and empty if the profile was forced.
        drive_size: u64,
        model: String,
    },
    Damaged {
        problem: String,
    },
}

impl FlushZoneReport {
    fn of(superblock: &[u8], first_block: u64) -> FlushZoneReport {
        match FlushZoneSuperblock::parse(superblock) {
            Ok(zone) => FlushZoneReport::Zone {
                inode: zone.inode,
                first_block,
                bytes: zone.length,
                workload: EvictionWorkload::from(&zone),
                trials: zone.trials,
                drive_size: zone.drive_size,
                model: zone.model,
            },
            Err(error) => FlushZoneReport::Damaged { problem: error.to_string() },
        }
    }

    /// Returns `None` also if the way to it cannot be read: the superblock's report is worth
    /// printing then.
    pub fn of_volume(reader: &Reader) -> Option<FlushZoneReport> {
        let number = reader.find(format!("/{}", ext4::FLUSH_ZONE_NAME)).ok()?;
        let first = reader.layout(number, &reader.inode(number).ok()?).ok()?.extents.first()?.home;
        Some(FlushZoneReport::of(&reader.block(first).ok()?, first.get()))
    }
}

impl fmt::Display for FlushZoneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlushZoneReport::Zone {
            inode, first_block, workload, trials, drive_size, model, ..
        } = self
        else {
            let FlushZoneReport::Damaged { problem } = self else { return Ok(()) };
            return write!(f, "damaged: {problem}");
        };
        match inode {
            0 => write!(f, "behind the journal")?,
            inode => write!(f, "inode {inode}")?,
        }
        write!(f, ", from block {first_block}; an eviction is {workload}")?;
        match drive_size {
            0 => write!(f, "; the profile was forced"),
            size => write!(f, ", found on {model} of {size} bytes in {trials} trials"),
        }
    }
}

/// Report of `inspect super` on an external journal.
#[derive(serde::Serialize)]
pub struct JournalDeviceReport {
    uuid: String,
    block_size: usize,
    blocks: u64,
    flush_zone: Option<FlushZoneReport>,
}

impl JournalDeviceReport {
    /// Returns `None` if there is something else.
    pub fn report(path: &Path) -> Result<Option<JournalDeviceReport>, CliError> {
        let file = open_to_look(path).map_err(|error| CliError::system(path.display(), error))?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).is_err() {
            return Ok(None);
        }
        let Ok(JournalDevice { uuid: of_device, block_size, blocks }) =
            JournalDevice::parse(&bytes)
        else {
            return Ok(None);
        };
        let mut zone = [0; FLUSH_ZONE_SUPERBLOCK_SIZE];
        let is_there = file.read_exact_at(&mut zone, blocks << block_size.shift()).is_ok()
            && FlushZoneSuperblock::parse(&zone) != Err(FlushZoneError::NoZone);
        let flush_zone = is_there.then(|| FlushZoneReport::of(&zone, blocks));
        Ok(Some(JournalDeviceReport {
            uuid: uuid_text(&of_device),
            block_size: block_size.bytes(),
            blocks,
            flush_zone,
        }))
    }
}

impl fmt::Display for JournalDeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "journal device   {}", self.uuid)?;
        writeln!(f, "blocks           {} of {} bytes", self.blocks, self.block_size)?;
        match &self.flush_zone {
            Some(zone) => writeln!(f, "flush zone       {zone}"),
            None => Ok(()),
        }
    }
}
