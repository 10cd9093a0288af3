use super::done::{Done, cannot_run, choose_seed};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, format_size, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::{PostmarkOptions, PostmarkReport, run_postmark};

const EXAMPLES: &str = "\
Postmark imitates a mail or news server: many small files. Each transaction reads a whole file or appends to one,
and then creates a file or deletes one. The defaults are those of the Okeanos paper.

Examples:
  okeanos-lab bench postmark /mnt/a                             requests of 4 KiB, O_SYNC
  okeanos-lab bench postmark --request 1K,4K,128K /mnt/a        three runs
  okeanos-lab bench postmark --sync none --threads 1 /mnt/a     as Postmark itself: one thread, page cache";

/// Threads that create, read, append to and delete small files: Postmark, with synchronous writes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct PostmarkArguments {
    /// Bytes of one read or write; several numbers make several runs
    #[arg(long, value_name = "SIZE,SIZE,…", value_delimiter = ',', default_value = "4K",
          value_parser = parse_size)]
    request: Vec<u64>,
    /// Files made before the transactions begin
    #[arg(long, default_value = "500")]
    files: u64,
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: u32,
    /// Number of transactions of all threads together
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u64).range(1..))]
    transactions: u64,
    /// Number of transactions in ten that read; the others append
    #[arg(long, value_name = "0-10", default_value = "5",
          value_parser = clap::value_parser!(u64).range(0..=10))]
    read_bias: u64,
    /// Number of transactions in ten that create; the others delete
    #[arg(long, value_name = "0-10", default_value = "9",
          value_parser = clap::value_parser!(u64).range(0..=10))]
    create_bias: u64,
    /// Bytes of the smallest file
    #[arg(long, value_name = "SIZE", default_value = "500", value_parser = parse_size)]
    size_min: u64,
    /// Bytes of the largest file
    #[arg(long, value_name = "SIZE", default_value = "100000", value_parser = parse_size)]
    size_max: u64,
    /// Point at which a write counts as done
    #[arg(long, value_enum, default_value = "o_sync")]
    sync: Done,
    /// Seed of each thread's operations; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory for the files, each run in a directory of its own; they stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: PostmarkArguments) -> Result<(), CliError> {
    const REQUEST_MAX: u64 = 64 << 20;
    if arguments.size_min > arguments.size_max {
        return Err(CliError::new("--size-min is above --size-max"));
    }
    if let Some(wrong) =
        arguments.request.iter().find(|request| !(1..=REQUEST_MAX).contains(*request))
    {
        return Err(CliError::new(format!("requests of {wrong} bytes are not possible"))
            .with_remedy("choose a --request from 1 byte to 64M"));
    }
    let seed = choose_seed(arguments.seed);
    let progress = Progress::new();
    let mut reports = Vec::new();
    for &request in &arguments.request {
        let options = PostmarkOptions {
            files: arguments.files,
            threads: arguments.threads,
            transactions: arguments.transactions,
            read_bias: arguments.read_bias,
            create_bias: arguments.create_bias,
            size_min: arguments.size_min,
            size_max: arguments.size_max,
            request,
            sync: arguments.sync.into(),
            seed,
        };
        let directory = arguments.directory.join(format!("postmark-{request}"));
        std::fs::create_dir(&directory).map_err(cannot_run(&directory))?;
        let report = run_postmark(&directory, &options, |done| {
            progress.show(format_args!(
                "requests of {}: {done} of {} transactions",
                format_size(request),
                options.transactions
            ));
        });
        reports.push(report.map_err(|error| CliError::system(directory.display(), error))?);
    }
    drop(progress);
    match arguments.json {
        true => print_json(&reports),
        false => print(&table(&reports)),
    }
}

fn table(reports: &[PostmarkReport]) -> Table {
    let mut table = Table::new([
        "request",
        "transactions",
        "per second",
        "read",
        "written",
        "write p50",
        "write p99",
        "write max",
    ]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    for report in reports {
        let latency = report.write_latency;
        table.row([
            format_size(report.options.request),
            report.transactions.to_string(),
            format!("{:.1}", report.transactions_per_second),
            format_size(report.bytes_read),
            format_size(report.bytes_written),
            time(latency.p50_ns),
            time(latency.p99_ns),
            time(latency.max_ns),
        ]);
    }
    table
}
