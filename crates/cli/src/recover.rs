//! `okeanos recover`: replays the journal of a volume that was not unmounted.

use crate::disk::coerce::{Wanted, coerce};
use crate::disk::content::not_opened_as_volume;
use crate::disk::open_disk::{open_disk, refuse_same};
use crate::error::CliError;
use crate::health::MARKED;
use crate::look::{has_no_journal, superblock_of};
use crate::text::output::{print, print_json};
use crate::text::quantity::format_duration;
use crate::text::shell::word;
use crate::text::table::Table;
use device::Disk;
use disks::DiskAccess;
use engine::{EngineOptions, PassReport, RecoveryReport, RestartForecast};
use ext4::{Access, BlockOwner, OpenParts, Volume, VolumeOptions};
use format::ext4::superblock::state;
use runtime::RealWorld;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use units::HomeBlock;

const EXAMPLES: &str = "\
Examples:
  okeanos recover disk.img
  okeanos recover --dry-run /dev/sdb1                     what a recovery would do
  okeanos recover --journal-device /dev/sdc1 /dev/sdb1    a volume whose journal is on a disk of its own
  okeanos recover --until-damage disk.img                 a damaged log: replay what lies before the damage
  okeanos recover --find-log disk.img                     tune2fs has marked a live log as empty
  okeanos recover --skip-unreadable /dev/sdb1             a sector that cannot be read keeps it from replaying

Mounting does the same by itself. A recovery that is interrupted does no harm: run it again. Afterwards the
volume is one that any Linux can check and mount.

Exit status:
  0    recovered, or nothing to recover
  1    not recovered, or replayed and then not opened: the reason is printed
  2    wrong usage
  4    recovered, and something that was synced may be missing; or errors were found earlier, or an
       earlier recovery left something out: run e2fsck -f. With --dry-run: so it would be";

/// Replay the journal of a volume after a crash
///
/// Three passes: scan finds the last committed transaction, revoke gathers which old copies must
/// not be replayed, replay writes the others home.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RecoverArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only report what would be replayed, and what a mount that goes on with scattered logs would
    /// read
    #[arg(long)]
    pub dry_run: bool,
    /// If the log is damaged, replay what lies before the damage and give up what was committed
    /// behind it. Run e2fsck -f afterwards: some blocks may be newer than that. Of scattered logs a
    /// mount (log=scattered, and mtl= if it was used) reads less than a recovery does: try that
    /// before
    #[arg(long)]
    until_damage: bool,
    /// If the journal's superblock contradicts the copy in it, believe the copy. If tune2fs or the
    /// like has marked a live log as empty before it refused the volume, or the superblock was
    /// restored from a copy, which does not know of the log, replay it all the same. Only right if
    /// nothing has changed the volume since
    #[arg(long)]
    find_log: bool,
    /// Where a block cannot be read and the log holds a part of it only, leave it as it is, say
    /// which file it belongs to, and replay all others. What was synced to that block is lost. Run
    /// e2fsck -f afterwards
    #[arg(long)]
    skip_unreadable: bool,
    /// The external journal of the volume
    #[arg(long, value_name = "IMAGE|DEVICE")]
    pub journal_device: Option<PathBuf>,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    pub source: PathBuf,
}

impl RecoverArguments {
    /// Whether the recovery may leave out what was committed.
    pub fn may_leave_out(&self) -> bool {
        !self.dry_run && (self.until_damage || self.find_log || self.skip_unreadable)
    }

    /// The options of a recovery, whatever the log is of.
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            until_damage: self.until_damage,
            find_log: self.find_log,
            skip_unreadable: self.skip_unreadable,
            ..EngineOptions::default()
        }
    }
}

#[derive(Default, serde::Serialize)]
struct Recovered {
    #[serde(flatten)]
    journal: RecoveryReport,
    /// Orphans freed or truncated, after the replay.
    orphans_freed: u32,
    orphans_truncated: u32,
    /// Files whose content the skipped blocks are, as far as names lead to them.
    skipped_files: Vec<SkippedFile>,
    /// Whether the volume is marked: errors were found on it, or a recovery left something out, and
    /// e2fsck has not looked since.
    needs_check: bool,
}

