//! A volume's files in virtual time.

use crate::virtual_time::StageOptions;
use crate::virtual_time::read_ahead::ReadAhead;
use crate::virtual_time::start_line::StartLine;
use device::World;
use engine::EngineError;
use eviction::CoercedDisk;
use ext4::{
    Caller, Error, Inode, Piece, RenameMode, SetAttributes, SetTime, SyncWhat, Volume, WriteFlags,
};
use runtime::{Either, Receiver, VirtualWorld, race, spawn_with_result};
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, Instant, TransactionId};
use workloads::{Actor, Files, SyncKind};

/// The files of a volume as a program that calls the kernel sees them, without the kernel: only the
/// disks take time. The engine's cache stands for the page cache, so an asynchronous write is in
/// the running transaction at once. The kernel would hold it until its own write-back.
#[derive(Clone)]
pub struct VirtualFiles {
    world: VirtualWorld,
    volume: Rc<Volume>,
    directory: InodeNumber,
    /// See [`StageOptions::writers_wait`].
    writers_wait: bool,
    /// See [`StageOptions::read_ahead`].
    read_ahead: u64,
    /// The disk, and [`StageOptions::evictions_a_sync`].
    coerced: Option<CoercedDisk>,
    evictions_a_sync: u64,
    /// Barrier at which actors wait before they begin.
    start: Option<Rc<StartLine>>,
}

/// An open file. Dropped without [`Files::close`], it counts as open until the volume is closed.
pub struct VirtualFile {
    inode: Rc<Inode>,
    sync: SyncKind,
    /// The last transaction that has a write of this file.
    written: Cell<Option<TransactionId>>,
    ahead: ReadAhead,
}

/// Interval at which actors are watched.
const WATCH: Duration = Duration::from_millis(250);
/// Mode of a regular file that everyone may read.
const FILE_MODE: u16 = 0o100_644;
const DIRECTORY_MODE: u16 = 0o755;

impl VirtualFiles {
    /// Paths begin at `directory`. Nothing waits for blocks under commit, and nothing is read
    /// ahead.
    pub(crate) fn new(
        world: VirtualWorld,
        volume: Rc<Volume>,
        directory: InodeNumber,
    ) -> VirtualFiles {
        VirtualFiles {
            world,
            volume,
            directory,
            writers_wait: false,
            read_ahead: 0,
            coerced: None,
            evictions_a_sync: 0,
            start: None,
        }
    }
    pub(crate) fn played_with(self, options: &StageOptions) -> VirtualFiles {
        let StageOptions { writers_wait, read_ahead, evictions_a_sync, .. } = *options;
        VirtualFiles { writers_wait, read_ahead, evictions_a_sync, ..self }
    }
    /// Makes the evictions of [`StageOptions::evictions_a_sync`] on this disk.
    pub(crate) fn evicting(self, coerced: Option<CoercedDisk>) -> VirtualFiles {
        VirtualFiles { coerced, ..self }
    }
    /// Makes its actors, when they are prepared, wait at `line`.
    pub(crate) fn starting_at(self, line: &Rc<StartLine>) -> VirtualFiles {
        VirtualFiles { start: Some(line.clone()), ..self }
    }

