//! A log is for what it saves: no write that is at its home already, and no swap while requests
//! wait.

use device::{Buffer, Disk, Durability, World};
use disks::MemoryDisk;
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, shipped};
use runtime::VirtualWorld;
use scattered::{CheckpointPolicy, NearHome, ScatteredDisk, ScatteredStatistics, Settings, Sizes};
use std::rc::Rc;
use std::time::Duration;

async fn open(world: &Rc<dyn World>, disk: Rc<dyn Disk>, settings: Settings) -> ScatteredDisk {
    let sizes = Sizes { log: 1 << 20, group: 10 << 20 };
    let table: Rc<dyn Disk> = Rc::new(MemoryDisk::new(world.clone(), 128 << 20));
    ScatteredDisk::format(world, &disk, Some(&table), sizes).await.expect("logs");
    ScatteredDisk::open(world.clone(), disk, Some(table), settings).await.expect("an open disk").0
}

/// Reads 4 KiB, each followed by writes right after it, far away, and over the one far away.
fn after_reads(near_home: NearHome) -> ScatteredStatistics {
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let statistics = world.run(async move {
        let disk = Rc::new(MemoryDisk::new(in_world.clone(), 100 << 20));
        let settings =
            Settings { near_home, checkpoint: CheckpointPolicy::Manual, ..Settings::default() };
        let logs = open(&in_world, disk, settings).await;
        let far = 70 << 20;
        for round in 0..5u8 {
            let near = u64::from(round) << 20;
            for (read, write) in [(near, near + 4096), (near, far), (far - 4096, far)] {
                logs.read(read, 4096).await.expect("a read");
                let part = Rc::new(Buffer::copy_of(&[round + write as u8; 4096]));
                logs.write(write, vec![part], Durability::Durable).await.expect("a write");
                let found = logs.read(write, 4096).await.expect("a read");
                assert!(found.iter().all(|byte| *byte == round + write as u8));
            }
        }
        logs.statistics()
    });
    world.end();
    statistics
}

#[test]
fn a_small_write_near_the_arm_is_written_home_unless_logged() {
    let statistics = after_reads(NearHome::WrittenHome);
    assert_eq!((statistics.near_home_writes, statistics.logged_writes), (5, 10), "{statistics:?}");
    let statistics = after_reads(NearHome::IsLogged);
    assert_eq!((statistics.near_home_writes, statistics.logged_writes), (0, 15), "{statistics:?}");
}

/// A request arrives at each millisecond of a swap's first 60.
#[test]
fn a_request_in_a_swap_waits_for_one_of_its_transfers_at_most() {
    let (_, text) =
        shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
    let mut longest = Duration::ZERO;
    for after in 0..60 {
        let world = VirtualWorld::new(2);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        let model = Model::parse(text).expect("a model");
        let inner = world.clone();
        let took = world.run(async move {
            let options = DriveOptions {
                cache: CacheMode::Off,
                size: Some(100 << 30),
                ..DriveOptions::default()
            };
            let disk = Rc::new(EmulatedDisk::new(in_world.clone(), model, options));
            let settings = Settings {
                near_home: NearHome::IsLogged,
                checkpoint: CheckpointPolicy::Manual,
                ..Settings::default()
            };
            let drive = disk.clone();
            let logs = open(&in_world, disk, settings).await;
            logs.read(40 << 30, 4096).await.expect("a read");
            for number in 0..26u64 {
                let part = Rc::new(Buffer::zeroed(32 << 10));
                logs.write(number << 20, vec![part], Durability::Cached).await.expect("a write");
                // The next follows it directly.
                inner.sleep_until(inner.now().plus(Duration::from_millis(1))).await;
            }
            let begin = inner.now();
            inner.sleep_until(begin.plus(settings.swap_idle + Duration::from_millis(after))).await;
            let begin = inner.now();
            let written = drive.statistics().writes;
            logs.read((40 << 30) + (100 << 20), 4096).await.expect("a read");
            let took = inner.now().since(begin);
            // What was issued before the first request may be in flight. Nothing begins after it.
            logs.read((40 << 30) + (200 << 20), 4096).await.expect("a read");
            assert_eq!(drive.statistics().writes, written, "{after} ms");
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
            assert_eq!(logs.statistics().swaps, 1);
            took
        });
        world.end();
        longest = longest.max(took);
    }
    // A seek to the other end, a revolution, a megabyte, and the seek back.
    assert!(longest < Duration::from_millis(50), "{longest:?}");
}
