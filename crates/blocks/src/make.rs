//! Makes a block volume, and a journal device.

use crate::error::BlocksError;
use crate::find::write_superblock;
use crate::layout::BlocksLayout;
use crate::zone::NewFlushZone;
use device::{Buffer, DeviceError, Disk, Durability};
use format::blocks::{
    BlockGroups, BlocksRole, BlocksSuperblock, JOURNAL_BLOCKS_MAX, JOURNAL_BLOCKS_MIN,
    RESERVED_BYTES, SUPERBLOCK_AT, blocks_copy_at,
};
use format::jbd2::JournalSuperblock;
use runtime::join_window;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::BlockSize;

/// Size of a journal within a disk of 4 GiB or more; a sixteenth of a smaller disk. A file system
/// above writes its own journal, of 64 to 128 MiB by default, again and again: blocks that it
/// overwrites while the log still holds them are never written home.
const JOURNAL_BYTES: u64 = 256 << 20;

/// *LogSize* in every *GroupSize*, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupBytes {
    pub log: u64,
    pub group: u64,
}

/// Options of a new volume.
#[derive(Clone, Debug)]
pub struct BlocksFormatOptions {
    pub block_size: BlockSize,
    pub uuid: [u8; 16],
    /// The identity of the journal's device; `None`: the journal is inside.
    pub journal_uuid: Option<[u8; 16]>,
    /// Size in bytes; `None`: 256 MiB, or a sixteenth of a disk below 4 GiB.
    pub journal_bytes: Option<u64>,
    pub groups: Option<GroupBytes>,
    /// Seconds since 1970.
    pub now: u64,
}

impl BlocksFormatOptions {
    fn plan(&self, new: &NewDisk<'_>) -> Result<BlocksSuperblock, String> {
        let (size, shift) = (new.disk.geometry().size, self.block_size.shift());
        self.check_sector(new.disk)?;
        let Some(copy_at) = blocks_copy_at(size) else {
            return Err(format!("a disk of {size} bytes is too short for a block volume"));
        };
        let inside = match (self.journal_uuid, self.journal_bytes) {
            (Some(_), _) => 0,
            (None, Some(bytes)) => bytes,
            (None, None) => JOURNAL_BYTES.min(size / 16),
        };
        let least = u64::from(JOURNAL_BLOCKS_MIN) << shift;
        let inside =
            if self.journal_bytes.is_none() && inside > 0 { inside.max(least) } else { inside };
        let journal_blocks = journal_blocks(inside, self.block_size)?;
        if journal_blocks == 0 && self.journal_uuid.is_none() {
            return Err("a block volume needs a journal".to_owned());
        }
        let journal_at = if journal_blocks > 0 { RESERVED_BYTES >> shift } else { 0 };
        let journal_end = (RESERVED_BYTES + (u64::from(journal_blocks) << shift))
            .next_multiple_of(RESERVED_BYTES);
        let zone = Zone::of(new.zone, journal_end, shift)?;
        let data_at = (journal_end >> shift) + zone.blocks;
        let data_blocks = (copy_at >> shift).saturating_sub(data_at);
        if data_blocks == 0 {
            let zone = zone.blocks << shift;
            let zone = if zone > 0 { format!(", a flush zone of {zone}") } else { String::new() };
            return Err(format!(
                "a disk of {size} bytes has no space for data beside a journal of {inside}{zone}"
            ));
        }
        if self.groups.is_some() && self.journal_uuid.is_some() {
            return Err("scattered logs need the journal inside the volume".to_owned());
        }
        let groups = self.groups.map(|bytes| groups(bytes, data_blocks, shift)).transpose()?;
        let superblock = BlocksSuperblock {
            role: BlocksRole::Volume,
            block_size: self.block_size,
            uuid: self.uuid,
            journal_uuid: self.journal_uuid.unwrap_or_default(),
            created: self.now,
            disk_bytes: size,
            journal_at,
            journal_blocks,
            data_at,
            data_blocks,
            groups,
            zone_at: zone.at,
            zone_blocks: zone.blocks,
        };
        superblock.check().map(|()| superblock).map_err(|why| why.to_string())
    }

