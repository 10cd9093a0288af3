//! Shingled disks keep their content through logs, swaps and cleaning; and cleaning has its
//! expected cost.

use device::{Buffer, Disk, Durability, World};
use emulated::{
    DriveStatistics, LogChoice, Model, ShingledDisk, ShingledLogs, ShingledStatistics, Shingles,
    shipped,
};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;

fn disk(world: &VirtualWorld, shingles: Shingles) -> ShingledDisk {
    let (_, text) =
        shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
    let model = Model::parse(text).expect("a model");
    ShingledDisk::new(Rc::new(world.clone()), model, shingles).expect("it can be shingled")
}

/// Bytes around which the writes lie: at the start, at a border of the layout's bands, at the end.
const AROUND: u64 = 96 << 10;

#[test]
fn what_was_written_is_read_through_logs_swaps_and_cleaning() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut shingles =
            if seed % 2 == 0 { Shingles::single_log() } else { Shingles::scattered_logs() };
        // Logs are full soon.
        match &mut shingles.logs {
            ShingledLogs::Single { bytes } => *bytes = 4 << 20,
            ShingledLogs::Surface { tracks, .. } => *tracks = 1,
        }
        if seed % 4 < 2 {
            shingles.choice = LogChoice::NearestCylinder;
        }
        shingles.band = 3_000_000 / 512 * 512;
        shingles.swap_above = 0;
        let world = VirtualWorld::new(seed);
        let (inner, disk) = (world.clone(), disk(&world, shingles));
        let swaps = world.run(async move {
            let random = SplitMix::new(seed);
            let size = disk.geometry().size;
            let begins = [0, 2_040_000_000 / 512 * 512, size - AROUND];
            let mut plain = vec![vec![0u8; AROUND as usize]; begins.len()];
            for step in 0..160u32 {
                let area = (random.next() % 3) as usize;
                let from = random.next() % (AROUND / 512);
                let count = (1 + random.next() % 120).min(AROUND / 512 - from);
                let range = (from * 512) as usize..((from + count) * 512) as usize;
                let at = begins[area] + from * 512;
                if step % 53 == 52 {
                    disk.clean().await.expect("a cleaning");
                    assert_eq!(disk.statistics().extents, 0);
                } else if random.next() % 4 == 0 {
                    let read = disk.read(at, range.len()).await.expect("a read");
                    assert!(read[..] == plain[area][range], "step {step}");
                } else {
                    plain[area][range.clone()].fill(step as u8 + 1);
                    let part = Rc::new(Buffer::copy_of(&plain[area][range]));
                    disk.write(at, vec![part], Durability::Durable).await.expect("a write");
                }
                if random.next() % 8 == 0 {
                    inner.sleep_until(inner.now().plus(Duration::from_millis(400))).await;
                }
            }
            for (begin, plain) in begins.iter().zip(&plain) {
                assert!(disk.read(*begin, AROUND as usize).await.expect("a read")[..] == plain[..]);
            }
            disk.statistics()
        });
        println!("{swaps:?}");
        assert!(seed % 4 != 1 || swaps.swaps > 0, "{swaps:?}");
        world.end();
    }
}

#[test]
fn a_full_log_cleans_the_oldest_bands_and_no_write_starves() {
    let mut shingles = Shingles::single_log();
    shingles.logs = ShingledLogs::Single { bytes: 2 << 20 };
    shingles.band = 1 << 20;
    let world = VirtualWorld::new(3);
    let disk = disk(&world, shingles);
    let cleaned = world.run(async move {
        for n in 0..60u64 {
            let part = Rc::new(Buffer::copy_of(&[n as u8 + 1; 128 << 10]));
            disk.write((n * 7 % 60) << 18, vec![part], Durability::Durable).await.expect("a write");
        }
        for n in 0..60u64 {
            let read = disk.read((n * 7 % 60) << 18, 128 << 10).await.expect("a read");
            assert!(read.iter().all(|byte| *byte == n as u8 + 1), "write {n}");
        }
        disk.statistics().bands_cleaned
    });
    assert!(cleaned > 2, "{cleaned}");
    world.end();
}

#[test]
fn a_band_takes_tenths_of_a_second_to_clean_and_a_logged_write_milliseconds() {
    for shingles in [Shingles::single_log(), Shingles::scattered_logs()] {
        let world = VirtualWorld::new(4);
        let (inner, disk) = (world.clone(), disk(&world, shingles));
        let (write, band) = world.run(async move {
            let begin = inner.now();
            let part = Rc::new(Buffer::copy_of(&[7; 4096]));
            disk.write(400 << 30, vec![part], Durability::Durable).await.expect("a write");
            let write = inner.now().since(begin);
            let cleaned = disk.clean().await.expect("a cleaning");
            (write, cleaned.rewriting)
        });
        assert!(write < Duration::from_millis(40), "{write:?}");
        assert!(
            Duration::from_millis(300) < band && band < Duration::from_millis(1700),
            "{band:?}"
        );
        world.end();
    }
}

/// The cache answers the second read of a place far away, and the arm stays where the third was.
#[test]
fn a_logged_write_lies_near_the_arm_and_not_near_a_read_from_cache() {
    let world = VirtualWorld::new(5);
    let shingles = Shingles { choice: LogChoice::NearestCylinder, ..Shingles::scattered_logs() };
    let (inner, disk) = (world.clone(), disk(&world, shingles));
    let (writes, mean) = world.run(async move {
        let (writes, mut took) = (20, Duration::ZERO);
        for number in 0..writes {
            let (cached, far) = ((10 + number) << 30, (500 + number) << 30);
            for at in [cached, far, cached] {
                disk.read(at, 4096).await.expect("a read");
            }
            let begin = inner.now();
            let part = Rc::new(Buffer::copy_of(&[7; 4096]));
            disk.write(300 << 30, vec![part], Durability::Durable).await.expect("a write");
            took += inner.now().since(begin);
        }
        (writes, took / writes as u32)
    });
    println!("{mean:?} on average of {writes}");
    // Half a revolution and a short seek; from one end to the other it is twice as long.
    assert!(mean < Duration::from_millis(8), "{mean:?}");
    world.end();
}

