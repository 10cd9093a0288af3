//! Commands on a volume that is not attached.

use super::{OfflineArguments, failed, zones};
use crate::disk::coerce::Wanted;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::recover::{self, RecoverArguments};
use crate::text::output::{print, print_json};
use crate::text::quantity::format_size;
use blocks::{BlockParts, BlocksDisk, BlocksError, FoundSuperblock, Persistence, find_superblock};
use device::Disk;
use disks::DiskAccess;
use engine::{EngineOptions, RecoveryReport};
use format::uuid_text;
use runtime::RealWorld;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

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
}

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
        match self.clean {
            true => writeln!(f, "log: empty; all is home"),
            false => writeln!(f, "log: {} transactions to replay", self.transactions),
        }
    }
}

pub(super) fn drain(arguments: &OfflineArguments) -> Result<(), CliError> {
    let OfflineArguments { source, log, json } = arguments;
    print_replay(&replayed(source, log.as_deref(), false)?, *json)
}

/// Replays a block volume for `okeanos recover`.
pub fn replay(arguments: &RecoverArguments) -> Result<(), CliError> {
    let RecoverArguments { source, journal_device, dry_run, json, .. } = arguments;
    let (dry_run, log) = (*dry_run, journal_device.as_deref());
    let options = arguments.engine();
    let replayed = with_parts(source, log, dry_run, async move |parts| {
        Ok(blocks::recover(&BlockParts { options, ..parts }, dry_run).await)
    })?;
    print_replay(&replayed.map_err(|error| failed_otherwise(source, &error))?, *json)
}

/// Converts an error for the commands to which the journal is `--journal-device`.
fn failed_otherwise(source: &Path, error: &BlocksError) -> CliError {
    let BlocksError::JournalMissing(uuid) = error else { return failed(source, error) };
    let (name, uuid) = (source.display(), uuid_text(uuid));
    CliError::new(format!("the journal of {name} is on its own device, with UUID {uuid}"))
        .with_remedy("Name it: --journal-device DEVICE.")
}

/// Checks a block volume for `okeanos check`: all superblocks, and every checksum in the log.
/// Returns what was checked, and what is wrong.
pub fn check(source: &Path, log: Option<&Path>) -> Result<(String, Vec<String>), CliError> {
    let looked_at = with_parts(source, log, true, async |parts| Ok(look_at(&parts).await))?;
    let (mut problems, log) = looked_at.map_err(|error| failed_otherwise(source, &error))?;
    let looked_at = match log {
        Ok(count) => format!("the superblock and {count} transactions in the log"),
        Err(damage) => {
            problems.push(damage);
            "the superblock and the log".into()
        }
    };
    Ok((looked_at, problems))
}

/// Returns damage of superblocks and copies; and the number of transactions in the log, or its
/// damage.
async fn look_at(parts: &BlockParts) -> Result<(Vec<String>, Result<u64, String>), BlocksError> {
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
        report => Ok((problems, Ok(report?.transactions))),
    }
}

fn print_replay(report: &RecoveryReport, json: bool) -> Result<(), CliError> {
    if json { print_json(report) } else { print(&recover::replay_text(report)) }
}

/// Replays the log, or reports what would be replayed.
fn replayed(source: &Path, log: Option<&Path>, dry_run: bool) -> Result<RecoveryReport, CliError> {
    with_parts(source, log, dry_run, async move |parts| blocks::recover(&parts, dry_run).await)
}

pub(super) fn inspect(arguments: &OfflineArguments) -> Result<(), CliError> {
    let story = with_parts(&arguments.source, arguments.log.as_deref(), true, async |parts| {
        let found = match find_superblock(&*parts.disk).await? {
            BlocksDisk::Volume(found) | BlocksDisk::Journal(found) => found,
        };
        let report = blocks::recover(&parts, true).await?;
        Ok(story(&found, &report))
    })?;
    match arguments.json {
        true => print_json(&story),
        false => print(&story),
    }
}

fn story(found: &FoundSuperblock, report: &RecoveryReport) -> BlocksReport {
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
    }
}

pub(super) fn with_parts<T: 'static>(
    source: &Path,
    log: Option<&Path>,
    read_only: bool,
    work: impl AsyncFnOnce(BlockParts) -> Result<T, BlocksError> + 'static,
) -> Result<T, CliError> {
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
    let paths = (source.to_owned(), log.map(Path::to_owned));
    let result = world.run(async move {
        let (home, log) = (paths.0.as_path(), paths.1.as_deref());
        // A replay has barriers, too: on a drive that ignores flushes it evicts, if the volume was
        // made for that.
        let (parts, _) = zones::coerce(parts, (home, log), Wanted::IfThere).await?;
        work(parts).await.map_err(|error| failed(home, &error))
    });
    world.end();
    result
}
