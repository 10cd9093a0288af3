//! Measures synchronous small writes per second of the engine, and the cost of one.
//!
//! `commit_throughput [MODE [WRITERS [SECONDS [PATH]]]]`: each writer appends 128 bytes to its own
//! block and changes its inode's bytes in a shared table block, then waits for the commit. Without
//! PATH the disk answers at once, so that only our own code is measured; with PATH that file (at
//! least 512 MiB, overwritten!) is the volume.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture};
use engine::{
    Base, Credits, DiskHome, Engine, EngineOptions, EngineParts, FileUpdate, LogArea, LogDevice,
    LogExtent,
};
use format::jbd2::JournalSuperblock;
use runtime::RealWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, BlockSize, HomeBlock, LogBlock, Owner};

const LOG_BLOCKS: u32 = 32768;
const HOME_BLOCKS: u64 = 65536;
const BLOCK: u32 = 4096;
const APPEND: u32 = 128;
const INODE: u32 = 256;

/// Takes everything, keeps nothing but the journal superblock's first image.
struct NoDisk(Buffer);

impl Disk for NoDisk {
    fn name(&self) -> &str {
        "no disk"
    }
    fn geometry(&self) -> Geometry {
        let size = (HOME_BLOCKS + u64::from(LOG_BLOCKS)) * u64::from(BLOCK);
        Geometry { size, logical_sector: 512, discard: false, forced_unit_access: true }
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let superblock = at == HOME_BLOCKS * u64::from(BLOCK);
        let buffer = if superblock { self.0.clone() } else { Buffer::zeroed(length) };
        Box::pin(async move { Ok(buffer) })
    }
    fn write(
        &self,
        _: u64,
        _: Vec<Rc<Buffer>>,
        _: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        Box::pin(async {
            runtime::yield_now().await;
            Ok(())
        })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, _: u64, _: u64) -> LocalFuture<Result<(), DeviceError>> {
        Box::pin(async { Ok(()) })
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or("wasteless".into()).parse().expect("a data mode");
    let writers: u64 =
        arguments.next().map_or(100, |text| text.parse().expect("a number of writers"));
    let seconds: u64 =
        arguments.next().map_or(3, |text| text.parse().expect("a number of seconds"));
    let world = RealWorld::new().expect("a ring");
    let superblock =
        JournalSuperblock::new(BlockSize::new(BLOCK).unwrap(), LOG_BLOCKS, [1; 16]).serialize();
    let superblock = Buffer::copy_of(&superblock);
    let disk: Rc<dyn Disk> = match arguments.next() {
        None => Rc::new(NoDisk(superblock.clone())),
        Some(path) => Rc::new(
            disks::FileDisk::open(world.ring(), path.as_ref(), disks::DiskAccess::ReadWrite)
                .expect("a file"),
        ),
    };
    let block_size = BlockSize::new(BLOCK).unwrap();
    let parts = EngineParts {
        world: Rc::new(world.clone()),
        home: Rc::new(DiskHome::new(disk.clone(), block_size, HOME_BLOCKS + u64::from(LOG_BLOCKS))),
        block_size,
        log: Some(LogArea {
            device: LogDevice::Inside,
            extents: vec![LogExtent {
                first: LogBlock(0),
                count: LOG_BLOCKS,
                disk_block: HOME_BLOCKS,
            }],
            superblock: LogBlock(0),
            logs: None,
        }),
        options: EngineOptions { data: mode, ..EngineOptions::default() },
        pacing: Rc::new(engine::NoPacing),
    };
    world.clone().run(async move {
        let at = HOME_BLOCKS * u64::from(BLOCK);
        disk.write(at, vec![Rc::new(superblock)], Durability::Durable)
            .await
            .expect("a written superblock");
        measure(parts, writers, Duration::from_secs(seconds)).await;
    });
}

async fn measure(parts: EngineParts, writers: u64, time: Duration) {
    let world = parts.world.clone();
    let engine = Engine::open(parts).await.expect("an engine");
    let begun = world.now();
    let end = begun.plus(time);
    let done = Rc::new(Cell::new(0u64));
    let tasks = (0..writers).map(|writer| {
        let (engine, done) = (engine.clone(), done.clone());
        runtime::spawn_with_result(&*world, async move {
            for number in 0.. {
                append(&engine, writer, writers, number).await;
                done.set(done.get() + 1);
                if engine.world().now() >= end {
                    return;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await;
    }
    let elapsed = world.now().since(begun);
    let count = done.get();
    println!(
        "{writers} writers: {:.0} syncs/s, {:.2} us each",
        count as f64 / elapsed.as_secs_f64(),
        elapsed.as_micros() as f64 / count as f64
    );
    println!("{}", serde_json::to_string(&engine.statistics()).expect("numbers"));
    engine.shutdown().await.expect("a clean end");
}

async fn append(engine: &Rc<Engine>, writer: u64, writers: u64, number: u64) {
    let per_block = u64::from(BLOCK / APPEND);
    let start = (number % per_block) as u32 * APPEND;
    // A new block of the writer's own every 32 appends, from a stretch that is used again and
    // again.
    let stretch = (HOME_BLOCKS / 2) / writers;
    let home = HomeBlock(HOME_BLOCKS / 2 + writer * stretch + number / per_block % stretch);
    let table = engine
        .metadata(HomeBlock(1 + writer / u64::from(BLOCK / INODE)))
        .await
        .expect("a table block");
    let mut handle = engine.start(Credits(1)).await.expect("a handle");
    let at = (writer % u64::from(BLOCK / INODE)) as u32 * INODE;
    handle.change(&table, BlockRange::new(at, at + INODE), |bytes| {
        bytes[at as usize..at as usize + 8].copy_from_slice(&number.to_le_bytes())
    });
    drop(table);
    let update = FileUpdate {
        owner: Owner(writer + 1),
        home,
        range: BlockRange::new(start, start + APPEND),
        bytes: &[number as u8; APPEND as usize],
        base: if start == 0 { Base::Zero } else { Base::Home },
        request: u64::from(APPEND),
        sequential: true,
        in_place: false,
        durable_only: false,
    };
    handle.write_file_data(update).await.expect("room");
    engine.commit(handle.stop()).await.expect("a commit");
}
