//! Finds the superblock, or its copy.

use crate::error::BlocksError;
use device::{Buffer, DeviceError, Disk, Durability};
use format::blocks::{
    BLOCKS_SUPERBLOCK_SIZE, BlocksFormatError, BlocksRole, BlocksSuperblock, RESERVED_BYTES,
    SUPERBLOCK_AT, blocks_copy_at,
};
use std::rc::Rc;

/// Bytes read and written as one: no disk has longer logical sectors.
pub(crate) const PAGE: usize = 4096;

/// The superblock in use.
#[derive(Clone, Debug)]
pub struct FoundSuperblock {
    pub superblock: BlocksSuperblock,
    /// Whether this is the copy, because the one at the start of the disk is damaged or cannot be
    /// read.
    pub is_copy: bool,
}

/// The kind of a disk.
#[derive(Clone, Debug)]
pub enum BlocksDisk {
    Volume(FoundSuperblock),
    Journal(FoundSuperblock),
}

/// Reads the superblock, or the copy of one that is damaged or cannot be read.
///
/// # Errors
/// [`BlocksError::NoVolume`] where neither has the magic; [`BlocksError::Unusable`] where one has,
/// and none counts; [`BlocksError::Overwritten`] where the copy is left, and the start of the disk
/// holds something else; [`BlocksError::Shrunk`] where the disk is shorter than the volume;
/// [`BlocksError::Device`] where the superblock cannot be read, and there is no copy.
pub async fn find_superblock(disk: &dyn Disk) -> Result<BlocksDisk, BlocksError> {
    let size = disk.geometry().size;
    let name = || disk.name().to_owned();
    let why = match parse_at(disk, SUPERBLOCK_AT).await {
        Ok(Ok(superblock)) => return found(disk, superblock, false),
        Ok(Err(
            why @ (BlocksFormatError::UnknownVersion(_) | BlocksFormatError::UnknownFeatures(_)),
        )) => return Err(BlocksError::Unusable { disk: name(), why }),
        Ok(Err(why @ BlocksFormatError::NoVolume)) => BlocksError::NoVolume { disk: name(), why },
        Ok(Err(why)) => BlocksError::Unusable { disk: name(), why },
        Err(error) if units::fault!("blocks-copy-for-damage-alone") => return Err(error.into()),
        Err(error) => error.into(),
    };
    match copy_of(disk, size).await {
        Ok(Some(copy)) if !units::fault!("blocks-copy-unused") => {
            match copy.overwritten_at(&read_start(disk).await) {
                Some(at) if !units::fault!("blocks-overwritten-revived") => {
                    Err(BlocksError::Overwritten { disk: name(), at })
                }
                _ => found(disk, copy, true),
            }
        }
        // Of two disk errors the first is reported, and any rather than that there is no volume.
        Err(error) if !matches!(why, BlocksError::Device(_)) => Err(error),
        _ => Err(why),
    }
}

fn found(
    disk: &dyn Disk,
    superblock: BlocksSuperblock,
    is_copy: bool,
) -> Result<BlocksDisk, BlocksError> {
    let size = disk.geometry().size;
    if superblock.disk_bytes > size {
        let wanted = superblock.disk_bytes;
        return Err(BlocksError::Shrunk { disk: disk.name().to_owned(), size, wanted });
    }
    let found = FoundSuperblock { superblock, is_copy };
    Ok(match found.superblock.role {
        BlocksRole::Volume => BlocksDisk::Volume(found),
        BlocksRole::Journal => BlocksDisk::Journal(found),
    })
}

/// Returns the copy at the end of the disk, if it is one of a disk of this size.
async fn copy_of(disk: &dyn Disk, size: u64) -> Result<Option<BlocksSuperblock>, BlocksError> {
    let Some(at) = blocks_copy_at(size) else { return Ok(None) };
    let found = parse_at(disk, at).await?;
    Ok(found.ok().filter(|copy| blocks_copy_at(copy.disk_bytes) == Some(at)))
}

/// Returns whether the copy of this superblock can be read, and is the same.
pub async fn has_copy(disk: &dyn Disk, superblock: &BlocksSuperblock) -> bool {
    let Some(at) = blocks_copy_at(superblock.disk_bytes) else { return false };
    matches!(parse_at(disk, at).await, Ok(Ok(copy)) if copy == *superblock)
}

/// Reads the first reserved area. Pages that cannot be read are zeros.
async fn read_start(disk: &dyn Disk) -> Vec<u8> {
    let mut start = vec![0; RESERVED_BYTES as usize];
    for (page, at) in start.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        if let Ok(bytes) = disk.read(at, PAGE).await {
            page.copy_from_slice(&bytes);
        }
    }
    start
}

async fn parse_at(
    disk: &dyn Disk,
    at: u64,
) -> Result<Result<BlocksSuperblock, BlocksFormatError>, DeviceError> {
    if at + PAGE as u64 > disk.geometry().size {
        return Ok(Err(BlocksFormatError::NoVolume));
    }
    Ok(BlocksSuperblock::parse(&disk.read(at, PAGE).await?[..BLOCKS_SUPERBLOCK_SIZE]))
}

/// Writes a superblock, or the copy, durably at its place.
pub(crate) async fn write_superblock(
    disk: &dyn Disk,
    superblock: &BlocksSuperblock,
    at: u64,
) -> Result<(), DeviceError> {
    let mut page = Buffer::zeroed(PAGE);
    page[..BLOCKS_SUPERBLOCK_SIZE].copy_from_slice(&superblock.serialize());
    disk.write(at, vec![Rc::new(page)], Durability::Durable).await
}