    /// Finds an inode. Symbolic links are not followed.
    async fn find(&self, path: &str) -> Result<Rc<Inode>, Error> {
        let mut inode = self.volume.inode(self.directory).await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            inode = self.volume.lookup(&inode, name.as_bytes()).await?;
        }
        Ok(inode)
    }

    /// Returns the directory that a path ends in, and the last name.
    async fn find_parent<'a>(&self, path: &'a str) -> Result<(Rc<Inode>, &'a [u8]), Error> {
        let path = path.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent).await?, name.as_bytes()))
    }

    pub(crate) async fn truncate(&self, path: &str, size: u64) -> io::Result<()> {
        let inode = self.find(path).await.map_err(system)?;
        self.volume.truncate(&inode, size).await.map(drop).map_err(system)
    }
    /// Sets the times to now.
    pub(crate) async fn touch(&self, path: &str) -> io::Result<()> {
        let inode = self.find(path).await.map_err(system)?;
        let modified = Some(SetTime::Now);
        let change = SetAttributes { modified, ..SetAttributes::default() };
        self.volume.setattr(&inode, &Caller::ROOT, change).await.map(drop).map_err(system)
    }
    pub(crate) async fn rename(&self, path: &str, to: &str) -> io::Result<()> {
        let (from, name) = self.find_parent(path).await.map_err(system)?;
        let (parent, new_name) = self.find_parent(to).await.map_err(system)?;
        let places = ((&from, name), (&parent, new_name));
        let renamed =
            self.volume.rename(places.0, places.1, &Caller::ROOT, RenameMode::Replace).await;
        renamed.map(drop).map_err(system)
    }
    pub(crate) async fn link(&self, path: &str, to: &str) -> io::Result<()> {
        let inode = self.find(path).await.map_err(system)?;
        let (parent, name) = self.find_parent(to).await.map_err(system)?;
        self.volume.link(&inode, &parent, name, &Caller::ROOT).await.map(drop).map_err(system)
    }
    pub(crate) async fn symlink(&self, path: &str, target: &str) -> io::Result<()> {
        let (parent, name) = self.find_parent(path).await.map_err(system)?;
        let made = self.volume.symlink(&parent, name, &Caller::ROOT, target.as_bytes()).await;
        made.map(drop).map_err(system)
    }
    pub(crate) async fn remove_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.find_parent(path).await.map_err(system)?;
        self.volume.rmdir(&parent, name).await.map(drop).map_err(system)
    }

    /// Syncs as fdatasync(2).
    pub async fn sync_data(&self, file: &VirtualFile) -> io::Result<()> {
        self.volume.sync_file(&file.inode, SyncWhat::Data).await.map_err(system)
    }

    fn opened(&self, inode: Rc<Inode>, sync: SyncKind) -> VirtualFile {
        self.volume.opened(&inode);
        VirtualFile { inode, sync, written: Cell::default(), ahead: ReadAhead::default() }
    }

    /// Reads ahead. A failure is met again by the reader.
    fn read_ahead(&self, file: &VirtualFile, wanted: Range<u64>) {
        let ahead = file.ahead.beside(&wanted, self.read_ahead);
        if ahead.start < self.volume.getattr(&file.inode).size && !ahead.is_empty() {
            let (volume, inode) = (self.volume.clone(), file.inode.clone());
            let read = async move {
                let _ = volume.read(&inode, ahead.start, (ahead.end - ahead.start) as usize).await;
            };
            self.world.spawn(Box::pin(read));
        }
    }

    /// Waits as [`StageOptions::writers_wait`] says.
    async fn wait_while_in_flight(&self, file: &VirtualFile) -> Result<(), EngineError> {
        let engine = self.volume.engine();
        let is_in_flight = |last: TransactionId| {
            engine.running().is_after(last) && last.is_after(engine.committed())
        };
        match file.written.get() {
            Some(last) if is_in_flight(last) => engine.wait_for_commits_in_flight().await,
            _ => Ok(()),
        }
    }

    async fn write(&self, file: &VirtualFile, offset: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        let flags = WriteFlags { append: offset.is_none(), ..WriteFlags::default() };
        let (inode, offset) = (&file.inode, offset.unwrap_or(0));
        if self.writers_wait {
            self.wait_while_in_flight(file).await.map_err(|error| system(error.into()))?;
        }
        let written =
            self.volume.write(inode, &Caller::ROOT, offset, bytes, flags).await.map_err(system)?;
        file.written.set(Some(written.transaction));
        if written.count != bytes.len() {
            let why = format!("{} of {} bytes", written.count, bytes.len());
            return Err(io::Error::new(io::ErrorKind::WriteZero, why));
        }
        match file.sync {
            SyncKind::None => Ok(()),
            SyncKind::Fsync => self.sync(file).await,
            SyncKind::OSync => {
                self.volume.settle_write(inode, &written, Some(SyncWhat::All)).await.map_err(system)
            }
        }
    }
}

/// Converts an error to that of a system call.
fn system(error: Error) -> io::Error {
    match error.refusal() {
        Some(refusal) => io::Error::from_raw_os_error(refusal.errno()),
        None => io::Error::other(error),
    }
}

impl Files for VirtualFiles {
    type File = VirtualFile;