#[derive(serde::Serialize)]
struct SkippedFile {
    block: u64,
    inode: u32,
    path: String,
}

impl SkippedFile {
    fn of(owner: &BlockOwner) -> SkippedFile {
        let path = owner.path.escape_ascii().to_string();
        SkippedFile { block: owner.block.get(), inode: owner.inode.get(), path }
    }
}

pub fn run(arguments: RecoverArguments) -> Result<(), CliError> {
    crate::daemon::mounted::refuse_if_its_daemon_died(&arguments.source)?;
    refuse_without_journal(&arguments.source)?;
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let (for_run, json) = (world.clone(), arguments.json);
    let name = arguments.source.display().to_string();
    let recovered = world.run(async move { recover(&for_run, &arguments).await });
    world.end();
    let (recovered, finished) = recovered?;
    // The log is empty by now: no later run prints what was left out.
    let printed = if json { print_json(&recovered) } else { print(&text_of(&recovered)) };
    let complete = refuse_losses(&name, &recovered.journal, CHECK);
    let complete = complete.and_then(|()| refuse_marked(&name, &recovered));
    end(complete, [finished, printed])
}

/// Returns the first error, with the exit code of `complete` where that is one, whatever else has
/// failed: it is the only one of a loss.
pub fn end<const N: usize>(
    complete: Result<(), CliError>,
    others: [Result<(), CliError>; N],
) -> Result<(), CliError> {
    let other = others.into_iter().find_map(Result::err);
    match (complete, other) {
        (Ok(()), None) => Ok(()),
        (Err(error), None) | (Ok(()), Some(error)) => Err(error),
        (Err(loss), Some(other)) => {
            Err(CliError::new(format!("{}; {other}", loss.problem())).with_code_of(&loss))
        }
    }
}

/// Fails as [`refuse_losses`] does where the volume has been marked, by this recovery or earlier.
fn refuse_marked(name: &str, recovered: &Recovered) -> Result<(), CliError> {
    match recovered.needs_check {
        true => Err(CliError::new(format!("{name}: {MARKED}: {CHECK}")).with_code(LEFT)),
        false => Ok(()),
    }
}

/// Exit code where something that was committed may be missing, as of fsck(8): errors are left.
const LEFT: u8 = 4;

/// Remedy for a volume that may lack something, in the imperative.
const CHECK: &str = "run e2fsck -f before the volume is used";

/// Fails, with an exit code of its own, if something that was committed may be missing.
pub fn refuse_losses(name: &str, report: &RecoveryReport, check: &str) -> Result<(), CliError> {
    if !report.is_incomplete() && report.recorded_error == 0 {
        return Ok(());
    }
    let what = match report.dry_run && report.is_incomplete() {
        true => "a recovery would leave out what was synced; then",
        false => "something that was synced may be missing:",
    };
    Err(CliError::new(format!("{name}: {what} {check}")).with_code(LEFT))
}

/// Refuses a volume that nothing can be replayed on, and that a crash may have left half changed.
fn refuse_without_journal(source: &Path) -> Result<(), CliError> {
    let was_unmounted = || superblock_of(source).is_some_and(|it| it.state & state::VALID != 0);
    if !has_no_journal(source) || was_unmounted() {
        return Ok(());
    }
    Err(CliError::new(format!(
        "{} has no journal and was not unmounted: nothing can be replayed",
        source.display()
    ))
    .with_remedy(format!("Repair it: e2fsck -f {}.", word(source))))
}

