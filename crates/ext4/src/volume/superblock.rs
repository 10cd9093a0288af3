//! The superblock on the disk: read before there is an engine, and changed through handles. It is
//! written directly at two moments when it must not wait for the journal: before the first commit
//! of an empty log, and after the last.

use super::Volume;
use crate::{Error, Result};
use device::{Buffer, Disk, Durability};
use engine::{EngineError, Handle};
use format::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, state};
use format::ext4::{VolumeSuperblock, feature};
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, Timestamp};

/// The superblock's block, and its bytes there.
pub(super) fn place(block_size: BlockSize) -> (HomeBlock, BlockRange) {
    let start = SUPERBLOCK_OFFSET as u32 % block_size.bytes() as u32;
    let block = HomeBlock(SUPERBLOCK_OFFSET >> block_size.shift());
    (block, BlockRange::new(start, start + SUPERBLOCK_SIZE as u32))
}

/// Reads and checks the superblock, and that the disk is as large as it says.
pub async fn read(disk: &dyn Disk) -> Result<VolumeSuperblock> {
    let size = disk.geometry().size;
    if size < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(Error::Truncated {
            needed: SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64,
            found: size,
        });
    }
    let (_, bytes, within) = read_surroundings(disk).await?;
    let superblock = VolumeSuperblock::parse(&bytes[within..within + SUPERBLOCK_SIZE])?;
    let needed = superblock.blocks << superblock.block_size.shift();
    if size < needed {
        return Err(Error::Truncated { needed, found: size });
    }
    Ok(superblock)
}

/// Whether the volume says that it was closed, so that no orphan waits to be cleaned up.
pub async fn was_closed(disk: &dyn Disk) -> Result<bool> {
    let superblock = read(disk).await?;
    let open = [feature::RECOVER, feature::ORPHAN_PRESENT];
    Ok(superblock.last_orphan == 0
        && !open.into_iter().any(|feature| superblock.features.has(feature)))
}

/// Writes the superblock home at once, durably.
pub(super) async fn write(disk: &dyn Disk, superblock: &VolumeSuperblock) -> Result<()> {
    let (at, mut bytes, within) = read_surroundings(disk).await?;
    bytes[within..within + SUPERBLOCK_SIZE].copy_from_slice(&superblock.serialize());
    let written = disk.write(at, vec![Rc::new(bytes)], Durability::Durable).await;
    Ok(written.map_err(EngineError::from)?)
}

/// Notes at home that damage was found, for volumes that have stopped and write nothing else. If
/// that fails, the journal still records that it was aborted.
pub(super) async fn mark_damaged(disk: Rc<dyn Disk>) {
    let Ok(mut superblock) = read(&*disk).await else { return };
    superblock.state |= state::ERROR;
    superblock.error_count = superblock.error_count.saturating_add(1);
    let _ = write(&*disk, &superblock).await;
}

/// The sectors that hold the superblock: their address, content, and its offset in them.
pub(super) async fn read_surroundings(disk: &dyn Disk) -> Result<(u64, Buffer, usize)> {
    let sector = u64::from(disk.geometry().logical_sector).max(1);
    let at = SUPERBLOCK_OFFSET / sector * sector;
    let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64).next_multiple_of(sector);
    let bytes = disk.read(at, (end - at) as usize).await.map_err(EngineError::from)?;
    Ok((at, bytes, (SUPERBLOCK_OFFSET - at) as usize))
}

/// Sets the time of writing, 40 bits of seconds.
pub(super) fn stamp(superblock: &mut VolumeSuperblock, now: Timestamp) {
    superblock.write_time = now.seconds as u32;
    superblock.write_time_high = (now.seconds >> 32) as u8;
}

impl Volume {
    /// Copies the superblock from memory into its block. Credits: 1.
    pub(crate) fn change_superblock(&self, handle: &mut Handle) {
        self.damage_mark_is_logged(handle.transaction());
        let bytes = self.superblock.borrow().serialize();
        let (_, range) = place(self.block_size());
        let change = |block: &mut [u8]| block[range.as_usize()].copy_from_slice(&bytes);
        match self.superblock_is_behind.replace(false) && !units::fault!("superblock-behind") {
            true => handle.change(&self.superblock_block, range, change),
            false => handle.change_within(&self.superblock_block, range, change),
        }
    }

    /// Writes the superblock home past the engine, whose block keeps the old bytes; so its next
    /// change replaces all of them.
    pub(super) async fn write_superblock_home(&self) -> Result<()> {
        self.superblock_is_behind.set(true);
        self.damage_mark_is_home();
        let superblock = self.superblock();
        write(&**self.home_disk(), &superblock).await
    }
}
