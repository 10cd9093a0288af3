use super::rig_error;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, parse_duration, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use testbeds::{DemoOptions, DemoRow, KERNEL, Programs, demo};

const NOTES: &str = "\
Each mode gets a fresh volume and a journal, on a loop device each, mounted where nobody else sees them. Bytes
per payload byte are those that the kernel saw written to the two devices until everything was home.

Examples (as root):
  okeanos-lab bench demo
  okeanos-lab bench demo --modes ext4,wasteless --writers 16 --seconds 1s";

const NEXT: &str = "\
What next? A volume of your own, in a file:
  okeanos mkfs disk.img 1G
  mkdir -p /mnt/a && okeanos mount disk.img /mnt/a
  okeanos list; okeanos stats --watch /mnt/a
Which mode suits your work: okeanos advise /mnt/a, after an hour of it. Real programs: make bench-peers. (Built and not
installed, the program is target/release/okeanos; make install puts it into the path.)
";

/// Crash the modes under many writers, recover, and prove that nothing acknowledged is lost
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct DemoArguments {
    /// Values of data= to show; okeanos is a mount that names none, ext4 the kernel's, which is
    /// measured and not killed. All but adaptive if not given
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ext4,okeanos,writeback,ordered,journal,wasteless,selective"
    )]
    modes: Vec<String>,
    /// Number of threads that append at once
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    writers: u32,
    /// Bytes of a record
    #[arg(long, default_value = "128", value_parser = parse_size)]
    size: u64,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    seconds: Duration,
    /// Duration of writes before the crash
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    crash_after: Duration,
    /// Directory for the images; they are removed at the end, or by the next run if this one is
    /// killed
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: DemoArguments) -> Result<(), CliError> {
    let options = DemoOptions {
        modes: arguments.modes,
        writers: arguments.writers,
        size: arguments.size.clamp(20, 1 << 20) as usize,
        measured: arguments.seconds,
        crash_after: arguments.crash_after,
        directory: arguments.directory,
        programs: Programs::find().map_err(rig_error)?,
    };
    let progress = Progress::new();
    let rows = demo(&options, |text| progress.show(text)).map_err(rig_error)?;
    drop(progress);
    match arguments.json {
        true => print_json(&rows)?,
        false => print(&report(&options, &rows))?,
    }
    match rows.iter().map(|row| row.lost).sum() {
        0 => Ok(()),
        lost => Err(CliError::new(format!("{lost} acknowledged records are lost"))),
    }
}

fn report(options: &DemoOptions, rows: &[DemoRow]) -> String {
    let mut table = Table::new([
        "mode",
        "syncs/s",
        "p50",
        "p99",
        "journal bytes per payload byte",
        "home bytes per payload byte",
        "acknowledged",
        "lost",
    ]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    for row in rows {
        table.row([
            row.mode.clone(),
            format!("{:.0}", row.measured.operations_per_second),
            time(row.measured.latency.p50_ns),
            time(row.measured.latency.p99_ns),
            format!("{:.1}", row.journal_bytes_per_payload_byte),
            format!("{:.1}", row.home_bytes_per_payload_byte),
            if row.mode == KERNEL { "-".into() } else { row.acknowledged.to_string() },
            if row.mode == KERNEL { "-".into() } else { row.lost.to_string() },
        ]);
    }
    let kernel = match rows.iter().any(|row| row.mode == KERNEL) {
        true => {
            "ext4 is the kernel's own, data=ordered, on the same devices: measured, and not \
             crashed.\n"
        }
        false => "",
    };
    format!(
        "{} writers, each appending records of {} bytes with O_SYNC to a file of its own:\n\n\
         {table}\n\
         In each mode the daemon was killed (kill -9) while they wrote; after okeanos recover, \
         e2fsck -fn found\n\
         nothing wrong, and every acknowledged record was read back.\n{kernel}\n{NEXT}",
        options.writers, options.size
    )
}
