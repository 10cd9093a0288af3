//! Synchronous writers beside large sequential reads and writes: what each costs the others.
//!
//! Many writers append small records with O_SYNC, one program reads a large file from its disk, one
//! overwrites another without syncing it. Each runs alone, then all together, and then the writers
//! alone again while much of a foreign file is dirty. Contenders alternate on fresh volumes;
//! medians over the runs.

use crate::real_time::contender::Contender;
use crate::real_time::disk::{Disks, Environment};
use crate::real_time::rig::{self, RigError, Workspace};
use crate::real_time::volume::Volume;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workloads::{LatencySummary, Limit, StreamOptions, SyncKind, run_streams};

pub struct MixedOptions {
    pub contenders: Vec<Contender>,
    /// Number of appending writers.
    pub writers: u32,
    /// Bytes of a record.
    pub size: usize,
    /// Duration of each case.
    pub time: Duration,
    pub runs: u32,
    /// Bytes of the file that is read, and of the one that is overwritten.
    pub large: u64,
    /// Dirty bytes of another file when the last case begins.
    pub dirty: u64,
    /// Location of the images.
    pub environment: Environment,
}

/// The programs that run in a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MixedCase {
    Writers,
    Reading,
    Overwriting,
    Together,
    BesideDirtyData,
}

impl MixedCase {
    const ALL: [MixedCase; 5] = [
        MixedCase::Writers,
        MixedCase::Reading,
        MixedCase::Overwriting,
        MixedCase::Together,
        MixedCase::BesideDirtyData,
    ];
    pub fn name(self) -> &'static str {
        match self {
            MixedCase::Writers => "writers alone",
            MixedCase::Reading => "reading alone",
            MixedCase::Overwriting => "overwriting alone",
            MixedCase::Together => "all together",
            MixedCase::BesideDirtyData => "writers beside dirty data",
        }
    }
    fn has(self, who: MixedCase) -> bool {
        self == who || self == MixedCase::Together
    }
    fn has_writers(self) -> bool {
        self.has(MixedCase::Writers) || self == MixedCase::BesideDirtyData
    }
}

/// One contender in one case; `None` for programs that did not run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct MixedMeasure {
    pub syncs_per_second: Option<f64>,
    /// Latency of a synchronous append.
    pub latency: Option<LatencySummary>,
    /// Bytes per second.
    pub reading: Option<f64>,
    pub overwriting: Option<f64>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct MixedRow {
    pub contender: String,
    pub case: MixedCase,
    /// Medians over the runs.
    pub median: MixedMeasure,
    #[serde(rename = "turns")]
    pub runs: Vec<MixedMeasure>,
}

/// Names of the large files.
const READ: &str = "read";
const OVERWRITTEN: &str = "overwritten";
const DIRTY: &str = "dirty";
const MIB: usize = 1 << 20;
/// Bytes besides the large files: the journal, tables, and appended records.
const ROOM: u64 = 512 << 20;

/// Performs all runs. `progress` is called with a description of each.
pub fn mixed(options: &MixedOptions, progress: impl Fn(&str)) -> Result<Vec<MixedRow>, RigError> {
    rig::hide_mounts()?;
    let place = Workspace::new(&options.environment.directory)?;
    progress("making the disks");
    let size = ROOM + 2 * options.large + options.dirty;
    let disks =
        Disks::new(&place, options.environment.model.as_deref(), options.contenders.len(), size)?;
    let cells = options.contenders.len() * MixedCase::ALL.len();
    let mut measured: Vec<Vec<MixedMeasure>> = vec![Vec::new(); cells];
    for run in 0..options.runs as usize {
        for step in 0..options.contenders.len() {
            // The first contender changes from run to run.
            let index = (run + step) % options.contenders.len();
            let contender = &options.contenders[index];
            let disk = disks.fresh(index, &options.environment.programs)?;
            let mut volume = Volume::new(
                contender,
                &options.environment.programs.okeanos,
                disk,
                place.mount_point(),
            )?;
            for name in [READ, OVERWRITTEN] {
                fill(&volume.path(name), options.large).map_err(RigError::at(name))?;
            }
            for (at, case) in MixedCase::ALL.into_iter().enumerate() {
                progress(&format!(
                    "run {} of {}: {contender}, {}",
                    run + 1,
                    options.runs,
                    case.name()
                ));
                volume.forget_content()?;
                let measure = play(options, case, at, &volume)?;
                measured[index * MixedCase::ALL.len() + at].push(measure);
            }
            volume.take_down()?;
        }
    }
    let cases = options
        .contenders
        .iter()
        .flat_map(|one| MixedCase::ALL.map(|case| (one.to_string(), case)));
    let row = |((contender, case), runs): (_, Vec<MixedMeasure>)| {
        let median = median(&runs);
        MixedRow { contender, case, median, runs }
    };
    Ok(cases.zip(measured).map(row).collect())
}