/// Returns the report of the replay, and the result of what follows it.
async fn recover(
    world: &RealWorld,
    arguments: &RecoverArguments,
) -> Result<(Recovered, Result<(), CliError>), CliError> {
    let RecoverArguments { ref source, ref journal_device, dry_run, .. } = *arguments;
    journal_device.as_deref().map_or(Ok(()), |journal| refuse_same(source, journal))?;
    let access = if dry_run { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    let open = |path: &Path| -> Result<Rc<dyn Disk>, CliError> {
        Ok(Rc::new(open_disk(world, path, access)?))
    };
    let parts = OpenParts {
        world: Rc::new(world.clone()),
        home: open(source)?,
        journal: journal_device.as_deref().map(open).transpose()?,
        options: VolumeOptions {
            engine: arguments.engine(),
            node: crate::disk::open_disk::node_name(),
            ..VolumeOptions::default()
        },
    };
    let failed = |error: ext4::Error| not_opened_as_volume(source, &error);
    ext4::read_superblock(&*parts.home).await.map_err(failed)?;
    // Recovery has barriers, too: on a drive that ignores flushes it evicts, if the volume was made
    // for that.
    let (parts, _) = coerce(parts, source, journal_device.as_deref(), Wanted::IfThere).await?;
    let journal = ext4::recover(&parts, dry_run).await.map_err(failed)?;
    let mut recovered = Recovered { journal, ..Recovered::default() };
    let home = parts.home.clone();
    let finished = if dry_run { Ok(()) } else { finish(parts, &mut recovered).await };
    let superblock = ext4::read_superblock(&*home).await;
    recovered.needs_check = superblock.is_ok_and(|it| it.state & state::ERROR != 0);
    Ok((recovered, finished.map_err(failed)))
}

/// Opens the volume: that deletes orphans and completes truncations of the crash, so that e2fsck
/// finds nothing to repair.
async fn finish(parts: OpenParts, recovered: &mut Recovered) -> Result<(), ext4::Error> {
    // A recovery may have been interrupted after the replay.
    if recovered.journal.clean && ext4::was_closed(&*parts.home).await? {
        return Ok(());
    }
    let mut for_reading = parts.clone();
    for_reading.options.access = Access::ReadOnly;
    let volume = match Volume::open(parts).await {
        // Its orphans are for e2fsck, and its files can be named.
        Err(ext4::Error::OnlyReadable { .. }) => Volume::open(for_reading).await,
        opened => opened,
    }?;
    let orphans = volume.open_report().orphans;
    (recovered.orphans_freed, recovered.orphans_truncated) = (orphans.freed, orphans.truncated);
    let skipped = &recovered.journal.skipped_blocks;
    let skipped: Vec<_> = skipped.iter().copied().map(HomeBlock).collect();
    if !skipped.is_empty() {
        let owners = volume.owners_of(&skipped).await?;
        recovered.skipped_files = owners.iter().map(SkippedFile::of).collect();
    }
    volume.close().await
}

fn text_of(recovered: &Recovered) -> String {
    let orphans = match recovered.orphans_freed + recovered.orphans_truncated {
        0 => String::new(),
        _ => format!(
            "Orphans: {} freed, {} cut to size.\n",
            recovered.orphans_freed, recovered.orphans_truncated
        ),
    };
    let text = replay_text(&recovered.journal, &orphans, CHECK, &skipped_text(recovered));
    let is_said = recovered.journal.is_incomplete() || recovered.journal.recorded_error != 0;
    match recovered.needs_check && !is_said {
        true => format!("{text}Note: {MARKED}. Now {CHECK}.\n"),
        false => text,
    }
}

/// Formats the report of a replay. `orphans`: what became of them, a line or nothing. `check`: what
/// to do where something was left out, in the imperative. `skipped`: lines about each such block.
pub fn replay_text(report: &RecoveryReport, orphans: &str, check: &str, skipped: &str) -> String {
    let aborted = recorded_error(report).map_or(String::new(), |why| {
        format!("The journal records an error: {why}. Now {check}.\n")
    });
    if report.clean {
        let rest = if orphans.is_empty() { "nothing to recover" } else { "nothing to replay" };
        return format!("The journal is empty: {rest}.\n{orphans}{aborted}");
    }
    let mut table = Table::new([
        "pass",
        "time",
        "log blocks read",
        "transactions",
        "descriptors",
        "multiwrite",
        "regular",
        "revoke",
        "commit",
        "records of blocks",
        "of bytes",
        "revoked",
    ]);
    let passes = [("scan", &report.scan), ("revoke", &report.revoke), ("replay", &report.replay)];
    passes.into_iter().for_each(|(name, pass)| table.row(cells(name, pass)));
    let first = report.first_transaction;
    let last = u64::from(first) + report.transactions.saturating_sub(1);
    let transactions = match report.transactions {
        0 if report.gave_up => "No transaction can be replayed.".to_string(),
        0 => "No transaction was committed.".to_string(),
        1 => format!("Transaction {first}"),
        count => format!("{count} transactions, {first} to {last},"),
    };
    let did = match (report.transactions, report.dry_run) {
        (0, _) => String::new(),
        (_, true) => {
            format!(" would be replayed: {} blocks to write home.", report.home_blocks_written)
        }
        (_, false) => format!(
            " replayed: {} blocks written home, {} of them read first, in {}.",
            report.home_blocks_written,
            report.home_blocks_read,
            format_duration(Duration::from_nanos(report.nanoseconds))
        ),
    };
    let (is, then) = match report.dry_run {
        true => ("would be", "then "),
        false => ("is", ""),
    };
    let gave_up = match report.gave_up {
        true => {
            format!("What had been committed behind the damage {is} given up: {then}{check}.\n")
        }
        false => String::new(),
    };
    let skipped = match report.skipped_blocks.is_empty() {
        true => String::new(),
        false => format!("{skipped}What was synced there {is} lost: {then}{check}.\n"),
    };
    let restart = report.restart.as_ref().map_or(String::new(), restart_text);
    format!("{table}\n{transactions}{did}\n{restart}{orphans}{aborted}{gave_up}{skipped}")
}

/// Whether this recovery or an earlier one has left out what was committed, or damage was found,
/// and nobody has said since that what is above was checked.
pub fn lacks_some(report: &RecoveryReport) -> bool {
    report.is_incomplete() || report.recorded_error == engine::ERRNO_DAMAGED
}

/// Returns the cause of the error that the journal recorded before this recovery.
pub fn recorded_error(report: &RecoveryReport) -> Option<&'static str> {
    match report.recorded_error {
        0 => None,
        engine::ERRNO_DAMAGED => {
            Some("damage was found, or a recovery left out what was committed")
        }
        _ => Some("a write or flush failed when the journal was last used"),
    }
}

