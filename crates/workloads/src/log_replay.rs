//! Replays a log trace in many instances: the log writers of as many programs on one volume.
//!
//! Each instance has its own file and follows the times of the trace. One that is late continues at
//! once. A record with a sync is a write and an fsync.
//!
//! Databases write their log circularly. The replayed file begins where the trace began to write.
//! What wraps to the trace's lowest place follows what was at its highest; so the file is no longer
//! than what is played.

use crate::files::{Actor, DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use crate::log_trace::{LogRecord, LogTrace};
use crate::random::ActorRandom;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use units::Instant;

#[derive(Clone, Debug, serde::Serialize)]
pub struct ReplayOptions {
    pub instances: u32,
    /// Replays only records before this time of the trace.
    pub until: Option<Duration>,
    /// The file is there in full before the replay, as a database makes its log; otherwise it
    /// grows.
    pub preallocated: bool,
    /// Instances begin spread at random over this time, so that they do not write at the same
    /// instant.
    pub spread: Duration,
    /// Begins the name of each file; the instance's number follows.
    pub prefix: String,
    pub seed: u64,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            instances: 1,
            until: None,
            preallocated: false,
            spread: Duration::from_secs(1),
            prefix: "log-".to_string(),
            seed: 1,
        }
    }
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct ReplayReport {
    pub trace: String,
    pub options: ReplayOptions,
    pub seconds: f64,
    /// Records with a sync, of all instances.
    pub syncs: u64,
    /// Records without.
    pub others: u64,
    pub bytes_written: u64,
    /// Mean milliseconds from when the program issued it, or would have issued it without waiting
    /// for an earlier record, until it was durable.
    pub sync_mean_ms: f64,
    pub sync_latency: LatencySummary,
    /// Mean milliseconds from the time in the trace until it was durable: grows without bound where
    /// the disk is too slow for the load.
    pub behind_mean_ms: f64,
    pub behind: LatencySummary,
}

/// Plays the trace in a directory; the files stay. `progress` gets the records so far, several
/// times a second.
pub fn run_replay(
    directory: &Path,
    trace: &LogTrace,
    options: &ReplayOptions,
    progress: impl FnMut(u64),
) -> io::Result<ReplayReport> {
    at_once(replay_log(&DirectoryFiles::new(directory.to_owned()), trace, options, progress))
}

