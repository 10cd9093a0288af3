//! Postmark 1.5 (Katcher, NetApp TR3022) makes the small files of mail, news and web commerce. It
//! runs with synchronous writes and many threads, as the Okeanos paper ran it.
//!
//! A transaction is a read of a whole file or an append to one, followed by the creation or the
//! deletion of a file. All files lie in one directory. Each thread has a share of the files and of
//! the transactions, so that what it does follows from the seed alone.

use crate::files::{Actor, DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use crate::random::ActorRandom;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::Instant;

#[derive(Clone, Debug, serde::Serialize)]
pub struct PostmarkOptions {
    /// Files before the first transaction, of all threads together.
    pub files: u64,
    pub threads: u32,
    /// Transactions of all threads together.
    pub transactions: u64,
    /// Number of ten transactions that read rather than append.
    pub read_bias: u64,
    /// Number of ten transactions that create rather than delete.
    pub create_bias: u64,
    /// Bytes of a new file, evenly distributed; `size_max` is also as far as appends go.
    pub size_min: u64,
    pub size_max: u64,
    /// Bytes of one read or write; the last one of a file or append may be shorter.
    pub request: u64,
    pub sync: SyncKind,
    pub seed: u64,
}

impl Default for PostmarkOptions {
    /// Follows the Okeanos paper, section 5.2: Postmark's own sizes times ten.
    fn default() -> PostmarkOptions {
        PostmarkOptions {
            files: 500,
            threads: 100,
            transactions: 10_000,
            read_bias: 5,
            create_bias: 9,
            size_min: 500,
            size_max: 100_000,
            request: 4096,
            sync: SyncKind::OSync,
            seed: 1,
        }
    }
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct PostmarkReport {
    pub options: PostmarkOptions,
    pub transactions: u64,
    /// Time of the transactions; the first files are made before.
    pub seconds: f64,
    pub transactions_per_second: f64,
    pub reads: u64,
    pub appends: u64,
    pub creates: u64,
    pub deletes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Latency of single write requests, each as durable as `sync` says.
    pub write_latency: LatencySummary,
}

/// Runs Postmark in a directory, which should be empty; the files stay. `progress` gets the
/// transactions so far, several times a second.
pub fn run_postmark(
    directory: &Path,
    options: &PostmarkOptions,
    progress: impl FnMut(u64),
) -> io::Result<PostmarkReport> {
    at_once(postmark(&DirectoryFiles::new(directory.to_owned()), options, progress))
}

/// Runs like [`run_postmark`], on any kind of files.
pub async fn postmark<F: Files>(
    files: &F,
    options: &PostmarkOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<PostmarkReport> {
    let done = Arc::new(AtomicU64::new(0));
    let threads = (0..options.threads)
        .map(|number| PostmarkThread { number, options: options.clone(), done: done.clone() })
        .collect();
    let results = files.run_actors(threads, || progress(done.load(Ordering::Relaxed))).await?;

    let mut work = PostmarkWork::default();
    let mut seconds: f64 = 0.0;
    for result in results {
        let (mine, took) = result?;
        work.add(&mine);
        seconds = seconds.max(took);
    }
    let transactions = work.reads + work.appends;
    Ok(PostmarkReport {
        options: options.clone(),
        transactions,
        seconds,
        transactions_per_second: transactions as f64 / seconds.max(1e-9),
        reads: work.reads,
        appends: work.appends,
        creates: work.creates,
        deletes: work.deletes,
        bytes_read: work.bytes_read,
        bytes_written: work.bytes_written,
        write_latency: work.writes.summary(),
    })
}

/// Work done.
#[derive(Default)]
struct PostmarkWork {
    reads: u64,
    appends: u64,
    creates: u64,
    deletes: u64,
    bytes_read: u64,
    bytes_written: u64,
    writes: Latencies,
}

impl PostmarkWork {
    fn add(&mut self, other: &PostmarkWork) {
        self.reads += other.reads;
        self.appends += other.appends;
        self.creates += other.creates;
        self.deletes += other.deletes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.writes.merge(&other.writes);
    }
}

struct PostmarkThread {
    number: u32,
    options: PostmarkOptions,
    /// Transactions of all threads.
    done: Arc<AtomicU64>,
}

/// A thread's files and what decides about them.
struct Pool {
    random: ActorRandom,
    /// Number and length of each file that exists.
    files: Vec<(u64, u64)>,
    created: u64,
    /// Bytes to write, and space for bytes read.
    buffer: Vec<u8>,
    work: PostmarkWork,
}

impl<F: Files> Actor<F> for PostmarkThread {
    type Ready = Pool;
    /// Work done, with the seconds that the transactions took.
    type Output = io::Result<(PostmarkWork, f64)>;

    async fn prepare(&self, files: &F) -> io::Result<Pool> {
        let number = u64::from(self.number);
        let mut pool = Pool {
            random: ActorRandom::new(self.options.seed, number),
            files: Vec::new(),
            created: 0,
            buffer: (0..self.options.request).map(|at| (at * 7 + number) as u8).collect(),
            work: PostmarkWork::default(),
        };
        for _ in 0..self.share(self.options.files) {
            self.create(files, &mut pool).await?;
        }
        pool.work = PostmarkWork::default();
        Ok(pool)
    }

    async fn act(
        self,
        files: &F,
        mut pool: Pool,
        begin: Instant,
    ) -> io::Result<(PostmarkWork, f64)> {
        for _ in 0..self.share(self.options.transactions) {
            self.transaction(files, &mut pool).await?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok((pool.work, files.now().since(begin).as_secs_f64()))
    }
}

impl PostmarkThread {
    /// Returns this thread's part of `total`.
    fn share(&self, total: u64) -> u64 {
        let threads = u64::from(self.options.threads);
        total / threads + u64::from(u64::from(self.number) < total % threads)
    }

    fn path(&self, file: u64) -> String {
        format!("{:03}-{file}", self.number)
    }

    async fn transaction<F: Files>(&self, files: &F, pool: &mut Pool) -> io::Result<()> {
        if pool.files.is_empty() {
            // Postmark ends here; a thread that is out of files makes one.
            self.create(files, pool).await?;
        }
        let chosen = pool.random.below(pool.files.len() as u64) as usize;
        if pool.random.below(10) < self.options.read_bias {
            self.read(files, pool, chosen).await?;
        } else {
            self.append(files, pool, chosen).await?;
        }
        if pool.random.below(10) < self.options.create_bias {
            self.create(files, pool).await
        } else {
            let chosen = pool.random.below(pool.files.len() as u64) as usize;
            let (number, _) = pool.files.swap_remove(chosen);
            pool.work.deletes += 1;
            files.unlink(&self.path(number)).await
        }
    }

    async fn create<F: Files>(&self, files: &F, pool: &mut Pool) -> io::Result<()> {
        let PostmarkOptions { size_min, size_max, sync, .. } = self.options;
        let size = size_min + pool.random.below(size_max - size_min + 1);
        let number = pool.created;
        pool.created += 1;
        let mut file = files.create(&self.path(number), sync).await?;
        self.write(files, pool, &mut file, size).await?;
        files.close(file).await;
        pool.files.push((number, size));
        pool.work.creates += 1;
        Ok(())
    }

    async fn append<F: Files>(&self, files: &F, pool: &mut Pool, chosen: usize) -> io::Result<()> {
        let (number, size) = pool.files[chosen];
        let space = self.options.size_max - size;
        pool.work.appends += 1;
        if space == 0 {
            return Ok(());
        }
        let more = pool.random.below(space) + 1;
        let mut file = files.open(&self.path(number), self.options.sync).await?;
        self.write(files, pool, &mut file, more).await?;
        files.close(file).await;
        pool.files[chosen].1 += more;
        Ok(())
    }

    async fn read<F: Files>(&self, files: &F, pool: &mut Pool, chosen: usize) -> io::Result<()> {
        let (number, size) = pool.files[chosen];
        let file = files.open(&self.path(number), self.options.sync).await?;
        let mut space = vec![0; self.options.request as usize];
        let mut at = 0;
        while at < size {
            let read = files.read_at(&file, at, &mut space).await? as u64;
            if read == 0 {
                let why = format!("{} has {at} bytes, not {size}", self.path(number));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            at += read;
        }
        files.close(file).await;
        pool.work.reads += 1;
        pool.work.bytes_read += at;
        Ok(())
    }

    async fn write<F: Files>(
        &self,
        files: &F,
        pool: &mut Pool,
        file: &mut F::File,
        bytes: u64,
    ) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(self.options.request);
            let asked = files.now();
            files.append(file, &pool.buffer[..piece as usize]).await?;
            pool.work.writes.add(files.now().since(asked));
            left -= piece;
        }
        pool.work.bytes_written += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PostmarkOptions {
        PostmarkOptions {
            files: 20,
            threads: 3,
            transactions: 200,
            size_max: 5000,
            request: 512,
            sync: SyncKind::None,
            ..PostmarkOptions::default()
        }
    }

    /// Name and length of each file, sorted.
    fn listing(directory: &Path) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
        });
        let mut listing: Vec<_> = entries.collect();
        listing.sort();
        listing
    }

    #[test]
    fn the_report_matches_what_is_left_in_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let report = run_postmark(directory.path(), &options(), |_| ()).unwrap();
        assert_eq!((report.transactions, report.creates + report.deletes), (200, 200));
        let left = listing(directory.path());
        assert_eq!(left.len() as u64, 20 + report.creates - report.deletes);
        assert!(left.iter().all(|(_, length)| (500..=5000).contains(length)), "{left:?}");
        // Half read, half append; nine of ten create: within five standard deviations.
        assert!((65..=135).contains(&report.reads), "{}", report.reads);
        assert!((159..=200).contains(&report.creates), "{}", report.creates);
    }

    #[test]
    fn the_seed_decides_everything() {
        let run = |seed| {
            let directory = tempfile::tempdir().unwrap();
            run_postmark(directory.path(), &PostmarkOptions { seed, ..options() }, |_| ()).unwrap();
            listing(directory.path())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn files_of_another_run_are_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("001-0"), "mine").unwrap();
        assert!(run_postmark(directory.path(), &options(), |_| ()).is_err());
        assert_eq!(std::fs::read(directory.path().join("001-0")).unwrap(), b"mine");
    }

    #[test]
    fn only_deletes_do_not_run_out_of_files() {
        let directory = tempfile::tempdir().unwrap();
        let report = run_postmark(
            directory.path(),
            &PostmarkOptions { create_bias: 0, ..options() },
            |_| (),
        )
        .unwrap();
        assert_eq!((report.transactions, report.deletes), (200, 200));
    }
}
