//! The scattered logs of a volume: locations and content.

use super::checkpoint_cost::{CheckpointCost, held_blocks};
use super::log_reader::LogReader;
use super::reader::Reader;
use crate::disk::served::ServedModel;
use crate::error::CliError;
use crate::text::quantity::{format_duration, format_size};
use crate::text::table::Table;
use format::ext4::extent::Extent;
use format::scattered::{ActiveLogs, LogsSuperblock, RunHeader};
use journal::ScatteredLogMap;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use units::{HomeBlock, LogBlock, TransactionId};

#[derive(serde::Serialize)]
pub struct LogsReport {
    logs: u32,
    bytes_of_each: u64,
    bytes_between: u64,
    /// Whether the log may hold records; otherwise all of the logs are empty.
    live: bool,
    /// First transaction that recovery needs.
    tail: u32,
    /// The snapshot that a restart reads instead of the oldest runs.
    snapshot: Option<SnapshotReport>,
    /// Cost of a checkpoint of all logs. `None`: there is nothing, or the log cannot be read, or
    /// changes during the read.
    checkpoint: Option<CheckpointCost>,
    /// The emulated drive to which the times apply, if the volume lies on one.
    times_on: Option<String>,
    /// Logs that recovery would look at, or every one with `--all`.
    listed: Vec<LogReport>,
}

/// The current snapshot of the mapping table.
#[derive(serde::Serialize)]
struct SnapshotReport {
    pieces: u32,
    /// First transaction that it does not cover, and the first that a restart reads all the same.
    end: u32,
    read_from: u32,
    /// Number of logs in which a restart looks for later runs.
    logs: u32,
}

#[derive(serde::Serialize)]
struct LogReport {
    log: u32,
    /// First block, on the volume.
    first_block: u64,
    active: bool,
    /// Bytes from its start to the end of its last run.
    bytes_used: u64,
    runs: u32,
    /// Number of runs that recovery would read, headers included.
    live_runs: u32,
    live_bytes: u64,
    /// Cost of a checkpoint of this log alone.
    checkpoint: Option<CheckpointCost>,
    first_transaction: u32,
    last_transaction: u32,
    /// Number of transactions since the oldest live run.
    age: u32,
}

