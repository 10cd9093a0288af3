use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use units::Instant;

/// When an append counts as done.
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

/// Files, a clock and sleep, wherever they are: what a workload may use.
pub trait Files {
    type File;
    fn now(&self) -> Instant;
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;
    /// Makes a file, which must not exist.
    fn create(&self, name: &str, sync: SyncKind) -> impl Future<Output = io::Result<Self::File>>;
    /// Returns when the bytes are as durable as the file's [`SyncKind`] says.
    fn append(&self, file: &mut Self::File, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;
}

/// Files in a directory, real time, and calls that block the thread. Its futures are ready at once.
pub struct DirectoryFiles {
    directory: PathBuf,
    started: std::time::Instant,
}

impl DirectoryFiles {
    pub fn new(directory: PathBuf) -> DirectoryFiles {
        DirectoryFiles { directory, started: std::time::Instant::now() }
    }
}

impl Files for DirectoryFiles {
    type File = (File, SyncKind);

    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }
    async fn sleep_until(&self, at: Instant) {
        std::thread::sleep(at.since(self.now()));
    }
    async fn create(&self, name: &str, sync: SyncKind) -> io::Result<Self::File> {
        let flags = if sync == SyncKind::OSync { libc::O_SYNC } else { 0 };
        let mut options = OpenOptions::new();
        let file =
            options.append(true).create_new(true).custom_flags(flags).open(self.directory.join(name))?;
        Ok((file, sync))
    }
    async fn append(&self, (file, sync): &mut Self::File, bytes: &[u8]) -> io::Result<()> {
        // One system call: a record written in two could be torn by its own writer.
        let written = file.write(bytes)?;
        if written != bytes.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{written} of {} bytes", bytes.len()),
            ));
        }
        if *sync == SyncKind::Fsync { file.sync_all() } else { Ok(()) }
    }
}
