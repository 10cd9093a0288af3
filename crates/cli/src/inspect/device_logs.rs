//! The scattered logs of a block device (`okeanos nbd --scattered`): locations and content.

use super::checkpoint_cost::CheckpointCost;
use super::logs::{costs_of, write_cost};
use crate::disk::open_disk::open_disk;
use crate::disk::served::ServedModel;
use crate::error::CliError;
use crate::text::quantity::format_size;
use crate::text::table::Table;
use device::Disk;
use disks::DiskAccess;
use runtime::RealWorld;
use scattered::{BLOCK, CheckpointRequests, FormatError, LogState, ScatteredDisk, Superblock};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

#[derive(serde::Serialize)]
pub struct DeviceLogsReport {
    logs: u32,
    bytes_of_each: u64,
    bytes_between: u64,
    /// Whether the mapping table lies on other memory (`--mtl`).
    table_elsewhere: bool,
    /// Number of the newest record that the snapshot of the table covers, and of the newest of all.
    snapshot: u64,
    newest: u64,
    /// Cost of a checkpoint of all logs.
    checkpoint: CheckpointCost,
    /// The emulated drive to which the times apply, if the disk is one.
    times_on: Option<String>,
    /// Logs that are not empty.
    listed: Vec<DeviceLogReport>,
}

#[derive(serde::Serialize)]
struct DeviceLogReport {
    log: u32,
    /// First block, on the device.
    first_block: u64,
    /// Bytes from its start to the end of its last record.
    bytes_used: u64,
    records: u64,
    /// Number of records that hold the newest content of some block.
    live_records: u64,
    live_bytes: u64,
    /// Cost of a checkpoint of this log alone.
    checkpoint: CheckpointCost,
    first_record: u64,
    last_record: u64,
    /// Number of records written since the oldest live one.
    age: u64,
}

/// Whether the disk has such logs, though perhaps of an unknown version.
pub fn has_logs(path: &Path) -> Result<bool, CliError> {
    let file = File::open(path).map_err(|error| CliError::system(path.display(), error))?;
    let mut bytes = vec![0; BLOCK];
    // A shorter disk has none.
    let read = file.read_exact_at(&mut bytes, 0);
    Ok(read.is_ok() && Superblock::parse(&bytes) != Err(FormatError::NoSuperblock))
}

pub fn report(path: &Path, table: Option<&Path>) -> Result<DeviceLogsReport, CliError> {
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let open = |path: &Path| -> Result<Rc<dyn Disk>, CliError> {
        Ok(Rc::new(open_disk(&world, path, DiskAccess::Inspect)?))
    };
    let (main, table) = (open(path)?, table.map(open).transpose()?);
    let found = world.run(async move { ScatteredDisk::inspect(&main, table.as_ref()).await });
    world.end();
    let found = found.map_err(|error| CliError::new(error.to_string()))?;
    let model = ServedModel::of(path);
    let cost = |requests: &CheckpointRequests| {
        CheckpointCost::of(&requests.reads, &requests.writes, model.as_ref())
    };
    let listed = |log: &LogState| DeviceLogReport {
        log: log.log,
        first_block: log.begin,
        bytes_used: log.bytes_used,
        records: log.records,
        live_records: log.live_records,
        live_bytes: log.live_blocks * BLOCK as u64,
        checkpoint: cost(&log.checkpoint),
        first_record: log.live_first,
        last_record: log.live_last,
        age: if log.live_records == 0 { 0 } else { found.newest.saturating_sub(log.live_first) },
    };
    let superblock = found.layout.superblock;
    Ok(DeviceLogsReport {
        logs: found.layout.logs,
        bytes_of_each: u64::from(superblock.log_blocks) * BLOCK as u64,
        bytes_between: u64::from(superblock.group_blocks) * BLOCK as u64,
        table_elsewhere: superblock.table_elsewhere,
        snapshot: found.snapshot,
        newest: found.newest,
        checkpoint: cost(&found.checkpoint),
        listed: found.logs.iter().map(listed).collect(),
        times_on: model.map(|model| model.name().to_owned()),
    })
}

impl fmt::Display for DeviceLogsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [each, between] = [self.bytes_of_each, self.bytes_between].map(format_size);
        let elsewhere = if self.table_elsewhere { ", their table elsewhere" } else { "" };
        writeln!(
            f,
            "a block device with {} logs of {each}, one in every {between}{elsewhere}",
            self.logs
        )?;
        if self.listed.is_empty() {
            return writeln!(f, "all are empty");
        }
        let later = self.newest.saturating_sub(self.snapshot);
        writeln!(
            f,
            "the newest record is {}; a restart reads the {later} that no snapshot of the table knows",
            self.newest
        )?;
        let times_on = self.times_on.as_deref();
        write_cost(f, &self.checkpoint, times_on)?;
        let mut names = vec![
            "log",
            "at block",
            "used",
            "records",
            "live",
            "in them",
            "to write home",
            "reads",
            "writes",
        ];
        names.extend(times_on.map(|_| "takes"));
        names.extend(["numbers", "age"]);
        let mut table = Table::new(names);
        for report in &self.listed {
            let numbers = match report.live_records {
                0 => String::new(),
                _ => format!("{}-{}", report.first_record, report.last_record),
            };
            let mut row = vec![
                report.log.to_string(),
                report.first_block.to_string(),
                format_size(report.bytes_used),
                report.records.to_string(),
                report.live_records.to_string(),
                format_size(report.live_bytes),
            ];
            row.extend(costs_of(Some(&report.checkpoint), times_on.is_some()));
            row.extend([numbers, report.age.to_string()]);
            table.row(row);
        }
        write!(f, "{table}")
    }
}
