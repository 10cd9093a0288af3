//! Cost of a commit in evictions, on each disk, in each mode: the table of `docs/modes/coerce.md`,
//! checkpoints aside.

use disks::MemoryDisk;
use engine::{DataMode, EngineOptions, WriteThreshold};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern};
use ext4::{Caller, Inode, OpenParts, SyncWhat, Volume, VolumeOptions, WriteFlags};
use runtime::{VirtualWorld, join_all};
use sim::setup;
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

/// Interval that keeps the engine from acting by itself.
const NEVER: Duration = Duration::from_secs(100_000);
const WORKLOAD: EvictionWorkload =
    EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 4096 };
const FILES: usize = 8;
const BLOCK: usize = 4096;

#[derive(Clone)]
struct Bench {
    volume: Rc<Volume>,
    disks: Vec<CoercedDisk>,
    files: Vec<Rc<Inode>>,
}

impl Bench {
    /// Returns the evictions so far, home disk first.
    fn evictions(&self) -> Vec<u64> {
        self.disks.iter().map(|disk| disk.statistics().evictions).collect()
    }
    async fn write(&self, file: usize, at: u64, length: usize) {
        let bytes = vec![file as u8 + 1; length];
        self.volume
            .write(&self.files[file], &Caller::ROOT, at, &bytes, WriteFlags::default())
            .await
            .unwrap();
    }
    async fn sync(&self, file: usize) {
        self.volume.sync_file(&self.files[file], SyncWhat::All).await.unwrap();
    }
    /// Returns the evictions of an action.
    async fn cost(&self, action: impl Future<Output = ()>) -> Vec<u64> {
        let before = self.evictions();
        action.await;
        self.evictions().iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

/// Runs `action` on a volume with files of two blocks, everything of which is evicted already.
fn run<A: AsyncFnOnce(Bench) + 'static>(setup: &str, mode: DataMode, action: A) {
    run_with(setup, mode, false, action)
}
fn run_with<A: AsyncFnOnce(Bench) + 'static>(
    setup: &str,
    mode: DataMode,
    transaction_checksum: bool,
    action: A,
) {
    let setup = setup::find(setup).unwrap();
    let mut fresh = setup::make(setup).unwrap();
    let world = VirtualWorld::new(1);
    let room = FlushZone::size(&WORKLOAD, 512);
    let disks: Vec<CoercedDisk> = [Some(&mut fresh.home), fresh.journal.as_mut()]
        .into_iter()
        .flatten()
        .map(|image| {
            let zone = image.size()..image.size() + room;
            image.grow(room);
            let drive = MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
            let zone = FlushZone::new(WORKLOAD, &[zone], 512).unwrap();
            CoercedDisk::new(Rc::new(world.clone()), Rc::new(drive), zone)
        })
        .collect();
    let of_run = world.clone();
    world.run(async move {
        let engine = EngineOptions {
            data: mode,
            threshold: WriteThreshold::Fixed(BLOCK as u64),
            commit: NEVER,
            writeback: NEVER,
            expire: NEVER,
            transaction_checksum,
            ..EngineOptions::default()
        };
        let parts = OpenParts {
            world: Rc::new(of_run),
            home: Rc::new(disks[0].clone()),
            journal: disks.get(1).map(|disk| Rc::new(disk.clone()) as Rc<dyn device::Disk>),
            options: VolumeOptions { engine, ..VolumeOptions::default() },
        };
        let volume = Volume::open(parts).await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = format!("file-{number}");
            files.push(
                volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o644, 0).await.unwrap().value,
            );
        }
        let bench = Bench { volume: volume.clone(), disks, files };
        for file in 0..FILES {
            bench.write(file, 0, 2 * BLOCK).await;
        }
        volume.sync().await.unwrap();
        action(bench).await;
        volume.close().await.unwrap();
    });
    world.end();
}

