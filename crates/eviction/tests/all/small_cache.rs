//! An eviction shares its drive with no request: what touched the cache during it would stay there.

use device::{Buffer, DeviceError, Disk, Durability, LocalFuture, World};
use disks::{CrashPolicy, LineReplacement, Lying, MemoryDisk};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern};
use runtime::{VirtualWorld, join_all, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;

const LINE: usize = 4096;
const LINES: usize = 32;
const ZONE: u64 = 1 << 20;
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
                disk.write(0, ones(WANTED * LINE), Durability::Cached).await.unwrap();
                let flush = spawn_with_result(&of_run, disk.flush());
                until_written(&of_run, &of_drive, begun).await;
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