    /// Plans the journal's device.
    fn plan_journal(&self, new: &NewDisk<'_>) -> Result<BlocksSuperblock, String> {
        let (size, shift) = (new.disk.geometry().size, self.block_size.shift());
        self.check_sector(new.disk)?;
        let Some(copy_at) = blocks_copy_at(size) else {
            return Err(format!("a disk of {size} bytes is too short for a journal"));
        };
        let most = u64::from(JOURNAL_BLOCKS_MAX) << shift;
        let area = new.zone.map_or(Some(0), NewFlushZone::area).unwrap_or(u64::MAX);
        let space = copy_at.saturating_sub(RESERVED_BYTES).saturating_sub(area);
        let bytes = self.journal_bytes.unwrap_or(space).min(most);
        let journal_end = (RESERVED_BYTES + bytes).next_multiple_of(RESERVED_BYTES);
        let placed = Zone::of(new.zone, journal_end, shift)?;
        let superblock = BlocksSuperblock {
            role: BlocksRole::Journal,
            block_size: self.block_size,
            uuid: self.uuid,
            journal_uuid: self.journal_uuid.unwrap_or_default(),
            created: self.now,
            disk_bytes: size,
            journal_at: RESERVED_BYTES >> shift,
            journal_blocks: journal_blocks(bytes, self.block_size)?,
            data_at: 0,
            data_blocks: 0,
            groups: None,
            zone_at: placed.at,
            zone_blocks: placed.blocks,
        };
        superblock.check().map(|()| superblock).map_err(|why| why.to_string())
    }

    /// Blocks are the smallest requests of an open volume.
    fn check_sector(&self, disk: &dyn Disk) -> Result<(), String> {
        let (sector, block) = (disk.geometry().logical_sector, self.block_size.bytes());
        match sector as usize <= block || units::fault!("blocks-below-sectors") {
            true => Ok(()),
            false => Err(format!(
                "blocks of {block} bytes cannot be: the disk writes whole sectors of {sector}"
            )),
        }
    }
}

/// First block and number of blocks of a flush zone; (0, 0): there is none.
struct Zone {
    at: u64,
    blocks: u64,
}

impl Zone {
    /// Places a zone at byte `after`, which is aligned.
    fn of(zone: Option<&NewFlushZone>, after: u64, shift: u32) -> Result<Zone, String> {
        let Some(zone) = zone else { return Ok(Zone { at: 0, blocks: 0 }) };
        let area = zone.area().ok_or("the flush zone is too long")?;
        Ok(Zone { at: after >> shift, blocks: area >> shift })
    }
}

fn journal_blocks(bytes: u64, size: BlockSize) -> Result<u32, String> {
    let (blocks, least) = (bytes >> size.shift(), u64::from(JOURNAL_BLOCKS_MIN));
    match blocks {
        0 if bytes == 0 => Ok(0),
        _ if (least..=u64::from(JOURNAL_BLOCKS_MAX)).contains(&blocks) => Ok(blocks as u32),
        _ => Err(format!(
            "a journal of {bytes} bytes: from {} to {} are possible with blocks of {} bytes",
            least << size.shift(),
            u64::from(JOURNAL_BLOCKS_MAX) << size.shift(),
            size.bytes()
        )),
    }
}

fn groups(bytes: GroupBytes, data_blocks: u64, shift: u32) -> Result<BlockGroups, String> {
    let GroupBytes { log, group } = bytes;
    let wrong = || format!("a scattered log of {log} bytes in every {group} bytes cannot be");
    let group_blocks = u32::try_from(group >> shift).map_err(|_| wrong())?;
    let log_blocks = u32::try_from(log >> shift).map_err(|_| wrong())?;
    if log_blocks == 0 || group_blocks / 2 < log_blocks {
        return Err(format!("{}: a log takes at most half of its group", wrong()));
    }
    let logs = u32::try_from(data_blocks / u64::from(group_blocks)).map_err(|_| wrong())?;
    if logs == 0 {
        return Err(format!("{}: the disk has no space for a group", wrong()));
    }
    Ok(BlockGroups { group_blocks, log_blocks, logs })
}

