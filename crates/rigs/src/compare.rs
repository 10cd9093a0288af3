//! File systems side by side: the same writers on the same kind of loop device, in turns, so that what else the
//! machine does meanwhile strikes all alike. The ratio is taken within each turn.

use crate::rig::{self, LoopDevice, Mounted, Place, RigError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use workloads::{Limit, StreamOptions, StreamReport, SyncKind, run_streams};

/// A file system and how it is mounted: `ext4:ordered`, `ext4:fast_commit`, `xfs`, `btrfs`, `okeanos:wasteless`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contender {
    /// The kernel's ext4 with `data=`.
    Ext4(String),
    Ext4FastCommit,
    Xfs,
    Btrfs,
    /// Ours with `data=`.
    Okeanos(String),
}

impl FromStr for Contender {
    type Err = String;
    fn from_str(text: &str) -> Result<Contender, String> {
        match text.split_once(':') {
            Some(("ext4", "fast_commit")) => Ok(Contender::Ext4FastCommit),
            Some(("ext4", data)) => Ok(Contender::Ext4(data.into())),
            Some(("okeanos", data)) => Ok(Contender::Okeanos(data.into())),
            None if text == "xfs" => Ok(Contender::Xfs),
            None if text == "btrfs" => Ok(Contender::Btrfs),
            _ => Err(format!(
                "{text:?} is no file system to compare: ext4:ordered, ext4:journal, ext4:writeback, \
                 ext4:fast_commit, xfs, btrfs, okeanos:MODE"
            )),
        }
    }
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contender::Ext4(data) => write!(f, "ext4:{data}"),
            Contender::Ext4FastCommit => f.write_str("ext4:fast_commit"),
            Contender::Xfs => f.write_str("xfs"),
            Contender::Btrfs => f.write_str("btrfs"),
            Contender::Okeanos(data) => write!(f, "okeanos:{data}"),
        }
    }
}

pub struct CompareOptions {
    /// The first is what the others are measured against.
    pub contenders: Vec<Contender>,
    pub writers: Vec<u32>,
    /// Bytes of a record.
    pub size: usize,
    pub time: Duration,
    pub turns: u32,
    /// Where the images are made.
    pub directory: PathBuf,
    pub image_size: u64,
    /// The `okeanos` program.
    pub program: PathBuf,
}

/// One contender at one number of writers, over all turns.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Comparison {
    pub contender: String,
    pub writers: u32,
    /// Medians over the turns.
    pub operations_per_second: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    /// Median of the ratios within each turn to the first contender.
    pub ratio: f64,
    pub turns: Vec<StreamReport>,
}

/// Runs all turns. `progress` is told what is being run.
pub fn compare(options: &CompareOptions, progress: impl Fn(&str)) -> Result<Vec<Comparison>, RigError> {
    rig::hide_mounts()?;
    let place = Place::new(&options.directory)?;
    progress("filling the images");
    for (index, _) in options.contenders.iter().enumerate() {
        rig::fill_image(&place.image(&index.to_string()), options.image_size)?;
    }
    let mut reports: Vec<Vec<Vec<StreamReport>>> =
        vec![vec![Vec::new(); options.writers.len()]; options.contenders.len()];
    for turn in 0..options.turns as usize {
        for step in 0..options.contenders.len() {
            // Who is first changes from turn to turn.
            let index = (turn + step) % options.contenders.len();
            let contender = &options.contenders[index];
            progress(&format!("turn {} of {}: {contender}", turn + 1, options.turns));
            let of_turn =
                run_turn(options, contender, &place.image(&index.to_string()), &place.mount_point())?;
            reports[index].iter_mut().zip(of_turn).for_each(|(all, report)| all.push(report));
        }
    }
    let baseline: Vec<Vec<f64>> = reports[0].iter().map(|turns| speeds(turns)).collect();
    let mut rows = Vec::new();
    for (at, &writers) in options.writers.iter().enumerate() {
        for (contender, reports) in options.contenders.iter().zip(&reports) {
            rows.push(summary(contender, writers, &reports[at], &baseline[at]));
        }
    }
    Ok(rows)
}

