//! Five personalities of Filebench (the workload language's own definitions, version 1.4.9):
//! fileserver, varmail, webserver, createfiles and oltp, with their published sizes as defaults.
//!
//! What a loop of each does is a table ([`FLOWS`]); oltp, whose processes wait for one another, is
//! a file of its own. Threads share the files, and no two use one at the same time.

mod file_set;
mod flow;
mod oltp;

use crate::files::{DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use crate::random::ActorRandom;
use crate::streams::Limit;
use std::io;
use std::path::Path;
use std::time::Duration;

pub use flow::{FLOWS, Flow, FlowStep};

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Personality {
    /// Create and write a file, append to one, read one, delete one, stat one.
    Fileserver,
    /// Mail: delete, create and append, read and append, each append with fsync; read.
    Varmail,
    /// Read ten files, append to a log.
    Webserver,
    /// Create and write files until all are there.
    Createfiles,
    /// A database: readers, writers of data, a writer of the log.
    Oltp,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct FilebenchOptions {
    pub personality: Personality,
    /// Names of the set; of oltp, data files.
    pub files: u64,
    /// Bytes of a file on average (gamma distribution); of oltp, of each data file.
    pub file_size: u64,
    /// Percentage of the names that exist before the run.
    pub existing: u64,
    /// Files of one directory.
    pub directory_width: u64,
    /// Number of threads; of oltp, of readers.
    pub threads: u32,
    /// Mean length of an append in bytes,
    pub append_size: u64,
    /// or its exact length, if set.
    pub append_exactly: bool,
    /// Bytes of one read or write of a whole file; of oltp, of one read or write of data.
    pub request: u64,
    pub sync: SyncKind,
    /// Operations per second of all threads together, at most; late ones are not caught up. Not for
    /// oltp.
    #[serde(skip)]
    pub per_second: Option<u32>,
    /// Time that each loop takes of the one processor that all threads share: for virtual time, in
    /// which nothing else takes any. Not for oltp.
    #[serde(skip)]
    pub processor: Duration,
    #[serde(skip)]
    pub limit: Limit,
    pub seed: u64,
}

impl FilebenchOptions {
    /// Returns the length of the next append.
    fn append_bytes(&self, random: &ActorRandom) -> u64 {
        if self.append_exactly { self.append_size } else { random.below(self.append_size) + 1 }
    }

    /// The published defaults, and a minute.
    pub fn of(personality: Personality) -> FilebenchOptions {
        const MIB: u64 = 1 << 20;
        let many = FilebenchOptions {
            personality,
            files: 1000,
            file_size: 16 << 10,
            existing: 80,
            directory_width: 20,
            threads: 16,
            append_size: 16 << 10,
            append_exactly: false,
            request: MIB,
            sync: SyncKind::None,
            per_second: None,
            processor: Duration::ZERO,
            limit: Limit::Time(Duration::from_secs(60)),
            seed: 1,
        };
        match personality {
            Personality::Fileserver => {
                FilebenchOptions { files: 10_000, file_size: 128 << 10, threads: 50, ..many }
            }
            Personality::Varmail => FilebenchOptions { directory_width: 1_000_000, ..many },
            Personality::Webserver => FilebenchOptions { existing: 100, threads: 100, ..many },
            Personality::Createfiles => {
                let limit = Limit::Count(u64::MAX);
                FilebenchOptions { files: 50_000, existing: 0, directory_width: 100, limit, ..many }
            }
            Personality::Oltp => FilebenchOptions {
                files: 10,
                file_size: 10 * MIB,
                existing: 100,
                directory_width: 1024,
                threads: 200,
                request: 2 << 10,
                ..many
            },
        }
    }
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct FilebenchReport {
    pub options: FilebenchOptions,
    pub seconds: f64,
    /// Steps of all loops, opening and closing included, as Filebench counts.
    pub operations: u64,
    pub operations_per_second: f64,
    /// Mean over reads, writes and syncs, as Filebench averages.
    pub latency_mean_ms: f64,
    pub latency: LatencySummary,
    /// Counts and latencies of syncs alone, and of writes alone.
    pub syncs: u64,
    pub sync_mean_ms: f64,
    pub writes: u64,
    pub write_mean_ms: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Runs a personality in a directory, which should be empty; the files stay. `progress` gets the
/// operations so far, several times a second.
pub fn run_filebench(
    directory: &Path,
    options: &FilebenchOptions,
    progress: impl FnMut(u64),
) -> io::Result<FilebenchReport> {
    at_once(filebench(&DirectoryFiles::new(directory.to_owned()), options, progress))
}

/// Runs like [`run_filebench`], on any kind of files.
pub async fn filebench<F: Files>(
    files: &F,
    options: &FilebenchOptions,
    progress: impl FnMut(u64),
) -> io::Result<FilebenchReport> {
    let (work, took) = match options.personality {
        Personality::Oltp => oltp::run(files, options, progress).await?,
        _ => flow::run(files, options, progress).await?,
    };
    let seconds = took.as_secs_f64();
    Ok(FilebenchReport {
        options: options.clone(),
        seconds,
        operations: work.operations,
        operations_per_second: work.operations as f64 / seconds.max(1e-9),
        latency_mean_ms: work.latencies.mean().as_secs_f64() * 1e3,
        latency: work.latencies.summary(),
        syncs: work.syncs.count(),
        sync_mean_ms: work.syncs.mean().as_secs_f64() * 1e3,
        writes: work.writes.count(),
        write_mean_ms: work.writes.mean().as_secs_f64() * 1e3,
        bytes_read: work.bytes_read,
        bytes_written: work.bytes_written,
    })
}

/// Work done.
#[derive(Default)]
struct FilebenchWork {
    operations: u64,
    latencies: Latencies,
    syncs: Latencies,
    writes: Latencies,
    bytes_read: u64,
    bytes_written: u64,
}

impl FilebenchWork {
    /// Sums the work of all actors, and the time of the slowest; the first failure if there is one.
    fn of_all(
        results: Vec<io::Result<(FilebenchWork, Duration)>>,
    ) -> io::Result<(FilebenchWork, Duration)> {
        let (mut work, mut longest) = (FilebenchWork::default(), Duration::ZERO);
        for result in results {
            let (mine, took) = result?;
            work.add(&mine);
            longest = longest.max(took);
        }
        Ok((work, longest))
    }
    fn add(&mut self, other: &FilebenchWork) {
        self.operations += other.operations;
        self.latencies.merge(&other.latencies);
        self.syncs.merge(&other.syncs);
        self.writes.merge(&other.writes);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(personality: Personality) -> FilebenchOptions {
        let options = FilebenchOptions::of(personality);
        FilebenchOptions {
            files: options.files.min(50),
            file_size: 8192,
            threads: 4,
            limit: Limit::Count(if personality == Personality::Createfiles {
                u64::MAX
            } else {
                20
            }),
            ..options
        }
    }

    /// Counts the files below, and sums their lengths.
    fn content(directory: &Path) -> (u64, u64) {
        let (mut files, mut bytes) = (0, 0);
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.metadata().unwrap().is_dir() {
                let below = content(&entry.path());
                (files, bytes) = (files + below.0, bytes + below.1);
            } else {
                (files, bytes) = (files + 1, bytes + entry.metadata().unwrap().len());
            }
        }
        (files, bytes)
    }

    #[test]
    fn each_personality_does_its_loops() {
        for (personality, operations) in [
            (Personality::Fileserver, 4 * 20 * 11),
            (Personality::Varmail, 4 * 20 * 13),
            (Personality::Webserver, 4 * 20 * 31),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let report = run_filebench(directory.path(), &small(personality), |_| ()).unwrap();
            assert_eq!(report.operations, operations, "{personality:?}");
            assert!(report.bytes_read > 0 && report.bytes_written > 0, "{personality:?}");
        }
    }

    #[test]
    fn a_rate_holds_all_threads_back() {
        let directory = tempfile::tempdir().unwrap();
        let limit = Limit::Count(1);
        let options =
            FilebenchOptions { per_second: Some(200), limit, ..small(Personality::Varmail) };
        let report = run_filebench(directory.path(), &options, |_| ()).unwrap();
        assert_eq!((report.operations, report.syncs, report.writes), (4 * 13, 4 * 2, 4 * 2));
        // The first comes at once, and each other a two-hundredth of a second later.
        assert!(report.seconds >= 51.0 / 200.0, "{}", report.seconds);
    }

    #[test]
    fn createfiles_ends_when_all_files_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let report =
            run_filebench(directory.path(), &small(Personality::Createfiles), |_| ()).unwrap();
        assert_eq!(report.operations, 50 * 3);
        assert_eq!(content(directory.path()), (50, report.bytes_written));
    }

    #[test]
    fn varmail_neither_loses_nor_leaks_files() {
        let directory = tempfile::tempdir().unwrap();
        run_filebench(directory.path(), &small(Personality::Varmail), |_| ()).unwrap();
        // Each loop deletes one and creates one, as long as there is one to delete.
        assert_eq!(content(directory.path()).0, 40);
    }

    #[test]
    fn database_writers_keep_up_with_the_readers() {
        let directory = tempfile::tempdir().unwrap();
        let options = FilebenchOptions {
            file_size: 1 << 20,
            limit: Limit::Count(5000),
            ..small(Personality::Oltp)
        };
        let report = run_filebench(directory.path(), &options, |_| ()).unwrap();
        assert_eq!(report.bytes_read, 4 * 5000 * 2048);
        // A log write for each 3200 reads, except for 4200 that readers may be ahead and a write
        // that the end cuts short.
        assert!(
            report.bytes_written >= (20_000 - 4200) / 3200 * (256 << 10),
            "{}",
            report.bytes_written
        );
    }
}
