//! Opening a block volume: superblock, journal, recovery, engine.

use crate::error::BlocksError;
use crate::find::{BlocksDisk, FoundSuperblock, find_superblock, has_copy, write_superblock};
use crate::grow::grown;
use crate::home::VolumeHome;
use crate::layout::{BlocksLayout, CurrentLayout};
use crate::parts::BlockParts;
use crate::report::BlocksReport;
use crate::volume::BlockVolume;
use device::Disk;
use engine::{
    Engine, EngineOptions, EngineParts, LogArea, LogDevice, LogExtent, NoPacing,
    PreviewedTransaction, RecoveryReport,
};
use format::blocks::{BlocksSuperblock, SUPERBLOCK_AT, blocks_copy_at};
use std::rc::Rc;
use units::{BlockSize, LogBlock};

struct FoundVolume {
    layout: CurrentLayout,
    is_copy: bool,
    /// The superblock of the journal's device.
    journal: Option<FoundSuperblock>,
    parts: EngineParts,
}

impl BlockParts {
    async fn find(&self) -> Result<FoundVolume, BlocksError> {
        let FoundSuperblock { superblock, is_copy } = self.superblock().await?;
        let layout = BlocksLayout::new(superblock).expect("a superblock that parses is checked");
        let (log, journal) = self.log_area(&layout).await?;
        let (block_size, layout) = (layout.block_size(), CurrentLayout::new(layout));
        self.check_sectors(block_size)?;
        let parts = EngineParts {
            world: self.world.clone(),
            home: Rc::new(VolumeHome::new(self.disk.clone(), layout.clone())),
            block_size,
            log: Some(log),
            // The file system above knows nothing of the log, so nobody else notes it.
            options: EngineOptions { keeps_recorded_error: true, ..self.options.clone() },
            pacing: Rc::new(NoPacing),
        };
        Ok(FoundVolume { layout, is_copy, journal, parts })
    }

    /// Refuses disks that cannot write single blocks: the volume was copied there.
    fn check_sectors(&self, block_size: BlockSize) -> Result<(), BlocksError> {
        let block_bytes = block_size.bytes();
        for disk in std::iter::once(&self.disk).chain(&self.journal) {
            let sector_bytes = disk.geometry().logical_sector;
            if sector_bytes as usize > block_bytes {
                let disk = disk.name().to_owned();
                return Err(BlocksError::SmallBlocks { disk, block_bytes, sector_bytes });
            }
        }
        Ok(())
    }

    async fn log_area(
        &self,
        layout: &BlocksLayout,
    ) -> Result<(LogArea, Option<FoundSuperblock>), BlocksError> {
        let superblock = layout.superblock();
        let Some(disk) = &self.journal else {
            if superblock.journal_blocks == 0 {
                return Err(BlocksError::JournalMissing(superblock.journal_uuid));
            }
            let (extents, logs) = layout.extents();
            let (device, superblock) = (LogDevice::Inside, LogBlock(0));
            return Ok((LogArea { device, extents, superblock, logs }, None));
        };
        if superblock.journal_blocks > 0 {
            return Err(BlocksError::JournalInside { disk: disk.name().to_owned() });
        }
        let found = check_journal(&**disk, superblock).await?;
        let (count, disk_block) = (found.superblock.journal_blocks, found.superblock.journal_at);
        let extent = LogExtent { first: LogBlock(0), count, disk_block };
        let (device, superblock) = (LogDevice::Own(disk.clone()), LogBlock(0));
        Ok((LogArea { device, extents: vec![extent], superblock, logs: None }, Some(found)))
    }
}

/// Checks that `disk` is the journal of the volume with this superblock.
///
/// # Errors
/// [`BlocksError`] names what it is instead.
pub async fn check_journal(
    disk: &dyn Disk,
    volume: &BlocksSuperblock,
) -> Result<FoundSuperblock, BlocksError> {
    let name = || disk.name().to_owned();
    let found = match find_superblock(disk).await? {
        BlocksDisk::Journal(found) => found,
        BlocksDisk::Volume(_) => return Err(BlocksError::IsVolume { disk: name() }),
    };
    let journal = &found.superblock;
    let is_meant = (journal.uuid, journal.journal_uuid) == (volume.uuid, volume.journal_uuid);
    if !is_meant || journal.block_size != volume.block_size {
        let (found, wanted) = (journal.journal_uuid, volume.journal_uuid);
        return Err(BlocksError::WrongJournal { disk: name(), found, wanted });
    }
    Ok(found)
}

