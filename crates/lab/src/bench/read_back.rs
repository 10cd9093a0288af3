use super::done::cannot_run;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::{format_duration, format_size, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::run_read_back;

const EXAMPLES: &str = "\
What is still in memory costs no read: mount anew, or empty the page cache, between writing and reading.

Examples:
  okeanos-lab bench streams --writers 100 --size 125000 --rate 1 --seconds 60 /mnt/a
  echo 3 > /proc/sys/vm/drop_caches
  okeanos-lab bench read-back /mnt/a                            one file after the other, 4 KiB at a time";

/// Read what `bench streams` wrote at the same time, one file after the other
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReadBackArguments {
    /// Bytes of a read
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    size: u64,
    /// Prefix of the files' names
    #[arg(long, default_value = "stream-")]
    prefix: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of the files
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: ReadBackArguments) -> Result<(), CliError> {
    const SIZE_MAX: u64 = 64 << 20;
    if !(1..=SIZE_MAX).contains(&arguments.size) {
        return Err(CliError::new("--size is 1 byte to 64M"));
    }
    let report = run_read_back(&arguments.directory, &arguments.prefix, arguments.size as usize)
        .map_err(cannot_run(&arguments.directory))?;
    if report.files == 0 {
        let missing =
            format!("{} holds no file {}00000", arguments.directory.display(), arguments.prefix);
        return Err(
            CliError::new(missing).with_remedy("run `okeanos-lab bench streams` there first")
        );
    }
    if arguments.json {
        return print_json(&report);
    }
    let mut table = Table::new(["files", "reads", "read", "seconds", "mean", "p50", "p99", "max"]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    table.row([
        report.files.to_string(),
        report.reads.to_string(),
        format_size(report.bytes),
        format!("{:.2}", report.seconds),
        format!("{:.3} ms", report.read_mean_ms),
        time(report.latency.p50_ns),
        time(report.latency.p99_ns),
        time(report.latency.max_ns),
    ]);
    print(&table)
}
