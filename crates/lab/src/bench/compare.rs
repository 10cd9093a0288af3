use super::environment::{EnvironmentArguments, Tables};
use crate::error::CliError;
use crate::text::quantity::{format_duration, parse_duration, parse_size};
use crate::text::table::Table;
use std::time::Duration;
use testbeds::{CompareOptions, Comparison, Contender, compare};

const EXAMPLES: &str = "\
Examples (as root):
  okeanos-lab bench compare
  okeanos-lab bench compare --contenders ext4:ordered,okeanos,okeanos:ordered --writers 100 --runs 3
  okeanos-lab bench compare --model cloud-volume --writers 100 --runs 1
  okeanos-lab bench compare --contenders okeanos:wasteless,okeanos-classic:wasteless --writers 16,100
  okeanos-lab bench compare --contenders okeanos@/opt/older/okeanos,okeanos    two releases

Each run makes every file system anew on a loop device over a file of real zeros, mounts it where nobody else
sees it, and runs `bench streams` on it. The ratio is the median of the ratios within each run. Writes and bytes
of a sync are what the kernel counts at the loop device while the writers write.";

/// The kernel's file systems and Okeanos side by side on the same kind of loop device
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArguments {
    /// File systems to compare; the first is the baseline. ext4:MODE, ext4:fast_commit,
    /// ext4:async_commit, xfs, btrfs, okeanos, okeanos:MODE; okeanos-classic:MODE, without
    /// io_uring; okeanos@PROGRAM:MODE, of another release; blocks:ordered, blocks:async_commit and
    /// so on, the kernel's ext4 over a block volume
    #[arg(
        long,
        value_name = "NAME,NAME,…",
        value_delimiter = ',',
        default_value = "ext4:ordered,okeanos,okeanos:wasteless"
    )]
    contenders: Vec<Contender>,
    /// Number of threads; several numbers make several runs
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,16,100,1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    writers: Vec<u32>,
    /// Bytes of a record
    #[arg(long, default_value = "128", value_parser = parse_size)]
    size: u64,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    seconds: Duration,
    /// Number of runs of everything
    #[arg(long, alias = "turns", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Size of each image, or of the emulated disk
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    image_size: u64,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

pub fn run(arguments: CompareArguments) -> Result<(), CliError> {
    let options = CompareOptions {
        contenders: arguments.contenders,
        writers: arguments.writers,
        size: arguments.size.clamp(20, 64 << 20) as usize,
        time: arguments.seconds,
        runs: arguments.runs,
        image_size: arguments.image_size,
        environment: arguments.environment.environment()?,
    };
    arguments.environment.run(
        |progress| compare(&options, |text| progress(text)),
        |rows| Tables { markdown: markdown(rows), table: table(rows).to_string() },
    )
}

/// Formats a line for each number of writers, a column for each contender: speed, and its ratio to
/// the first one. Then bytes likewise.
fn markdown(rows: &[Comparison]) -> String {
    let speed = by_writers("writers", rows, |row, is_first| {
        let ratio = if is_first { String::new() } else { format!(" ({:.2})", row.ratio) };
        format!("{:.0}/s{ratio}", row.operations_per_second)
    });
    let bytes = by_writers("bytes to the disk for a sync", rows, |row, _| {
        format!("{:.0}", row.bytes_per_operation)
    });
    format!("{speed}\n{bytes}")
}

fn by_writers(
    head: &str,
    rows: &[Comparison],
    cell: impl Fn(&Comparison, bool) -> String,
) -> String {
    let mut text = String::new();
    for (index, alike) in rows.chunk_by(|one, other| one.writers == other.writers).enumerate() {
        if index == 0 {
            let names: Vec<_> = alike.iter().map(|row| format!(" {} |", row.contender)).collect();
            text +=
                &format!("| {head} |{}\n|---|{}\n", names.concat(), "---:|".repeat(names.len()));
        }
        text += &format!("| {} |", alike[0].writers);
        for (index, row) in alike.iter().enumerate() {
            text += &format!(" {} |", cell(row, index == 0));
        }
        text += "\n";
    }
    text
}

fn table(rows: &[Comparison]) -> Table {
    let mut table = Table::new([
        "file system",
        "writers",
        "ops/s",
        "p50",
        "p99",
        "ratio",
        "writes/op",
        "bytes/op",
    ]);
    let time = |nanoseconds: f64| format_duration(Duration::from_nanos(nanoseconds as u64));
    for row in rows {
        table.row([
            row.contender.clone(),
            row.writers.to_string(),
            format!("{:.0}", row.operations_per_second),
            time(row.p50_ns),
            time(row.p99_ns),
            format!("{:.2}", row.ratio),
            format!("{:.2}", row.writes_per_operation),
            format!("{:.0}", row.bytes_per_operation),
        ]);
    }
    table
}
