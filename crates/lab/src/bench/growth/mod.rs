//! `okeanos-lab bench growth`: measures which costs grow with writers, volumes, files and journals,
//! and how fast.

mod picture;

use super::environment::{OutputArguments, Tables};
use super::rig_error;
use crate::error::CliError;
use crate::text::quantity::{format_duration, format_size, parse_duration, parse_size};
use crate::text::table::Table;
use std::path::PathBuf;
use std::time::Duration;
use testbeds::{GrowthOptions, GrowthRow, GrowthSeries, GrowthUnit, GrowthWork, Programs, growth};

const EXAMPLES: &str = "\
Examples (as root):
  okeanos-lab bench growth --svg growth.svg            all series, with a picture; about half an hour
  okeanos-lab bench growth --quick                     the small end of each; a minute or two
  okeanos-lab bench growth --series volume --volumes 1G,8T

Series:
  writers   synchronous appends of 128 bytes, each writer to its own file, beside ext4 with fast commit; the most
            memory that the daemon had
  volume    empty volumes on sparse images
  files     empty files, ten thousand to a directory, on a volume of 64 GiB. The kernel's ext4 makes them on the same
            image, since ten million through any mount in user space would take longer than all the rest
  journal   a log of which half is live, by synchronous overwrites of up to 64 MiB. At five eighths write-back frees it

Of volume and files: a mount, memory after it, the first lookup and the first create, and recovery. That is the mount
after 256 appends and a kill -9 of the daemon. Times of mounts begin with the start of the program.

Power says how fast a quantity grew between the ends of its series: 0 does not grow, 1 grows as the work does, above 1
faster than the work. \"Last step\" is the same for the last two points. The picture has a line for the work itself:
nothing should be above it. The largest points take 5 GB of disk for a while.";

/// Syncs, memory, mount and recovery against writers, size of the volume, number of files and size
/// of the journal
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct GrowthArguments {
    /// Series to measure
    #[arg(
        long,
        value_name = "NAME,NAME,…",
        value_delimiter = ',',
        value_enum,
        default_value = "writers,volume,files,journal"
    )]
    series: Vec<SeriesName>,
    /// Points of the first series
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,10,100,1000,10000",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    writers: Vec<u64>,
    /// Sizes of the volumes
    #[arg(long, value_name = "SIZE,SIZE,…", value_delimiter = ',',
          default_value = "1G,16G,128G,1T,8T", value_parser = parse_size)]
    volumes: Vec<u64>,
    /// Numbers of files
    #[arg(long, value_name = "N,N,…", value_delimiter = ',',
          default_value = "1000,10000,100000,1000000,10000000",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    files: Vec<u64>,
    /// Sizes of the journals
    #[arg(long, value_name = "SIZE,SIZE,…", value_delimiter = ',',
          default_value = "4M,32M,256M,1G,4G", value_parser = parse_size)]
    journals: Vec<u64>,
    /// Duration of each measurement of writers
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    seconds: Duration,
    /// Number of measurements of each point
    #[arg(long, alias = "turns", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A look, not a table: small points only, for half a second, once
    #[arg(long)]
    quick: bool,
    /// Draw the picture into this file, and for phones into FILE-phone.svg
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SeriesName {
    Writers,
    Volume,
    Files,
    Journal,
}

pub fn run(arguments: GrowthArguments) -> Result<(), CliError> {
    let options = options(&arguments)?;
    arguments.output.run(
        None,
        |progress| growth(&options, |text| progress(text)),
        |rows| {
            if let Some(path) = &arguments.svg {
                picture::write(rows, path)?;
            }
            Ok(Tables { markdown: markdown(rows), table: table(rows) })
        },
    )
}

