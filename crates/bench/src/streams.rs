//! Many writers, each with a file of its own, appending small records.

use crate::files::{DirectoryFiles, Files, SyncKind};
use crate::latency::{Latencies, Latency};
use crate::record;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use units::Instant;

/// When the writers stop, if no write fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Time(Duration),
    /// Appends of each writer.
    Count(u64),
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

/// What the writers did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StreamReport {
    pub writers: u32,
    pub size: usize,
    pub sync: SyncKind,
    pub operations: u64,
    pub seconds: f64,
    pub operations_per_second: f64,
    /// From the moment an append was due (paced) or begun (flat out) until it returned.
    pub latency: Latency,
    /// The first failure, which ended the run.
    pub failure: Option<String>,
}

/// How many appends of each writer returned without error: what must be there after a crash.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Acknowledged {
    pub prefix: String,
    pub size: usize,
    pub appends: Vec<u64>,
}

/// What the writers share.
struct Run {
    begin: Instant,
    stop: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl Run {
    fn fail(&self, error: io::Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.failure.lock().expect("no writer panics").get_or_insert(error);
    }
}

/// A writer's stack: it calls little. The default of 2 MiB would be 2 GiB of address space at 1000 writers.
const STACK: usize = 128 << 10;

/// Runs the writers as threads on a directory. An error only if the files cannot be made; what fails later is in
/// the report. `progress` gets the number of appends so far, several times a second.
pub fn run_streams(
    directory: &Path,
    options: &StreamOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<(StreamReport, Acknowledged)> {
    allow_open_files(u64::from(options.writers) + 64);
    let files = DirectoryFiles::new(directory.to_owned());
    let mut open = Vec::new();
    for writer in 0..options.writers {
        open.push(at_once(files.create(&file_name(&options.prefix, writer), options.sync))?);
    }
    let counts: Vec<AtomicU64> = (0..options.writers).map(|_| AtomicU64::new(0)).collect();
    let gate = OnceLock::new();
    let mut latencies = Latencies::new();
    let end = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        let start = || {
            for ((writer, file), count) in (0..).zip(open).zip(&counts) {
                let (files, gate) = (&files, &gate);
                let body = move || at_once(write_stream(files, options, gate.wait(), writer, file, count));
                writers.push(std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body)?);
            }
            io::Result::Ok(())
        };
        let failure = start().err();
        // Writers that began must be let go even if others could not begin.
        let run = gate.get_or_init(|| Run {
            begin: files.now(),
            stop: AtomicBool::new(failure.is_some()),
            failure: Mutex::new(failure),
        });
        while !writers.iter().all(|writer| writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            progress(counts.iter().map(|count| count.load(Ordering::Relaxed)).sum());
        }
        let mut end = run.begin;
        for writer in writers {
            let (mine, ended) = writer.join().expect("no writer panics");
            latencies.merge(&mine);
            end = end.max(ended);
        }
        end
    });
    let Run { begin, failure, .. } = gate.into_inner().expect("set above");
    let failure = failure.into_inner().expect("no writer panics");
    let seconds = end.since(begin).as_secs_f64();
    let report = StreamReport {
        writers: options.writers,
        size: options.size,
        sync: options.sync,
        operations: latencies.count(),
        seconds,
        operations_per_second: latencies.count() as f64 / seconds.max(1e-9),
        latency: latencies.summary(),
        failure: failure.map(|error| error.to_string()),
    };
    let appends = counts.into_iter().map(AtomicU64::into_inner).collect();
    Ok((report, Acknowledged { prefix: options.prefix.clone(), size: options.size, appends }))
}

pub(crate) fn file_name(prefix: &str, writer: u32) -> String {
    format!("{prefix}{writer:05}")
}

/// One writer, wherever its files are. Returns its latencies, and when its last append ended.
async fn write_stream<F: Files>(
    files: &F,
    options: &StreamOptions,
    run: &Run,
    writer: u32,
    mut file: F::File,
    acknowledged: &AtomicU64,
) -> (Latencies, Instant) {
    let mut latencies = Latencies::new();
    let mut bytes = vec![0; options.size];
    let mut ended = run.begin;
    let mut sequence = 0;
    loop {
        let due = due(options, run.begin, writer, sequence).unwrap_or_else(|| files.now());
        if run.stop.load(Ordering::Relaxed) || is_over(options.limit, run.begin, due, sequence) {
            break;
        }
        record::write(&mut bytes, writer, sequence);
        if options.rate.is_some() {
            files.sleep_until(due).await;
        }
        if let Err(error) = files.append(&mut file, &bytes).await {
            run.fail(error);
            break;
        }
        ended = files.now();
        latencies.add(ended.since(due));
        sequence += 1;
        acknowledged.store(sequence, Ordering::Relaxed);
    }
    (latencies, ended)
}

fn is_over(limit: Limit, begin: Instant, now: Instant, done: u64) -> bool {
    match limit {
        Limit::Time(time) => now.since(begin) >= time,
        Limit::Count(count) => done >= count,
    }
}

/// When a paced writer's append is due. The writers' first ones are spread over one interval.
fn due(options: &StreamOptions, begin: Instant, writer: u32, sequence: u64) -> Option<Instant> {
    let interval = 1.0 / options.rate?;
    let phase = f64::from(writer) / f64::from(options.writers);
    Some(begin.plus(Duration::from_secs_f64(interval * (sequence as f64 + phase))))
}

/// The result of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("files of a directory block their thread instead"),
    }
}

/// Raises the soft limit of open files as far as needed and allowed; creating a file tells if it was too little.
fn allow_open_files(count: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a live rlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < count {
            limit.rlim_cur = count.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(limit: Limit) -> StreamOptions {
        let prefix = "stream-".to_string();
        StreamOptions { writers: 3, size: 100, limit, rate: None, sync: SyncKind::None, prefix }
    }

    #[test]
    fn each_writer_appends_as_often_as_told() {
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
    fn paced_writers_take_turns() {
        let paced = StreamOptions { rate: Some(2.0), ..options(Limit::Count(1)) };
        let at = |writer, sequence| due(&paced, Instant(0), writer, sequence).unwrap().0;
        assert_eq!(at(0, 0), 0);
        assert_eq!(at(0, 4), 2_000_000_000);
        assert!(at(0, 0) < at(1, 0) && at(1, 0) < at(2, 0) && at(2, 0) < at(0, 1));
    }
}