fn run_turn(
    options: &CompareOptions,
    contender: &Contender,
    image: &Path,
    mount_point: &Path,
) -> Result<Vec<StreamReport>, RigError> {
    rig::wipe_image(image)?;
    let device = LoopDevice::attach(image)?;
    make(contender, &device.path)?;
    let mounted = mount(options, contender, &device.path, mount_point)?;
    let mut reports = Vec::new();
    for &writers in &options.writers {
        let streams = StreamOptions {
            writers,
            size: options.size,
            limit: Limit::Time(options.time),
            rate: None,
            sync: SyncKind::OSync,
            prefix: format!("{writers}-"),
        };
        let (report, _) =
            run_streams(mount_point, &streams, |_| ()).map_err(RigError::at(mount_point.display()))?;
        if let Some(failure) = report.failure {
            return Err(RigError::new(format!("{contender}: a write failed: {failure}")));
        }
        reports.push(report);
    }
    mounted.unmount()?;
    Ok(reports)
}

/// Nothing may be left to be zeroed later, and the image's zeros must stay allocated.
fn make(contender: &Contender, device: &Path) -> Result<(), RigError> {
    let mut command = match contender {
        Contender::Xfs => Command::new("mkfs.xfs"),
        Contender::Btrfs => Command::new("mkfs.btrfs"),
        _ => Command::new("mke2fs"),
    };
    match contender {
        Contender::Xfs | Contender::Btrfs => command.args(["-q", "-f", "-K"]),
        _ => command
            .env("UNIX_IO_NOZEROOUT", "1")
            .args(["-q", "-F", "-t", "ext4", "-J", "size=128"])
            .args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]),
    };
    if *contender == Contender::Ext4FastCommit {
        command.args(["-O", "fast_commit"]);
    }
    rig::run(command.arg(device)).map(drop)
}

fn mount(
    options: &CompareOptions,
    contender: &Contender,
    device: &Path,
    mount_point: &Path,
) -> Result<Mounted, RigError> {
    match contender {
        Contender::Ext4(data) => Mounted::kernel("ext4", &format!("data={data}"), device, mount_point),
        Contender::Ext4FastCommit => Mounted::kernel("ext4", "data=ordered", device, mount_point),
        Contender::Xfs => Mounted::kernel("xfs", "defaults", device, mount_point),
        Contender::Btrfs => Mounted::kernel("btrfs", "ssd", device, mount_point),
        Contender::Okeanos(data) => {
            Mounted::okeanos(&options.program, &format!("data={data}"), device, mount_point)
        }
    }
}

fn speeds(turns: &[StreamReport]) -> Vec<f64> {
    turns.iter().map(|report| report.operations_per_second).collect()
}

fn summary(contender: &Contender, writers: u32, turns: &[StreamReport], baseline: &[f64]) -> Comparison {
    let of = |value: fn(&StreamReport) -> f64| rig::median(turns.iter().map(value).collect());
    let ratios = speeds(turns).iter().zip(baseline).map(|(ours, theirs)| ours / theirs.max(1e-9)).collect();
    Comparison {
        contender: contender.to_string(),
        writers,
        operations_per_second: of(|report| report.operations_per_second),
        p50_ns: of(|report| report.latency.p50_ns as f64),
        p99_ns: of(|report| report.latency.p99_ns as f64),
        ratio: rig::median(ratios),
        turns: turns.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_contenders_are_read_and_written_alike() {
        for name in ["ext4:ordered", "ext4:fast_commit", "xfs", "btrfs", "okeanos:wasteless"] {
            assert_eq!(name.parse::<Contender>().unwrap().to_string(), name);
        }
        assert!("zfs".parse::<Contender>().is_err());
    }

    #[test]
    fn ratios_are_taken_within_a_turn() {
        let report = |speed| StreamReport {
            writers: 1,
            size: 128,
            sync: SyncKind::OSync,
            operations: 1,
            seconds: 1.0,
            operations_per_second: speed,
            latency: workloads::Latency::default(),
            failure: None,
        };
        let turns = [report(20.0), report(300.0), report(90.0)];
        let row = summary(&Contender::Xfs, 1, &turns, &[10.0, 100.0, 90.0]);
        assert_eq!((row.ratio, row.operations_per_second), (2.0, 90.0));
    }
}
