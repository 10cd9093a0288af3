//! Gaps between records of a log: what they save, and that a restart finds the records after them.

use device::{Buffer, Disk, Durability, LocalFuture, World};
use disks::MemoryDisk;
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, shipped};
use runtime::{VirtualWorld, join_all};
use scattered::{CheckpointPolicy, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
/// The initial gap, in blocks.
const FIRST_GAP: u32 = 16;
const SIZES: Sizes = Sizes { log: 1 << 20, group: 10 << 20 };

async fn open(world: &Rc<dyn World>, disk: &Rc<dyn Disk>) -> ScatteredDisk {
    let settings = Settings { checkpoint: CheckpointPolicy::Manual, ..Settings::default() };
    ScatteredDisk::open(world.clone(), disk.clone(), None, settings).await.expect("an open disk").0
}
async fn write(logs: &ScatteredDisk, home: u64, byte: u8) {
    let part = Rc::new(Buffer::copy_of(&[byte; BLOCK as usize]));
    logs.write(home * BLOCK, vec![part], Durability::Durable).await.expect("a write");
}
async fn read(logs: &ScatteredDisk, home: u64) -> u8 {
    let found = logs.read(home * BLOCK, BLOCK as usize).await.expect("a read");
    assert!(found.iter().all(|byte| *byte == found[0]), "home {home} is torn");
    found[0]
}

/// Returns the time of 24 writes of a block on a drive without write cache, `together` of them at
/// once.
fn took(together: u64) -> Duration {
    let (_, text) =
        shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let inner = world.clone();
    let took = world.run(async move {
        let options = DriveOptions {
            cache: CacheMode::Off,
            size: Some(100 << 20),
            ..DriveOptions::default()
        };
        let model = Model::parse(text).expect("a model");
        let disk: Rc<dyn Disk> = Rc::new(EmulatedDisk::new(in_world.clone(), model, options));
        ScatteredDisk::format(&in_world, &disk, None, SIZES).await.expect("logs");
        let logs = open(&in_world, &disk).await;
        write(&logs, 0, 1).await;
        let begin = inner.now();
        for number in 0..24 / together {
            let one = |one: u64| {
                let (logs, home) = (logs.clone(), 7 * (number * together + one));
                Box::pin(async move { write(&logs, home, 2).await }) as LocalFuture<()>
            };
            join_all((0..together).map(one).collect()).await;
        }
        inner.now().since(begin)
    });
    world.end();
    took
}

/// Without a gap each would wait for a revolution of 8.3 ms.
#[test]
fn records_that_follow_one_another_at_once_lose_no_revolution() {
    for together in [1, 4, 24] {
        let took = took(together);
        println!("{together} at once: {took:?}");
        assert!(took < Duration::from_millis(24), "{together} at once: {took:?}");
    }
}

#[test]
fn a_restart_finds_records_after_gaps() {
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    world.run(async move {
        let disk: Rc<dyn Disk> = Rc::new(MemoryDisk::new(in_world.clone(), 100 << 20));
        ScatteredDisk::format(&in_world, &disk, None, SIZES).await.expect("logs");
        for life in 1..4u8 {
            let logs = open(&in_world, &disk).await;
            for home in 0..20 {
                assert_eq!(read(&logs, home * 5).await, life - 1);
                write(&logs, home * 5, life).await;
            }
        }
        let logs = open(&in_world, &disk).await;
        let per_log = logs.layout().log_blocks() / (2 + FIRST_GAP);
        assert!(
            logs.layout().gap() >= FIRST_GAP && logs.statistics().logs_in_use > 60 / per_log / 2
        );
        for home in 0..20 {
            assert_eq!(read(&logs, home * 5).await, 3);
        }
    });
    world.end();
}

/// A write over parts of it might make it whole.
#[test]
fn a_log_with_a_torn_record_takes_no_more() {
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        let world = VirtualWorld::new(1);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        world.run(async move {
            let disk: Rc<dyn Disk> = Rc::new(MemoryDisk::new(in_world.clone(), 100 << 20));
            let layout = ScatteredDisk::format(&in_world, &disk, None, SIZES).await.expect("logs");
            let logs = open(&in_world, &disk).await;
            write(&logs, 0, 1).await;
            in_world.sleep_until(in_world.now().plus(pause)).await;
            write(&logs, 9, 2).await;
            drop(logs);
            // Headers take a block, as the data does.
            let gap = if pause.is_zero() { FIRST_GAP } else { 0 };
            let second = (layout.log_begin(0) + 2 + u64::from(gap)) * BLOCK;
            let torn = disk.read(second + BLOCK, 512).await.expect("a read");
            assert!(torn.iter().all(|byte| *byte == 2));
            let zeros = Rc::new(Buffer::zeroed(512));
            disk.write(second + BLOCK, vec![zeros], Durability::Durable).await.expect("a write");
            for (life, logs_in_use) in [(3, 1), (4, 2)] {
                let logs = open(&in_world, &disk).await;
                assert_eq!(logs.statistics().logs_in_use, logs_in_use);
                assert_eq!(read(&logs, 0).await, 1);
                write(&logs, 9, life).await;
                assert_eq!((logs.statistics().logs_in_use, read(&logs, 9).await), (2, life));
            }
        });
        world.end();
    }
}

/// Returns how many of the last 2,000 of 4,000 writes of a block lose a revolution, if the drive
/// takes `overhead_ms` to begin a write. Then all are read after a restart.
fn lost(overhead_ms: f64, together: u64) -> usize {
    let (_, text) =
        shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
    let text = text.replacen("write_ms = 0.1", &format!("write_ms = {overhead_ms}"), 1);
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let lost = world.run(async move {
        let options =
            DriveOptions { cache: CacheMode::Off, size: Some(20 << 30), ..DriveOptions::default() };
        let model = Model::parse(&text).expect("a model");
        let disk: Rc<dyn Disk> = Rc::new(EmulatedDisk::new(in_world.clone(), model, options));
        ScatteredDisk::format(&in_world, &disk, None, Sizes::default()).await.expect("logs");
        let logs = open(&in_world, &disk).await;
        let mut lost = 0;
        for number in 0..4000 / together {
            let begin = in_world.now();
            let one = |one: u64| {
                let (logs, home) = (logs.clone(), 7 * (number * together + one));
                Box::pin(async move { write(&logs, home, home as u8).await }) as LocalFuture<()>
            };
            join_all((0..together).map(one).collect()).await;
            // A revolution takes 8.3 ms, and a seek to another log as long.
            let took = in_world.now().since(begin).as_micros() as usize;
            lost += if number * together >= 2000 { took / 8_300 } else { 0 };
        }
        let statistics = logs.statistics();
        println!("{overhead_ms} ms, {together} at once: {lost} lost, {statistics:?}");
        drop(logs);
        let logs = open(&in_world, &disk).await;
        for number in 0..4000 {
            assert_eq!(read(&logs, 7 * number).await, (7 * number) as u8);
        }
        lost
    });
    world.end();
    lost
}

/// A gap of 64 KiB is too short for the slowest of them: without learning each write loses one.
#[test]
fn the_gap_learns_how_long_a_drive_takes_to_begin() {
    for overhead_ms in [0.05, 0.1, 0.2, 0.4] {
        for together in [1, 4] {
            let lost = lost(overhead_ms, together);
            assert!(lost <= 40, "{overhead_ms} ms, {together} at once: {lost} of 2000");
        }
    }
}
