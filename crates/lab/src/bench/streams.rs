use super::done::Done;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, parse_duration, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::{Limit, StreamOptions, StreamReport, run_streams};

const EXAMPLES: &str = "\
Examples:
  okeanos-lab bench streams /mnt/a                              1, 16, 100 and 1000 writers, 5 seconds each
  okeanos-lab bench streams --writers 100 --rate 1 /mnt/a       100 writers, one append a second each
  okeanos-lab bench streams --writers 100 --until-error --acknowledged ack.json /mnt/a
                                                            until the file system goes away";

/// Threads that append small records to a file each, on any file system
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct StreamsArguments {
    /// Number of threads; several numbers make several runs
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,16,100,1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    writers: Vec<u32>,
    /// Bytes of a record
    #[arg(long, default_value = "128", value_parser = parse_size)]
    size: u64,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    seconds: Duration,
    /// End each run after this many appends of each writer instead
    #[arg(long, value_name = "APPENDS", conflicts_with = "seconds")]
    count: Option<u64>,
    /// Appends per second of each writer; as fast as they can if not given
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Point at which an append counts as done
    #[arg(long, value_enum, default_value = "o_sync")]
    sync: Done,
    /// Prefix of the files' names
    #[arg(long, default_value = "stream-")]
    prefix: String,
    /// Write here how many appends of each writer were acknowledged, for `okeanos-lab bench verify`
    #[arg(long, value_name = "FILE")]
    acknowledged: Option<PathBuf>,
    /// Write until a write fails, and take that for the wanted end
    #[arg(long, conflicts_with_all = ["seconds", "count"])]
    until_error: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory for the files; they stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: StreamsArguments) -> Result<(), CliError> {
    check(&arguments)?;
    cli::daemon::mounted::refuse_if_its_daemon_died(&arguments.directory)?;
    let progress = Progress::new();
    let mut reports = Vec::new();
    for &writers in &arguments.writers {
        let options = options(&arguments, writers);
        let (report, acknowledged) = run_streams(&arguments.directory, &options, |appends| {
            progress.show(format_args!("{writers} writers: {appends} appends"));
        })
        .map_err(|error| cannot_begin(&arguments, error))?;
        if let Some(path) = &arguments.acknowledged {
            let text = serde_json::to_string(&acknowledged).expect("plain numbers");
            std::fs::write(path, text).map_err(|error| CliError::system(path.display(), error))?;
        }
        reports.push(report);
    }
    drop(progress);
    match arguments.json {
        true => print_json(&reports)?,
        false => print(&table(&reports))?,
    }
    match reports.iter().find_map(|report| report.failure.as_ref()) {
        Some(failure) if !arguments.until_error => {
            Err(CliError::new(format!("a write failed: {failure}")))
        }
        _ => Ok(()),
    }
}

fn check(arguments: &StreamsArguments) -> Result<(), CliError> {
    const SIZE_MIN: u64 = 20;
    const SIZE_MAX: u64 = 64 << 20;
    if !(SIZE_MIN..=SIZE_MAX).contains(&arguments.size) {
        return Err(CliError::new(format!("records of {} bytes are not possible", arguments.size))
            .with_remedy("choose a --size from 20 bytes (numbers and checksum) to 64M"));
    }
    if arguments.rate.is_some_and(|rate| !(rate.is_finite() && rate >= 1e-6)) {
        return Err(CliError::new("a rate is a positive number of appends per second"));
    }
    if arguments.acknowledged.is_some() && arguments.writers.len() > 1 {
        return Err(
            CliError::new("--acknowledged is for a single run").with_remedy("give one --writers")
        );
    }
    Ok(())
}

fn options(arguments: &StreamsArguments, writers: u32) -> StreamOptions {
    let limit = match (arguments.until_error, arguments.count) {
        (true, _) => Limit::Count(u64::MAX),
        (false, Some(count)) => Limit::Count(count),
        (false, None) => Limit::Time(arguments.seconds),
    };
    let sync = arguments.sync.into();
    let prefix = match arguments.writers.len() {
        1 => arguments.prefix.clone(),
        _ => format!("{}{writers}-", arguments.prefix),
    };
    StreamOptions {
        writers,
        size: arguments.size as usize,
        limit,
        rate: arguments.rate,
        sync,
        prefix,
    }
}

fn cannot_begin(arguments: &StreamsArguments, error: std::io::Error) -> CliError {
    let wrong =
        CliError::system(format!("cannot make files in {}", arguments.directory.display()), error);
    wrong.with_remedy(
        "Give a directory that exists, without the files of an earlier run, or another --prefix.",
    )
}

fn table(reports: &[StreamReport]) -> Table {
    let mut table =
        Table::new(["writers", "bytes", "appends", "ops/s", "p50", "p90", "p99", "max"]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    for report in reports {
        let latency = report.latency;
        table.row([
            report.writers.to_string(),
            report.size.to_string(),
            report.operations.to_string(),
            format!("{:.0}", report.operations_per_second),
            time(latency.p50_ns),
            time(latency.p90_ns),
            time(latency.p99_ns),
            time(latency.max_ns),
        ]);
    }
    table
}
