//! The flush zone: a file of the volume, right behind the journal, to which evictions write past
//! the file system.
//!
//! It is located before the journal is replayed, since recovery needs its barriers, too. Its inode
//! is one of the first that are not reserved, and never changes after mkfs.

use super::readable::{CANDIDATES, readable, refuse_not_first, runs_of};
use super::{OpenParts, Volume, superblock};
use crate::{Caller, Error, Inode, MappingState, Result, WriteFlags};
use device::{Buffer, Disk};
use format::ext4::inode::flags;
use format::ext4::superblock::JournalDevice;
use format::ext4::{VolumeSuperblock, feature};
pub use format::flush_zone::FoundFlushZone;
use format::flush_zone::{FLUSH_ZONE_SUPERBLOCK_SIZE, FlushZoneError, FlushZoneSuperblock};
use std::ops::Range;
use std::rc::Rc;
use units::{FileBlock, HomeBlock, InodeNumber};

/// The file's name, in the root.
pub const FLUSH_ZONE_NAME: &str = ".flush-zone";
/// Bound on the zone's pieces: more would cost the seeks that a zone beside the journal is to save.
const PIECES_MAX: usize = 64;
/// Bound on the pieces of a zone that was found, which other programs may have moved (resize2fs).
const FOUND_PIECES_MAX: usize = 4096;
/// Bytes of one write while the zone is made.
const WRITE: u64 = 1 << 20;

impl Volume {
    /// Makes the volume's flush zone; for mkfs, before there are other files. `inode`, `uuid` and
    /// `length` of `zone` are filled in. `space`: bytes that evictions need, in writes of `write`
    /// bytes, none of which may be split by a gap.
    pub async fn make_flush_zone(
        self: &Rc<Self>,
        zone: FlushZoneSuperblock,
        space: u64,
        write: u64,
    ) -> Result<()> {
        refuse_protected(self.has(feature::MMP))?;
        let block = self.block_size().bytes() as u64;
        let (needed, free) = (space + block, self.statfs().await?.blocks_free * block);
        if free < needed {
            return Err(Error::FlushZone(format!(
                "the flush zone needs {needed} bytes, and the volume has {free} left"
            )));
        }
        let root = self.inode(InodeNumber(2)).await?;
        let made =
            self.mknod(&root, FLUSH_ZONE_NAME.as_bytes(), &Caller::ROOT, 0o100_400, 0).await?.value;
        refuse_not_first(self, &made, "the flush zone")?;
        made.mapping_cache.first_goal.set(self.journal_end);
        let mut length = 0;
        let mut missing = space.div_ceil(write);
        // Repeated only if the file has gaps, such as those of its own indirect blocks.
        while missing > 0 {
            let end = (length + missing * write).next_multiple_of(block);
            self.write_zeros(&made, length, block + end).await?;
            length = end;
            let pieces = runs(self, &made, 1 + length / block).await?;
            if pieces.len() > PIECES_MAX {
                return Err(Error::FlushZone(
                    "free space is too scattered for a flush zone".to_owned(),
                ));
            }
            let first = |at: usize| if at == 0 { block } else { 0 };
            let bytes = pieces.iter().enumerate().map(|(at, (_, count))| count * block - first(at));
            missing = space.div_ceil(write).saturating_sub(bytes.map(|bytes| bytes / write).sum());
        }
        let superblock = FlushZoneSuperblock {
            inode: made.number.0,
            uuid: self.superblock().uuid,
            length,
            ..zone
        };
        let mut first = superblock.serialize().to_vec();
        first.resize(block as usize, 0);
        self.write(&made, &Caller::ROOT, 0, &first, WriteFlags::default()).await?;
        self.set_flags(&made, self.flags(&made) | flags::IMMUTABLE).await?;
        self.sync().await
    }

