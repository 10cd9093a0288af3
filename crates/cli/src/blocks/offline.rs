//! Commands on a volume that is not attached.

use super::driver_device::refuse_to_leave_out;
use super::{CLEAR, DrainArguments, OfflineArguments, failed, zones};
use crate::disk::coerce::Wanted;
use crate::disk::open_disk::{open_disk, refuse_same};
use crate::error::CliError;
use crate::recover::{self, RecoverArguments};
use crate::text::output::{print, print_json};
use crate::text::quantity::format_size;
use blocks::{
    BlockParts, BlocksDisk, BlocksError, BlocksLayout, FoundSuperblock, Persistence,
    find_superblock,
};
use device::Disk;
use disks::DiskAccess;
use engine::{EngineOptions, RecoveryReport};
use format::blocks::BlocksSuperblock;
use format::uuid_text;
use runtime::RealWorld;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use units::HomeBlock;

/// Content of the superblock and the log.
#[derive(Serialize)]
struct BlocksReport {
    uuid: String,
    /// Whether the first superblock is damaged, and this is its copy.
    from_copy: bool,
    block_bytes: u64,
    exported_bytes: u64,
    data_offset: u64,
    journal_bytes: u64,
    journal_uuid: Option<String>,
    scattered_logs: u32,
    /// Bytes of the flush zone; `None`: there is none.
    flush_zone_bytes: Option<u64>,
    clean: bool,
    transactions: u64,
    /// Reason why the file system above must be checked; `None` if no error is recorded.
    recorded_error: Option<&'static str>,
}

/// Result of a replay.
#[derive(Serialize)]
struct Replayed {
    #[serde(flatten)]
    journal: RecoveryReport,
    /// Bytes of the exported disk at which blocks begin that were left as they are; `None`: of
    /// blocks that are not exported.
    skipped_bytes: Vec<Option<u64>>,
    block_bytes: u64,
    /// Whether the recorded error was cleared.
    cleared: bool,
}

impl Replayed {
    fn new(journal: RecoveryReport, superblock: &BlocksSuperblock) -> Replayed {
        let layout = BlocksLayout::new(superblock.clone());
        let byte = |block: &u64| layout.as_ref()?.exported_byte(HomeBlock(*block));
        let skipped_bytes = journal.skipped_blocks.iter().map(byte).collect();
        let block_bytes = superblock.block_size.bytes() as u64;
        Replayed { journal, skipped_bytes, block_bytes, cleared: false }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, left_out) = (self.block_bytes, recover::left_out(&self.journal));
        let line = |(byte, block): (&Option<u64>, &u64)| match byte {
            Some(byte) => format!(
                "Block of {bytes} bytes at byte {byte} of the exported disk cannot be read and \
                 {left_out}.\n"
            ),
            None => format!("Block {block} of the disk, which is not exported, {left_out}.\n"),
        };
        let skipped = self.skipped_bytes.iter().zip(&self.journal.skipped_blocks).map(line);
        let skipped: String = skipped.collect();
        f.write_str(&recover::replay_text(&self.journal, "", CHECK, &skipped))?;
        match self.cleared {
            true => writeln!(f, "The error that the journal recorded is cleared."),
            false => Ok(()),
        }
    }
}

/// Remedy where something that was acknowledged may be missing, in the imperative.
const CHECK: &str = "check the file system above it before it is used";