impl BlockVolume {
    /// Reads the superblock, replays the log if it holds anything, and opens the engine over it.
    /// Only the replay writes to a volume that is opened read-only.
    ///
    /// # Errors
    /// [`BlocksError`] names the disk, the fault, and the remedy.
    pub async fn open(parts: BlockParts) -> Result<BlockVolume, BlocksError> {
        let found = parts.find().await?;
        let mut report = BlocksReport { warnings: found.parts.warnings(), ..Default::default() };
        let (recovery, kept) = engine::restart(&found.parts, &[]).await?;
        report.recovery = recovery;
        let layout = found.layout.get();
        if grown(&*parts.disk, layout.superblock()).is_ok_and(|more| more.is_some()) {
            report
                .warnings
                .push("the disk has grown: okeanos blocks grow exports all of it".into());
        }
        let volume =
            FoundSuperblock { superblock: layout.superblock().clone(), is_copy: found.is_copy };
        let journal = parts.journal.iter().zip(&found.journal);
        let journal = journal.filter(|_| !units::fault!("blocks-journal-not-restored"));
        let disks: Vec<_> = std::iter::once((&parts.disk, &volume)).chain(journal).collect();
        if !parts.options.read_only {
            for (disk, found) in disks.iter().filter(|(_, found)| found.is_copy) {
                if restore(&***disk, &found.superblock, SUPERBLOCK_AT, &mut report).await {
                    report.superblocks_restored.push(disk.name().to_owned());
                }
            }
        }
        let engine = Engine::open_with(found.parts, kept).await?;
        if !parts.options.read_only {
            for (disk, FoundSuperblock { superblock, .. }) in &disks {
                let Some(at) = blocks_copy_at(superblock.disk_bytes) else { continue };
                if !has_copy(&***disk, superblock).await {
                    restore(&***disk, superblock, at, &mut report).await;
                }
            }
        }
        Ok(BlockVolume::new(engine, found.layout, parts.disk, parts.persistence, report))
    }
}

/// Writes a superblock again at `at`, and returns whether it could. The other one is good, so that
/// a bad sector costs a warning and no volume.
async fn restore(
    disk: &dyn Disk,
    superblock: &BlocksSuperblock,
    at: u64,
    report: &mut BlocksReport,
) -> bool {
    let written = write_superblock(disk, superblock, at).await;
    if let Err(error) = &written {
        let name = disk.name();
        report
            .warnings
            .push(format!("{name}: a superblock, at byte {at}, cannot be written: {error}"));
    }
    written.is_ok()
}

/// Replays the log of a closed volume; everything is written back then. With `dry_run` nothing is
/// written.
///
/// # Errors
/// As [`BlockVolume::open`].
pub async fn recover(parts: &BlockParts, dry_run: bool) -> Result<RecoveryReport, BlocksError> {
    let found = parts.find().await?;
    let mut report = engine::recover(&found.parts, dry_run).await?;
    if dry_run {
        report.restart = engine::forecast_restart(&found.parts).await?;
    }
    Ok(report)
}

/// Clears the error that the journal of a closed volume records, durably, once the file system
/// above it was checked.
///
/// # Errors
/// [`engine::EngineError::NeedsRecovery`] where the log is not empty; others as
/// [`BlockVolume::open`].
pub async fn clear_recorded_error(parts: &BlockParts) -> Result<(), BlocksError> {
    let found = parts.find().await?;
    Ok(engine::clear_recorded_error(&found.parts).await?)
}

/// Returns the transactions that recovery would replay, as they are in the log. Writes nothing.
///
/// # Errors
/// As [`BlockVolume::open`].
pub async fn replay_preview(parts: &BlockParts) -> Result<Vec<PreviewedTransaction>, BlocksError> {
    let found = parts.find().await?;
    Ok(engine::replay_preview(&found.parts).await?)
}