    /// Whether evictions may be writing to this file's blocks, here or at the next mount: then they
    /// must not be freed.
    pub(crate) async fn is_flush_zone(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<bool> {
        if !inode.is_regular() {
            return Ok(false);
        }
        let start = self.read(inode, 0, FLUSH_ZONE_SUPERBLOCK_SIZE).await?;
        Ok(FlushZoneSuperblock::parse(&start.to_vec())
            .is_ok_and(|zone| zone.inode == inode.number.0))
    }

    async fn write_zeros(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, to: u64) -> Result<()> {
        let zeros = vec![0; WRITE as usize];
        let mut at = from;
        while at < to {
            let part = WRITE.min(to - at) as usize;
            let written =
                self.write(inode, &Caller::ROOT, at, &zeros[..part], WriteFlags::default()).await?;
            at += written.count as u64;
        }
        Ok(())
    }
}

/// The flush zone of a disk, if it has one; or why it cannot be used.
pub type FlushZoneResult = Result<Option<FoundFlushZone>>;

/// The flush zone of a volume that is not open, and that of its journal device. What is wrong with
/// one disk's takes no evictions from the other disk.
///
/// # Errors
/// Of each disk: [`Error::FlushZone`] for a zone that cannot be used; others for what cannot be
/// read, or is damaged, and may belong to one: a replay may restore it.
pub async fn find_flush_zones(parts: &OpenParts) -> (FlushZoneResult, FlushZoneResult) {
    let home = async { of_volume(parts, &superblock::read(&*parts.home).await?).await };
    let journal = async {
        match &parts.journal {
            Some(disk) => of_journal_device(&**disk).await,
            None => Ok(None),
        }
    };
    (home.await, journal.await)
}

/// Refuses a volume with multiple mount protection: each count of its block would be an eviction,
/// and one of those may take longer than another computer waits for a count.
fn refuse_protected(is_protected: bool) -> Result<()> {
    match is_protected {
        false => Ok(()),
        true => Err(Error::FlushZone(
            "evictions take too long for multiple mount protection (tune2fs -O ^mmp ends that)"
                .to_owned(),
        )),
    }
}

async fn of_volume(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
) -> Result<Option<FoundFlushZone>> {
    let volume = readable(parts, superblock).await?;
    let block = superblock.block_size.bytes() as u64;
    // Any user may make a file that looks like one, but for the flag.
    let mut not_it = None;
    let end =
        superblock.first_inode.saturating_add(CANDIDATES).min(superblock.inodes.saturating_add(1));
    for number in (superblock.first_inode..end).map(InodeNumber) {
        let inode = match volume.load_inode(number).await {
            Ok(inode) => inode,
            // It is free.
            Err(Error::Refused(_)) => continue,
            // It may be the zone's: the power cut may have torn it, and the log may hold it.
            Err(error) => {
                not_it = not_it.or(Some(error));
                continue;
            }
        };
        let blocks = inode.fields.borrow().size / block;
        if !inode.is_regular() || blocks < 2 || blocks > u64::from(u32::MAX) {
            continue;
        }
        let first = match first_block(parts, &volume, &inode).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => {
                not_it = not_it.or(Some(error));
                continue;
            }
        };
        let zone = match FlushZoneSuperblock::parse(&first) {
            Err(FlushZoneError::NoZone) => continue,
            Err(error) => {
                not_it = not_it.or(Some(Error::FlushZone(error.to_string())));
                continue;
            }
            Ok(zone) => zone,
        };
        // The uuid may have changed (`tune2fs -U`): the blocks are the file's all the same.
        if zone.inode != number.0 || zone.length / block >= blocks {
            // A copy of some zone, as a file.
            continue;
        }
        if inode.fields.borrow().flags & flags::IMMUTABLE == 0 {
            let why = "is no longer immutable (chattr +i): its blocks may be given away";
            let error =
                Error::FlushZone(format!("the flush zone ({number}, /{FLUSH_ZONE_NAME}) {why}"));
            not_it = not_it.or(Some(error));
            continue;
        }
        refuse_protected(superblock.features.has(feature::MMP))?;
        let runs = runs(&volume, &inode, 1 + zone.length / block).await?;
        let bytes =
            |(start, count): &(HomeBlock, u64)| start.get() * block..(start.get() + count) * block;
        let mut extents: Vec<Range<u64>> = runs.iter().map(bytes).collect();
        extents[0].start += block;
        return Ok(Some(FoundFlushZone { superblock: zone, extents }));
    }
    not_it.map_or(Ok(None), Err)
}