impl fmt::Display for BlocksReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.from_copy { " (from the copy: the first is damaged)" } else { "" };
        writeln!(f, "block volume {}{copy}", self.uuid)?;
        let bytes = |bytes: u64| format!("{} ({bytes} bytes)", format_size(bytes));
        writeln!(f, "exported: {}, in blocks of {}", bytes(self.exported_bytes), self.block_bytes)?;
        match (self.scattered_logs, self.data_offset) {
            (0, at) => writeln!(f, "data: from byte {at} on, in one piece")?,
            (logs, at) => writeln!(f, "data: from byte {at} on, around {logs} scattered logs")?,
        }
        match &self.journal_uuid {
            Some(uuid) => writeln!(f, "journal: on its own device, {uuid}")?,
            None => writeln!(f, "journal: {}", bytes(self.journal_bytes))?,
        }
        if let Some(zone) = self.flush_zone_bytes {
            writeln!(f, "flush zone: {}", bytes(zone))?;
        }
        let log = match self.clean {
            true => "empty; all is home".to_owned(),
            false => format!("{} transactions to replay", self.transactions),
        };
        writeln!(f, "log: {log}")?;
        match self.recorded_error {
            Some(why) => writeln!(f, "error: {why}"),
            None => Ok(()),
        }
    }
}

pub(super) fn drain(arguments: &DrainArguments) -> Result<(), CliError> {
    let DrainArguments { clear_error, volume: OfflineArguments { source, log, json } } = arguments;
    let clears = *clear_error;
    let refuse = || if clears { refuse_to_leave_out(source) } else { Ok(()) };
    let replayed = with_parts_unless(refuse, source, log.as_deref(), false, async move |parts| {
        // Only a volume whose detachment succeeded behind the check has an empty log: else the
        // error may be one that was recorded since. A replay would empty the log, and the same
        // command clear the error then.
        if clears && !units::fault!("blocks-later-error-cleared") {
            let found = blocks::recover(&parts, true).await?;
            if found.recorded_error != 0 && !found.clean {
                return Ok(None);
            }
        }
        let mut replayed = recovered(&parts, false).await?;
        if clears {
            replayed.cleared = replayed.journal.recorded_error != 0;
            blocks::clear_recorded_error(&parts).await?;
        }
        Ok(Some(replayed))
    })?;
    let Some(replayed) = replayed else {
        let name = source.display();
        return Err(CliError::new(format!(
            "{name}: the error stays recorded: the log was not empty, so nobody has checked what \
             is above the volume and then detached it"
        ))
        .with_remedy(CLEAR));
    };
    print_replay(source, &replayed, *json)
}

/// Replays a block volume for `okeanos recover`.
pub fn replay(arguments: &RecoverArguments) -> Result<(), CliError> {
    let RecoverArguments { source, journal_device, dry_run, json, .. } = arguments;
    let (dry_run, log) = (*dry_run, journal_device.as_deref());
    let options = arguments.engine();
    let leaves_out = arguments.may_leave_out();
    let refuse = || if leaves_out { refuse_to_leave_out(source) } else { Ok(()) };
    let replayed = with_parts_unless(refuse, source, log, dry_run, async move |parts| {
        Ok(recovered(&BlockParts { options, ..parts }, dry_run).await)
    })?;
    print_replay(source, &replayed.map_err(|error| failed_otherwise(source, &error))?, *json)
}

/// Converts an error for the commands to which the journal is `--journal-device`.
fn failed_otherwise(source: &Path, error: &BlocksError) -> CliError {
    let BlocksError::JournalMissing(uuid) = error else { return failed(source, error) };
    let (name, uuid) = (source.display(), uuid_text(uuid));
    CliError::new(format!("the journal of {name} is on its own device, with UUID {uuid}"))
        .with_remedy("Name it: --journal-device DEVICE.")
}

/// Checks a block volume for `okeanos check`: all superblocks, and every checksum in the log.
pub fn check(source: &Path, log: Option<&Path>) -> Result<Checked, CliError> {
    let looked_at = with_parts(source, log, true, async |parts| Ok(look_at(&parts).await))?;
    let (mut problems, log) = looked_at.map_err(|error| failed_otherwise(source, &error))?;
    let is_damaged = !problems.is_empty() || log.is_err();
    let looked_at = match log {
        Ok(report) => {
            let recorded = recover::recorded_error(&report);
            problems.extend(recorded.map(|why| format!("the journal records an error: {why}")));
            let plural = if report.transactions == 1 { "" } else { "s" };
            format!("the superblock and {} transaction{plural} in the log", report.transactions)
        }
        Err(damage) => {
            problems.push(damage);
            "the superblock and the log".into()
        }
    };
    let remedy = match is_damaged {
        true => {
            "Keep a copy of it, and of its journal's device. Attach it, which restores a \
             superblock from its copy; or, where the log is damaged, okeanos recover \
             --until-damage, which gives up what was committed behind the damage alone."
        }
        false => CLEAR,
    };
    Ok(Checked { looked_at, problems, remedy })
}

