//! A parallel program that writes through a file server: N processes to N files, as LANL's MPI-IO
//! Test over PVFS2.
//!
//! The server is a small model. It keeps of PVFS2:
//!
//! - The data of a process's file lies in one file of the server (`data/`). A write is a write and
//!   an fsync of that file, each by its own thread ("synchronise data").
//! - Then the file's new size is recorded in the server's database. One thread changes a page of a
//!   B-tree file (`database/`), and writes and fsyncs the changed pages before it answers
//!   ("synchronise metadata"). While more updates wait, it does up to 8 before it syncs, PVFS2's
//!   default high-water mark.
//! - A client sends the next write when the last one is answered. If a [`ServerLink`] is given, the
//!   messages of all share the server's one link.
//!
//! It omits the metadata server, striping (there is one data server), the Berkeley DB's other files
//! and its own cache, and processor time.

use crate::files::{Actor, DirectoryFiles, Files, SyncKind, at_once};
use crate::latency::{Latencies, LatencySummary};
use crate::semaphore::Semaphore;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::Instant;

#[derive(Clone, Debug, serde::Serialize)]
pub struct MpiIoOptions {
    pub processes: u32,
    /// Writes of all processes together.
    pub writes: u64,
    /// Bytes of each.
    pub size: u64,
    /// Network between the processes; `None` if messages take no time.
    pub network: Option<ServerLink>,
}

/// The server's link.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct ServerLink {
    pub bytes_per_second: u64,
    /// Time of a request and its answer, without the bytes.
    pub round_trip: Duration,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct MpiIoReport {
    pub options: MpiIoOptions,
    pub seconds: f64,
    /// Rate of data, in units of 1,048,576 bytes each second.
    pub mib_per_second: f64,
    pub latency: LatencySummary,
    /// Number of syncs of the database.
    pub database_syncs: u64,
    pub database_bytes: u64,
}

/// Directory of the server's database: a separate volume may be mounted there.
pub const DATABASE: &str = "database";
const DATA: &str = "data";
const DATABASE_FILE: &str = "database/attributes";
const PAGE: usize = 4096;
/// A record of the attributes of one data file, with its key, in a half-full page.
const RECORDS_PER_PAGE: u64 = 16;
/// Updates before a sync, while more wait.
const COALESCED: u64 = 8;

/// Runs processes and server in a directory, which should be empty except for `database`; the files
/// stay. `progress` gets the writes so far, several times a second.
pub fn run_mpi_io(
    directory: &Path,
    options: &MpiIoOptions,
    progress: impl FnMut(u64),
) -> io::Result<MpiIoReport> {
    at_once(mpi_io(&DirectoryFiles::new(directory.to_owned()), options, progress))
}