pub fn report(path: &Path, all: bool) -> Result<LogsReport, CliError> {
    let reader = Reader::open(path)?;
    let none = || CliError::new(format!("{} has no scattered logs", path.display()));
    let remedy = "A volume gets them when it is made: okeanos mkfs --scattered-logs …";
    let number =
        reader.find(format!("/{}", ext4::LOGS_NAME)).map_err(|_| none().with_remedy(remedy))?;
    let extents = reader.layout(number, &reader.inode(number)?)?.extents;
    let place = |at: u64| {
        place_of(&extents, at)
            .ok_or_else(|| reader.damaged(format!("{number} has a hole at block {at}")))
    };
    let superblock =
        LogsSuperblock::parse(&reader.block(place(0)?)?).map_err(|error| reader.damaged(error))?;
    let log_reader = LogReader::open(path, None)?;
    let journal = &log_reader.superblock;
    let block = reader.superblock.block_size.bytes() as u64;
    let live = journal.scattered.is_some() && !journal.is_clean();
    let each = journal.log_blocks_per_block();
    let unit = block / u64::from(each);
    let active = |log: u32| {
        let bit = log / ActiveLogs::logs_a_bit(superblock.logs);
        live && journal.scattered.as_ref().is_some_and(|scattered| scattered.active.contains(bit))
    };
    let snapshot = journal.named_snapshot().filter(|_| live).map(|named| {
        let shared = ActiveLogs::logs_a_bit(superblock.logs);
        let looked_into = (0..superblock.logs).filter(|log| named.since.contains(log / shared));
        SnapshotReport {
            pieces: named.last.wrapping_sub(named.first).wrapping_add(1),
            end: named.end.0,
            read_from: named.read_from.0,
            logs: looked_into.count() as u32,
        }
    });
    // Log blocks are numbered as in recovery: the journal's own come first.
    let log_start = |log: u32| (journal.length + log * superblock.log_blocks) * each;
    let look_ahead = journal::look_ahead(journal);
    let mut newest = journal.sequence;
    let mut listed: Vec<LogReport> = Vec::new();
    let mut found = LiveRuns::default();
    for log in (0..superblock.logs).filter(|log| all || active(*log)) {
        let first = 1 + u64::from(log) * u64::from(superblock.log_blocks);
        let mut report = LogReport {
            log,
            first_block: place(first)?.get(),
            active: active(log),
            bytes_used: 0,
            runs: 0,
            live_runs: 0,
            live_bytes: 0,
            checkpoint: None,
            first_transaction: 0,
            last_transaction: 0,
            age: 0,
        };
        let start = u64::from(log_start(log));
        let units = u64::from(superblock.log_blocks) * u64::from(each);
        let (mut at, mut last, mut left): (u64, Option<TransactionId>, _) = (0, None, look_ahead);
        while active(log) && at < units && left > 0 {
            let bytes = reader.block(place(first + at / u64::from(each))?)?;
            let within = (at % u64::from(each) * unit) as usize;
            let here = LogBlock((start + at) as u32);
            let header = RunHeader::parse(here, &bytes[within..], journal.scattered_seed())
                .filter(|header| header.blocks > 0 && u64::from(header.blocks) < units - at)
                .filter(|header| last.is_none_or(|last| header.transaction.is_after(last)));
            let Some(header) = header else {
                // As in recovery: a rotted header hides none after it.
                (at, left) = (at + 1, left - 1);
                continue;
            };
            left = look_ahead;
            if !journal.sequence.is_after(header.transaction) {
                found.add(listed.len(), header);
            }
            if last.is_none() {
                report.first_transaction = header.transaction.0;
            }
            report.last_transaction = header.transaction.0;
            report.runs += 1;
            at += 1 + u64::from(header.blocks);
            report.bytes_used = at * unit;
            last = Some(header.transaction);
            if header.transaction.is_after(newest) {
                newest = header.transaction;
            }
        }
        listed.push(report);
    }
    let mut runs: Vec<Vec<Range<u64>>> = listed.iter().map(|_| Vec::new()).collect();
    let mut log_of = BTreeMap::new();
    for (index, header) in found.in_order(journal.sequence) {
        let report = &mut listed[index];
        let within = u64::from(header.at.get() - log_start(report.log)) * unit;
        let begin = report.first_block * block + within;
        runs[index].push(begin..begin + (1 + u64::from(header.blocks)) * unit);
        log_of.insert(header.transaction.0, index);
        if report.live_runs == 0 {
            report.first_transaction = header.transaction.0;
            report.age = newest.0.wrapping_sub(header.transaction.0);
        }
        report.live_runs += 1;
        report.live_bytes += (1 + u64::from(header.blocks)) * unit;
    }
    let homes = (0..superblock.logs)
        .map(|log| place(1 + u64::from(log) * u64::from(superblock.log_blocks)));
    let homes = homes.collect::<Result<_, _>>()?;
    let places =
        ScatteredLogMap { first: LogBlock(journal.length), blocks: superblock.log_blocks, homes };
    // A mount may change the log during the read; damage is reported elsewhere.
    let held = if live {
        held_blocks(&log_reader, &places, reader.superblock.blocks, &log_of).ok()
    } else {
        None
    };
    let model = held.as_ref().and_then(|_| ServedModel::of(path));
    let mut checkpoint = None;
    if let Some(held) = held {
        let mut all: Vec<_> = runs.iter().flatten().cloned().collect();
        all.sort_by_key(|run| run.start);
        runs.iter_mut().for_each(|runs| runs.sort_by_key(|run| run.start));
        checkpoint = Some(held.cost(None, all, model.as_ref()));
        for (index, runs) in runs.into_iter().enumerate() {
            listed[index].checkpoint = Some(held.cost(Some(index), runs, model.as_ref()));
        }
    }
    Ok(LogsReport {
        logs: superblock.logs,
        bytes_of_each: u64::from(superblock.log_blocks) * block,
        bytes_between: u64::from(superblock.group_blocks) * block,
        live,
        tail: journal.sequence.0,
        snapshot,
        checkpoint,
        times_on: model.map(|model| model.name().to_owned()),
        listed,
    })
}

/// Runs that recovery would read. Of two copies of one run, left by a swap, the one with the later
/// durable floor counts.
#[derive(Default)]
struct LiveRuns(BTreeMap<u32, (usize, RunHeader)>);