/// Result of a check.
pub struct Checked {
    pub looked_at: String,
    pub problems: Vec<String>,
    /// Remedy for the problems.
    pub remedy: &'static str,
}

/// Returns damage of superblocks and copies; and what a replay of the log would do, or the log's
/// damage.
async fn look_at(
    parts: &BlockParts,
) -> Result<(Vec<String>, Result<RecoveryReport, String>), BlocksError> {
    let mut problems = Vec::new();
    for (disk, whose) in [(Some(&parts.disk), ""), (parts.journal.as_ref(), "journal device's ")] {
        let Some(disk) = disk else { continue };
        let (BlocksDisk::Volume(found) | BlocksDisk::Journal(found)) =
            find_superblock(&**disk).await?;
        let damaged = match found.is_copy {
            true => "superblock",
            false if !blocks::has_copy(&**disk, &found.superblock).await => "superblock's copy",
            false => continue,
        };
        problems.push(format!("the {whose}{damaged} is damaged; attaching the volume restores it"));
    }
    match blocks::recover(parts, true).await {
        Err(BlocksError::Engine(error)) => Ok((problems, Err(error.to_string()))),
        report => Ok((problems, Ok(report?))),
    }
}

fn print_replay(source: &Path, replayed: &Replayed, json: bool) -> Result<(), CliError> {
    let printed = if json { print_json(replayed) } else { print(replayed) };
    let name = source.display().to_string();
    let complete = match replayed.cleared {
        true => Ok(()),
        false => recover::refuse_losses(&name, &replayed.journal, CHECK),
    };
    recover::end(complete, [printed])
}

/// Replays the log, or finds what would be replayed.
async fn recovered(parts: &BlockParts, dry_run: bool) -> Result<Replayed, BlocksError> {
    let report = blocks::recover(parts, dry_run).await?;
    let (BlocksDisk::Volume(found) | BlocksDisk::Journal(found)) =
        find_superblock(&*parts.disk).await?;
    Ok(Replayed::new(report, &found.superblock))
}

pub(super) fn inspect(arguments: &OfflineArguments) -> Result<(), CliError> {
    let report = with_parts(&arguments.source, arguments.log.as_deref(), true, async |parts| {
        let found = match find_superblock(&*parts.disk).await? {
            BlocksDisk::Volume(found) | BlocksDisk::Journal(found) => found,
        };
        let report = blocks::recover(&parts, true).await?;
        Ok(report_of(&found, &report))
    })?;
    match arguments.json {
        true => print_json(&report),
        false => print(&report),
    }
}

fn report_of(found: &FoundSuperblock, report: &RecoveryReport) -> BlocksReport {
    let superblock = &found.superblock;
    let shift = superblock.block_size.shift();
    BlocksReport {
        uuid: uuid_text(&superblock.uuid),
        from_copy: found.is_copy,
        block_bytes: 1 << shift,
        exported_bytes: superblock.exported_blocks() << shift,
        data_offset: superblock.data_at << shift,
        journal_bytes: u64::from(superblock.journal_blocks) << shift,
        journal_uuid: (superblock.journal_blocks == 0).then(|| uuid_text(&superblock.journal_uuid)),
        scattered_logs: superblock.groups.map_or(0, |groups| groups.logs),
        flush_zone_bytes: (superblock.zone_blocks > 0).then(|| superblock.zone_blocks << shift),
        clean: report.clean,
        transactions: report.transactions,
        recorded_error: recover::recorded_error(report),
    }
}

