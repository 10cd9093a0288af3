//! Synchronous writes of a mebibyte by several writers, in a log of 8 MiB. At every place where the
//! power may fail each is there whole or not at all, also where a transaction was locked under it.

use crate::files::image::{EXT3_1K, EXT4, Kind, TestImage};
use crate::image::micros;
use crate::image::{open as open_volume, with_engine};
use device::World;
use disks::{Atomicity, CrashPolicy, MemoryDisk};
use engine::EngineOptions;
use ext4::{Caller, Inode, RangeMode, SyncWhat, Volume, WriteFlags};
use journal::DataMode;
use runtime::{VirtualWorld, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use units::InodeNumber;

/// The longest that is promised to be whole in a log of eight times as much.
const LENGTH: usize = 1 << 20;
/// Offset within a block, so that the first and the last one are written in part.
const AT: usize = 399;
const LONG_WRITERS: usize = 3;
/// Number of times each file is overwritten, with bytes that give the version.
const VERSIONS: u8 = 2;
/// Part of the file in which every second block becomes a hole between two writes, so that the next
/// must allocate.
const HOLES: std::ops::Range<usize> = 64 << 10..80 << 10;
/// Bytes of the small writes that have transactions locked all the time.
const SMALL: usize = 100;

/// Facts noted while the writers run.
#[derive(Default)]
struct Seen {
    /// The last version of each file whose write was answered, and the last that was begun.
    acknowledged: RefCell<[u8; LONG_WRITERS]>,
    begun: RefCell<[u8; LONG_WRITERS]>,
    /// Writes in flight that met a transaction which was being locked.
    met: Cell<u32>,
}

/// Remains of a power cut, and the facts known then.
struct Left {
    cut: u64,
    image: disks::Image,
    acknowledged: [u8; LONG_WRITERS],
    begun: [u8; LONG_WRITERS],
}

/// Opens a volume with so little memory that a write's reads happen while its handle is open.
async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, data: DataMode) -> Rc<Volume> {
    let engine = EngineOptions { data, cache_bytes: 0, ..EngineOptions::default() };
    open_volume(world, disk, None, with_engine(engine)).await.unwrap()
}

async fn overwrite(volume: Rc<Volume>, inode: Rc<Inode>, file: usize, seen: Rc<Seen>) {
    for version in 1..=VERSIONS {
        seen.begun.borrow_mut()[file] = version;
        let bytes = vec![version; LENGTH];
        let mut write =
            Box::pin(volume.write(&inode, &Caller::ROOT, AT as u64, &bytes, WriteFlags::default()));
        let mut met = false;
        let written = poll_fn(|context| {
            let polled = write.as_mut().poll(context);
            met |= polled.is_pending() && volume.engine().is_locking();
            polled
        });
        assert_eq!(written.await.unwrap().count, LENGTH);
        seen.met.set(seen.met.get() + u32::from(met));
        volume.sync_file(&inode, SyncWhat::Data).await.unwrap();
        seen.acknowledged.borrow_mut()[file] = version;
        let block = volume.block_size().bytes();
        for hole in HOLES.step_by(2 * block) {
            let punched = volume.fallocate(
                &inode,
                &Caller::ROOT,
                RangeMode::PunchHole,
                true,
                hole as u64,
                block as u64,
            );
            punched.await.unwrap();
        }
    }
}

/// Has the running transaction committed again and again until the others are done.
async fn nudge(volume: Rc<Volume>, inode: Rc<Inode>, seen: Rc<Seen>) {
    let mut number = 0;
    while seen.acknowledged.borrow().iter().any(|version| *version < VERSIONS) {
        number += 1;
        volume
            .write(&inode, &Caller::ROOT, 0, &[number as u8; SMALL], WriteFlags::default())
            .await
            .unwrap();
        volume.sync_file(&inode, SyncWhat::Data).await.unwrap();
    }
}

