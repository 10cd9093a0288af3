//! File systems side by side: the same writers on the same kind of loop device. Contenders
//! alternate, so that other load on the machine affects all alike. The ratio is taken within each
//! run.

use crate::real_time::contender::Contender;
use crate::real_time::disk::{Disks, Environment};
use crate::real_time::rig::{self, RigError, Workspace};
use crate::real_time::volume::Volume;
use std::time::Duration;
use workloads::{Limit, StreamOptions, StreamReport, SyncKind};

pub struct CompareOptions {
    /// Contenders; the first is the reference for the others.
    pub contenders: Vec<Contender>,
    pub writers: Vec<u32>,
    /// Bytes of a record.
    pub size: usize,
    pub time: Duration,
    pub runs: u32,
    /// Bytes of each image.
    pub image_size: u64,
    pub environment: Environment,
}

/// One contender at one number of writers, over all runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Comparison {
    pub contender: String,
    pub writers: u32,
    /// Median over the runs.
    pub operations_per_second: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    /// Median of the ratios within each run to the first contender.
    pub ratio: f64,
    /// Writes that the kernel counted at the device while the writers wrote, home writes and
    /// journal alike; median.
    pub writes_per_operation: f64,
    pub bytes_per_operation: f64,
    #[serde(rename = "turns")]
    pub runs: Vec<ComparedRun>,
}

/// One contender at one number of writers in one run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ComparedRun {
    #[serde(flatten)]
    pub report: StreamReport,
    pub writes: u64,
    pub bytes_written: u64,
}

impl ComparedRun {
    fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.report.operations.max(1) as f64
    }
}

/// Performs all runs. `progress` is called with a description of each.
pub fn compare(
    options: &CompareOptions,
    progress: impl Fn(&str),
) -> Result<Vec<Comparison>, RigError> {
    rig::hide_mounts()?;
    let place = Workspace::new(&options.environment.directory)?;
    progress("making the disks");
    let disks = Disks::new(
        &place,
        options.environment.model.as_deref(),
        options.contenders.len(),
        options.image_size,
    )?;
    let mut reports: Vec<Vec<Vec<ComparedRun>>> =
        vec![vec![Vec::new(); options.writers.len()]; options.contenders.len()];
    for run in 0..options.runs as usize {
        for step in 0..options.contenders.len() {
            // The first contender changes from run to run.
            let index = (run + step) % options.contenders.len();
            let contender = &options.contenders[index];
            progress(&format!("run {} of {}: {contender}", run + 1, options.runs));
            let disk = disks.fresh(index, &options.environment.programs)?;
            let volume = Volume::new(
                contender,
                &options.environment.programs.okeanos,
                disk,
                place.mount_point(),
            )?;
            let of_run = play_run(options, contender, &volume)?;
            volume.take_down()?;
            reports[index].iter_mut().zip(of_run).for_each(|(all, report)| all.push(report));
        }
    }
    let baseline: Vec<Vec<f64>> = reports[0].iter().map(|runs| speeds(runs)).collect();
    let mut rows = Vec::new();
    for (at, &writers) in options.writers.iter().enumerate() {
        for (contender, reports) in options.contenders.iter().zip(&reports) {
            rows.push(summary(contender, writers, &reports[at], &baseline[at]));
        }
    }
    Ok(rows)
}

fn play_run(
    options: &CompareOptions,
    contender: &Contender,
    volume: &Volume<'_>,
) -> Result<Vec<ComparedRun>, RigError> {
    let mount_point = volume.path("");
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
        let before = volume.traffic()?;
        let report = rig::play_streams(&mount_point, &streams, contender)?;
        let during = volume.traffic()?.minus(before);
        reports.push(ComparedRun {
            report,
            writes: during.writes,
            bytes_written: during.bytes_written,
        });
    }
    Ok(reports)
}

fn speeds(runs: &[ComparedRun]) -> Vec<f64> {
    runs.iter().map(|run| run.report.operations_per_second).collect()
}

fn summary(
    contender: &Contender,
    writers: u32,
    runs: &[ComparedRun],
    baseline: &[f64],
) -> Comparison {
    let of = |value: fn(&ComparedRun) -> f64| rig::median(runs.iter().map(value).collect());
    let ratios =
        speeds(runs).iter().zip(baseline).map(|(ours, theirs)| ours / theirs.max(1e-9)).collect();
    Comparison {
        contender: contender.to_string(),
        writers,
        operations_per_second: of(|run| run.report.operations_per_second),
        p50_ns: of(|run| run.report.latency.p50_ns as f64),
        p99_ns: of(|run| run.report.latency.p99_ns as f64),
        ratio: rig::median(ratios),
        writes_per_operation: of(|run| run.per_operation(run.writes)),
        bytes_per_operation: of(|run| run.per_operation(run.bytes_written)),
        runs: runs.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(speed: f64, bytes_written: u64) -> ComparedRun {
        let report = StreamReport {
            writers: 1,
            size: 128,
            sync: SyncKind::OSync,
            operations: 10,
            seconds: 1.0,
            operations_per_second: speed,
            latency: workloads::LatencySummary::default(),
            failure: None,
        };
        ComparedRun { report, writes: 5, bytes_written }
    }

    #[test]
    fn ratios_are_taken_within_a_turn() {
        let runs = [run(20.0, 0), run(300.0, 0), run(90.0, 0)];
        let row = summary(&Contender::Xfs, 1, &runs, &[10.0, 100.0, 90.0]);
        assert_eq!((row.ratio, row.operations_per_second), (2.0, 90.0));
    }

    #[test]
    fn what_the_device_wrote_is_reported_for_each_sync() {
        let row =
            summary(&Contender::Xfs, 1, &[run(1.0, 5120), run(1.0, 40960), run(1.0, 0)], &[1.0; 3]);
        assert_eq!((row.writes_per_operation, row.bytes_per_operation), (0.5, 512.0));
    }
}
