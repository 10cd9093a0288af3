//! Many writers, each with a file of its own, appending small records.

use crate::files::{Actor, DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use crate::record;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::Instant;

/// Condition at which the writers stop, if no write fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Time(Duration),
    /// Appends of each writer.
    Count(u64),
}

impl Limit {
    pub(crate) fn is_reached(self, elapsed: Duration, done: u64) -> bool {
        match self {
            Limit::Time(time) => elapsed >= time,
            Limit::Count(count) => done >= count,
        }
    }
}

#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub writers: u32,
    /// Bytes of a record, at least 20.
    pub size: usize,
    pub limit: Limit,
    /// Appends per second of each writer; `None`: as fast as they can.
    pub rate: Option<f64>,
    pub sync: SyncKind,
    /// Begins the name of each file; the writer's number follows.
    pub prefix: String,
}

/// Results of the writers.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StreamReport {
    pub writers: u32,
    pub size: usize,
    pub sync: SyncKind,
    pub operations: u64,
    pub seconds: f64,
    pub operations_per_second: f64,
    /// Latency from when an append was scheduled (paced) or begun (flat out) until it returned.
    pub latency: LatencySummary,
    /// The first failure, which ended the run.
    pub failure: Option<String>,
}

/// Number of appends of each writer that returned without error: they must survive a crash.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Acknowledged {
    pub prefix: String,
    pub size: usize,
    pub appends: Vec<u64>,
}

/// State that the writers share.
struct StreamsRun {
    options: StreamOptions,
    stop: AtomicBool,
    /// The first.
    failure: Mutex<Option<io::Error>>,
    /// Acknowledged appends of each writer.
    counts: Vec<AtomicU64>,
}

impl StreamsRun {
    fn fail(&self, error: io::Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.failure.lock().expect("no writer panics").get_or_insert(error);
    }
}

/// Runs the writers on a directory. An error only if the files cannot be made; what fails later is
/// in the report. `progress` gets the number of appends so far, several times a second.
pub fn run_streams(
    directory: &Path,
    options: &StreamOptions,
    progress: impl FnMut(u64),
) -> io::Result<(StreamReport, Acknowledged)> {
    at_once(streams(&DirectoryFiles::new(directory.to_owned()), options, progress))
}

/// Runs like [`run_streams`], on any kind of files.
pub async fn streams<F: Files>(
    files: &F,
    options: &StreamOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<(StreamReport, Acknowledged)> {
    let run = Arc::new(StreamsRun {
        options: options.clone(),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        counts: (0..options.writers).map(|_| AtomicU64::new(0)).collect(),
    });
    let appends = || run.counts.iter().map(|count| count.load(Ordering::Relaxed));
    let writers = (0..options.writers).map(|number| Writer { number, run: run.clone() }).collect();
    let written = files.run_actors(writers, || progress(appends().sum())).await?;

    let mut latencies = Latencies::default();
    let mut longest = Duration::ZERO;
    for (mine, took) in &written {
        latencies.merge(mine);
        longest = longest.max(*took);
    }
    let seconds = longest.as_secs_f64();
    let report = StreamReport {
        writers: options.writers,
        size: options.size,
        sync: options.sync,
        operations: latencies.count(),
        seconds,
        operations_per_second: latencies.count() as f64 / seconds.max(1e-9),
        latency: latencies.summary(),
        failure: run
            .failure
            .lock()
            .expect("no writer panics")
            .take()
            .map(|error| error.to_string()),
    };
    let appends = appends().collect();
    Ok((report, Acknowledged { prefix: options.prefix.clone(), size: options.size, appends }))
}

struct Writer {
    number: u32,
    run: Arc<StreamsRun>,
}

impl<F: Files> Actor<F> for Writer {
    type Ready = F::File;
    /// Latencies of its appends, and the time from the beginning until the last one ended.
    type Output = (Latencies, Duration);

    async fn prepare(&self, files: &F) -> io::Result<F::File> {
        let options = &self.run.options;
        files.create(&file_name(&options.prefix, self.number), options.sync).await
    }

    async fn act(self, files: &F, mut file: F::File, begin: Instant) -> (Latencies, Duration) {
        let StreamsRun { options, stop, counts, .. } = &*self.run;
        let mut latencies = Latencies::default();
        let mut bytes = vec![0; options.size];
        let mut ended = begin;
        let mut sequence = 0;
        loop {
            let due = due(options, begin, self.number, sequence).unwrap_or_else(|| files.now());
            if stop.load(Ordering::Relaxed) || options.limit.is_reached(due.since(begin), sequence)
            {
                break;
            }
            record::write(&mut bytes, self.number, sequence);
            if options.rate.is_some() {
                files.sleep_until(due).await;
            }
            if let Err(error) = files.append(&mut file, &bytes).await {
                self.run.fail(error);
                break;
            }
            ended = files.now();
            latencies.add(ended.since(due));
            sequence += 1;
            counts[self.number as usize].store(sequence, Ordering::Relaxed);
        }
        files.close(file).await;
        (latencies, ended.since(begin))
    }
}

pub(crate) fn file_name(prefix: &str, writer: u32) -> String {
    format!("{prefix}{writer:05}")
}

/// Returns when a paced writer's append is scheduled. The first ones are spread over one interval.
fn due(options: &StreamOptions, begin: Instant, writer: u32, sequence: u64) -> Option<Instant> {
    let interval = 1.0 / options.rate?;
    let phase = f64::from(writer) / f64::from(options.writers);
    Some(begin.plus(Duration::from_secs_f64(interval * (sequence as f64 + phase))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(limit: Limit) -> StreamOptions {
        let prefix = "stream-".to_string();
        StreamOptions { writers: 3, size: 100, limit, rate: None, sync: SyncKind::None, prefix }
    }

    #[test]
    fn each_writer_appends_as_often_as_requested() {
        let directory = tempfile::tempdir().unwrap();
        let (report, acknowledged) =
            run_streams(directory.path(), &options(Limit::Count(5)), |_| ()).unwrap();
        assert_eq!(report.operations, 15);
        assert_eq!(report.failure, None);
        assert_eq!(acknowledged.appends, [5, 5, 5]);
        let length = std::fs::metadata(directory.path().join("stream-00002")).unwrap().len();
        assert_eq!(length, 500);
    }

    #[test]
    fn existing_files_are_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("stream-00001"), "mine").unwrap();
        assert!(run_streams(directory.path(), &options(Limit::Count(5)), |_| ()).is_err());
    }

    #[test]
    fn paced_writers_alternate() {
        let paced = StreamOptions { rate: Some(2.0), ..options(Limit::Count(1)) };
        let at = |writer, sequence| due(&paced, Instant(0), writer, sequence).unwrap().0;
        assert_eq!(at(0, 0), 0);
        assert_eq!(at(0, 4), 2_000_000_000);
        assert!(at(0, 0) < at(1, 0) && at(1, 0) < at(2, 0) && at(2, 0) < at(0, 1));
    }
}
