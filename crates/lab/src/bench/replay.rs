use super::done::{cannot_run, choose_seed};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, format_size, parse_duration};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::{LogTrace, ReplayOptions, ReplayReport, run_replay};

const EXAMPLES: &str = "\
Each instance has a log file of its own, writes and syncs it when the trace says, and reports how long a sync took: from the
moment it was asked for (sync), and from the moment the trace has it (behind; it grows without end if the disk cannot
keep up). How the traces that come with the program were recorded, and what a trace file looks like: docs/TRACES.md.

Examples:
  okeanos-lab bench replay mail-store --until 1m /mnt/a         one instance, the first minute of the trace
  okeanos-lab bench replay innodb-cmt-disk --instances 1,16,64 --preallocated --until 30s /mnt/a
  okeanos-lab bench replay my-trace.csv --json /mnt/a";

/// Replay what databases and mail stores did to their logs, many of them at once
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct LogReplayArguments {
    /// A trace that comes with the program, or a file
    #[arg(value_name = "TRACE")]
    trace: String,
    /// Number of logs at once; several numbers make several runs
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    instances: Vec<u32>,
    /// Play the trace up to this time; all of it if not given
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    until: Option<Duration>,
    /// Write each log file in full before, as databases do that write it round and round
    #[arg(long)]
    preallocated: bool,
    /// Begin the instances at random within this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    spread: Duration,
    /// Decides when each instance begins; by chance if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory for the files; they stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: LogReplayArguments) -> Result<(), CliError> {
    let trace =
        LogTrace::open(&arguments.trace).map_err(|error| CliError::new(error.to_string()))?;
    let seed = choose_seed(arguments.seed);
    let progress = Progress::new();
    let mut reports = Vec::new();
    for &instances in &arguments.instances {
        let options = ReplayOptions {
            instances,
            until: arguments.until,
            preallocated: arguments.preallocated,
            spread: arguments.spread,
            prefix: format!("{}-{instances}-", trace.name),
            seed,
        };
        let report = run_replay(&arguments.directory, &trace, &options, |records| {
            progress.show(format_args!("{instances} instances: {records} records"));
        })
        .map_err(cannot_run(&arguments.directory))?;
        reports.push(report);
    }
    drop(progress);
    match arguments.json {
        true => print_json(&reports),
        false => print(&table(&reports)),
    }
}

fn table(reports: &[ReplayReport]) -> Table {
    let mut table = Table::new([
        "instances",
        "syncs",
        "written",
        "seconds",
        "sync mean",
        "p50",
        "p99",
        "max",
        "behind mean",
        "max",
    ]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    let mean = |milliseconds: f64| format_duration(Duration::from_secs_f64(milliseconds / 1e3));
    for report in reports {
        table.row([
            report.options.instances.to_string(),
            report.syncs.to_string(),
            format_size(report.bytes_written),
            format!("{:.1}", report.seconds),
            mean(report.sync_mean_ms),
            time(report.sync_latency.p50_ns),
            time(report.sync_latency.p99_ns),
            time(report.sync_latency.max_ns),
            mean(report.behind_mean_ms),
            time(report.behind.max_ns),
        ]);
    }
    table
}