fn with_parts<T: 'static>(
    source: &Path,
    log: Option<&Path>,
    read_only: bool,
    work: impl AsyncFnOnce(BlockParts) -> Result<T, BlocksError> + 'static,
) -> Result<T, CliError> {
    with_parts_unless(|| Ok(()), source, log, read_only, work)
}

/// Does the work on the volume, unless that is refused when the disks are claimed.
pub(super) fn with_parts_unless<T: 'static>(
    refuse: impl FnOnce() -> Result<(), CliError>,
    source: &Path,
    log: Option<&Path>,
    read_only: bool,
    work: impl AsyncFnOnce(BlockParts) -> Result<T, BlocksError> + 'static,
) -> Result<T, CliError> {
    log.map_or(Ok(()), |log| refuse_same(source, log))?;
    crate::daemon::mounted::refuse_if_its_daemon_died(source)?;
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let access = if read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    let open = |path: &Path| -> Result<Rc<dyn Disk>, CliError> {
        Ok(Rc::new(open_disk(&world, path, access)?))
    };
    let parts = BlockParts {
        world: Rc::new(world.clone()),
        disk: open(source)?,
        journal: log.map(open).transpose()?,
        options: EngineOptions::default(),
        persistence: Persistence::WriteBack,
    };
    refuse()?;
    let paths = (source.to_owned(), log.map(Path::to_owned));
    let result = world.run(async move {
        let (home, log) = (paths.0.as_path(), paths.1.as_deref());
        // A replay has barriers, too: on a drive that ignores flushes it evicts, if the volume was
        // made for that.
        let parts = match read_only {
            true => parts,
            false => zones::coerce(parts, (home, log), Wanted::IfThere).await?.0,
        };
        work(parts).await.map_err(|error| failed(home, &error))
    });
    world.end();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::blocks::{BlockGroups, BlocksRole};
    use units::BlockSize;

    fn replayed(journal: RecoveryReport) -> Replayed {
        let superblock = BlocksSuperblock {
            role: BlocksRole::Volume,
            block_size: BlockSize::new(4096).unwrap(),
            uuid: [7; 16],
            journal_uuid: [0; 16],
            created: 1_700_000_000,
            disk_bytes: 64 << 20,
            journal_at: 256,
            journal_blocks: 1024,
            data_at: 1280,
            data_blocks: (61 << 20 >> 12) - 1024,
            groups: Some(BlockGroups { group_blocks: 4096, log_blocks: 256, logs: 3 }),
            zone_at: 0,
            zone_blocks: 0,
        };
        superblock.check().unwrap();
        Replayed::new(journal, &superblock)
    }

    #[test]
    fn what_was_left_out_is_named_by_bytes_of_the_exported_disk() {
        let (second_group, log) = (1280 + 4096, 1280 + 4095);
        let skipped_blocks = vec![1282, log, second_group];
        let journal = RecoveryReport { skipped_blocks, transactions: 1, ..Default::default() };
        let text = replayed(journal).to_string();
        for part in [
            "Block of 4096 bytes at byte 8192 of the exported disk",
            "Block 5375 of the disk, which is not exported",
            // A log is left out before it.
            "at byte 15728640 of the exported disk",
            "check the file system above it before it is used",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["e2fsck", "icheck"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_recorded_error_is_printed_behind_every_replay() {
        for (recorded_error, part) in [(-5, "a write or flush failed"), (-117, "left out")] {
            for clean in [true, false] {
                let journal = RecoveryReport { recorded_error, clean, ..Default::default() };
                let text = replayed(journal).to_string();
                assert!(text.contains(part) && text.contains(CHECK), "{text}");
            }
        }
        let text = replayed(RecoveryReport { clean: true, ..Default::default() }).to_string();
        assert!(!text.contains(CHECK), "{text}");
    }
}
