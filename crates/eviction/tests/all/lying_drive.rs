//! Evictions on an emulated drive that ignores flushes, judged by power cuts.

use device::{Buffer, Disk, Durability};
use emulated::{DriveOptions, EmulatedDisk, Lies, Model};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern};
use runtime::VirtualWorld;
use std::rc::Rc;

const ZONE: u64 = 1 << 30;
const TARGETS: u64 = 20;

/// A drive that ignores flushes, and its world.
fn lying_drive() -> (VirtualWorld, EmulatedDisk) {
    let world = VirtualWorld::new(1);
    let (_, text) =
        emulated::shipped().find(|(name, _)| *name == "hitachi-7k80").expect("it is shipped");
    let model = Model::parse(text).unwrap();
    let lies = Lies { ignores_flush: true, ..Lies::default() };
    let options = DriveOptions { lies, size: Some(4 << 30), ..DriveOptions::default() };
    (world.clone(), EmulatedDisk::new(Rc::new(world), model, options))
}

/// A coerced disk that evicts with twice the drive's cache, in writes that it caches.
fn coerced(world: &VirtualWorld, drive: &EmulatedDisk) -> CoercedDisk {
    let workload = EvictionWorkload { pattern: Pattern::Random, writes: 64, bytes: 16 << 20 };
    let extent = ZONE..ZONE + FlushZone::size(&workload, 512);
    let zone = FlushZone::new(workload, &[extent], 512).unwrap();
    CoercedDisk::new(Rc::new(world.clone()), Rc::new(drive.clone()), zone)
}

fn sector(byte: u8) -> Vec<Rc<Buffer>> {
    vec![Rc::new(Buffer::copy_of(&[byte; 512]))]
}

/// Writes and flushes targets one by one on `disk`. Cuts the drive's power at once after each
/// answered flush, and counts the targets that are lost.
fn lost(disk_of: impl Fn(&VirtualWorld, &EmulatedDisk) -> Rc<dyn Disk>) -> u64 {
    let mut lost = 0;
    for target in 0..TARGETS {
        let (world, drive) = lying_drive();
        let disk = disk_of(&world, &drive);
        world.run(async move {
            disk.write(target << 20, sector(7), Durability::Cached).await.unwrap();
            disk.flush().await.unwrap();
        });
        let mut bytes = [0; 512];
        drive.crash().image.read(target << 20, &mut bytes);
        lost += u64::from(bytes != [7; 512]);
        world.end();
    }
    lost
}

#[test]
fn a_flush_that_is_ignored_loses_data_and_an_eviction_does_not() {
    assert!(lost(|_, drive| Rc::new(drive.clone())) > 0, "this drive does not lie");
    assert_eq!(lost(|world, drive| Rc::new(coerced(world, drive))), 0);
}

#[test]
fn what_is_evicted_already_costs_nothing_and_flushes_at_once_share_an_eviction() {
    let (world, drive) = lying_drive();
    let disk = coerced(&world, &drive);
    let of_run = disk.clone();
    world.run(async move {
        let disk = of_run;
        for _ in 0..2 {
            disk.flush().await.unwrap();
            assert_eq!(
                disk.statistics().evictions,
                1,
                "what an earlier life has left, and nothing since"
            );
        }
        let writes = (0..10).map(|at| disk.write(at << 20, sector(1), Durability::Durable));
        runtime::join_all(writes.collect()).await.into_iter().for_each(|result| result.unwrap());
        let statistics = disk.statistics();
        assert_eq!(statistics.barriers, 2 + 10);
        assert!(statistics.evictions < 10, "{statistics:?}");
        disk.flush().await.unwrap();
        assert_eq!(disk.statistics().evictions, statistics.evictions);
    });
    world.end();
}
