//! Flush zones of a block volume and of its journal's device, to which evictions of
//! `barrier=coerce` write.

use crate::error::BlocksError;
use crate::find::{BlocksDisk, PAGE, find_superblock};
use crate::parts::BlockParts;
use device::{Buffer, Disk, Durability};
use format::blocks::{BlocksRole, BlocksSuperblock, RESERVED_BYTES};
use format::flush_zone::{FLUSH_ZONE_SUPERBLOCK_SIZE, FlushZoneSuperblock, FoundFlushZone};
use std::rc::Rc;

/// A flush zone that a format is to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFlushZone {
    /// The drive and the writes of an eviction. UUID and length are filled in.
    pub superblock: FlushZoneSuperblock,
    /// Bytes that evictions need.
    pub bytes: u64,
}

impl NewFlushZone {
    /// Returns the bytes that the zone takes, a page for its superblock included.
    pub(crate) fn area(&self) -> Option<u64> {
        self.bytes.checked_add(PAGE as u64)?.checked_next_multiple_of(RESERVED_BYTES)
    }
    /// Writes the zone's superblock where the disk's has it.
    pub(crate) async fn write(
        &self,
        disk: &dyn Disk,
        superblock: &BlocksSuperblock,
    ) -> Result<(), BlocksError> {
        let (uuid, length) = (owner(superblock), self.bytes);
        let zone = FlushZoneSuperblock { uuid, length, inode: 0, ..self.superblock.clone() };
        let mut page = Buffer::zeroed(PAGE);
        page[..FLUSH_ZONE_SUPERBLOCK_SIZE].copy_from_slice(&zone.serialize());
        let at = superblock.zone_at << superblock.block_size.shift();
        Ok(disk.write(at, vec![Rc::new(page)], Durability::Durable).await?)
    }
}

/// Returns the UUID of the volume, or of the journal's device, that has the zone.
fn owner(superblock: &BlocksSuperblock) -> [u8; 16] {
    match superblock.role {
        BlocksRole::Volume => superblock.uuid,
        BlocksRole::Journal => superblock.journal_uuid,
    }
}

/// The flush zone of a disk, if it has one; or why it cannot be used.
pub type FlushZoneResult = Result<Option<FoundFlushZone>, BlocksError>;

/// Finds the flush zones of a volume that is not open: of its disk, and of its journal's device.
/// What is wrong with one disk's takes no evictions from the other disk.
///
/// # Errors
/// Of each disk: [`BlocksError::FlushZone`] for a zone that cannot be used; others as
/// [`crate::BlockVolume::open`].
pub async fn find_flush_zones(parts: &BlockParts) -> (FlushZoneResult, FlushZoneResult) {
    let home = zone_of(&*parts.disk).await;
    let journal = match &parts.journal {
        Some(disk) => zone_of(&**disk).await,
        None => Ok(None),
    };
    (home, journal)
}

async fn zone_of(disk: &dyn Disk) -> FlushZoneResult {
    let (BlocksDisk::Volume(found) | BlocksDisk::Journal(found)) = find_superblock(disk).await?;
    let superblock = &found.superblock;
    if superblock.zone_blocks == 0 {
        return Ok(None);
    }
    let bad = |why| BlocksError::FlushZone { disk: disk.name().to_owned(), why };
    let shift = superblock.block_size.shift();
    let (at, area) = (superblock.zone_at << shift, superblock.zone_blocks << shift);
    let page = disk.read(at, PAGE).await?;
    let zone = FlushZoneSuperblock::parse(&page).map_err(|error| bad(error.to_string()))?;
    if zone.uuid != owner(superblock) {
        return Err(bad("the flush zone is another volume's".to_owned()));
    }
    let start = at + PAGE as u64;
    let end = start.checked_add(zone.length).filter(|end| *end <= at + area);
    let end = end.ok_or_else(|| bad("the flush zone is longer than its place".to_owned()))?;
    Ok(Some(FoundFlushZone { superblock: zone, extents: std::iter::once(start..end).collect() }))
}
