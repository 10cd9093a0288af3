//! Location and recovery of the journal, and the engine over it.

use super::mmp::Protection;
use super::protected_disk::ProtectedDisk;
use super::readable::{home_of, readable, runs_of};
use super::{Access, OpenParts, Volume, journal_copy, logs, superblock};
use crate::{Error, Inode, Result};
use device::Disk;
use engine::{
    ERRNO_DAMAGED, Engine, EngineError, EngineOptions, EngineParts, LogArea, LogDevice, LogExtent,
    LogKind, NoPacing, PreviewedTransaction, RecoveryReport, RetainedLog,
};
use format::ext4::superblock::{JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, state};
use format::ext4::{VolumeSuperblock, feature};
use format::jbd2::{JournalFormatError, JournalSuperblock};
use format::uuid_text;
use std::rc::Rc;
use units::{HomeBlock, InodeNumber, LogBlock};

/// Bound on the journal's blocks.
const FILE_BLOCKS_MAX: u64 = 1 << 31;
/// Bound on the journal's pieces, that of one of 1 GiB in single blocks of 1 KiB.
const PIECES_MAX: usize = 1 << 20;

/// The parts of an engine.
pub(super) struct FoundJournal {
    pub parts: EngineParts,
    /// Runs of the hidden journal inode.
    pub runs: Vec<(HomeBlock, u64)>,
}

impl FoundJournal {
    pub async fn open(self, kept: Option<RetainedLog>) -> Result<Rc<Engine>> {
        Engine::open_with(self.parts, kept).await.map_err(|error| match error {
            EngineError::NeedsRecovery => needs_recovery(),
            error => error.into(),
        })
    }
}

/// Replays the journal of a volume that is not open, and clears the flag that asks for it. With
/// `dry_run` it only reports what would be done. Orphans are left to the next opening (or e2fsck).
pub async fn recover(parts: &OpenParts, dry_run: bool) -> Result<RecoveryReport> {
    let first = superblock::read(&*parts.home).await?;
    let protection = match dry_run {
        true => None,
        false => Protection::begin(&parts.world, &parts.home, &first, &parts.options.node).await?,
    };
    let mut parts = parts.clone();
    ProtectedDisk::put_under(&mut parts, &first, protection.as_ref());
    let report = recover_protected(&parts, &first, dry_run).await;
    let ended = match protection {
        Some(protection) => protection.end(true).await,
        None => Ok(()),
    };
    // What kept it from replaying matters more.
    report.and_then(|report| ended.map(|()| report))
}

async fn recover_protected(
    parts: &OpenParts,
    first: &VolumeSuperblock,
    dry_run: bool,
) -> Result<RecoveryReport> {
    let found = find(parts, first).await?;
    if !has_records(parts, first) {
        let recorded_error = check_empty(&found.parts).await?;
        return Ok(RecoveryReport {
            clean: true,
            dry_run,
            recorded_error,
            ..RecoveryReport::default()
        });
    }
    let failed = |error| refused(parts, error);
    let mut report = engine::recover(&found.parts, dry_run).await.map_err(failed)?;
    if dry_run {
        report.restart = engine::forecast_restart(&found.parts).await.map_err(failed)?;
    }
    let mut fresh = superblock::read(&*parts.home).await?;
    // Of this recovery, or of one that was interrupted after it had emptied the log.
    let lacks_some = report.is_incomplete() || report.recorded_error == ERRNO_DAMAGED;
    if !dry_run && lacks_some && !units::fault!("given-up-unmarked") {
        // Home may be newer than the replayed blocks, or lack transactions that were left out.
        fresh.state |= state::ERROR;
        fresh.error_count = fresh.error_count.saturating_add(1);
    }
    if !dry_run && (lacks_some || fresh.features.has(feature::RECOVER)) {
        fresh.features.clear(feature::RECOVER);
        superblock::write(&*parts.home, &fresh).await?;
    }
    if !dry_run && lacks_some {
        // Else a mount after e2fsck has looked would demand it again.
        engine::clear_recorded_error(&found.parts).await?;
    }
    Ok(report)
}

