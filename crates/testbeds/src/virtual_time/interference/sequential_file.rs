//! The large file, and the processes that read or write it in order.

use super::Scene;
use crate::virtual_time::StageError;
use device::World;
use ext4::{Caller, Error, Inode, RangeMode, Volume, WriteFlags};
use runtime::{Receiver, spawn_with_result};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{FileBlock, InodeNumber, Instant};

/// Bytes of one write; writes wait in the cache until the engine writes them back.
const WRITE: u64 = 1 << 20;
const READS_IN_FLIGHT: usize = 2;
const MODE: u16 = 0o100_644;
/// Processor time of a write, or of a read from memory. With no time at all no other task would
/// ever run, and the loop would not end.
const COPY: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequentialFile {
    /// Written rather than read.
    pub writes: bool,
    /// Bytes of the file; its end is followed by its start.
    pub span: u64,
    /// Bytes of a read request to the disk. The next request is in flight while one is waited for.
    pub read: u64,
}

impl SequentialFile {
    /// A reader with read-ahead as in Linux 3.4. Windows are of 128 KiB (`VM_MAX_READAHEAD`), and
    /// the next one begins as soon as the reader waits for the one before
    /// (`page_cache_async_readahead`).
    pub fn reader(span: u64) -> SequentialFile {
        SequentialFile { writes: false, span, read: 128 << 10 }
    }
    /// A writer that waits only for memory.
    pub fn writer(span: u64) -> SequentialFile {
        SequentialFile { writes: true, ..SequentialFile::reader(span) }
    }
    /// Reads as Linux's md on a RAID-0: two stripes ahead.
    pub fn over(self, drives: u32, chunk: u64) -> SequentialFile {
        SequentialFile { read: self.read.max(2 * u64::from(drives) * chunk), ..self }
    }

    pub(super) async fn make(self, volume: &Rc<Volume>) -> Result<Rc<Inode>, Error> {
        let root = volume.inode(InodeNumber(2)).await?;
        mapped_file(volume, &root, b"large", self.span).await
    }

    pub(super) fn begin(self, scene: &Scene, file: Rc<Inode>) -> StreamTasks {
        let next = Rc::new(Cell::new(0));
        let tasks = match self.writes {
            true => vec![spawn_with_result(&scene.world, write(scene.clone(), file, self.span))],
            false => (0..READS_IN_FLIGHT)
                .map(|_| {
                    let read = read(scene.clone(), file.clone(), next.clone(), self);
                    spawn_with_result(&scene.world, read)
                })
                .collect(),
        };
        StreamTasks { tasks, writes: self.writes }
    }
}

/// The tasks that go through the file; each returns its bytes.
pub(super) struct StreamTasks {
    tasks: Vec<Receiver<Result<u64, Error>>>,
    writes: bool,
}

impl StreamTasks {
    /// Returns bytes per second. Writes count when they are durable.
    pub async fn rate(self, scene: &Scene, begin: Instant) -> Result<f64, StageError> {
        let mut bytes = 0;
        for task in self.tasks {
            bytes += task.await.expect("it runs to its end")?;
        }
        if self.writes {
            scene.volume.sync().await?;
        }
        let seconds = match self.writes {
            true => scene.world.now().since(begin),
            false => scene.end.since(begin),
        };
        Ok(bytes as f64 / seconds.as_secs_f64().max(1e-9))
    }
}

/// Starts where the other reader's read ends. Returns the bytes read before the end of the run.
async fn read(
    scene: Scene,
    file: Rc<Inode>,
    next: Rc<Cell<u64>>,
    large: SequentialFile,
) -> Result<u64, Error> {
    let mut bytes = 0;
    while scene.world.now() < scene.end {
        let at = next.replace(next.get() + large.read) % (large.span / large.read * large.read);
        let begun = scene.world.now();
        scene.volume.read(&file, at, large.read as usize).await?;
        if scene.world.now() == begun {
            // Served from memory.
            scene.world.sleep_until(begun.plus(COPY)).await;
        }
        if scene.world.now() <= scene.end {
            bytes += large.read;
        }
    }
    Ok(bytes)
}

async fn write(scene: Scene, file: Rc<Inode>, span: u64) -> Result<u64, Error> {
    let content = vec![7; WRITE as usize];
    let mut bytes = 0;
    while scene.world.now() < scene.end {
        let at = bytes % (span / WRITE * WRITE);
        scene.volume.write(&file, &Caller::ROOT, at, &content, WriteFlags::default()).await?;
        scene.world.sleep_until(scene.world.now().plus(COPY)).await;
        bytes += WRITE;
    }
    Ok(bytes)
}

/// Makes a file whose blocks count as written: reading it reads the disk, and making it took no
/// time for writes.
pub(super) async fn mapped_file(
    volume: &Rc<Volume>,
    directory: &Rc<Inode>,
    name: &[u8],
    size: u64,
) -> Result<Rc<Inode>, Error> {
    let file = volume.mknod(directory, name, &Caller::ROOT, MODE, 0).await?.value;
    volume.fallocate(&file, &Caller::ROOT, RangeMode::Allocate, false, 0, size).await?;
    let blocks = (size >> volume.block_size().shift()) as u32;
    let mut at = 0;
    while at < blocks {
        let mut handle = volume.engine().start(volume.credits_map(&file)).await?;
        let marked = volume.mark_written(&mut handle, &file, FileBlock(at), blocks - at).await;
        handle.stop();
        at += marked?.max(1);
    }
    Ok(file)
}
