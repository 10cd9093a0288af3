//! Evictions on a small cache: they share their drive with no request, which would keep in it what
//! it touched; and those of the next process write what the cache does not hold.

use device::{Buffer, DeviceError, Disk, Durability, LocalFuture, Operation, World};
use disks::{CrashPolicy, Fault, LineReplacement, Lying, MemoryDisk};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern};
use runtime::{VirtualWorld, join_all, spawn_with_result};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const LINE: usize = 4096;
const LINES: usize = 32;
const ZONE: u64 = 1 << 20;
/// Rounds of the zone that are used one after the other.
const ROUNDS: u64 = 4;
/// Lines that the flush is for: half of the cache.
const WANTED: usize = LINES / 2;

fn drive(world: &VirtualWorld, replacement: LineReplacement, seed: u64) -> MemoryDisk {
    let drive = MemoryDisk::new(Rc::new(world.clone()), 4 << 20);
    drive.lie(Lying { lines: LINES, replacement, seed });
    drive
}

/// Evictions write each line of the cache once.
fn coerced(world: &VirtualWorld, drive: &MemoryDisk) -> CoercedDisk {
    let bytes = (LINES * LINE) as u64;
    let workload = EvictionWorkload { pattern: Pattern::Sequential, writes: LINES as u32, bytes };
    let extent = ZONE..ZONE + FlushZone::size(&workload, 512);
    let zone = FlushZone::new(workload, &[extent], 512).unwrap();
    CoercedDisk::new(Rc::new(world.clone()), Rc::new(drive.clone()), zone)
}

fn ones(length: usize) -> Vec<Rc<Buffer>> {
    vec![Rc::new(Buffer::copy_of(&vec![1; length]))]
}

/// Waits until the drive has begun with that number of writes.
async fn until_written(world: &VirtualWorld, drive: &MemoryDisk, writes: u64) {
    while drive.statistics().writes < writes {
        world.sleep_until(world.now().plus(Duration::from_micros(10))).await;
    }
}

type Touch = fn(&CoercedDisk) -> LocalFuture<Result<(), DeviceError>>;

/// Requests that touch all wanted lines, and change nothing.
const TOUCHES: [(&str, Touch); 2] = [
    ("read", |disk| {
        let read = disk.read(0, WANTED * LINE);
        Box::pin(async move { read.await.map(drop) })
    }),
    ("write", |disk| {
        let writes =
            (0..WANTED).map(|line| disk.write((line * LINE) as u64, ones(512), Durability::Cached));
        let writes = join_all(writes.collect());
        Box::pin(async move { writes.await.into_iter().collect() })
    }),
];

#[test]
fn lines_touched_during_an_eviction_are_evicted() {
    for (name, touch) in TOUCHES {
        // Early in the eviction, and late.
        for begun in [1 + 2, 1 + 20] {
            let world = VirtualWorld::new(1);
            let drive = drive(&world, LineReplacement::LeastRecentlyUsed, 1);
            let (of_run, of_drive) = (world.clone(), drive.clone());
            world.run(async move {
                let disk = coerced(&of_run, &of_drive);
                // The first eviction of a process has two rounds: the second would do.
                let elsewhere = (2 * WANTED * LINE) as u64;
                disk.write(elsewhere, ones(512), Durability::Durable).await.unwrap();
                let before = of_drive.statistics().writes;
                disk.write(0, ones(WANTED * LINE), Durability::Cached).await.unwrap();
                let flush = spawn_with_result(&of_run, disk.flush());
                until_written(&of_run, &of_drive, before + begun).await;
                touch(&disk).await.unwrap();
                flush.await.unwrap().unwrap();
            });
            let mut left = vec![0; WANTED * LINE];
            drive.crash(CrashPolicy::LoseAll).read(0, &mut left);
            let lost = left.chunks(512).filter(|sector| sector[0] != 1).count();
            assert_eq!(lost, 0, "sectors are lost after a {name}, begun at write {begun}");
            world.end();
        }
    }
}