fn options(arguments: &GrowthArguments) -> Result<GrowthOptions, CliError> {
    let GrowthArguments { writers, volumes, files, journals, quick, .. } = arguments;
    let points = |series, points: &[u64], small: u64| -> Vec<u64> {
        let mut points =
            if arguments.series.contains(&series) { points.to_vec() } else { Vec::new() };
        points.retain(|point| !quick || *point <= small);
        points.sort_unstable();
        points.dedup();
        points
    };
    let options = GrowthOptions {
        writers: points(SeriesName::Writers, writers, 100),
        volumes: points(SeriesName::Volume, volumes, 128 << 30),
        files: points(SeriesName::Files, files, 10_000),
        journals: points(SeriesName::Journal, journals, 32 << 20),
        time: if *quick {
            arguments.seconds.min(Duration::from_millis(500))
        } else {
            arguments.seconds
        },
        runs: if *quick { 1 } else { arguments.runs },
        directory: arguments.output.directory.clone(),
        programs: Programs::find().map_err(rig_error)?,
    };
    let bounds = [
        ("volume", &options.volumes, 256 << 20, 16 << 40),
        ("journal", &options.journals, 4 << 20, 16 << 30),
    ];
    for (name, points, least, most) in bounds {
        if let Some(point) = points.iter().find(|point| !(least..=most).contains(*point)) {
            let (point, least, most) = (size(*point), size(least), size(most));
            return Err(CliError::new(format!("a {name} of {point} cannot be measured"))
                .with_remedy(format!("Give sizes from {least} to {most}.")));
        }
    }
    Ok(options)
}

fn size(bytes: u64) -> String {
    format_size(bytes).replace(".0 ", " ")
}

/// Returns the name of a series' quantity.
fn name(work: GrowthWork) -> &'static str {
    match work {
        GrowthWork::Writers => "writers",
        GrowthWork::VolumeBytes => "volume",
        GrowthWork::Files => "files",
        GrowthWork::JournalBytes => "journal",
    }
}

fn point(work: GrowthWork, point: u64) -> String {
    match work {
        GrowthWork::Writers | GrowthWork::Files => point.to_string(),
        GrowthWork::VolumeBytes | GrowthWork::JournalBytes => size(point),
    }
}

fn value(unit: GrowthUnit, value: f64) -> String {
    match unit {
        GrowthUnit::PerSecond => format!("{value:.0}"),
        GrowthUnit::Seconds => format_duration(Duration::from_secs_f64(value)),
        GrowthUnit::Bytes => format_size(value as u64),
    }
}

fn head(series: &GrowthSeries) -> Vec<String> {
    let points = series.points.iter().map(|&at| point(series.work, at));
    let behind = ["grew", "power", "last step"].map(String::from);
    std::iter::once(name(series.work).into()).chain(points).chain(behind).collect()
}

fn cells(row: &GrowthRow) -> Vec<String> {
    let values = row.values.iter().map(|&of_point| value(row.unit, of_point));
    let power = |power: Option<f64>| power.map(|power| format!("{power:.2}")).unwrap_or_default();
    let behind = [format!("x {:.2}", row.factor), power(row.power), power(row.power_of_last_step)];
    std::iter::once(row.quantity.name().into()).chain(values).chain(behind).collect()
}

/// Formats a table for each series: a line for each quantity, a column for each point.
fn markdown(all: &[GrowthSeries]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let of = |series: &GrowthSeries| {
        let rule = format!("|---|{}\n", "---:|".repeat(series.points.len() + 3));
        let rows: String = series.rows.iter().map(|row| line(cells(row))).collect();
        line(head(series)) + &rule + &rows
    };
    all.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn table(all: &[GrowthSeries]) -> String {
    let of = |series: &GrowthSeries| {
        let mut table = Table::new(head(series));
        series.rows.iter().for_each(|row| table.row(cells(row)));
        table.to_string()
    };
    all.iter().map(of).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbeds::GrowthQuantity;

    #[test]
    fn every_point_and_its_growth_stands_in_the_table() {
        let row = GrowthRow {
            quantity: GrowthQuantity::Mount,
            unit: GrowthUnit::Seconds,
            values: vec![0.03, 0.06],
            factor: 2.0,
            power: Some(0.1),
            power_of_last_step: None,
        };
        let series = GrowthSeries {
            work: GrowthWork::VolumeBytes,
            points: vec![1 << 30, 8 << 40],
            rows: vec![row],
        };
        let text = markdown(&[series.clone(), series]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| volume | 1 GiB | 8 TiB | grew | power | last step |");
        assert_eq!(lines[2], "| mount | 30.00 ms | 60.00 ms | x 2.00 | 0.10 |  |");
        assert_eq!((lines[3], lines[4]), ("", lines[0]));
    }
}