/// The transactions that recovery would replay, as they stand in the log. Writes nothing.
pub async fn replay_preview(parts: &OpenParts) -> Result<Vec<PreviewedTransaction>> {
    let first = superblock::read(&*parts.home).await?;
    let found = find(parts, &first).await?;
    match has_records(parts, &first) {
        true => Ok(engine::replay_preview(&found.parts).await?),
        false => Ok(Vec::new()),
    }
}

/// Whether the superblock's flag is set, without which the log's content is stale.
fn has_records(parts: &OpenParts, superblock: &VolumeSuperblock) -> bool {
    superblock.features.has(feature::RECOVER) || parts.options.engine.find_log
}

/// Replays the log if the superblock asks for it, or continues the log with its records. A volume
/// that is about to be written is found durable.
pub(super) async fn restart(
    parts: &OpenParts,
    first: &VolumeSuperblock,
    found: &FoundJournal,
) -> Result<(RecoveryReport, Option<RetainedLog>)> {
    if !has_records(parts, first) {
        if parts.options.access == Access::ReadWrite && !units::fault!("mount-finds-no-cache") {
            engine::flush_found(&found.parts).await?;
        }
        return Ok((RecoveryReport { clean: true, ..RecoveryReport::default() }, None));
    }
    let read_early = [superblock::place(first.block_size).0];
    engine::restart(&found.parts, &read_early).await.map_err(|error| refused(parts, error))
}

fn refused(parts: &OpenParts, error: EngineError) -> Error {
    match (parts.options.access, error) {
        (Access::ReadOnly, EngineError::Device(error)) => Error::Journal(format!(
            "the journal must be replayed first, which writes even if the mount is read-only: {error}"
        )),
        (_, error) => error.into(),
    }
}

/// Finds the journal: blocks of the hidden inode, or a disk of its own.
pub(super) async fn find(parts: &OpenParts, superblock: &VolumeSuperblock) -> Result<FoundJournal> {
    let read_only = parts.options.access == Access::ReadOnly;
    let mut engine_parts = EngineParts {
        world: parts.world.clone(),
        home: home_of(parts, superblock),
        block_size: superblock.block_size,
        log: None,
        options: EngineOptions { read_only, ..parts.options.engine.clone() },
        pacing: Rc::new(NoPacing),
    };
    let mut runs = Vec::new();
    let has_journal = superblock.features.has(feature::HAS_JOURNAL);
    if !has_journal && superblock.features.has(feature::RECOVER) {
        return Err(Error::Journal(
            "the superblock asks for recovery but has no journal; run e2fsck".into(),
        ));
    }
    engine_parts.log = match (&parts.journal, has_journal, superblock.journal_inode) {
        (None, false, _) => None,
        (None, true, 0) => return Err(journal_is_missing(superblock)),
        (None, true, inode) => {
            runs = hidden_journal(parts, superblock, InodeNumber(inode)).await?;
            Some(internal_journal(parts, superblock, &runs).await?)
        }
        (Some(disk), true, 0) => Some(external_journal(disk, superblock).await?),
        (Some(disk), ..) => {
            let name = disk.name();
            return Err(Error::Journal(format!(
                "{name} was named as journal, but the volume has none outside"
            )));
        }
    };
    Ok(FoundJournal { parts: engine_parts, runs })
}

/// Takes over the error that the journal records: then the volume needs e2fsck (kernel:
/// `ext4_clear_journal_err`). One that says that damage was found is counted.
pub(super) async fn take_over_error(
    parts: &EngineParts,
    superblock: &mut VolumeSuperblock,
) -> Result<()> {
    let Some(Ok(journal)) = journal_superblock(parts).await? else { return Ok(()) };
    if journal.errno != 0 {
        superblock.state |= state::ERROR;
    }
    if journal.errno == ERRNO_DAMAGED {
        superblock.error_count = superblock.error_count.max(1);
    }
    Ok(())
}