impl LiveRuns {
    /// Adds a run that lies in the `index`th listed log.
    fn add(&mut self, index: usize, header: RunHeader) {
        let found = self.0.entry(header.transaction.0).or_insert((index, header));
        if header.durable.is_after(found.1.durable) {
            *found = (index, header);
        }
    }
    fn in_order(self, tail: TransactionId) -> Vec<(usize, RunHeader)> {
        let mut runs: Vec<_> = self.0.into_values().collect();
        runs.sort_by_key(|(_, header)| header.transaction.0.wrapping_sub(tail.0));
        runs
    }
}

/// Formats the cost of a checkpoint of all logs, as a line.
fn write_cost(
    f: &mut fmt::Formatter<'_>,
    cost: &CheckpointCost,
    drive: Option<&str>,
) -> fmt::Result {
    let CheckpointCost { home_bytes, reads, writes, nanoseconds } = cost;
    let home = format_size(*home_bytes);
    write!(f, "to checkpoint all of them: {reads} reads, and {writes} writes of {home} in all")?;
    match (nanoseconds, drive) {
        (Some(took), Some(drive)) => writeln!(f, "; {} on {drive}", duration(*took)),
        _ => writeln!(f),
    }
}

/// Formats the cost of one log, as cells of a table.
fn costs_of(cost: Option<&CheckpointCost>, has_time: bool) -> Vec<String> {
    let cell = |text: &dyn Fn(&CheckpointCost) -> String| cost.map_or("?".to_owned(), text);
    let mut cells = vec![
        cell(&|cost| format_size(cost.home_bytes)),
        cell(&|cost| cost.reads.to_string()),
        cell(&|cost| cost.writes.to_string()),
    ];
    cells.extend(has_time.then(|| cell(&|cost| cost.nanoseconds.map_or("?".to_owned(), duration))));
    cells
}

fn duration(nanoseconds: u64) -> String {
    format_duration(Duration::from_nanos(nanoseconds))
}

fn place_of(extents: &[Extent], at: u64) -> Option<HomeBlock> {
    let first = |extent: &Extent| u64::from(extent.at.get());
    let holds =
        |extent: &&Extent| (first(extent)..first(extent) + u64::from(extent.count)).contains(&at);
    extents.iter().find(holds).map(|extent| extent.home.plus(at - first(extent)))
}

impl fmt::Display for LogsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [each, between] = [self.bytes_of_each, self.bytes_between].map(format_size);
        writeln!(f, "{} logs of {each}, one in every {between}", self.logs)?;
        if let Some(cost) = self.checkpoint.as_ref().filter(|_| !self.listed.is_empty()) {
            write_cost(f, cost, self.times_on.as_deref())?;
        }
        if let Some(SnapshotReport { pieces, end, read_from, logs }) = &self.snapshot {
            writeln!(
                f,
                "a snapshot in {pieces} pieces covers all before transaction {end}; a restart \
                 reads from {read_from} on, and looks for later ones in {logs} logs"
            )?;
        }
        match self.live {
            true => {
                writeln!(f, "the log begins with transaction {}; recovery looks at:", self.tail)?
            }
            false => writeln!(f, "all are empty")?,
        }
        if self.listed.is_empty() {
            return Ok(());
        }
        let mut names = vec![
            "log",
            "at block",
            "used",
            "runs",
            "live",
            "in them",
            "to write home",
            "reads",
            "writes",
        ];
        names.extend(self.times_on.as_ref().map(|_| "takes"));
        names.extend(["transactions", "age"]);
        let mut table = Table::new(names);
        for report in &self.listed {
            let ids = match report.runs {
                0 => String::new(),
                _ => format!("{}-{}", report.first_transaction, report.last_transaction),
            };
            let mut row = vec![
                report.log.to_string(),
                report.first_block.to_string(),
                format_size(report.bytes_used),
                report.runs.to_string(),
                report.live_runs.to_string(),
                format_size(report.live_bytes),
            ];
            row.extend(costs_of(report.checkpoint.as_ref(), self.times_on.is_some()));
            row.extend([ids, report.age.to_string()]);
            table.row(row);
        }
        write!(f, "{table}")
    }
}
