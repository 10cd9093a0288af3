//! `okeanos doctor`: examines this machine and a disk, and gives advice.

mod advice;
mod disk;
mod machine;

use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_duration;
use advice::{advice, limits};
use disk::{Disk, Flush, examine};
use machine::{Machine, machine};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NOTES: &str = "\
With a DIRECTORY, a scratch file of 4 MiB is made there without a name, written in place and flushed for a few
seconds. A DEVICE is only read. Times are medians; other work on the disk makes them longer.

Examples:
  okeanos doctor
  okeanos doctor /srv
  okeanos doctor --json /dev/sdb1";

/// Report what this machine and a disk provide, and what follows
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A block device, or a directory on the disk that is meant
    #[arg(value_name = "DEVICE|DIR")]
    target: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    disk: Option<Disk>,
    advice: Vec<String>,
    limits: Vec<String>,
}

pub fn run(arguments: DoctorArguments) -> Result<(), CliError> {
    let machine = machine()?;
    let disk = arguments.target.as_deref().map(examine).transpose()?;
    let (advice, limits) = (advice(&machine, disk.as_ref()), limits(&machine));
    let report = Report { version: crate::VERSION, machine, disk, advice, limits };
    if arguments.json { print_json(&report) } else { print(&page(&report)) }
}

/// Describes the machine and the disk of a directory in one line, as tables of measurements need
/// it.
///
/// # Errors
/// The directory cannot be written.
pub fn measured_on(directory: &Path) -> Result<String, CliError> {
    let machine = machine()?;
    let write = examine(directory)?.times.durable_write;
    let write = write.map_or("unknown".into(), |time| format!("{} us", time / 1000));
    let processor = machine.processor.as_deref().unwrap_or("of unknown model");
    let (kernel, count) = (&machine.kernel, machine.processors);
    Ok(format!(
        "Linux {kernel}, {count} processors ({processor}), a durable write of 4 KiB: {write}"
    ))
}

fn page(report: &Report) -> String {
    let Report { machine, disk, .. } = report;
    let mut lines = vec![
        ("kernel", machine.kernel.clone()),
        ("processors", machine.processors.to_string()),
        ("model", or_unknown(machine.processor.clone())),
        ("io_uring", machine.io_uring_refused.clone().unwrap_or_else(|| "yes".into())),
        ("/dev/fuse", yes_no(machine.fuse)),
        ("transport=auto", "reads of /dev/fuse".into()),
        (
            "transport=uring",
            match machine.fuse_over_io_uring {
                Some(true) if machine.io_uring => "can be had: docs/KERNELS.md says for whom",
                Some(true) => "needs io_uring",
                Some(false) => "switched off (fuse.enable_uring)",
                None => "not in this kernel (Linux 6.14)",
            }
            .into(),
        ),
        ("loop devices", yes_no(machine.loop_devices)),
        (
            "ublk devices",
            if machine.ublk { "yes" } else { "no driver is loaded (ublk_drv)" }.into(),
        ),
        ("NBD devices", if machine.nbd { "yes" } else { "no driver is loaded (nbd)" }.into()),
        ("fusermount3", or_missing(machine.fusermount3.as_deref())),
    ];
    lines.extend(disk.iter().flat_map(disk_lines));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    for (head, items) in [("What suits", &report.advice), ("Limits here", &report.limits)] {
        if !items.is_empty() {
            text += &format!("\n{head}:\n");
            text.extend(items.iter().map(|item| format!("- {item}\n")));
        }
    }
    text
}

fn disk_lines(disk: &Disk) -> Vec<(&'static str, String)> {
    let sectors = [disk.logical_sector, disk.physical_sector];
    let sectors = sectors.map(|bytes| or_unknown(bytes.map(|bytes| format!("{bytes} bytes"))));
    let time = |nanoseconds: Option<u64>| {
        let time = nanoseconds.map(|time| format_duration(Duration::from_nanos(time)));
        time.unwrap_or_else(|| "not measured".into())
    };
    vec![
        ("disk", disk.target.display().to_string()),
        ("sectors", format!("{}, physical {}", sectors[0], sectors[1])),
        ("rotational", or_unknown(disk.rotational.map(yes_no))),
        ("write cache", or_unknown(disk.write_cache.clone())),
        ("past the page cache", yes_no(disk.direct)),
        ("read of 4 KiB", time(disk.times.read)),
        ("write of 4 KiB", time(disk.times.write)),
        ("flush behind it", time(disk.times.flush)),
        ("durable write", time(disk.times.durable_write)),
        (
            "it is",
            match disk.durable_by_itself {
                true => "one request (FUA, or RWF_DSYNC)",
                false => "a write and a flush: RWF_DSYNC is not relied on here",
            }
            .into(),
        ),
        (
            "flushes are",
            match disk.flush {
                Flush::NotMeasured => "not judged",
                Flush::NotNeeded => "not needed",
                Flush::Plausible => "plausible",
                Flush::Suspicious => "suspicious",
            }
            .into(),
        ),
    ]
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| "unknown".into())
}

fn or_missing(program: Option<&Path>) -> String {
    program.map_or_else(|| "missing".into(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_machine_and_disk() {
        let directory = tempfile::tempdir().unwrap();
        let line = measured_on(directory.path()).unwrap();
        for part in ["Linux ", " processors (", "a durable write of 4 KiB: "] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(line.ends_with(" us"), "{line}");
    }
}