/// Returns the evictions of a synchronous append of 100 bytes, and of one of a whole block. Each
/// has a count for home's disk and, if it is another, one for the journal's.
fn expected(mode: DataMode, external: bool) -> [Vec<u64>; 2] {
    let [small, whole]: [&[u64]; 2] = match (mode, external) {
        // Data and log share one, the commit block takes one.
        (DataMode::Ordered | DataMode::Writeback, false) => [&[2], &[2]],
        (DataMode::Ordered | DataMode::Writeback, true) => [&[1, 2], &[1, 2]],
        // The log, and the commit block.
        (DataMode::Journal | DataMode::Adaptive, false) => [&[2], &[2]],
        (DataMode::Journal | DataMode::Adaptive, true) => [&[0, 2], &[0, 2]],
        // Checksums reveal a torn transaction: one for all of it, without data home writes.
        (DataMode::Wasteless, false) => [&[1], &[1]],
        (DataMode::Wasteless, true) => [&[0, 1], &[0, 1]],
        (DataMode::Selective, false) => [&[1], &[2]],
        (DataMode::Selective, true) => [&[0, 1], &[1, 1]],
    };
    [small.to_vec(), whole.to_vec()]
}

#[test]
fn a_commit_evicts_as_often_as_its_mode_has_barriers() {
    for (name, external) in [("ext4-4k", false), ("external-4k", true)] {
        for mode in DataMode::ALL {
            run(name, mode, async move |bench| {
                let [small, whole] = expected(mode, external);
                let append = async |at, length| {
                    bench.write(0, at, length).await;
                    bench.sync(0).await;
                };
                let end = 2 * BLOCK as u64;
                assert_eq!(
                    bench.cost(append(end, 100)).await,
                    small,
                    "100 bytes, {mode:?}, {name}"
                );
                let end = 3 * BLOCK as u64;
                assert_eq!(
                    bench.cost(append(end, BLOCK)).await,
                    whole,
                    "a block, {mode:?}, {name}"
                );
            });
        }
    }
}

#[test]
fn a_transaction_checksum_saves_the_eviction_before_the_commit_block() {
    let of_journal =
        [("ext4-4k", DataMode::Journal, vec![1]), ("external-4k", DataMode::Journal, vec![0, 1])];
    let of_ordered = [DataMode::Ordered, DataMode::Writeback]
        .into_iter()
        // Inside, the data then has the other for itself.
        .flat_map(|mode| [("ext4-4k", mode, vec![2]), ("external-4k", mode, vec![1, 1])]);
    for (name, mode, expected) in of_journal.into_iter().chain(of_ordered) {
        run_with(name, mode, true, async move |bench| {
            let append = async {
                bench.write(0, 2 * BLOCK as u64, BLOCK).await;
                bench.sync(0).await;
            };
            assert_eq!(bench.cost(append).await, expected, "{mode:?}, {name}");
        });
    }
}

#[test]
fn who_finds_everything_evicted_pays_nothing_and_who_comes_together_shares() {
    for (name, external) in [("ext4-4k", false), ("external-4k", true)] {
        for mode in DataMode::ALL {
            run(name, mode, async move |bench| {
                let [small, _] = expected(mode, external);
                let nothing = vec![0; small.len()];
                let end = 2 * BLOCK as u64;
                // Both are in one transaction.
                bench.write(0, end, 100).await;
                bench.write(1, end, 100).await;
                assert_eq!(bench.cost(bench.sync(0)).await, small, "{mode:?}, {name}");
                // In writeback mode the other file's data is yet to be written home, with a commit
                // of its own.
                let most = if mode == DataMode::Writeback { &small } else { &nothing };
                let other = bench.cost(bench.sync(1)).await;
                let holds = other.iter().zip(most).all(|(other, most)| other <= most);
                assert!(holds, "{other:?}, {mode:?}, {name}");
                assert_eq!(bench.cost(bench.sync(0)).await, nothing, "{mode:?}, {name}");
                // The first of many may have a commit for itself; the others share the next.
                let many = async {
                    let one = async |file| {
                        bench.write(file, end + 100, 100).await;
                        bench.sync(file).await;
                    };
                    join_all((0..FILES).map(|file| Box::pin(one(file)) as _).collect()).await;
                };
                let shared = bench.cost(many).await;
                let few = shared.iter().zip(&small).all(|(shared, once)| *shared <= 2 * once);
                assert!(few, "{FILES} writers: {shared:?}, {mode:?}, {name}");
            });
        }
    }
}