/// Runs like [`run_mpi_io`], on any kind of files.
pub async fn mpi_io<F: Files>(
    files: &F,
    options: &MpiIoOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<MpiIoReport> {
    files.make_directory(DATA).await?;
    match files.make_directory(DATABASE).await {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let server = Arc::new(Server {
        options: options.clone(),
        link: Semaphore::new(1),
        updates: Mutex::default(),
        waiting: Semaphore::new(0),
        answers: (0..options.processes).map(|_| Semaphore::new(0)).collect(),
        processes_left: AtomicU64::new(options.processes.into()),
        writes: AtomicU64::new(0),
    });
    let mut roles = vec![MpiRole::Database];
    roles.extend((0..options.processes).map(MpiRole::Process));
    let actors =
        roles.into_iter().map(|role| Participant { role, server: server.clone() }).collect();
    let results =
        files.run_actors(actors, || progress(server.writes.load(Ordering::Relaxed))).await?;

    let (mut latencies, mut longest) = (Latencies::default(), Duration::ZERO);
    let (mut database_syncs, mut database_bytes) = (0, 0);
    for result in results {
        match result? {
            MpiWork::Process { mine, took } => {
                latencies.merge(&mine);
                longest = longest.max(took);
            }
            MpiWork::Database { syncs, bytes } => (database_syncs, database_bytes) = (syncs, bytes),
        }
    }
    let seconds = longest.as_secs_f64();
    let written = options.writes * options.size;
    Ok(MpiIoReport {
        options: options.clone(),
        seconds,
        mib_per_second: written as f64 / f64::from(1 << 20) / seconds.max(1e-9),
        latency: latencies.summary(),
        database_syncs,
        database_bytes,
    })
}

struct Server {
    options: MpiIoOptions,
    link: Semaphore,
    /// Processes whose file has a new size.
    updates: Mutex<VecDeque<u32>>,
    /// One permit for each entry of `updates`.
    waiting: Semaphore,
    answers: Vec<Semaphore>,
    processes_left: AtomicU64,
    writes: AtomicU64,
}

#[derive(Clone, Copy)]
enum MpiRole {
    Process(u32),
    Database,
}

struct Participant {
    role: MpiRole,
    server: Arc<Server>,
}

enum MpiWork {
    Process { mine: Latencies, took: Duration },
    Database { syncs: u64, bytes: u64 },
}

impl<F: Files> Actor<F> for Participant {
    type Ready = F::File;
    type Output = io::Result<MpiWork>;

    async fn prepare(&self, files: &F) -> io::Result<F::File> {
        match self.role {
            MpiRole::Process(number) => {
                files.create(&format!("{DATA}/{number:05}"), SyncKind::Fsync).await
            }
            MpiRole::Database => {
                let mut file = files.create(DATABASE_FILE, SyncKind::None).await?;
                let records = u64::from(self.server.options.processes);
                for _ in 0..records.div_ceil(RECORDS_PER_PAGE) {
                    files.append(&mut file, &[0; PAGE]).await?;
                }
                files.sync(&file).await?;
                Ok(file)
            }
        }
    }

    async fn act(self, files: &F, file: F::File, begin: Instant) -> io::Result<MpiWork> {
        match self.role {
            MpiRole::Process(number) => {
                let work = self.server.process(files, file, number, begin).await;
                // The last one wakes the database with nothing to do; one that fails does not leave
                // the others waiting.
                if self.server.processes_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.server.waiting.give(1);
                }
                work
            }
            MpiRole::Database => {
                let work = self.server.database(files, file).await;
                if work.is_err() {
                    self.server.answers.iter().for_each(|answer| answer.give(u64::MAX / 4));
                }
                work
            }
        }
    }
}

impl Server {
    async fn process<F: Files>(
        &self,
        files: &F,
        mut file: F::File,
        number: u32,
        begin: Instant,
    ) -> io::Result<MpiWork> {
        let MpiIoOptions { processes, writes, size, .. } = self.options;
        let (rank, processes) = (u64::from(number), u64::from(processes));
        let content = vec![number as u8 | 1; size as usize];
        let mut mine = Latencies::default();
        for _ in 0..writes / processes + u64::from(rank < writes % processes) {
            let asked = files.now();
            self.send(files).await;
            files.append(&mut file, &content).await?;
            self.updates.lock().expect("nobody panics while holding it").push_back(number);
            self.waiting.give(1);
            self.answers[number as usize].take(1).await;
            mine.add(files.now().since(asked));
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        files.close(file).await;
        Ok(MpiWork::Process { mine, took: files.now().since(begin) })
    }

    /// A request with its bytes, and its answer.
    async fn send<F: Files>(&self, files: &F) {
        let Some(network) = self.options.network else { return };
        files.sleep_until(files.now().plus(network.round_trip)).await;
        self.link.take(1).await;
        let seconds = self.options.size as f64 / network.bytes_per_second as f64;
        files.sleep_until(files.now().plus(Duration::from_secs_f64(seconds))).await;
        self.link.give(1);
    }

    /// The one thread that updates the database, until all processes have ended.
    async fn database<F: Files>(&self, files: &F, mut file: F::File) -> io::Result<MpiWork> {
        let (mut syncs, mut bytes) = (0, 0);
        let next = || self.updates.lock().expect("nobody panics while holding it").pop_front();
        loop {
            self.waiting.take(1).await;
            let Some(first) = next() else { break };
            let mut batch = vec![first];
            while (batch.len() as u64) < COALESCED {
                let Some(more) = next() else { break };
                self.waiting.take(1).await;
                batch.push(more);
            }
            let pages: BTreeSet<u64> =
                batch.iter().map(|file| u64::from(*file) / RECORDS_PER_PAGE).collect();
            for page in pages {
                files.write_at(&mut file, page * PAGE as u64, &[syncs as u8; PAGE]).await?;
                bytes += PAGE as u64;
            }
            files.sync(&file).await?;
            syncs += 1;
            batch.iter().for_each(|file| self.answers[*file as usize].give(1));
        }
        files.close(file).await;
        Ok(MpiWork::Database { syncs, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_is_in_a_file_and_in_the_database() {
        let directory = tempfile::tempdir().unwrap();
        let network =
            ServerLink { bytes_per_second: 1 << 30, round_trip: Duration::from_micros(10) };
        let options =
            MpiIoOptions { processes: 20, writes: 210, size: 1000, network: Some(network) };
        let report = run_mpi_io(directory.path(), &options, |_| ()).unwrap();
        let length = |number: u32| {
            std::fs::metadata(directory.path().join(format!("data/{number:05}"))).unwrap().len()
        };
        assert_eq!((0..20).map(length).sum::<u64>(), 210 * 1000);
        assert_eq!((length(9), length(10)), (11_000, 10_000));
        let database = std::fs::metadata(directory.path().join(DATABASE_FILE)).unwrap().len();
        assert_eq!(database, 2 * PAGE as u64);
        assert!((210u64.div_ceil(COALESCED)..=210).contains(&report.database_syncs), "{report:?}");
        assert!(report.database_bytes >= report.database_syncs * PAGE as u64);
    }
}
