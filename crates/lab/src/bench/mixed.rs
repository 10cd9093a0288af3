use super::environment::{EnvironmentArguments, Tables};
use crate::error::CliError;
use crate::text::quantity::{format_duration, parse_duration, parse_size};
use crate::text::table::Table;
use std::time::Duration;
use testbeds::{Contender, MixedCase, MixedMeasure, MixedOptions, MixedRow, mixed};

const EXAMPLES: &str = "\
Examples (as root):
  okeanos-lab bench mixed
  okeanos-lab bench mixed --contenders ext4:ordered,okeanos:wasteless --model cheetah-15k5-300 --large 64M --dirty 256M

Each run makes every file system anew. Then each works alone, then all at once, then the writers while much of another
file is dirty. Before each case the volume is mounted again, so that nothing is in memory. In parentheses stands
what reader and overwriter keep of what each has alone.";

/// Synchronous writers beside a reader and a writer of large files: what each costs the others
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct MixedArguments {
    /// ext4:MODE, ext4:fast_commit, xfs, btrfs, okeanos, okeanos:MODE
    #[arg(
        long,
        value_name = "NAME,NAME,…",
        value_delimiter = ',',
        default_value = "ext4:ordered,okeanos,okeanos:wasteless"
    )]
    contenders: Vec<Contender>,
    /// Number of threads that append
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    writers: u32,
    /// Bytes of a record
    #[arg(long, default_value = "128", value_parser = parse_size)]
    size: u64,
    /// Duration of each case
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    seconds: Duration,
    /// Number of runs of everything
    #[arg(long, alias = "turns", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Size of the file that is read, and of the one that is overwritten
    #[arg(long, default_value = "512M", value_parser = parse_size)]
    large: u64,
    /// Dirty bytes of another file when the last case begins
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    dirty: u64,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

pub fn run(arguments: MixedArguments) -> Result<(), CliError> {
    let options = MixedOptions {
        contenders: arguments.contenders,
        writers: arguments.writers,
        size: arguments.size.clamp(20, 64 << 20) as usize,
        time: arguments.seconds,
        runs: arguments.runs,
        large: arguments.large,
        dirty: arguments.dirty,
        environment: arguments.environment.environment()?,
    };
    arguments.environment.run(
        |progress| mixed(&options, |text| progress(text)),
        |rows| Tables { markdown: markdown(rows), table: table(rows).to_string() },
    )
}

const COLUMNS: [&str; 8] =
    ["file system", "at work", "syncs/s", "p50", "p99", "max", "reading", "overwriting"];

fn cells(row: &MixedRow, rows: &[MixedRow]) -> [String; 8] {
    let MixedMeasure { syncs_per_second, latency, reading, overwriting } = &row.median;
    let time = |nanoseconds: Option<u64>| {
        nanoseconds.map(|ns| format_duration(Duration::from_nanos(ns))).unwrap_or_default()
    };
    let rate = |bytes: Option<f64>, alone: MixedCase| {
        let Some(bytes) = bytes else { return String::new() };
        let alone =
            rows.iter().find(|other| other.contender == row.contender && other.case == alone);
        let kept = match alone.and_then(|row| row.median.reading.or(row.median.overwriting)) {
            Some(all) if row.case == MixedCase::Together => {
                format!(" ({:.2})", bytes / all.max(1e-9))
            }
            _ => String::new(),
        };
        format!("{:.0} MiB/s{kept}", bytes / f64::from(1 << 20))
    };
    [
        row.contender.clone(),
        row.case.name().into(),
        syncs_per_second.map(|rate| format!("{rate:.0}")).unwrap_or_default(),
        time(latency.map(|latency| latency.p50_ns)),
        time(latency.map(|latency| latency.p99_ns)),
        time(latency.map(|latency| latency.max_ns)),
        rate(*reading, MixedCase::Reading),
        rate(*overwriting, MixedCase::Overwriting),
    ]
}

fn markdown(rows: &[MixedRow]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head = line(&COLUMNS.map(str::to_owned)) + "|---|---|---:|---:|---:|---:|---:|---:|\n";
    rows.iter().fold(head, |text, row| text + &line(&cells(row, rows)))
}

fn table(rows: &[MixedRow]) -> Table {
    let mut table = Table::new(COLUMNS);
    rows.iter().for_each(|row| table.row(cells(row, rows)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reader_and_overwriter_keep_stands_in_parentheses() {
        let row = |case, reading, overwriting| MixedRow {
            contender: "xfs".into(),
            case,
            median: MixedMeasure { reading, overwriting, ..MixedMeasure::default() },
            runs: Vec::new(),
        };
        let mib = |count: f64| Some(count * f64::from(1 << 20));
        let text = markdown(&[
            row(MixedCase::Reading, mib(200.0), None),
            row(MixedCase::Overwriting, None, mib(80.0)),
            row(MixedCase::Together, mib(50.0), mib(60.0)),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("| 200 MiB/s |  |"), "{text}");
        assert!(lines[4].ends_with("| 50 MiB/s (0.25) | 60 MiB/s (0.75) |"), "{text}");
    }
}