/// Returns the first block of a file, unless it is a hole or belongs to the file system.
async fn first_block(parts: &OpenParts, volume: &Volume, inode: &Inode) -> Result<Option<Buffer>> {
    let first = volume.map(inode, FileBlock(0), 1).await?;
    let MappingState::Written(at) = first.state else { return Ok(None) };
    if !volume.block_is_usable(at, 1) {
        return Ok(None);
    }
    let block = volume.block_size().bytes();
    let bytes = parts.home.read(at.get() * block as u64, block).await;
    Ok(Some(bytes.map_err(engine::EngineError::from)?))
}

/// The blocks of the zone's file, all of which must be mapped.
async fn runs(volume: &Volume, inode: &Inode, count: u64) -> Result<Vec<(HomeBlock, u64)>> {
    runs_of(volume, inode, count, ("the flush zone", FOUND_PIECES_MAX)).await
}

/// Finds the zone behind the blocks that the journal device's superblock claims.
async fn of_journal_device(disk: &dyn Disk) -> Result<Option<FoundFlushZone>> {
    let (_, bytes, within) = superblock::read_surroundings(disk).await?;
    let Ok(device) = JournalDevice::parse(&bytes[within..]) else { return Ok(None) };
    let size = disk.geometry().size;
    let block = device.block_size.bytes() as u64;
    let Some(at) = device
        .blocks
        .checked_mul(block)
        .filter(|at| at.checked_add(block).is_some_and(|end| end <= size))
    else {
        return Ok(None);
    };
    let bytes = disk.read(at, block as usize).await.map_err(engine::EngineError::from)?;
    let zone = match FlushZoneSuperblock::parse(&bytes) {
        Err(FlushZoneError::NoZone) => return Ok(None),
        Err(error) => return Err(Error::FlushZone(error.to_string())),
        Ok(zone) => zone,
    };
    if zone.uuid != device.uuid {
        return Err(Error::FlushZone("the flush zone is another journal's".to_owned()));
    }
    let start = at + block;
    let end = start.checked_add(zone.length).filter(|end| *end <= size);
    let end = end.ok_or_else(|| {
        Error::FlushZone("the flush zone ends behind the journal's device".to_owned())
    })?;
    let extents = std::iter::once(start..end).collect();
    Ok(Some(FoundFlushZone { superblock: zone, extents }))
}

/// Writes the flush zone of a journal device, behind its journal; for mkfs. `zone` as for
/// [`Volume::make_flush_zone`].
pub async fn make_journal_flush_zone(
    disk: &dyn Disk,
    zone: FlushZoneSuperblock,
    space: u64,
) -> Result<()> {
    let (_, bytes, within) = superblock::read_surroundings(disk).await?;
    let device = JournalDevice::parse(&bytes[within..])
        .map_err(|why| Error::Journal(format!("{} is no journal device: {why}", disk.name())))?;
    let block = device.block_size.bytes() as u64;
    let at = device.blocks * block;
    let (needed, found) = (at + block + space, disk.geometry().size);
    if found < needed {
        return Err(Error::FlushZone(format!(
            "{} has {found} bytes; the journal and the flush zone behind it need {needed}",
            disk.name()
        )));
    }
    let zone = FlushZoneSuperblock { inode: 0, uuid: device.uuid, length: space, ..zone };
    let mut buffer = Buffer::zeroed(block as usize);
    buffer[..FLUSH_ZONE_SUPERBLOCK_SIZE].copy_from_slice(&zone.serialize());
    let written = disk.write(at, vec![Rc::new(buffer)], device::Durability::Durable).await;
    Ok(written.map_err(engine::EngineError::from)?)
}