    fn now(&self) -> Instant {
        self.world.now()
    }
    async fn sleep_until(&self, at: Instant) {
        self.world.sleep_until(at).await;
    }
    async fn create(&self, path: &str, sync: SyncKind) -> io::Result<VirtualFile> {
        let (parent, name) = self.find_parent(path).await.map_err(system)?;
        let made = self.volume.mknod(&parent, name, &Caller::ROOT, FILE_MODE, 0).await;
        Ok(self.opened(made.map_err(system)?.value, sync))
    }
    async fn open(&self, path: &str, sync: SyncKind) -> io::Result<VirtualFile> {
        let inode = self.find(path).await.map_err(system)?;
        match inode.is_directory() {
            true => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            false => Ok(self.opened(inode, sync)),
        }
    }
    /// Closes the file. The file system remembers a failure; close(2) does not report it either.
    async fn close(&self, file: VirtualFile) {
        let _ = self.volume.closed(file.inode.number).await;
    }
    async fn append(&self, file: &mut VirtualFile, bytes: &[u8]) -> io::Result<()> {
        self.write(file, None, bytes).await
    }
    async fn write_at(&self, file: &mut VirtualFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(file, Some(offset), bytes).await
    }
    async fn read_at(
        &self,
        file: &VirtualFile,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        self.read_ahead(file, offset..offset + bytes.len() as u64);
        let content = self.volume.read(&file.inode, offset, bytes.len()).await.map_err(system)?;
        let mut rest = &mut bytes[..];
        for piece in &content.pieces {
            let length = match piece {
                Piece::Bytes { range, .. } => range.len(),
                Piece::Zeros(count) => *count,
            };
            let (to, behind) = rest.split_at_mut(length);
            match piece {
                Piece::Bytes { buffer, range } => to.copy_from_slice(&buffer[range.clone()]),
                Piece::Zeros(_) => to.fill(0),
            }
            rest = behind;
        }
        Ok(content.len())
    }
    async fn sync(&self, file: &VirtualFile) -> io::Result<()> {
        let made = |disk: &CoercedDisk| disk.statistics().evictions;
        let before = self.coerced.as_ref().map(made);
        self.volume.sync_file(&file.inode, SyncWhat::All).await.map_err(system)?;
        if let (Some(disk), Some(before)) = (&self.coerced, before) {
            while made(disk) < before + self.evictions_a_sync {
                disk.evict_once_more().await.map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
    async fn length(&self, path: &str) -> io::Result<u64> {
        let inode = self.find(path).await.map_err(system)?;
        Ok(self.volume.getattr(&inode).size)
    }
    async fn unlink(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.find_parent(path).await.map_err(system)?;
        self.volume.unlink(&parent, name).await.map(drop).map_err(system)
    }
    async fn make_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.find_parent(path).await.map_err(system)?;
        let made = self.volume.mkdir(&parent, name, &Caller::ROOT, DIRECTORY_MODE).await;
        made.map(drop).map_err(system)
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        run_tasks(&self.world, self, self.start.as_deref(), actors, watch).await
    }
}

/// Runs [`Files::run_actors`] for files of a virtual world: actors are its tasks.
pub(crate) async fn run_tasks<F: Files, A: Actor<F>>(
    world: &VirtualWorld,
    files: &F,
    start: Option<&StartLine>,
    actors: Vec<A>,
    mut watch: impl FnMut(),
) -> io::Result<Vec<A::Output>> {
    let prepare = |actor: A| {
        let files = files.clone();
        spawn_with_result(world, async move {
            let ready = actor.prepare(&files).await;
            (actor, ready)
        })
    };
    let mut ready = Vec::new();
    for preparing in actors.into_iter().map(prepare).collect::<Vec<_>>() {
        ready.push(watched(world, preparing, &mut watch).await);
    }
    let ready = ready
        .into_iter()
        .map(|(actor, ready)| Ok((actor, ready?)))
        .collect::<io::Result<Vec<_>>>()?;
    if let Some(start) = start {
        start.wait().await;
    }
    let begin = world.now();
    let act = |(actor, ready): (A, A::Ready)| {
        let files = files.clone();
        spawn_with_result(world, async move { actor.act(&files, ready, begin).await })
    };
    let mut outputs = Vec::new();
    for acting in ready.into_iter().map(act).collect::<Vec<_>>() {
        outputs.push(watched(world, acting, &mut watch).await);
    }
    Ok(outputs)
}

async fn watched<T>(world: &VirtualWorld, mut end: Receiver<T>, watch: &mut impl FnMut()) -> T {
    loop {
        let tick = world.sleep_until(world.now().plus(WATCH));
        match race(&mut end, tick).await {
            Either::Left(value) => return value.expect("an actor ends"),
            Either::Right(()) => watch(),
        }
    }
}