/// Evictions of a process, and then the first of the next one. Returns the places that the cache
/// may hold of the former, and those of the latter.
fn places_of_two_processes(evictions: u64) -> [Vec<u64>; 2] {
    let world = VirtualWorld::new(1);
    let drive = drive(&world, LineReplacement::Random, 1);
    let of_run = world.clone();
    let places = world.run(async move {
        let places = || {
            let writes = drive.take_log().into_iter().map(|it| it.at);
            writes.filter(|at| *at >= ZONE).collect::<Vec<u64>>()
        };
        drive.record();
        let earlier = coerced(&of_run, &drive);
        for _ in 0..evictions {
            earlier.write(0, ones(512), Durability::Durable).await.unwrap();
        }
        let all = places();
        let last = all[all.len() - LINES..].to_vec();
        coerced(&of_run, &drive).flush().await.unwrap();
        [last, places()]
    });
    world.end();
    places
}

#[test]
fn the_first_eviction_writes_enough_new_places() {
    for evictions in 1..=2 * ROUNDS {
        let [earlier, later] = places_of_two_processes(evictions);
        let new = later.iter().filter(|at| !earlier.contains(at)).count();
        assert!(new >= LINES, "{new} places are new after {evictions} evictions");
    }
}

/// Returns how often a line is lost that was written just before a process was killed, or the
/// process went on, and that was then flushed.
fn lost(evictions: u64, killed: bool) -> u64 {
    let lost_with = |seed| {
        let world = VirtualWorld::new(seed);
        let drive = drive(&world, LineReplacement::Random, seed);
        let (of_run, of_drive) = (world.clone(), drive.clone());
        world.run(async move {
            let disk = coerced(&of_run, &of_drive);
            for _ in 0..evictions {
                disk.write(1 << 19, ones(512), Durability::Durable).await.unwrap();
            }
            disk.write(0, ones(LINE), Durability::Cached).await.unwrap();
            let disk = if killed { coerced(&of_run, &of_drive) } else { disk };
            disk.flush().await.unwrap();
        });
        let mut left = [0; LINE];
        drive.crash(CrashPolicy::LoseAll).read(0, &mut left);
        world.end();
        u64::from(left[0] != 1)
    };
    (0..100).map(lost_with).sum()
}

#[test]
fn the_next_process_evicts_as_well_as_the_one_that_was_killed() {
    for evictions in 1..=ROUNDS + 1 {
        let [goes_on, killed] = [false, true].map(|killed| lost(evictions, killed));
        assert!(goes_on > 0, "this cache keeps nothing at random");
        assert!(killed <= goes_on, "{killed} lost instead of {goes_on}, {evictions} evictions");
    }
}

/// The part of the failed eviction that took space in the cache is unknown, and the first of a
/// process is longer than others.
#[test]
fn no_eviction_succeeds_after_one_that_failed() {
    let world = VirtualWorld::new(1);
    let drive = drive(&world, LineReplacement::LeastRecentlyUsed, 1);
    let of_run = world.clone();
    world.run(async move {
        let disk = coerced(&of_run, &drive);
        disk.write(0, ones(512), Durability::Cached).await.unwrap();
        drive.inject(Fault::once(Operation::Write));
        let both = [disk.flush(), disk.flush()].map(|flush| spawn_with_result(&of_run, flush));
        for flush in both {
            assert!(flush.await.unwrap().is_err());
        }
        assert!(disk.flush().await.is_err(), "later");
    });
    world.end();
}

/// A bad sector of the zone must not keep a log from being recovered. The drive's own flush must
/// succeed all the same.
#[test]
fn a_recovery_goes_on_without_a_zone_that_cannot_be_written() {
    let world = VirtualWorld::new(1);
    let drive = drive(&world, LineReplacement::LeastRecentlyUsed, 1);
    let of_run = world.clone();
    world.run(async move {
        let reports = Rc::new(Cell::new(0));
        let reported = reports.clone();
        let disk = coerced(&of_run, &drive).or_flush(move |_| reported.set(reported.get() + 1));
        disk.write(0, ones(512), Durability::Cached).await.unwrap();
        drive.inject(Fault::once(Operation::Write));
        let both = [disk.flush(), disk.flush()].map(|flush| spawn_with_result(&of_run, flush));
        for flush in both {
            flush.await.unwrap().unwrap();
        }
        assert_eq!((reports.get(), disk.statistics().evictions), (1, 1));
        disk.write(0, ones(512), Durability::Durable).await.unwrap();
        assert_eq!((reports.get(), disk.statistics().evictions), (1, 1));
        disk.write(0, ones(512), Durability::Cached).await.unwrap();
        drive.inject(Fault::once(Operation::Flush));
        assert!(disk.flush().await.is_err());
    });
    world.end();
}