/// The mean time of writes of 4 KiB, each after a read far away.
fn logged_write(shingles: Shingles) -> Duration {
    let world = VirtualWorld::new(6);
    let (inner, disk) = (world.clone(), disk(&world, shingles));
    let mean = world.run(async move {
        let (random, writes, mut took) = (SplitMix::new(6), 100, Duration::ZERO);
        for _ in 0..writes {
            disk.read((random.next() % 600) << 30, 4096).await.expect("a read");
            inner
                .sleep_until(inner.now().plus(Duration::from_micros(random.next() % 20_000)))
                .await;
            let begin = inner.now();
            let part = Rc::new(Buffer::copy_of(&[7; 4096]));
            disk.write((random.next() % 600) << 30, vec![part], Durability::Durable)
                .await
                .expect("a write");
            took += inner.now().since(begin);
        }
        took / writes
    });
    world.end();
    mean
}

#[test]
fn a_write_to_the_log_soonest_under_the_head_hardly_rotates() {
    let nearest = |shingles| Shingles { choice: LogChoice::NearestCylinder, ..shingles };
    let [scattered, single] = [Shingles::scattered_logs(), Shingles::single_log()];
    let mean = [scattered, nearest(scattered), single, nearest(single)].map(logged_write);
    println!("{mean:?}");
    // A revolution takes 8.3 ms.
    assert!(mean[0] < Duration::from_millis(2) && mean[1] > Duration::from_millis(4), "{mean:?}");
    assert!(mean[2] + Duration::from_millis(3) < mean[3], "the single log gains as much: {mean:?}");
}

/// Logs of 2 MiB, and as many concurrent writes as they have space for, twice.
#[test]
fn concurrent_writes_share_nearly_full_logs() {
    for choice in [LogChoice::NearestCylinder, LogChoice::Soonest] {
        let logs = ShingledLogs::Single { bytes: 2 << 20 };
        let world = VirtualWorld::new(7);
        let disk = disk(&world, Shingles { logs, choice, band: 1 << 20, ..Shingles::single_log() });
        world.run(async move {
            for round in 1..3u8 {
                let write = |number: u64| {
                    let part = Rc::new(Buffer::copy_of(&[round + number as u8; 68 << 10]));
                    disk.write(number << 20, vec![part], Durability::Durable)
                };
                let written = runtime::join_all((0..40).map(write).collect()).await;
                assert!(written.iter().all(Result::is_ok));
            }
            for number in 0..40u64 {
                let read = disk.read(number << 20, 68 << 10).await.expect("a read");
                assert!(
                    read.iter().all(|byte| *byte == 2 + number as u8),
                    "write {number}, {choice:?}"
                );
            }
        });
        world.end();
    }
}

/// A log is one place after another: waiting writes follow at once, and no revolution is lost
/// between.
#[test]
fn waiting_writes_go_to_a_single_log_in_one_pass() {
    let shingles = Shingles { choice: LogChoice::NearestCylinder, ..Shingles::single_log() };
    let world = VirtualWorld::new(8);
    let (inner, disk) = (world.clone(), disk(&world, shingles));
    let took = world.run(async move {
        let write = |number: u64| {
            disk.write(number << 30, vec![Rc::new(Buffer::zeroed(4096))], Durability::Durable)
        };
        runtime::join_all((0..20).map(write).collect()).await.into_iter().for_each(|written| {
            written.expect("a write");
        });
        inner.now()
    });
    assert!(took.0 < 20_000_000, "{took:?}");
    world.end();
}

/// A track's worth of writes, each of them far from the others at home, then idle time.
fn filled_log(swap_above: u32) -> (ShingledStatistics, DriveStatistics) {
    let world = VirtualWorld::new(9);
    let disk = disk(&world, Shingles { swap_above, ..Shingles::scattered_logs() });
    let inner = world.clone();
    let counts = world.run(async move {
        let write = |number: u64| {
            disk.write(
                number << 30,
                vec![Rc::new(Buffer::copy_of(&[7; 60 << 10]))],
                Durability::Durable,
            )
        };
        let written = runtime::join_all((0..32).map(write).collect()).await;
        assert!(written.iter().all(Result::is_ok));
        inner.sleep_until(inner.now().plus(Duration::from_secs(2))).await;
        let counts = (disk.statistics(), disk.drive_statistics());
        for number in 0..32u64 {
            let read = disk.read(number << 30, 60 << 10).await.expect("a read");
            assert!(read.iter().all(|byte| *byte == 7), "write {number}");
        }
        counts
    });
    world.end();
    counts
}

#[test]
fn a_full_log_is_not_swapped_while_its_neighbours_have_space() {
    let (shingled, drive) = filled_log(80);
    assert_eq!((shingled.swaps, drive.reads, drive.writes), (0, 0, 32));
}

/// Two logs are full or begun. Pieces of up to a track move together, to logs near by.
#[test]
fn a_swap_is_one_read_and_one_write_to_logs_near_by() {
    let (shingled, drive) = filled_log(0);
    assert!(shingled.swaps > 0);
    assert_eq!((drive.reads, drive.writes), (shingled.swaps, 32 + shingled.swaps), "{drive:?}");
    assert!(drive.cylinders_crossed < 2000, "{drive:?}");
}
