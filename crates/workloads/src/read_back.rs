//! Files read from beginning to end, one after the other: what it costs to read what many wrote at
//! once.
//!
//! The kernel reads ahead for a program that reads in order, also through a FUSE file system. In
//! virtual time there is no kernel, so the reader does it. A read that is not in memory yet asks
//! the file system for `read_ahead` bytes at once.

use crate::files::{DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use std::io;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug, serde::Serialize)]
pub struct ReadBackReport {
    pub files: u32,
    /// Bytes of one read, and of what is asked of the file system at once.
    pub request: usize,
    pub read_ahead: usize,
    pub reads: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub read_mean_ms: f64,
    pub latency: LatencySummary,
}

/// Reads all files that [`crate::run_streams`] left in a directory with this prefix, in requests of
/// `request` bytes.
pub fn run_read_back(directory: &Path, prefix: &str, request: usize) -> io::Result<ReadBackReport> {
    let is_there =
        |number: &u32| directory.join(crate::streams::file_name(prefix, *number)).exists();
    let count = (0..).take_while(is_there).count() as u32;
    at_once(read_back(
        &DirectoryFiles::new(directory.to_owned()),
        prefix,
        count,
        (request, request),
    ))
}

/// Reads the files that [`crate::streams`] wrote with this prefix, in requests of `request` bytes;
/// `read_ahead` is a multiple of it. The mean is that of reads that gave bytes.
pub async fn read_back<F: Files>(
    files: &F,
    prefix: &str,
    count: u32,
    (request, read_ahead): (usize, usize),
) -> io::Result<ReadBackReport> {
    let begin = files.now();
    let mut latencies = Latencies::default();
    let mut bytes = 0;
    let mut space = vec![0; read_ahead];
    for number in 0..count {
        let file = files.open(&crate::streams::file_name(prefix, number), SyncKind::None).await?;
        let mut at = 0;
        loop {
            let asked = files.now();
            let read = files.read_at(&file, at, &mut space).await?;
            if read == 0 {
                break;
            }
            latencies.add(files.now().since(asked));
            // The other requests find their bytes in memory.
            (1..read.div_ceil(request)).for_each(|_| latencies.add(Duration::ZERO));
            at += read as u64;
        }
        files.close(file).await;
        bytes += at;
    }
    let seconds = files.now().since(begin).as_secs_f64();
    let reads = latencies.count();
    Ok(ReadBackReport {
        files: count,
        request,
        read_ahead,
        reads,
        bytes,
        seconds,
        read_mean_ms: seconds * 1e3 / reads.max(1) as f64,
        latency: latencies.summary(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{DirectoryFiles, at_once};

    #[test]
    fn every_byte_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        for (number, length) in [(0, 10_000), (1, 4096), (2, 0)] {
            std::fs::write(directory.path().join(format!("s-{number:05}")), vec![1; length])
                .unwrap();
        }
        let files = DirectoryFiles::new(directory.path().to_owned());
        let report = at_once(read_back(&files, "s-", 3, (4096, 16_384))).unwrap();
        assert_eq!((report.bytes, report.reads), (14_096, 3 + 1));
        assert!(at_once(read_back(&files, "s-", 4, (4096, 4096))).is_err(), "a file is missing");
    }
}