/// Replays like [`run_replay`], on any kind of files.
pub async fn replay_log<F: Files>(
    files: &F,
    trace: &LogTrace,
    options: &ReplayOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<ReplayReport> {
    let records: Vec<LogRecord> = trace
        .records
        .iter()
        .filter(|it| options.until.is_none_or(|until| it.at < until))
        .copied()
        .collect();
    let replay = Arc::new(Replay {
        records: from_the_start(trace, records),
        options: options.clone(),
        done: AtomicU64::new(0),
    });
    let instances =
        (0..options.instances).map(|number| Instance { number, replay: replay.clone() }).collect();
    let results =
        files.run_actors(instances, || progress(replay.done.load(Ordering::Relaxed))).await?;
    let mut all = ReplayWork::default();
    for result in results {
        let mine = result?;
        all.syncs.merge(&mine.syncs);
        all.behind.merge(&mine.behind);
        all.others += mine.others;
        all.bytes += mine.bytes;
        all.took = all.took.max(mine.took);
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(ReplayReport {
        trace: trace.name.clone(),
        options: options.clone(),
        seconds: all.took.as_secs_f64(),
        syncs: all.syncs.count(),
        others: all.others,
        bytes_written: all.bytes,
        sync_mean_ms: milliseconds(all.syncs.mean()),
        sync_latency: all.syncs.summary(),
        behind_mean_ms: milliseconds(all.behind.mean()),
        behind: all.behind.summary(),
    })
}

/// The records with their places turned round so that the first is near the file's start.
fn from_the_start(trace: &LogTrace, mut records: Vec<LogRecord>) -> Vec<LogRecord> {
    /// Unit of the mapping: bytes of one block stay together, and places to which the writer
    /// returns stay in front.
    const BLOCK: u64 = 4096;
    const BACK: u64 = 16 * BLOCK;
    let writes = || trace.records.iter().filter(|record| record.size > 0);
    let lowest = writes().map(|record| record.offset / BLOCK * BLOCK).min().unwrap_or(0);
    let length = (trace.file_bytes() - lowest).next_multiple_of(BLOCK);
    let first = writes().next().map_or(0, |record| record.offset / BLOCK * BLOCK);
    let begin = first.saturating_sub(BACK).max(lowest);
    for record in records.iter_mut().filter(|record| record.size > 0) {
        record.offset = match record.offset.checked_sub(begin) {
            Some(place) => place,
            None => record.offset + length - begin,
        };
    }
    records
}

/// State that the instances share.
struct Replay {
    records: Vec<LogRecord>,
    options: ReplayOptions,
    done: AtomicU64,
}

struct Instance {
    number: u32,
    replay: Arc<Replay>,
}

#[derive(Default)]
struct ReplayWork {
    syncs: Latencies,
    behind: Latencies,
    others: u64,
    bytes: u64,
    took: Duration,
}

impl<F: Files> Actor<F> for Instance {
    type Ready = F::File;
    type Output = io::Result<ReplayWork>;

    async fn prepare(&self, files: &F) -> io::Result<F::File> {
        let Replay { records, options, .. } = &*self.replay;
        let path = format!("{}{:05}", options.prefix, self.number);
        let mut file = files.create(&path, SyncKind::None).await?;
        if options.preallocated {
            let piece = vec![0; 1 << 20];
            let end = |record: &LogRecord| record.offset + u64::from(record.size);
            let mut left =
                records.iter().filter(|record| record.size > 0).map(end).max().unwrap_or(0);
            while left > 0 {
                let now = left.min(piece.len() as u64);
                files.append(&mut file, &piece[..now as usize]).await?;
                left -= now;
            }
            files.sync(&file).await?;
        }
        Ok(file)
    }

    async fn act(self, files: &F, mut file: F::File, begin: Instant) -> io::Result<ReplayWork> {
        let Replay { records, options, done } = &*self.replay;
        let random = ActorRandom::new(options.seed, self.number.into());
        let begin = begin.plus(options.spread.mul_f64(random.fraction()));
        let mut work = ReplayWork::default();
        let longest = records.iter().map(|record| record.size).max().unwrap_or(0);
        let content = vec![self.number as u8 | 1; longest as usize];
        for record in records {
            let due = begin.plus(record.at);
            files.sleep_until(due).await;
            let asked = files.now();
            if record.size > 0 {
                let bytes = &content[..record.size as usize];
                files.write_at(&mut file, record.offset, bytes).await?;
                work.bytes += u64::from(record.size);
            }
            if record.sync {
                files.sync(&file).await?;
                work.syncs.add(files.now().since(asked));
                work.behind.add(files.now().since(due));
            } else {
                work.others += 1;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        work.took = files.now().since(begin);
        files.close(file).await;
        Ok(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> LogTrace {
        let record = |us, offset, size, sync| LogRecord {
            at: Duration::from_micros(us),
            offset,
            size,
            sync,
        };
        let records = vec![
            record(0, 4096, 512, true),
            record(1000, 4608, 700, false),
            record(2000, 5308, 0, true),
            record(900_000_000, 5308, 100, true),
        ];
        LogTrace { name: "test".to_string(), records }
    }

    fn options() -> ReplayOptions {
        ReplayOptions {
            instances: 3,
            until: Some(Duration::from_secs(1)),
            spread: Duration::from_millis(2),
            ..ReplayOptions::default()
        }
    }

    #[test]
    fn each_instance_does_what_the_trace_says_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let report = run_replay(directory.path(), &trace(), &options(), |_| ()).unwrap();
        assert_eq!((report.syncs, report.others, report.bytes_written), (6, 3, 3 * 1212));
        let length = |number| std::fs::metadata(directory.path().join(number)).unwrap().len();
        assert_eq!([length("log-00000"), length("log-00002")], [1212, 1212]);
        assert!(report.seconds >= 0.002, "{}", report.seconds);
    }

    #[test]
    fn a_wrapped_log_continues_after_its_end() {
        let mut trace = trace();
        // 4096 to 1 MiB and 100 bytes, beginning near the end.
        let places = [1 << 20, 1 << 20, (1 << 20) - 700, 4096];
        for (record, place) in trace.records.iter_mut().zip(places) {
            (record.offset, record.size) = (place, 100);
        }
        let played = from_the_start(&trace, trace.records.clone());
        let places: Vec<u64> = played.iter().map(|record| record.offset).collect();
        // The file begins 64 KiB before the first record, and a place on from its 257th block.
        assert_eq!(places, [65_536, 65_536, 65_536 - 700, 65_536 + 4096]);
    }

    #[test]
    fn a_preallocated_log_does_not_grow() {
        let directory = tempfile::tempdir().unwrap();
        let options = ReplayOptions { preallocated: true, ..options() };
        run_replay(directory.path(), &trace(), &options, |_| ()).unwrap();
        let bytes = std::fs::read(directory.path().join("log-00001")).unwrap();
        assert_eq!(bytes.len(), 1212);
        assert!(bytes.iter().all(|&byte| byte == 1));
    }
}