fn play(
    options: &MixedOptions,
    case: MixedCase,
    number: usize,
    volume: &Volume<'_>,
) -> Result<MixedMeasure, RigError> {
    let mount_point = volume.path("");
    if case == MixedCase::BesideDirtyData {
        write_over(&volume.path(DIRTY), options.dirty, |written| written >= options.dirty)
            .map_err(RigError::at(DIRTY))?;
    }
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let is_over =
        || stop.load(Ordering::Relaxed) || (!case.has_writers() && begun.elapsed() >= options.time);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let rate = |bytes: u64, took: Duration| bytes as f64 / took.as_secs_f64().max(1e-9);
        let reading = case.has(MixedCase::Reading).then(|| {
            let path = volume.path(READ);
            scope.spawn(move || read_again_and_again(&path, is_over))
        });
        let overwriting = case.has(MixedCase::Overwriting).then(|| {
            let path = volume.path(OVERWRITTEN);
            scope.spawn(move || write_over(&path, options.large, |_| is_over()))
        });
        let streams = case.has_writers().then(|| {
            let streams = StreamOptions {
                writers: options.writers,
                size: options.size,
                limit: Limit::Time(options.time),
                rate: None,
                sync: SyncKind::OSync,
                prefix: format!("{number}-"),
            };
            run_streams(&mount_point, &streams, |_| ())
        });
        if streams.is_some() {
            stop.store(true, Ordering::Relaxed);
        }
        let joined = |thread: std::thread::ScopedJoinHandle<'_, io::Result<(u64, Duration)>>| {
            let (bytes, took) =
                thread.join().expect("it does not panic").map_err(RigError::at(case.name()))?;
            Ok(rate(bytes, took))
        };
        let (reading, overwriting) =
            (reading.map(joined).transpose()?, overwriting.map(joined).transpose()?);
        let report =
            streams.transpose().map_err(RigError::at(case.name()))?.map(|(report, _)| report);
        if let Some(failure) = report.as_ref().and_then(|report| report.failure.as_ref()) {
            return Err(RigError::new(format!("{}: a write failed: {failure}", case.name())));
        }
        let latency = report.as_ref().map(|report| report.latency);
        let syncs_per_second = report.map(|report| report.operations_per_second);
        Ok(MixedMeasure { syncs_per_second, latency, reading, overwriting })
    })
}

fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    write_over(path, bytes, |written| written >= bytes)?;
    File::open(path)?.sync_all()
}

/// Writes a MiB at a time, from the beginning again after `bytes`, until `is_over`. Returns the
/// bytes written and the time taken.
fn write_over(
    path: &Path,
    bytes: u64,
    is_over: impl Fn(u64) -> bool,
) -> io::Result<(u64, Duration)> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let (content, begun, mut written) = (vec![0xa5; MIB], Instant::now(), 0);
    while !is_over(written) {
        file.write_all_at(&content, written % bytes.max(MIB as u64))?;
        written += MIB as u64;
    }
    Ok((written, begun.elapsed()))
}

/// Reads the file from the disk repeatedly: the kernel's cached pages are dropped at its end.
fn read_again_and_again(path: &Path, is_over: &impl Fn() -> bool) -> io::Result<(u64, Duration)> {
    let file = File::open(path)?;
    let (mut bytes, begun, mut read, mut at) = (vec![0; MIB], Instant::now(), 0, 0);
    while !is_over() {
        match file.read_at(&mut bytes, at)? {
            0 => {
                // SAFETY: the descriptor is open, and no memory is involved.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
                at = 0;
            }
            count => (read, at) = (read + count as u64, at + count as u64),
        }
    }
    Ok((read, begun.elapsed()))
}

fn median(runs: &[MixedMeasure]) -> MixedMeasure {
    let of = |value: &dyn Fn(&MixedMeasure) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| rig::median(values))
    };
    let time = |value: fn(&LatencySummary) -> u64| {
        of(&|run| run.latency.as_ref().map(|latency| value(latency) as f64))
            .map(|value| value as u64)
    };
    let latency = time(|latency| latency.mean_ns).map(|mean_ns| LatencySummary {
        mean_ns,
        p50_ns: time(|latency| latency.p50_ns).unwrap_or_default(),
        p90_ns: time(|latency| latency.p90_ns).unwrap_or_default(),
        p99_ns: time(|latency| latency.p99_ns).unwrap_or_default(),
        max_ns: time(|latency| latency.max_ns).unwrap_or_default(),
    });
    MixedMeasure {
        syncs_per_second: of(&|run| run.syncs_per_second),
        latency,
        reading: of(&|run| run.reading),
        overwriting: of(&|run| run.overwriting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_those_of_who_was_at_work() {
        let run = |syncs, p99_ns| MixedMeasure {
            syncs_per_second: Some(syncs),
            latency: Some(LatencySummary { p99_ns, ..LatencySummary::default() }),
            ..MixedMeasure::default()
        };
        let median = median(&[run(5.0, 70), run(1.0, 90), run(3.0, 10)]);
        assert_eq!((median.syncs_per_second, median.latency.unwrap().p99_ns), (Some(3.0), 70));
        assert_eq!((median.reading, median.overwriting), (None, None));
    }

    #[test]
    fn a_file_is_written_and_read_until_it_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (written, _) = write_over(&path, 2 << 20, |written| written >= 5 << 20).unwrap();
        assert_eq!((written, path.metadata().unwrap().len()), (5 << 20, 2 << 20));
        let looks = std::cell::Cell::new(0);
        let is_over = || looks.replace(looks.get() + 1) == 7;
        assert_eq!(read_again_and_again(&path, &is_over).unwrap().0, 5 << 20);
    }
}