/// Says of a block that cannot be read that recovery has left it out, or would.
pub fn left_out(report: &RecoveryReport) -> &'static str {
    if report.dry_run { "would be left out" } else { "was left out" }
}

/// Lists what was left out, and its files.
fn skipped_text(recovered: &Recovered) -> String {
    let left_out = left_out(&recovered.journal);
    let line = |block: &u64| {
        let mut files = recovered.skipped_files.iter().filter(|file| file.block == *block);
        match files.next() {
            Some(SkippedFile { inode, path, .. }) => {
                format!("Block {block} cannot be read and {left_out}: {path} (inode {inode}).\n")
            }
            None => format!(
                "Block {block} cannot be read and {left_out}: debugfs -R 'icheck {block}' says \
                 whose it is.\n"
            ),
        }
    };
    recovered.journal.skipped_blocks.iter().map(line).collect()
}

/// Formats what a mount with `log=scattered` would read of the logs instead of replaying all.
fn restart_text(forecast: &RestartForecast) -> String {
    let RestartForecast { pieces, snapshot_blocks, blocks_covered, end, logs, run_headers, .. } =
        forecast;
    if let Some(why) = &forecast.refused {
        return format!(
            "Snapshot of the mapping table: {why}.\n\
             A restart with log=scattered would read all of the log.\n"
        );
    }
    let (from, count, blocks) = (forecast.read_from, forecast.transactions, forecast.run_blocks);
    let runs = match count {
        0 => "no transaction".to_owned(),
        _ => format!("{count} transactions from {from} on ({blocks} log blocks)"),
    };
    format!(
        "Snapshot of the mapping table: {pieces} pieces cover {blocks_covered} blocks in \
         transactions before {end}.\n\
         A restart with log=scattered would read {snapshot_blocks} log blocks of it, {run_headers} \
         in {logs} logs for later runs, and {runs}.\n"
    )
}