/// Verifies that the journal is as empty as the volume's superblock says. Returns the error that it
/// recorded, a negative errno, or 0.
///
/// # Errors
/// [`EngineError::BadJournal`] where its superblock is damaged, [`EngineError::LogForgotten`] where
/// another program has marked it as empty, [`Error::Journal`] where it holds transactions.
async fn check_empty(parts: &EngineParts) -> Result<i32> {
    if units::fault!("empty-journal-unread") {
        return Ok(0);
    }
    let Some(parsed) = journal_superblock(parts).await? else { return Ok(0) };
    let superblock =
        parsed.map_err(|error| EngineError::BadJournal { why: format!("{error}; run e2fsck") })?;
    if superblock.is_forgotten() {
        return Err(EngineError::LogForgotten.into());
    }
    if !superblock.is_clean() {
        return Err(needs_recovery());
    }
    Ok(superblock.errno)
}

fn needs_recovery() -> Error {
    Error::Journal(
        "the journal holds transactions, but the superblock says that it is empty. If nothing has \
         changed the volume since, okeanos recover --find-log replays them; else run e2fsck -f"
            .into(),
    )
}

/// The journal's superblock, or the reason that there is none; `None` for a volume without a
/// journal.
async fn journal_superblock(
    parts: &EngineParts,
) -> Result<Option<std::result::Result<JournalSuperblock, JournalFormatError>>> {
    let Some(area) = &parts.log else { return Ok(None) };
    let bytes = parts.read_journal_superblock(area).await?;
    let blocks = area.extents.iter().map(|extent| u64::from(extent.count)).sum();
    Ok(Some(JournalSuperblock::parse(&bytes, parts.block_size, blocks)))
}

fn journal_is_missing(superblock: &VolumeSuperblock) -> Error {
    let uuid = uuid_text(&superblock.journal_uuid);
    Error::Journal(format!(
        "the journal is on a device of its own, with UUID {uuid}: name it (mount -o journal_dev=DEVICE; of \
         other commands --journal-device DEVICE)"
    ))
}