/// A disk to be formatted, and the flush zone that it gets behind its journal, if any.
#[derive(Clone, Copy)]
pub struct NewDisk<'a> {
    pub disk: &'a dyn Disk,
    pub zone: Option<&'a NewFlushZone>,
}

impl NewDisk<'_> {
    fn bad_sizes(&self, why: impl Into<String>) -> BlocksError {
        BlocksError::BadSizes { disk: self.disk.name().to_owned(), why: why.into() }
    }

    /// Writes what a superblock plans, and the superblock.
    async fn write(&self, superblock: &BlocksSuperblock) -> Result<(), BlocksError> {
        let disk = self.disk;
        let copy_at = blocks_copy_at(superblock.disk_bytes).expect("a plan has space for the copy");
        clear(disk, 0).await?;
        clear(disk, copy_at).await?;
        // A signature between the copy and the end: of md, of GPT.
        clear_tail(disk).await?;
        write_areas(disk, superblock, self.zone).await?;
        Ok(write_superblocks(disk, superblock, copy_at).await?)
    }
}

/// Makes an empty volume with its journal inside. Its exported disk holds what was there before.
/// Signatures of other formats at either end of the disk are erased.
///
/// # Errors
/// [`BlocksError::BadSizes`] says which sizes cannot be; nothing was written then.
pub async fn format_volume(
    disk: &dyn Disk,
    options: &BlocksFormatOptions,
) -> Result<BlocksLayout, BlocksError> {
    format(NewDisk { disk, zone: None }, None, options).await
}

/// Makes an empty volume as [`format_volume`] does, and the empty journal on a device of its own,
/// which it fills.
///
/// # Errors
/// [`BlocksError::BadSizes`] says which sizes of which disk cannot be; nothing was written to
/// either then: the journal may be that of a volume in use.
pub async fn format(
    volume: NewDisk<'_>,
    journal: Option<NewDisk<'_>>,
    options: &BlocksFormatOptions,
) -> Result<BlocksLayout, BlocksError> {
    let plan = || options.plan(&volume).map_err(|why| volume.bad_sizes(why));
    let planned_late = units::fault!("blocks-format-plans-late");
    let of_volume = (!planned_late).then(plan).transpose()?;
    let of_journal = match &journal {
        Some(new) => Some((new, options.plan_journal(new).map_err(|why| new.bad_sizes(why))?)),
        None => None,
    };
    // The journal first: a volume exists only if its journal does.
    if let Some((new, superblock)) = &of_journal {
        new.write(superblock).await?;
    }
    let superblock = of_volume.map_or_else(plan, Ok)?;
    let layout = BlocksLayout::new(superblock.clone()).expect("a plan is checked");
    volume.write(&superblock).await?;
    Ok(layout)
}

/// Writes copy and superblock last: a volume exists whole or not at all.
async fn write_superblocks(
    disk: &dyn Disk,
    superblock: &BlocksSuperblock,
    copy_at: u64,
) -> Result<(), DeviceError> {
    // From here on the copy alone makes a volume, whose journal must not be a former one's.
    disk.flush().await?;
    write_superblock(disk, superblock, copy_at).await?;
    write_superblock(disk, superblock, SUPERBLOCK_AT).await
}

/// Writes what the areas begin with: an empty journal, and the flush zone's superblock.
async fn write_areas(
    disk: &dyn Disk,
    superblock: &BlocksSuperblock,
    zone: Option<&NewFlushZone>,
) -> Result<(), BlocksError> {
    write_journal(disk, superblock).await?;
    match zone {
        Some(zone) => zone.write(disk, superblock).await,
        None => Ok(()),
    }
}

