use super::done::cannot_run;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::{format_duration, format_size, parse_duration, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use workloads::{MpiIoOptions, ServerLink, run_mpi_io};

const EXAMPLES: &str = "\
Each process appends to a file of its own through a file server that syncs the data, and then its database of file sizes,
before it answers: a small model of PVFS2's data server, threads of this program. The database lies in DIR/database;
another file system may be mounted there.

Examples:
  okeanos-lab bench mpi-io /mnt/a                               52 processes, 65,000 writes of 1 KiB
  okeanos-lab bench mpi-io --processes 520 --size 47001 --writes 6500 /mnt/a
  okeanos-lab bench mpi-io --link 125M --round-trip 200us /mnt/a";

/// Processes that write through a file server: MPI-IO, N processes to N files
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct MpiIoArguments {
    #[arg(long, default_value = "52", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    processes: u32,
    /// Number of writes of all processes together
    #[arg(long, default_value = "65000")]
    writes: u64,
    /// Bytes of a write
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    size: u64,
    /// Bytes per second of the server's link, which all messages share; messages take no time if
    /// not given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    link: Option<u64>,
    /// Time of a message and its answer, without its bytes
    #[arg(long, value_name = "TIME", default_value = "0", requires = "link",
          value_parser = parse_duration)]
    round_trip: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A directory, empty but for `database`; the files stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: MpiIoArguments) -> Result<(), CliError> {
    const SIZE_MAX: u64 = 64 << 20;
    if !(1..=SIZE_MAX).contains(&arguments.size) {
        return Err(CliError::new("--size is 1 byte to 64M"));
    }
    if arguments.link == Some(0) {
        return Err(CliError::new("--link is at least a byte per second"));
    }
    let network = arguments
        .link
        .map(|bytes_per_second| ServerLink { bytes_per_second, round_trip: arguments.round_trip });
    let MpiIoArguments { processes, writes, size, .. } = arguments;
    let options = MpiIoOptions { processes, writes, size, network };
    let progress = Progress::new();
    let report = run_mpi_io(&arguments.directory, &options, |done| {
        progress.show(format_args!("{done} of {writes} writes"));
    })
    .map_err(cannot_run(&arguments.directory))?;
    drop(progress);
    if arguments.json {
        return print_json(&report);
    }
    let mut table = Table::new([
        "processes",
        "bytes",
        "writes",
        "MiB/s",
        "p50",
        "p99",
        "max",
        "database syncs",
        "database written",
    ]);
    let time = |nanoseconds| format_duration(Duration::from_nanos(nanoseconds));
    table.row([
        processes.to_string(),
        size.to_string(),
        writes.to_string(),
        format!("{:.2}", report.mib_per_second),
        time(report.latency.p50_ns),
        time(report.latency.p99_ns),
        time(report.latency.max_ns),
        report.database_syncs.to_string(),
        format_size(report.database_bytes),
    ]);
    print(&table)
}