/// The runs of the hidden journal inode.
async fn hidden_journal(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
    number: InodeNumber,
) -> Result<Vec<(HomeBlock, u64)>> {
    let (volume, inode) = match journal_inode(parts, superblock, number).await {
        Ok(found) => found,
        // Only a replay makes the volume one that e2fsck can repair.
        Err(error)
            if superblock.features.has(feature::RECOVER)
                && !units::fault!("journal-copy-unused") =>
        {
            return journal_copy::runs(superblock).ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let count = inode.fields.borrow().size >> superblock.block_size.shift();
    if !inode.is_regular() || count == 0 || count > FILE_BLOCKS_MAX {
        return Err(Error::corrupt_inode(number, "this is no journal"));
    }
    runs_of(&volume, &inode, count, ("the journal", PIECES_MAX)).await
}

async fn journal_inode(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
    number: InodeNumber,
) -> Result<(Rc<Volume>, Rc<Inode>)> {
    let volume = readable(parts, superblock).await?;
    let inode = volume.load_inode(number).await.map_err(|error| match error {
        Error::Refused(_) => {
            Error::corrupt_inode(number, "the journal should be there, but it is free")
        }
        error => error,
    })?;
    Ok((volume, inode))
}

fn log_extents(runs: &[(HomeBlock, u64)]) -> Vec<LogExtent> {
    let mut first = LogBlock(0);
    let extent = |(home, count): &(HomeBlock, u64)| {
        let extent = LogExtent { first, count: *count as u32, disk_block: home.get() };
        first = first.plus(extent.count);
        extent
    };
    runs.iter().map(extent).collect()
}

/// The log in the hidden inode's blocks, and the scattered logs where the log lies in them or is
/// to.
async fn internal_journal(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
    runs: &[(HomeBlock, u64)],
) -> Result<LogArea> {
    let mut extents = log_extents(runs);
    let mut logs = None;
    if parts.options.engine.log == LogKind::Scattered
        || is_scattered(parts, superblock, runs).await?
    {
        let blocks: u32 = extents.iter().map(|extent| extent.count).sum();
        logs = logs::find(parts, superblock, LogBlock(blocks)).await?;
    }
    if let Some(places) = &logs {
        extents.extend(logs::extents(places)?);
    }
    Ok(LogArea { device: LogDevice::Inside, extents, superblock: LogBlock(0), logs })
}

/// Whether the journal states that its log is scattered. The engine reports anything else that is
/// wrong with it.
async fn is_scattered(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
    runs: &[(HomeBlock, u64)],
) -> Result<bool> {
    let Some((at, _)) = runs.first() else { return Ok(false) };
    let size = superblock.block_size;
    let bytes =
        parts.home.read(at.get() << size.shift(), size.bytes()).await.map_err(EngineError::from)?;
    let blocks = runs.iter().map(|(_, count)| count).sum();
    Ok(JournalSuperblock::parse(&bytes, size, blocks)
        .is_ok_and(|journal| journal.scattered.is_some()))
}

/// Refuses a journal that several file systems have joined (mke2fs and tune2fs allow it, the kernel
/// does not): its log would be replayed into whichever comes first. The engine reports anything
/// else that is wrong with its superblock, which is block `at`.
async fn refuse_other_users(disk: &Rc<dyn Disk>, device: &JournalDevice, at: u32) -> Result<()> {
    if units::fault!("journal-of-two") {
        return Ok(());
    }
    let size = device.block_size;
    let bytes = disk.read(u64::from(at) << size.shift(), size.bytes()).await;
    let bytes = bytes.map_err(EngineError::from)?;
    match JournalSuperblock::parse(&bytes, size, device.blocks) {
        Ok(journal) if journal.user_count > 1 => Err(Error::Journal(format!(
            "{} is the journal of {} file systems, and may be of one. For those but one: e2fsck, \
             tune2fs -O ^has_journal, and a journal of their own",
            disk.name(),
            journal.user_count
        ))),
        _ => Ok(()),
    }
}

/// Checks that the disk is this volume's journal, and no other's.
async fn external_journal(disk: &Rc<dyn Disk>, superblock: &VolumeSuperblock) -> Result<LogArea> {
    let size = disk.geometry().size;
    let needed = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
    if size < needed {
        return Err(Error::Truncated { needed, found: size });
    }
    let (_, bytes, within) = superblock::read_surroundings(&**disk).await?;
    let device = JournalDevice::parse(&bytes[within..])
        .map_err(|why| Error::Journal(format!("{} is no journal device: {why}", disk.name())))?;
    if device.uuid != superblock.journal_uuid {
        let (found, wanted) = (uuid_text(&device.uuid), uuid_text(&superblock.journal_uuid));
        let name = disk.name();
        return Err(Error::Journal(format!(
            "{name} has UUID {found}, the volume's journal has {wanted}"
        )));
    }
    let needed = device.blocks << device.block_size.shift();
    if device.block_size != superblock.block_size {
        return Err(Error::Journal(format!(
            "{} has blocks of another size than the volume",
            disk.name()
        )));
    }
    if size < needed || device.blocks > u64::from(u32::MAX) {
        return Err(Error::Truncated { needed, found: size });
    }
    // Behind the block that holds the ext4 superblock at byte 1024.
    let at = if device.block_size.bytes() == 1024 { 2 } else { 1 };
    refuse_other_users(disk, &device, at).await?;
    let whole = LogExtent { first: LogBlock(0), count: device.blocks as u32, disk_block: 0 };
    let device = LogDevice::Own(disk.clone());
    Ok(LogArea { device, extents: vec![whole], superblock: LogBlock(at), logs: None })
}
