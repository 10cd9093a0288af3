//! Work for an instruction counter: a volume on a minimal disk, in virtual time, mounted nowhere.
//!
//! valgrind --tool=callgrind target/release/examples/instructions sync 20000
//!
//! The difference of the instructions of two counts is the cost of the additional operations.
//!
//! valgrind --tool=callgrind --toggle-collect='*CountedRequest*poll*' \
//!     target/release/examples/instructions create 1000 ordered
//!
//! This counts one kind of requests alone, from the parsed request to its reply.

mod tree;

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, World};
use engine::{DataMode, EngineOptions};
use ext4::{Caller, OpenParts, SyncWhat, Volume, VolumeOptions, WriteFlags};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tree::{Counted, Tree};
use volume_images::{ImageRequest, Journal};

/// The daemon's heap.
#[global_allocator]
static HEAP: runtime::Heap = runtime::Heap::new();

const WRITERS: u64 = 100;
const RECORD: usize = 128;
const LARGE: usize = 1 << 20;
/// Length in bytes at which long files begin anew, so that memory use stays constant.
const LARGE_FILE: u64 = 64 << 20;
/// Bytes of a database's log, and of one write to it.
const LOG_FILE: u64 = 16 << 20;
const LOG_WRITE: usize = 8 << 10;

const ROOT: units::InodeNumber = units::InodeNumber(2);
const CALLER: Caller<'static> = Caller::ROOT;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, count, rest @ ..] = &arguments[..] else {
        panic!("instructions WORK COUNT [MODE]");
    };
    let (count, mode) =
        (count.parse().expect("a count"), rest.first().map_or("wasteless", String::as_str));
    let world = VirtualWorld::new(1);
    let request = ImageRequest {
        options: &["-t", "ext4", "-J", "size=32"],
        block_size: 4096,
        size: 256 << 20,
        journal: Journal::Inside,
        stale: None,
    };
    let image = volume_images::make(&request).expect("mke2fs").home;
    let mut bytes = vec![0; image.size() as usize];
    image.read(0, &mut bytes);
    let disk: Rc<dyn Disk> = Rc::new(Flat(Rc::new(RefCell::new(bytes))));
    let engine = EngineOptions {
        data: DataMode::ALL.into_iter().find(|one| one.name() == mode).expect("a mode"),
        ..EngineOptions::default()
    };
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
    let parts = OpenParts { world: Rc::new(world.clone()), home: disk, journal: None, options };
    let (work, inner) = (work.clone(), world.clone());
    world.run(async move {
        let mut volume = Volume::open(parts.clone()).await.expect("opens");
        match work.as_str() {
            "sync" => append_synchronously(&inner, &volume, count).await,
            "overwrite" => overwrite_durably(&volume, count).await,
            "large" => write_large(&volume, count).await,
            "read" => {
                write_large(&volume, LARGE_FILE / LARGE as u64).await;
                volume.close().await.expect("closes");
                volume = Volume::open(parts).await.expect("opens");
                read_large(&volume, count).await;
            }
            work => {
                let (counted, for_each_file) = Counted::of(work).expect("a work");
                println!("{} requests are counted", count * for_each_file);
                Tree::new(&volume, counted).play(count).await;
            }
        }
        volume.close().await.expect("closes");
    });
    world.end();
}

/// A disk that only copies bytes.
#[derive(Clone)]
struct Flat(Rc<RefCell<Vec<u8>>>);

impl Disk for Flat {
    fn name(&self) -> &str {
        "flat"
    }
    fn geometry(&self) -> Geometry {
        let size = self.0.borrow().len() as u64;
        Geometry { size, logical_sector: 512, discard: false, forced_unit_access: true }
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let image = self.0.clone();
        Box::pin(async move {
            let mut buffer = Buffer::to_fill(length);
            buffer.copy_from_slice(&image.borrow()[at as usize..][..length]);
            Ok(buffer)
        })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        _: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let image = self.0.clone();
        Box::pin(async move {
            // A disk that answered at once would hide that others wait.
            runtime::yield_now().await;
            let (mut image, mut at) = (image.borrow_mut(), at as usize);
            for part in parts {
                image[at..at + part.len()].copy_from_slice(&part);
                at += part.len();
            }
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

async fn file(volume: &Rc<Volume>, name: &str) -> Rc<ext4::Inode> {
    let root = volume.inode(ROOT).await.expect("the root");
    volume.mknod(&root, name.as_bytes(), &CALLER, 0o100644, 0).await.expect("a file").value
}

/// Runs [`WRITERS`] tasks, each with a file of its own; `count` writes in all.
async fn append_synchronously(world: &VirtualWorld, volume: &Rc<Volume>, count: u64) {
    let (left, done) = (Rc::new(Cell::new(WRITERS)), Rc::new(runtime::sync::Event::default()));
    for writer in 0..WRITERS {
        let (volume, left, done) = (volume.clone(), left.clone(), done.clone());
        world.spawn(Box::pin(async move {
            let inode = file(&volume, &format!("writer-{writer}")).await;
            let flags = WriteFlags { append: true, ..WriteFlags::default() };
            for _ in 0..count / WRITERS {
                let written =
                    volume.write(&inode, &CALLER, 0, &[7; RECORD], flags).await.expect("writes");
                volume.settle_write(&inode, &written, Some(SyncWhat::All)).await.expect("syncs");
            }
            left.set(left.get() - 1);
            done.notify();
        }));
    }
    done.until(|| (left.get() == 0).then_some(())).await;
}

/// Overwrites [`LOG_WRITE`] bytes `count` times, one after the other, each made durable, as a
/// database does with its log.
async fn overwrite_durably(volume: &Rc<Volume>, count: u64) {
    let inode = file(volume, "log").await;
    let mut bytes = vec![0; LARGE];
    for at in (0..LOG_FILE).step_by(LARGE) {
        volume.write(&inode, &CALLER, at, &bytes, WriteFlags::default()).await.expect("writes");
    }
    volume.sync_file(&inode, SyncWhat::All).await.expect("syncs");
    for number in 0..count {
        let content = &mut bytes[..LOG_WRITE];
        content.fill(number as u8);
        let at = number * LOG_WRITE as u64 % LOG_FILE;
        volume.write(&inode, &CALLER, at, content, WriteFlags::default()).await.expect("writes");
        volume.sync_file(&inode, SyncWhat::Data).await.expect("syncs");
    }
}

/// Writes `count` mebibytes.
async fn write_large(volume: &Rc<Volume>, count: u64) {
    let (inode, bytes) = (file(volume, "large").await, vec![7; LARGE]);
    for number in 0..count {
        let at = number * LARGE as u64 % LARGE_FILE;
        volume.write(&inode, &CALLER, at, &bytes, WriteFlags::default()).await.expect("writes");
    }
}

/// Reads `count` mebibytes, as the kernel's page cache requests them. Neither cache holds them.
async fn read_large(volume: &Rc<Volume>, count: u64) {
    assert!(count <= LARGE_FILE / LARGE as u64, "the file has no more");
    let root = volume.inode(ROOT).await.expect("the root");
    let inode = volume.lookup(&root, b"large").await.expect("the file");
    for number in 0..count {
        let content =
            volume.read_for_cache(&inode, number * LARGE as u64, LARGE).await.expect("reads");
        assert_eq!(content.len(), LARGE);
    }
}