/// Writes an empty journal.
async fn write_journal(disk: &dyn Disk, superblock: &BlocksSuperblock) -> Result<(), BlocksError> {
    if superblock.journal_blocks == 0 {
        return Ok(());
    }
    let size = superblock.block_size;
    // Without checksums (`nojournal_checksum`) nothing but their numbers distinguishes transactions
    // of a former volume, or of a journal within its data, and all logs begin with the same number.
    if !units::fault!("blocks-journal-not-erased") {
        let end = superblock.journal_at + u64::from(superblock.journal_blocks);
        erase(disk, superblock.journal_at << size.shift()..end << size.shift()).await?;
    }
    let journal = JournalSuperblock::new(size, superblock.journal_blocks, superblock.uuid);
    // A block of 1 KiB may be less than the disk can write.
    let mut page = Buffer::zeroed(4096);
    page[..size.bytes()].copy_from_slice(&journal.serialize());
    let at = superblock.journal_at << size.shift();
    Ok(disk.write(at, vec![Rc::new(page)], Durability::Durable).await?)
}

/// Zeros an area, and what follows it up to the next place of an area. What holds zeros is not
/// written: an image file keeps its holes.
async fn erase(disk: &dyn Disk, area: Range<u64>) -> Result<(), DeviceError> {
    /// Requests at once: a journal may have a whole device.
    const WINDOW: usize = 16;
    let zeros = Rc::new(Buffer::zeroed(RESERVED_BYTES as usize));
    let erase_one = |at| -> Pin<Box<dyn Future<Output = Result<(), DeviceError>> + '_>> {
        let zeros = zeros.clone();
        Box::pin(async move {
            // A write may repair a sector that cannot be read.
            match disk.read(at, zeros.len()).await {
                Ok(found) if found[..] == zeros[..] => Ok(()),
                _ => disk.write(at, vec![zeros], Durability::Cached).await,
            }
        })
    };
    join_window(area.step_by(RESERVED_BYTES as usize).map(erase_one), WINDOW).await.map(drop)
}

/// Zeros the reserved area at `at`.
pub(crate) async fn clear(disk: &dyn Disk, at: u64) -> Result<(), DeviceError> {
    let zeros = Rc::new(Buffer::zeroed(RESERVED_BYTES as usize));
    disk.write(at, vec![zeros], Durability::Durable).await
}

