//! A sequential reader beside a writer of scattered small updates: what the Manylogs paper measures in its figures 2 and 3.

use crate::Stage;
use device::World;
use ext4::{Caller, Error, Inode, RangeMode, Volume, WriteFlags};
use runtime::{SplitMix, VirtualWorld, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{FileBlock, InodeNumber, Instant};

/// What a file's reader asks a disk for in Linux 3.4: windows of 128 KiB (`VM_MAX_READAHEAD`), and the next one as soon as
/// it waits for the one before (`page_cache_async_readahead`).
const READ: u64 = 128 << 10;
const READS_UNDER_WAY: usize = 2;
/// The writer's files, each in a directory of its own, which the allocator spreads over the disk.
const FILES: u32 = 20;
const FILE: u64 = 64 << 10;
const MODE: u16 = 0o644;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderBeside {
    /// Updates of the writer in a second; it syncs after each round of [`ReaderBeside::FILES`]. 0: the reader is alone.
    pub updates_per_second: u32,
    /// Bytes of an update, at most a block.
    pub update: usize,
    /// Bytes of the reader's file.
    pub read_span: u64,
    pub seconds: u64,
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ReadAndSynced {
    pub bytes_read: u64,
    pub seconds: f64,
    pub syncs: u64,
    pub mean_sync_ms: f64,
}

impl ReaderBeside {
    pub const FILES: u32 = FILES;

    pub fn play(self, stage: &Stage) -> Result<ReadAndSynced, Error> {
        let (world, volume) = (stage.world().clone(), stage.volume().clone());
        stage.world().run(async move { self.run(world, volume).await })
    }

    async fn run(self, world: VirtualWorld, volume: Rc<Volume>) -> Result<ReadAndSynced, Error> {
        let root = volume.inode(InodeNumber(2)).await?;
        let large = mapped_file(&volume, &root, b"large", self.read_span).await?;
        let mut small = Vec::new();
        for number in 0..FILES {
            let name = format!("tenant-{number}");
            let directory = volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await?.value;
            let file = mapped_file(&volume, &directory, b"file", FILE).await?;
            // What is written in part need not be read first.
            volume.read(&file, 0, FILE as usize).await?;
            small.push(file);
        }
        volume.sync().await?;

        let begun = world.now();
        let end = begun.plus(Duration::from_secs(self.seconds));
        let next = Rc::new(Cell::new(0));
        let mut readers = Vec::new();
        for _ in 0..READS_UNDER_WAY {
            let reader =
                read(world.clone(), volume.clone(), large.clone(), next.clone(), self.read_span, end);
            readers.push(spawn_with_result(&world, reader));
        }
        let syncs = Rc::new(RefCell::new(Vec::new()));
        if self.updates_per_second > 0 {
            self.write(&world, &volume, &small, end, &syncs).await?;
        }
        let mut bytes_read = 0;
        for reader in readers {
            bytes_read += reader.await.expect("a reader runs to its end")?;
        }
        let times = syncs.borrow();
        let total: Duration = times.iter().sum();
        Ok(ReadAndSynced {
            bytes_read,
            seconds: world.now().since(begun).as_secs_f64(),
            syncs: times.len() as u64,
            mean_sync_ms: total.as_secs_f64() * 1e3 / times.len().max(1) as f64,
        })
    }

    async fn write(
        self,
        world: &VirtualWorld,
        volume: &Rc<Volume>,
        files: &[Rc<Inode>],
        end: Instant,
        syncs: &RefCell<Vec<Duration>>,
    ) -> Result<(), Error> {
        let period = Duration::from_secs(1) * FILES / self.updates_per_second;
        let dice = SplitMix::new(self.seed);
        let mut due = world.now().plus(period);
        while due < end {
            world.sleep_until(due).await;
            for file in files {
                let at = dice.next() % (FILE / 4096) * 4096 + dice.next() % (4097 - self.update as u64);
                let bytes = vec![dice.next() as u8; self.update];
                volume.write(file, &Caller::ROOT, at, &bytes, WriteFlags::default()).await?;
            }
            let begun = world.now();
            volume.sync().await?;
            syncs.borrow_mut().push(world.now().since(begun));
            // A writer that is late does not make up for it.
            due = due.plus(period).max(world.now());
        }
        Ok(())
    }
}

/// Reads on where the other reader's read ends, around the file. How many bytes came before the end of time.
async fn read(
    world: VirtualWorld,
    volume: Rc<Volume>,
    file: Rc<Inode>,
    next: Rc<Cell<u64>>,
    span: u64,
    end: Instant,
) -> Result<u64, Error> {
    let mut bytes = 0;
    while world.now() < end {
        let at = next.replace(next.get() + READ) % (span / READ * READ);
        volume.read(&file, at, READ as usize).await?;
        if world.now() <= end {
            bytes += READ;
        }
    }
    Ok(bytes)
}

/// A file whose blocks count as written: reading it reads the disk, and making it took no time to write it.
async fn mapped_file(
    volume: &Rc<Volume>,
    directory: &Rc<Inode>,
    name: &[u8],
    size: u64,
) -> Result<Rc<Inode>, Error> {
    let file = volume.mknod(directory, name, &Caller::ROOT, 0o100_000 | MODE, 0).await?.value;
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
