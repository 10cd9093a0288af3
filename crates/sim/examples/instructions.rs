//! Work for an instruction counter: a volume on a disk in memory, in virtual time, and no door.
//!
//!     valgrind --tool=callgrind target/release/examples/instructions sync 20000
//!
//! Instructions of two counts, less one another, are those of the difference.

use device::World;
use disks::MemoryDisk;
use engine::{DataMode, EngineOptions};
use ext4::{Caller, OpenParts, SyncWhat, Volume, VolumeOptions, WriteFlags};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::rc::Rc;
use volume_images::{Journal, Request};

const WRITERS: u64 = 100;
const RECORD: usize = 128;
const LARGE: usize = 1 << 20;
/// Long files begin anew, so that memory stays as it is.
const LARGE_FILE: u64 = 64 << 20;

const ROOT: units::InodeNumber = units::InodeNumber(2);
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, count, rest @ ..] = &arguments[..] else {
        panic!("instructions sync|large COUNT [MODE]");
    };
    let (count, mode) = (count.parse().expect("a count"), rest.first().map_or("wasteless", String::as_str));
    let world = VirtualWorld::new(1);
    let request = Request {
        options: &["-t", "ext4", "-J", "size=32"],
        block_size: 4096,
        size: 256 << 20,
        journal: Journal::Inside,
        stale: None,
    };
    let home = volume_images::make(&request).expect("mke2fs").home;
    let disk = MemoryDisk::from_image(Rc::new(world.clone()), home);
    let engine = EngineOptions {
        data: DataMode::ALL.into_iter().find(|one| one.name() == mode).expect("a mode"),
        ..EngineOptions::default()
    };
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
    let parts = OpenParts { world: Rc::new(world.clone()), home: Rc::new(disk), journal: None, options };
    let (large, inner) = (work == "large", world.clone());
    world.run(async move {
        let volume = Volume::open(parts).await.expect("opens");
        if large {
            write_large(&volume, count).await;
        } else {
            append_synchronously(&inner, &volume, count).await;
        }
        volume.close().await.expect("closes");
    });
    world.end();
}

async fn file(volume: &Rc<Volume>, name: &str) -> Rc<ext4::Inode> {
    let root = volume.inode(ROOT).await.expect("the root");
    volume.mknod(&root, name.as_bytes(), &CALLER, 0o100644, 0).await.expect("a file").value
}

/// [`WRITERS`] tasks, each with a file of its own; `count` writes in all.
async fn append_synchronously(world: &VirtualWorld, volume: &Rc<Volume>, count: u64) {
    let (left, done) = (Rc::new(Cell::new(WRITERS)), Rc::new(runtime::sync::Event::default()));
    for writer in 0..WRITERS {
        let (volume, left, done) = (volume.clone(), left.clone(), done.clone());
        world.spawn(Box::pin(async move {
            let inode = file(&volume, &format!("writer-{writer}")).await;
            let flags = WriteFlags { append: true, ..WriteFlags::default() };
            for _ in 0..count / WRITERS {
                let written = volume.write(&inode, &CALLER, 0, &[7; RECORD], flags).await.expect("writes");
                volume.settle_write(&inode, &written, Some(SyncWhat::All)).await.expect("syncs");
            }
            left.set(left.get() - 1);
            done.notify();
        }));
    }
    done.until(|| (left.get() == 0).then_some(())).await;
}

/// `count` mebibytes.
async fn write_large(volume: &Rc<Volume>, count: u64) {
    let (inode, bytes) = (file(volume, "large").await, vec![7; LARGE]);
    for number in 0..count {
        let at = number * LARGE as u64 % LARGE_FILE;
        volume.write(&inode, &CALLER, at, &bytes, WriteFlags::default()).await.expect("writes");
    }
}
