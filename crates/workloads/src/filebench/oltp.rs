//! Filebench's oltp: the processes of a database, which wait for one another.
//!
//! Readers read data blocks at random. For each 3200 reads the log writer writes 256 KiB durably.
//! For each 1000 reads one of ten data writers writes 100 blocks at random, durably. Readers may be
//! that far ahead and a little more (the high-water marks), then they wait.
//!
//! A data writer's asynchronous writes are at work one for each file at a time, as glibc carries
//! out aio_write(3). glibc has a helper for each file. Filebench burns processor time between
//! reads; this one does not.

use super::{FilebenchOptions, FilebenchWork};
use crate::files::{Actor, Files, SyncKind};
use crate::random::ActorRandom;
use crate::semaphore::Semaphore;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use units::Instant;

const LOG: &str = "log";
const LOG_FILE_BYTES: u64 = 10 << 20;
const LOG_WRITE: u64 = 256 << 10;
const READS_PER_LOG_WRITE: u64 = 3200;
const LOG_READS_AHEAD: u64 = 1000;
const DATA_WRITERS: u64 = 10;
const DATA_WRITES: u64 = 100;
const READS_PER_DATA_WRITES: u64 = 1000;
const DATA_READS_AHEAD: u64 = 2000;

/// Work that one side asks for and the other does, with a limit to how much may be asked ahead.
struct Counter {
    asked: Semaphore,
    space: Semaphore,
}

impl Counter {
    fn new(space: u64) -> Counter {
        Counter { asked: Semaphore::new(0), space: Semaphore::new(space) }
    }
    async fn ask(&self) {
        self.space.take(1).await;
        self.asked.give(1);
    }
    async fn serve(&self, count: u64) {
        self.asked.take(count).await;
        self.space.give(count);
    }
}

struct OltpRun {
    options: FilebenchOptions,
    for_log: Counter,
    for_data: Counter,
    /// Writes to be done, one permit each, for each file of each data writer.
    due: Vec<Semaphore>,
    /// Writes that are done, for each data writer.
    done: Vec<Semaphore>,
    readers_left: AtomicU64,
    over: AtomicBool,
    operations: AtomicU64,
}

impl OltpRun {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
    /// Ends every wait.
    fn end(&self) {
        const ENOUGH: u64 = u64::MAX / 4;
        self.over.store(true, Ordering::Relaxed);
        let counters = [&self.for_log, &self.for_data];
        counters
            .iter()
            .flat_map(|counter| [&counter.asked, &counter.space])
            .for_each(|one| one.give(ENOUGH));
        self.due.iter().chain(&self.done).for_each(|one| one.give(ENOUGH));
    }
}

pub async fn run<F: Files>(
    files: &F,
    options: &FilebenchOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<(FilebenchWork, Duration)> {
    let semaphores = |count| (0..count).map(|_| Semaphore::new(0)).collect();
    let run = Arc::new(OltpRun {
        options: options.clone(),
        for_log: Counter::new(READS_PER_LOG_WRITE + LOG_READS_AHEAD),
        for_data: Counter::new(READS_PER_DATA_WRITES * DATA_WRITERS + DATA_READS_AHEAD),
        due: semaphores(DATA_WRITERS * options.files),
        done: semaphores(DATA_WRITERS),
        readers_left: AtomicU64::new(options.threads.into()),
        over: AtomicBool::new(false),
        operations: AtomicU64::new(0),
    });
    for file in 0..options.files {
        fill(files, &data_file(file), options.file_size).await?;
    }
    fill(files, LOG, LOG_FILE_BYTES).await?;

    let mut roles = vec![OltpRole::LogWriter];
    for writer in 0..DATA_WRITERS {
        roles.push(OltpRole::DataWriter(writer));
        roles.extend((0..options.files).map(|file| OltpRole::Helper { writer, file }));
    }
    roles.extend((0..options.threads).map(|_| OltpRole::Reader));
    let process = |(number, role)| Process { number: number as u64, role, run: run.clone() };
    let processes = roles.into_iter().enumerate().map(process).collect();
    let results =
        files.run_actors(processes, || progress(run.operations.load(Ordering::Relaxed))).await?;
    FilebenchWork::of_all(results)
}

fn data_file(number: u64) -> String {
    format!("data{number:03}")
}

async fn fill<F: Files>(files: &F, path: &str, size: u64) -> io::Result<()> {
    let piece = vec![b'o'; 1 << 20];
    let mut file = files.create(path, SyncKind::None).await?;
    let mut left = size;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        files.append(&mut file, &piece[..now as usize]).await?;
        left -= now;
    }
    files.sync(&file).await?;
    files.close(file).await;
    Ok(())
}

#[derive(Clone, Copy)]
enum OltpRole {
    Reader,
    LogWriter,
    DataWriter(u64),
    /// Writes to one file for one data writer.
    Helper {
        writer: u64,
        file: u64,
    },
}