/// Formats a mount's recovery; `None` if there was nothing to do.
pub fn at_mount(report: &RecoveryReport) -> Option<String> {
    let time = format_duration(Duration::from_nanos(report.nanoseconds));
    let (transactions, home) = (report.transactions, report.home_blocks_written);
    let logs = match (report.logs_read, report.table_pages_read) {
        (0, 0) => String::new(),
        (0, pages) => {
            format!(
                " covered by {pages} pages of the table, {} blocks stay in the logs,",
                report.blocks_kept
            )
        }
        (logs, _) => {
            format!(" in {logs} scattered logs, {} blocks stay there,", report.blocks_kept)
        }
    };
    let covered = match report.snapshot_transactions {
        0 => String::new(),
        count => format!(" {count} of them covered by a snapshot,"),
    };
    let refused = |source: &str, why: &Option<String>| {
        why.as_ref().map_or(String::new(), |why| format!("; {source} was not believed: {why}"))
    };
    let refused = refused("the table of mtl=", &report.table_refused)
        + &refused("the snapshot", &report.snapshot_refused);
    let text = || {
        format!(
            "recovered in {time}: {transactions} transactions,{covered}{logs} {home} blocks were \
             written home{refused}"
        )
    };
    (!report.clean).then(text)
}

fn cells(name: &str, pass: &PassReport) -> [String; 12] {
    let PassReport { nanoseconds, counts } = pass;
    [
        name.to_string(),
        format_duration(Duration::from_nanos(*nanoseconds)),
        counts.log_blocks_read.to_string(),
        counts.transactions.to_string(),
        counts.descriptors.to_string(),
        counts.multiwrite_blocks.to_string(),
        counts.regular_blocks.to_string(),
        counts.revoke_blocks.to_string(),
        counts.commit_blocks.to_string(),
        counts.whole_records.to_string(),
        counts.fragment_records.to_string(),
        counts.revokes.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_reports_logs_read_and_time_taken() {
        assert_eq!(at_mount(&RecoveryReport { clean: true, ..RecoveryReport::default() }), None);
        let nanoseconds = 3_100_000_000;
        let plain = RecoveryReport {
            transactions: 9,
            home_blocks_written: 4,
            nanoseconds,
            ..RecoveryReport::default()
        };
        let scattered = RecoveryReport { logs_read: 32, blocks_kept: 1800, ..plain.clone() };
        assert_eq!(
            at_mount(&plain).unwrap(),
            "recovered in 3.10 s: 9 transactions, 4 blocks were written home"
        );
        let expected = "recovered in 3.10 s: 9 transactions, in 32 scattered logs, 1800 blocks \
             stay there, 4 blocks were written home";
        assert_eq!(at_mount(&scattered).unwrap(), expected);
        let why = Some("it does not cover transaction 7".to_owned());
        let refused =
            RecoveryReport { table_pages_read: 3, table_refused: why, ..scattered.clone() };
        let behind = "; the table of mtl= was not believed: it does not cover transaction 7";
        assert_eq!(at_mount(&refused).unwrap(), expected.to_owned() + behind);
        let snapshot = RecoveryReport { snapshot_transactions: 7, ..scattered.clone() };
        let expected = "recovered in 3.10 s: 9 transactions, 7 of them covered by a snapshot, in \
             32 scattered logs, 1800 blocks stay there, 4 blocks were written home";
        assert_eq!(at_mount(&snapshot).unwrap(), expected);
        let why = Some("its piece 4 is lost, damaged or another's".to_owned());
        let refused =
            at_mount(&RecoveryReport { snapshot_refused: why, ..scattered.clone() }).unwrap();
        let behind = "; the snapshot was not believed: its piece 4 is lost, damaged or another's";
        assert!(refused.ends_with(behind), "{refused}");
        let believed = RecoveryReport { logs_read: 0, table_pages_read: 3, ..scattered };
        let expected = "recovered in 3.10 s: 9 transactions, covered by 3 pages of the table, 1800 \
             blocks stay in the logs, 4 blocks were written home";
        assert_eq!(at_mount(&believed).unwrap(), expected);
    }

    #[test]
    fn the_table_has_a_row_a_pass_and_a_sentence() {
        let journal = RecoveryReport {
            transactions: 3,
            first_transaction: 17,
            home_blocks_written: 9,
            dry_run: true,
            ..RecoveryReport::default()
        };
        let text = text_of(&Recovered { journal, orphans_freed: 1, ..Recovered::default() });
        assert!(text.lines().nth(3).is_some_and(|line| line.starts_with("replay")), "{text}");
        assert!(text.contains("3 transactions, 17 to 19, would be replayed: 9 blocks"), "{text}");
        assert!(text.contains("Orphans: 1 freed"), "{text}");
    }

    #[test]
    fn a_dry_run_gives_nothing_up_yet() {
        let would = RecoveryReport {
            gave_up: true,
            dry_run: true,
            skipped_blocks: vec![7],
            ..RecoveryReport::default()
        };
        let did = RecoveryReport { dry_run: false, ..would.clone() };
        let text = |journal| text_of(&Recovered { journal, ..Recovered::default() });
        let (would_text, did_text) = (text(would.clone()), text(did.clone()));
        for part in ["would be given up: then run", "would be left out", "would be lost"] {
            assert!(would_text.contains(part), "{part}: {would_text}");
        }
        for part in ["No transaction can be replayed", "is given up", "was left out"] {
            assert!(did_text.contains(part), "{part}: {did_text}");
        }
        let (would, did) = (refuse_losses("v", &would, CHECK), refuse_losses("v", &did, CHECK));
        assert!(would.unwrap_err().to_string().contains("would leave out"));
        assert!(did.unwrap_err().to_string().contains("may be missing"));
    }

    #[test]
    fn a_loss_decides_the_exit_code_whatever_else_fails() {
        let loss = || Err(CliError::new("a loss").with_code(LEFT));
        let other = || Err(CliError::new("not opened").with_remedy("Look."));
        assert!(end(Ok(()), [Ok(()), Ok(())]).is_ok());
        assert_eq!(end(Ok(()), [Ok(()), other()]).unwrap_err().code(), 1);
        let both = end(loss(), [other(), other()]).unwrap_err();
        assert_eq!((both.code(), both.problem()), (LEFT, "a loss; not opened\n  Look."));
    }

    #[test]
    fn a_dry_run_reports_what_a_restart_would_read() {
        let forecast = RestartForecast {
            pieces: 3,
            snapshot_blocks: 5,
            blocks_covered: 120,
            end: 189,
            logs: 4,
            run_headers: 70,
            read_from: 150,
            transactions: 50,
            run_blocks: 300,
            refused: None,
        };
        assert_eq!(
            restart_text(&forecast),
            "Snapshot of the mapping table: 3 pieces cover 120 blocks in transactions before 189.\n\
             A restart with log=scattered would read 5 log blocks of it, 70 in 4 logs for later \
             runs, and 50 transactions from 150 on (300 log blocks).\n"
        );
        let nothing = RestartForecast { transactions: 0, ..forecast.clone() };
        assert!(
            restart_text(&nothing).ends_with(" and no transaction.\n"),
            "{}",
            restart_text(&nothing)
        );
        let refused = RestartForecast { refused: Some("none counts".into()), ..forecast };
        assert_eq!(
            restart_text(&refused),
            "Snapshot of the mapping table: none counts.\n\
             A restart with log=scattered would read all of the log.\n"
        );
    }
}
