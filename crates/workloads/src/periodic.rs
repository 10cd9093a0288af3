//! Streams as in the Okeanos paper: many threads that begin together, each appending to its own
//! file once in every period. A late thread writes at once and is not late for the next period.
//!
//! Unlike in [`crate::streams`], all are in step, and a latency is that of the call alone. A thread
//! of a program with a timer sees this.

use crate::files::{Actor, Files, SyncKind};
use std::io;
use std::time::Duration;
use units::Instant;

#[derive(Clone, Copy, Debug)]
pub struct PeriodicOptions {
    pub streams: u32,
    /// Bytes of one append.
    pub size: usize,
    pub period: Duration,
    /// Time after which no append begins.
    pub time: Duration,
    /// Maximum number of appends of one stream.
    pub count: u64,
    pub sync: SyncKind,
}

#[derive(Clone, Debug)]
pub struct PeriodicReport {
    pub operations: u64,
    /// Time from the common beginning until the last append returned.
    pub took: Duration,
    pub mean: Duration,
    pub longest: Duration,
    /// The mean over all streams of their n-th append.
    pub means: Vec<Duration>,
}

/// An error is that of the first stream that could not go on.
pub async fn periodic<F: Files>(files: &F, options: PeriodicOptions) -> io::Result<PeriodicReport> {
    let streams = (0..options.streams).map(|number| Stream { number, options }).collect();
    let streams = files.run_actors(streams, || ()).await?;
    let (mut sums, mut took) = (Vec::<(Duration, u32)>::new(), Duration::ZERO);
    let mut longest = Duration::ZERO;
    for stream in streams {
        let stream = stream?;
        took = took.max(stream.took);
        sums.resize(sums.len().max(stream.latencies.len()), (Duration::ZERO, 0));
        for (sum, latency) in sums.iter_mut().zip(stream.latencies) {
            *sum = (sum.0 + latency, sum.1 + 1);
            longest = longest.max(latency);
        }
    }
    let operations: u64 = sums.iter().map(|(_, count)| u64::from(*count)).sum();
    let total: Duration = sums.iter().map(|(sum, _)| *sum).sum();
    let mean = Duration::from_secs_f64(total.as_secs_f64() / operations.max(1) as f64);
    Ok(PeriodicReport {
        operations,
        took,
        mean,
        longest,
        means: sums.iter().map(|(sum, count)| *sum / *count).collect(),
    })
}

/// The name of a stream's file.
pub fn periodic_file(stream: u32) -> String {
    format!("stream-{stream:05}")
}

/// The byte that a stream's n-th append is made of.
pub fn periodic_byte(stream: u32, append: u64) -> u8 {
    (u64::from(stream).wrapping_mul(31) + append * 7 + 1) as u8
}

struct Stream {
    number: u32,
    options: PeriodicOptions,
}

struct Written {
    latencies: Vec<Duration>,
    took: Duration,
}

impl<F: Files> Actor<F> for Stream {
    type Ready = F::File;
    type Output = io::Result<Written>;

    async fn prepare(&self, files: &F) -> io::Result<F::File> {
        files.create(&periodic_file(self.number), self.options.sync).await
    }

    async fn act(self, files: &F, mut file: F::File, begin: Instant) -> io::Result<Written> {
        let PeriodicOptions { size, period, time, count, .. } = self.options;
        let mut written = Written { latencies: Vec::new(), took: Duration::ZERO };
        let mut bytes = vec![0; size];
        let mut due = begin;
        while due.since(begin) < time && (written.latencies.len() as u64) < count {
            files.sleep_until(due).await;
            bytes.fill(periodic_byte(self.number, written.latencies.len() as u64));
            let called = files.now();
            files.append(&mut file, &bytes).await?;
            let now = files.now();
            written.latencies.push(now.since(called));
            written.took = now.since(begin);
            due = due.plus(period).max(now);
        }
        files.close(file).await;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryFiles, at_once};

    #[test]
    fn each_stream_appends_once_in_a_period() {
        let directory = tempfile::tempdir().unwrap();
        let files = DirectoryFiles::new(directory.path().to_owned());
        let options = PeriodicOptions {
            streams: 3,
            size: 100,
            period: Duration::from_millis(10),
            time: Duration::from_secs(60),
            count: 4,
            sync: SyncKind::None,
        };
        let report = at_once(periodic(&files, options)).unwrap();
        assert_eq!((report.operations, report.means.len()), (12, 4));
        assert!(report.took >= Duration::from_millis(30), "{report:?}");
        let bytes = std::fs::read(directory.path().join(periodic_file(2))).unwrap();
        assert_eq!(bytes.len(), 400);
        assert!(bytes[300..].iter().all(|byte| *byte == periodic_byte(2, 3)));
    }
}