struct Process {
    number: u64,
    role: OltpRole,
    run: Arc<OltpRun>,
}

impl<F: Files> Actor<F> for Process {
    /// The file to which a log writer or a helper writes.
    type Ready = Option<F::File>;
    type Output = io::Result<(FilebenchWork, Duration)>;

    async fn prepare(&self, files: &F) -> io::Result<Option<F::File>> {
        match self.role {
            OltpRole::LogWriter => files.open(LOG, SyncKind::OSync).await.map(Some),
            OltpRole::Helper { file, .. } => {
                files.open(&data_file(file), SyncKind::OSync).await.map(Some)
            }
            OltpRole::Reader | OltpRole::DataWriter(_) => Ok(None),
        }
    }

    async fn act(
        self,
        files: &F,
        file: Option<F::File>,
        begin: Instant,
    ) -> io::Result<(FilebenchWork, Duration)> {
        let mut work = FilebenchWork::default();
        let ended = self.play(files, file, begin, &mut work).await;
        let last_reader = matches!(self.role, OltpRole::Reader)
            && self.run.readers_left.fetch_sub(1, Ordering::Relaxed) == 1;
        if ended.is_err() || last_reader {
            self.run.end();
        }
        Ok((work, ended?))
    }
}

impl Process {
    /// Plays the actor. Returns when the last of its operations ended, from the beginning.
    async fn play<F: Files>(
        &self,
        files: &F,
        file: Option<F::File>,
        begin: Instant,
        work: &mut FilebenchWork,
    ) -> io::Result<Duration> {
        let OltpRun { options, for_log, for_data, due, done, .. } = &*self.run;
        let random = ActorRandom::new(options.seed, self.number);
        let helper = |writer: u64, file: u64| &due[(writer * options.files + file) as usize];
        let mut ended = Duration::ZERO;
        match (self.role, file) {
            (OltpRole::Reader, _) => {
                let mut count = 0;
                while !self.run.is_over()
                    && !options.limit.is_reached(files.now().since(begin), count)
                {
                    self.read(files, &random, work).await?;
                    ended = files.now().since(begin);
                    for_log.ask().await;
                    for_data.ask().await;
                    count += 1;
                }
            }
            (OltpRole::DataWriter(writer), _) => loop {
                for_data.serve(READS_PER_DATA_WRITES).await;
                if self.run.is_over() {
                    break;
                }
                (0..DATA_WRITES).for_each(|number| helper(writer, number % options.files).give(1));
                done[writer as usize].take(DATA_WRITES).await;
            },
            (OltpRole::LogWriter, Some(mut log)) => {
                loop {
                    for_log.serve(READS_PER_LOG_WRITE).await;
                    if self.run.is_over() {
                        break;
                    }
                    self.write(files, &mut log, &random, (LOG_FILE_BYTES, LOG_WRITE), work).await?;
                    ended = files.now().since(begin);
                }
                files.close(log).await;
            }
            (OltpRole::Helper { writer, file: number }, Some(mut file)) => {
                loop {
                    helper(writer, number).take(1).await;
                    if self.run.is_over() {
                        break;
                    }
                    self.write(
                        files,
                        &mut file,
                        &random,
                        (options.file_size, options.request),
                        work,
                    )
                    .await?;
                    done[writer as usize].give(1);
                    ended = files.now().since(begin);
                }
                files.close(file).await;
            }
            (OltpRole::LogWriter | OltpRole::Helper { .. }, None) => {
                unreachable!("these have opened their file")
            }
        }
        Ok(ended)
    }

    async fn read<F: Files>(
        &self,
        files: &F,
        random: &ActorRandom,
        work: &mut FilebenchWork,
    ) -> io::Result<()> {
        let FilebenchOptions { files: count, file_size, request, .. } = self.run.options;
        let file = files.open(&data_file(random.below(count)), SyncKind::None).await?;
        let mut space = vec![0; request as usize];
        let asked = files.now();
        let at = random.below((file_size / request).max(1)) * request;
        work.bytes_read += files.read_at(&file, at, &mut space).await? as u64;
        self.count(files, asked, work);
        files.close(file).await;
        Ok(())
    }

    /// Writes `request` bytes at a random place of a file of `size` bytes.
    async fn write<F: Files>(
        &self,
        files: &F,
        file: &mut F::File,
        random: &ActorRandom,
        (file_size, bytes): (u64, u64),
        work: &mut FilebenchWork,
    ) -> io::Result<()> {
        let content = vec![self.number as u8; bytes as usize];
        let at = random.below((file_size / bytes).max(1)) * bytes;
        let asked = files.now();
        files.write_at(file, at, &content).await?;
        work.bytes_written += bytes;
        self.count(files, asked, work);
        Ok(())
    }

    fn count<F: Files>(&self, files: &F, asked: Instant, work: &mut FilebenchWork) {
        work.operations += 1;
        work.latencies.add(files.now().since(asked));
        self.run.operations.fetch_add(1, Ordering::Relaxed);
    }
}