/// Zeros what is between the last whole reserved area and the end of the disk.
pub(crate) async fn clear_tail(disk: &dyn Disk) -> Result<(), DeviceError> {
    let (size, sector) = (disk.geometry().size, u64::from(disk.geometry().logical_sector));
    let (end, start) = (size / sector * sector, size / RESERVED_BYTES * RESERVED_BYTES);
    if end > start {
        let zeros = Rc::new(Buffer::zeroed((end - start) as usize));
        disk.write(start, vec![zeros], Durability::Durable).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use disks::{Image, MemoryDisk};
    use runtime::{SplitMix, VirtualWorld};
    use units::HomeBlock;

    /// Group walks are cut off there.
    const GROUPS_WALKED_MAX: u32 = 1 << 12;

    /// Returns a number of every magnitude up to 2^`bits`: a power of two, or near one, or any.
    fn of_any_magnitude(random: &SplitMix, bits: u64) -> u64 {
        let power = 1u64 << (random.next() % (bits + 1));
        match random.next() % 4 {
            0 => power,
            1 => power - 1,
            2 => power + random.next() % 4 * (512 << (random.next() % 12)),
            _ => power + random.next() % power,
        }
    }

    fn options_of(random: &SplitMix) -> BlocksFormatOptions {
        let log = (64 << 10) + of_any_magnitude(random, 34);
        let group = match random.next() % 4 {
            0 => 2 * log,
            1 => 2 * log + 4096,
            2 => log,
            _ => 2 * log + of_any_magnitude(random, 44),
        };
        BlocksFormatOptions {
            block_size: BlockSize::new([1024, 2048, 4096][(random.next() % 3) as usize]).unwrap(),
            uuid: [7; 16],
            journal_uuid: (random.next() % 4 == 0).then_some([9; 16]),
            journal_bytes: (random.next() % 2 == 0).then(|| of_any_magnitude(random, 44)),
            groups: (random.next() % 2 == 0).then_some(GroupBytes { log, group }),
            now: 1,
        }
    }

    fn home_of(layout: &BlocksLayout, block: u64) -> u64 {
        layout.runs(block..block + 1).next().expect("a run").home.get()
    }

    /// Checks the homes of blocks at both ends, around logs, and of random ones.
    fn check_homes(layout: &BlocksLayout, random: &SplitMix) {
        let (blocks, shift) = (layout.blocks(), layout.block_size().shift());
        let superblock = layout.superblock();
        let mut sample = vec![0, blocks - 1, blocks.saturating_sub(2), random.next() % blocks];
        if let Some(groups) = superblock.groups {
            let data = u64::from(groups.group_blocks - groups.log_blocks);
            let chosen = [0, 1, groups.logs - 1, groups.logs, random.next() as u32 % groups.logs];
            let edges = chosen.map(|group| u64::from(group) * data);
            sample.extend(edges.iter().flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1]));
        }
        for block in sample.into_iter().filter(|block| *block < blocks) {
            let home = home_of(layout, block);
            assert!(layout.is_data(HomeBlock(home), 1), "block {block}");
            assert_eq!(
                layout.exported_byte(HomeBlock(home)),
                Some(block << shift),
                "block {block}"
            );
            if block + 1 < blocks {
                let (next, log) = (home_of(layout, block + 1), superblock.groups);
                let gap = next - home - 1;
                assert!(gap == 0 || log.is_some_and(|log| gap == log.log_blocks.into()));
                let between = home + 1..next;
                assert!(between.take(3).all(|home| !layout.is_data(HomeBlock(home), 1)));
            }
        }
    }

    fn check_whole(layout: &BlocksLayout) {
        let superblock = layout.superblock();
        let end = superblock.data_at + superblock.data_blocks;
        let copy_at = blocks_copy_at(superblock.disk_bytes).expect("a place");
        assert!(end << layout.block_size().shift() <= copy_at);
        let journal_end = superblock.journal_at + u64::from(superblock.journal_blocks);
        assert!(journal_end <= superblock.data_at);
        if superblock.groups.is_some_and(|groups| groups.logs > GROUPS_WALKED_MAX) {
            return;
        }
        let (mut next, mut count) = (superblock.data_at, 0);
        let logs = layout.logs(units::LogBlock(0));
        let mut logs = logs.iter().flat_map(|logs| logs.homes.iter().map(|at| (at, logs.blocks)));
        for run in layout.runs(0..layout.blocks()) {
            if run.home.get() > next {
                let (log, length) = logs.next().expect("a log in each gap");
                assert_eq!((log.get(), log.get() + u64::from(length)), (next, run.home.get()));
            }
            next = run.home.get() + run.count;
            count += run.count;
        }
        assert_eq!(count, layout.blocks());
        let behind: u64 = logs.map(|(_, length)| u64::from(length)).sum();
        assert_eq!(next + behind, end);
    }

    #[test]
    fn each_block_has_one_home_on_disks_of_every_size() {
        let (mut made, mut longer_than_2_tib) = (0, 0);
        for seed in 0..20_000 {
            let random = SplitMix::new(seed);
            let world = Rc::new(VirtualWorld::new(seed));
            let size = of_any_magnitude(&random, 62) / 512 * 512;
            let disk = MemoryDisk::from_image(world, Image::new(size));
            let options = options_of(&random);
            let Ok(plan) = options.plan(&NewDisk { disk: &disk, zone: None }) else { continue };
            println!("seed {seed}: {plan:?}");
            assert_eq!(BlocksSuperblock::parse(&plan.serialize()).as_ref(), Ok(&plan));
            let layout = BlocksLayout::new(plan).expect("a layout");
            check_whole(&layout);
            check_homes(&layout, &random);
            made += 1;
            longer_than_2_tib += u32::from(size > 2 << 40);
        }
        assert!(made > 2000 && longer_than_2_tib > 500, "{made}, {longer_than_2_tib}");
    }
}