/// Images of each cut while a large write is in flight: some of the volatile writes, torn.
fn play(image: &TestImage, mode: DataMode, seed: u64) -> (Vec<Left>, u32) {
    let (virtual_world, world, disk) = image.world(seed);
    disk.set_latency(micros(50, 200));
    let numbers: Vec<InodeNumber> = (0..=LONG_WRITERS).map(|file| image.inode(file)).collect();
    let (seen, left) = (Rc::new(Seen::default()), Rc::new(RefCell::new(Vec::new())));
    let (home, known, found) = (disk.clone(), seen.clone(), left.clone());
    virtual_world.run(async move {
        let volume = open(&world, &home, mode).await;
        let watched = known.clone();
        home.on_change(move |disk, cut, _| {
            let (acknowledged, begun) = (*watched.acknowledged.borrow(), *watched.begun.borrow());
            if acknowledged == begun {
                return;
            }
            let image = disk
                .crash(CrashPolicy::Random { seed: seed ^ cut, atomicity: Atomicity::Unit(512) });
            found.borrow_mut().push(Left { cut, image, acknowledged, begun });
        });
        let mut tasks = Vec::new();
        let small = volume.inode(numbers[LONG_WRITERS]).await.unwrap();
        tasks.push(spawn_with_result(&*world, nudge(volume.clone(), small, known.clone())));
        for (file, number) in numbers.into_iter().take(LONG_WRITERS).enumerate() {
            let inode = volume.inode(number).await.unwrap();
            let task = overwrite(volume.clone(), inode, file, known.clone());
            tasks.push(spawn_with_result(&*world, task));
        }
        for task in tasks {
            task.await.unwrap();
        }
        home.stop_watching();
        volume.close().await.unwrap();
    });
    virtual_world.end();
    (left.take(), seen.met.get())
}

/// Recovers, and compares every file with the facts. Returns the number of writes in flight.
fn judge(image: &TestImage, mode: DataMode, left: Left) -> usize {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let Left { cut, image: crashed, acknowledged, begun } = left;
    let disk = MemoryDisk::from_image(world.clone(), crashed);
    let numbers: Vec<InodeNumber> = (0..LONG_WRITERS).map(|file| image.inode(file)).collect();
    virtual_world.run(async move {
        let volume = open(&world, &disk, mode).await;
        let block = volume.block_size().bytes();
        for (file, number) in numbers.into_iter().enumerate() {
            let inode = volume.inode(number).await.unwrap();
            let found = volume.read(&inode, 0, usize::MAX).await.unwrap().to_vec();
            let (known, last) = (acknowledged[file], begun[file]);
            let what = format!("cut {cut}, file {file}: {known} acknowledged, {last} begun");
            if found.is_empty() && known == 0 {
                continue;
            }
            assert_eq!(found.len(), AT + LENGTH, "{what}");
            let version = found[AT];
            assert!((known..=last).contains(&version), "{what}: {version}");
            let may_be_hole = |at: usize| {
                let start = at - at % block;
                HOLES.contains(&start) && (start - HOLES.start) % (2 * block) == 0
            };
            let torn = (AT..AT + LENGTH)
                .find(|at| found[*at] != version && !(found[*at] == 0 && may_be_hole(*at)));
            assert_eq!(torn, None, "{what}: torn, version {version} up to there");
        }
    });
    virtual_world.end();
    (0..LONG_WRITERS).filter(|file| begun[*file] > acknowledged[*file]).count()
}

fn every_write_is_whole(kind: Kind, arguments: &'static [&'static str]) {
    let image = TestImage::of_files(Kind { arguments, ..kind }, "32M", LONG_WRITERS + 1);
    for mode in [DataMode::Journal, DataMode::Wasteless] {
        let seed = 1;
        let (left, met) = play(&image, mode, seed);
        let cuts = left.len();
        let in_flight: usize = left.into_iter().map(|left| judge(&image, mode, left)).sum();
        println!(
            "{} {mode:?} seed {seed}: {cuts} cuts, {in_flight} writes in flight at one, {met} met a lock",
            kind.name
        );
        assert!(cuts > 30, "only {cuts} cuts while a write was in flight");
        assert!(met > 0, "no transaction was locked under a write: nothing is proved");
    }
}

#[test]
fn a_mebibyte_is_written_whole_where_transactions_are_locked_under_it() {
    every_write_is_whole(EXT4, &["-t", "ext4", "-b", "4096", "-J", "size=8"]);
}
#[test]
fn a_mebibyte_of_mapped_blocks_is_written_whole_where_transactions_are_locked_under_it() {
    every_write_is_whole(EXT3_1K, &["-t", "ext3", "-b", "1024", "-J", "size=8"]);
}
