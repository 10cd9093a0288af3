//! The environment of workloads: files, a clock, and actors that use them concurrently.
//!
//! The same workload runs on a directory in real time, where actors are threads and calls block
//! ([`DirectoryFiles`]). It runs on an emulated disk in virtual time, where actors are tasks of one
//! thread (`testbeds::VirtualFiles`).

use crate::semaphore::block_on;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, RwLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use units::Instant;

/// Point at which a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    /// The file is opened O_SYNC: each write returns when it is durable.
    #[default]
    OSync,
    /// fsync(2) after each write.
    Fsync,
    /// The page cache has it.
    None,
}

/// Files below one directory, a clock and sleep: what a workload may use. Paths are relative to the
/// directory. Clones are the same files.
pub trait Files: Clone + 'static {
    type File: 'static;
    fn now(&self) -> Instant;
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;
    /// Makes a file, which must not exist.
    fn create(&self, path: &str, sync: SyncKind) -> impl Future<Output = io::Result<Self::File>>;
    /// Opens a file, which must exist, for reading and writing.
    fn open(&self, path: &str, sync: SyncKind) -> impl Future<Output = io::Result<Self::File>>;
    fn close(&self, file: Self::File) -> impl Future<Output = ()>;
    /// Writes at the end of the file; returns when the bytes are as durable as the file's
    /// [`SyncKind`] says.
    fn append(&self, file: &mut Self::File, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;
    /// Writes like `append`, at a byte offset.
    fn write_at(
        &self,
        file: &mut Self::File,
        offset: u64,
        bytes: &[u8],
    ) -> impl Future<Output = io::Result<()>>;
    /// Returns how many bytes were read, fewer only at the end of the file.
    fn read_at(
        &self,
        file: &Self::File,
        offset: u64,
        bytes: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>>;
    /// fsync(2).
    fn sync(&self, file: &Self::File) -> impl Future<Output = io::Result<()>>;
    /// Bytes of the file, by stat(2).
    fn length(&self, path: &str) -> impl Future<Output = io::Result<u64>>;
    fn unlink(&self, path: &str) -> impl Future<Output = io::Result<()>>;
    fn make_directory(&self, path: &str) -> impl Future<Output = io::Result<()>>;
    /// Prepares all actors, and when all are ready, lets them act at once; their outputs in the
    /// same order. If one cannot prepare, none acts. `watch` is called several times a second (of
    /// this file system's time).
    fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        watch: impl FnMut(),
    ) -> impl Future<Output = io::Result<Vec<A::Output>>>;
}

/// One of many concurrent users of the files: a thread in real time, a task in virtual time.
pub trait Actor<F: Files>: Send + 'static {
    /// State of an actor that is ready, such as its open files.
    type Ready: 'static;
    type Output: Send + 'static;
    fn prepare(&self, files: &F) -> impl Future<Output = io::Result<Self::Ready>>;
    /// Acts until it is done; `begin` is the same for all actors.
    fn act(
        self,
        files: &F,
        ready: Self::Ready,
        begin: Instant,
    ) -> impl Future<Output = Self::Output>;
}

/// Files in a directory, real time, and calls that block the thread. Its futures are ready at once
/// ([`at_once`]); only actors may wait for one another.
#[derive(Clone)]
pub struct DirectoryFiles {
    directory: Arc<PathBuf>,
    started: std::time::Instant,
}

impl DirectoryFiles {
    pub fn new(directory: PathBuf) -> DirectoryFiles {
        DirectoryFiles { directory: Arc::new(directory), started: std::time::Instant::now() }
    }
}

pub struct DirectoryFile {
    file: File,
    sync: SyncKind,
    /// Offset of the next append.
    end: u64,
}

/// The result of a future that never waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("files of a directory block their thread instead"),
    }
}

/// An actor's stack: it calls little. The default of 2 MiB would be 2 GiB of address space for 1000
/// of them.
const STACK: usize = 128 << 10;

impl Files for DirectoryFiles {
    type File = DirectoryFile;

    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }
    async fn sleep_until(&self, at: Instant) {
        std::thread::sleep(at.since(self.now()));
    }
    async fn create(&self, path: &str, sync: SyncKind) -> io::Result<DirectoryFile> {
        let file = options(sync).create_new(true).open(self.directory.join(path))?;
        Ok(DirectoryFile { file, sync, end: 0 })
    }
    async fn open(&self, path: &str, sync: SyncKind) -> io::Result<DirectoryFile> {
        let file = options(sync).open(self.directory.join(path))?;
        let end = file.metadata()?.len();
        Ok(DirectoryFile { file, sync, end })
    }
    async fn close(&self, _file: DirectoryFile) {}
    async fn append(&self, file: &mut DirectoryFile, bytes: &[u8]) -> io::Result<()> {
        self.write_at(file, file.end, bytes).await
    }
    async fn write_at(
        &self,
        file: &mut DirectoryFile,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        // One system call: a record written in two could be torn by its own writer.
        let written = file.file.write_at(bytes, offset)?;
        file.end = file.end.max(offset + written as u64);
        if written != bytes.len() {
            let why = format!("{written} of {} bytes", bytes.len());
            return Err(io::Error::new(io::ErrorKind::WriteZero, why));
        }
        if file.sync == SyncKind::Fsync { file.file.sync_all() } else { Ok(()) }
    }
    async fn read_at(
        &self,
        file: &DirectoryFile,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match file.file.read_at(&mut bytes[read..], offset + read as u64)? {
                0 => break,
                count => read += count,
            }
        }
        Ok(read)
    }
    async fn sync(&self, file: &DirectoryFile) -> io::Result<()> {
        file.file.sync_all()
    }
    async fn length(&self, path: &str) -> io::Result<u64> {
        Ok(std::fs::metadata(self.directory.join(path))?.len())
    }
    async fn unlink(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(path))
    }
    async fn make_directory(&self, path: &str) -> io::Result<()> {
        std::fs::create_dir(self.directory.join(path))
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        mut watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        allow_open_files(actors.len() as u64 + 64);
        // When to begin; `None`: not at all. Locked until all are ready.
        let gate: RwLock<Option<Instant>> = RwLock::new(None);
        let (ready, readiness) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut begin = gate.write().expect("nobody else has it yet");
            let mut threads = Vec::new();
            let mut failure = None;
            for actor in actors {
                let (gate, ready) = (&gate, ready.clone());
                let body = move || {
                    let prepared = at_once(actor.prepare(self));
                    let (mine, failed) = match prepared {
                        Ok(mine) => (Some(mine), None),
                        Err(error) => (None, Some(error)),
                    };
                    ready.send(failed).expect("the other end outlives the actors");
                    let begin = (*gate.read().expect("opened without a panic"))?;
                    Some(block_on(actor.act(self, mine?, begin)))
                };
                match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            for _ in 0..threads.len() {
                let failed = readiness.recv().expect("every actor says that it is ready");
                failure = failure.or(failed);
            }
            // Actors that are ready must be released even if others are not.
            *begin = failure.is_none().then(|| self.now());
            drop(begin);
            while !threads.iter().all(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                watch();
            }
            let outputs: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("no actor panics")).collect();
            match failure {
                Some(error) => Err(error),
                None => {
                    Ok(outputs.into_iter().map(|output| output.expect("all were ready")).collect())
                }
            }
        })
    }
}

fn options(sync: SyncKind) -> OpenOptions {
    let flags = if sync == SyncKind::OSync { libc::O_SYNC } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options
}

/// Raises the soft limit of open files as far as needed and allowed; creating a file fails if it
/// was too low.
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
