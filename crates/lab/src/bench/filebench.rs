use super::done::{Done, cannot_run, choose_seed};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, format_size, parse_duration, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::{FilebenchOptions, Limit, Personality, run_filebench};

const EXAMPLES: &str = "\
What a loop of a thread does, as Filebench 1.4.9 defines it (sizes are options, defaults are Filebench's):
  fileserver   create and write a file, append to one, read one, delete one, stat one; 50 threads, 10,000 files of 128 KiB
  varmail      delete; create, append, fsync; read, append, fsync; read; 16 threads, 1,000 files of 16 KiB
  webserver    read ten files, append to a log; 100 threads, 1,000 files of 16 KiB
  createfiles  create and write, until all 50,000 files of 16 KiB are there; 16 threads
  oltp         a database: 200 readers of 2 KiB at random, 10 writers of data, one of the log; 10 files of 10 MiB

Examples:
  okeanos-lab bench filebench varmail /mnt/a
  okeanos-lab bench filebench fileserver --files 1000 --seconds 20s --append-size 4K /mnt/a
  okeanos-lab bench filebench oltp --count 10000 --json /mnt/a";

/// Mixes of many files: mail, web and file servers, a database
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct FilebenchArguments {
    #[arg(value_enum)]
    personality: Name,
    /// Names that files may have; of oltp, data files
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    files: Option<u64>,
    /// Bytes of a file, on average; of oltp, of each data file
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    file_size: Option<u64>,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: Option<u32>,
    /// The largest append; each has one byte up to this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    append_size: Option<u64>,
    /// Every append is as large as the largest
    #[arg(long)]
    append_exactly: bool,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    request: Option<u64>,
    /// Point at which a write counts as done, besides what the personality syncs itself
    #[arg(long, value_enum, default_value = "none")]
    sync: Done,
    /// Duration; a minute if not given (createfiles: until all files are there)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    seconds: Option<Duration>,
    /// Loops of each thread instead; of oltp, reads of each reader
    #[arg(long, value_name = "LOOPS", conflicts_with = "seconds")]
    count: Option<u64>,
    /// Seed of each thread's operations, though not of their interleaving; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// An empty directory; the files stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    Fileserver,
    Varmail,
    Webserver,
    Createfiles,
    Oltp,
}

pub fn run(arguments: FilebenchArguments) -> Result<(), CliError> {
    let personality = match arguments.personality {
        Name::Fileserver => Personality::Fileserver,
        Name::Varmail => Personality::Varmail,
        Name::Webserver => Personality::Webserver,
        Name::Createfiles => Personality::Createfiles,
        Name::Oltp => Personality::Oltp,
    };
    let options = options(&arguments, FilebenchOptions::of(personality))?;
    let progress = Progress::new();
    let report = run_filebench(&arguments.directory, &options, |operations| {
        progress.show(format_args!("{operations} operations"));
    })
    .map_err(cannot_run(&arguments.directory))?;
    drop(progress);
    if arguments.json {
        return print_json(&report);
    }
    let mut table =
        Table::new(["operations", "ops/s", "read", "written", "latency mean", "p50", "p99", "max"]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    table.row([
        report.operations.to_string(),
        format!("{:.1}", report.operations_per_second),
        format_size(report.bytes_read),
        format_size(report.bytes_written),
        format_duration(Duration::from_secs_f64(report.latency_mean_ms / 1e3)),
        time(report.latency.p50_ns),
        time(report.latency.p99_ns),
        time(report.latency.max_ns),
    ]);
    print(&table)
}

/// Returns the personality's own options, changed as requested.
fn options(
    arguments: &FilebenchArguments,
    own: FilebenchOptions,
) -> Result<FilebenchOptions, CliError> {
    const SIZE_MAX: u64 = 64 << 20;
    for (option, size) in
        [("--append-size", arguments.append_size), ("--request", arguments.request)]
    {
        if size.is_some_and(|size| !(1..=SIZE_MAX).contains(&size)) {
            return Err(CliError::new(format!("{option} is 1 byte to 64M")));
        }
    }
    let limit = match (arguments.seconds, arguments.count) {
        (Some(time), _) => Limit::Time(time),
        (None, Some(count)) => Limit::Count(count),
        (None, None) => own.limit,
    };
    Ok(FilebenchOptions {
        files: arguments.files.unwrap_or(own.files),
        file_size: arguments.file_size.unwrap_or(own.file_size),
        threads: arguments.threads.unwrap_or(own.threads),
        append_size: arguments.append_size.unwrap_or(own.append_size),
        append_exactly: arguments.append_exactly,
        request: arguments.request.unwrap_or(own.request),
        sync: arguments.sync.into(),
        limit,
        seed: choose_seed(arguments.seed),
        ..own
    })
}
