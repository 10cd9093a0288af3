//! Writes around a drive's cache, cached writes during read-ahead, and physical sectors that are
//! longer than the host's.

use crate::common::{filled, honest, model, on_drive, timed};
use device::{Disk, Durability, World};
use emulated::{CacheMode, EmulatedDisk, Model, SECTOR, shipped};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;

const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 1024;

/// Milliseconds of a stream from byte `at` on, including a final flush.
fn stream_ms(model: Model, at: usize) -> f64 {
    let world = VirtualWorld::new(7);
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, honest(CacheMode::On));
    let of_run = world.clone();
    let stream = async move {
        for number in 0..CHUNKS {
            disk.write((at + number * CHUNK) as u64, filled(CHUNK, 1), Durability::Cached)
                .await
                .expect("a write");
        }
        disk.flush().await.expect("a flush");
    };
    let time = world.run(async move { timed(&of_run, stream).await });
    world.end();
    time
}

#[test]
fn a_buffered_stream_around_the_cache_keeps_the_rate_of_the_medium() {
    for (name, _) in shipped() {
        let buffered = model(name);
        if !buffered.cache.as_ref().is_some_and(|cache| cache.sequential_bypass) {
            continue;
        }
        let whole = on_drive(name, honest(CacheMode::Off), |world, disk| async move {
            timed(&world, disk.write(0, filled(CHUNKS * CHUNK, 1), Durability::Cached)).await
        });
        for at in [0, 512] {
            let time = stream_ms(buffered.clone(), at);
            // A part of a physical sector at either end costs a revolution.
            assert!(
                (0.97..1.05).contains(&(time / whole)),
                "{name} from {at} on: {time} ms, in one write {whole}"
            );
        }
        let mut without = buffered;
        without.cache.as_mut().expect("a cache").stream_buffer = None;
        let time = stream_ms(without, 0);
        assert!(
            time > 4.0 * whole,
            "{name}: a revolution for each write, {time} ms, in one write {whole}"
        );
    }
}

#[test]
fn streamed_data_is_lost_until_it_is_flushed_and_then_leaves_the_cache() {
    on_drive("barracuda-7200.11", honest(CacheMode::On), |world, disk| async move {
        let at = 1u64 << 30;
        for number in 0..2 {
            disk.write(at + number * CHUNK as u64, filled(CHUNK, 1), Durability::Cached)
                .await
                .expect("a write");
        }
        let left = |at: u64| {
            let mut sector = [9; 512];
            disk.crash().image.read(at, &mut sector);
            sector[0]
        };
        let second = at + CHUNK as u64;
        assert_eq!(left(second), 0, "it is in the buffer alone");
        assert_eq!(disk.read(second, 512).await.expect("a read")[0], 1, "and the drive knows it");
        disk.flush().await.expect("a flush");
        assert_eq!((left(at), left(second)), (1, 1));
        // The head must be elsewhere, or reading ahead would answer.
        disk.read(0, 512).await.expect("a read");
        let first = timed(&world, disk.read(at, 512)).await;
        disk.read(0, 512).await.expect("a read");
        let second = timed(&world, disk.read(second, 512)).await;
        assert!(
            first < 1.0 && second > 1.0,
            "the first was cached, the second not: {first}, {second} ms"
        );
    });
}

/// Milliseconds of 4 MiB read in one stream while more than half of the cached writes allowed are
/// waiting. Also the amount left after a second, and the time of a flush then.
fn read_beside_cached_writes(read_ahead_first: bool) -> (f64, u64, f64) {
    let mut model = model("hitachi-7k80");
    model.cache.as_mut().expect("a cache").read_ahead_first = read_ahead_first;
    let world = VirtualWorld::new(7);
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, honest(CacheMode::On));
    let of_run = world.clone();
    let times = world.run(async move {
        disk.read(0, CHUNK).await.expect("a read");
        for number in 0..128u64 {
            let at = (1 << 30) + number * 50_000_000 / 512 * 512;
            disk.write(at, filled(12 << 10, 1), Durability::Cached).await.expect("a write");
        }
        let read = async {
            for number in 0..64 {
                disk.read((1 << 20) + number * CHUNK as u64, CHUNK).await.expect("a read");
            }
        };
        let read = timed(&of_run, read).await;
        let flush = timed(&of_run, disk.flush()).await;
        disk.read(1 << 20, CHUNK).await.expect("a read");
        disk.write(0, filled(512, 1), Durability::Cached).await.expect("a write");
        let before = disk.statistics().destages;
        of_run.sleep_until(of_run.now().plus(Duration::from_secs(1))).await;
        (read, disk.statistics().destages - before, flush)
    });
    world.end();
    times
}

#[test]
fn cached_writes_wait_for_a_stream_of_reads_where_reading_ahead_goes_first() {
    let (first, destaged, flush) = read_beside_cached_writes(true);
    let (second, ..) = read_beside_cached_writes(false);
    // 72 ms at the rate of the medium, and the time of a transfer in flight and a few revolutions.
    assert!(
        first < 150.0 && second > 2.0 * first,
        "{first} ms, and {second} where cached writes go first"
    );
    assert_eq!(destaged, 1);
    assert!(flush > 40.0, "many writes still waited: {flush} ms");
}

/// 64 MiB in segments of 256 KiB: a rounded nanosecond for each would add up to lost revolutions.
#[test]
fn a_cached_stream_keeps_the_rate_of_the_medium_where_destaging_is_seamless() {
    let whole = on_drive("hitachi-7k80", honest(CacheMode::Off), |world, disk| async move {
        timed(&world, disk.write(0, filled(CHUNKS * CHUNK, 1), Durability::Cached)).await
    });
    let time = stream_ms(model("hitachi-7k80"), 0);
    assert!((0.99..1.01).contains(&(time / whole)), "{time} ms, in one write {whole}");
}

const PHYSICAL: u64 = 4096;

/// Mean milliseconds of a durable write.
fn durable_ms(offset: u64, length: usize, reads_before: bool) -> f64 {
    on_drive("western-digital-64", honest(CacheMode::On), |world, disk| async move {
        let mut sum = 0.0;
        for number in 1..=100u64 {
            let at = number * 7_919 * PHYSICAL * 16;
            if reads_before {
                disk.read(at, 2 * PHYSICAL as usize).await.expect("a read");
            }
            world.sleep_until(world.now().plus(Duration::from_millis(20))).await;
            sum += timed(&world, disk.write(at + offset, filled(length, 1), Durability::Durable))
                .await;
        }
        sum / 100.0
    })
}

#[test]
fn a_part_of_a_physical_sector_costs_a_revolution_unless_the_rest_is_cached() {
    const REVOLUTION: f64 = 60_000.0 / 5400.0;
    let whole = durable_ms(0, PHYSICAL as usize, false);
    for (offset, length) in [(0, 512), (512, PHYSICAL as usize), (2048, 512)] {
        let part = durable_ms(offset, length, false);
        let more = part - whole;
        assert!(
            (0.8 * REVOLUTION..1.2 * REVOLUTION).contains(&more),
            "{offset}+{length}: {more} ms more"
        );
    }
    let (whole, part) =
        (durable_ms(0, PHYSICAL as usize, true), durable_ms(512, PHYSICAL as usize, true));
    assert!(
        (part - whole).abs() < 0.2 * REVOLUTION,
        "{part} ms where it was read before, {whole} a whole one"
    );
}

#[test]
fn a_power_cut_tears_a_physical_sector() {
    on_drive("western-digital-64", honest(CacheMode::Off), |world, disk| async move {
        let write = disk.write(PHYSICAL + 1024, filled(512, 1), Durability::Cached);
        let world_of_write = world.clone();
        let mut write = runtime::spawn_with_result(&world_of_write, write);
        let mut torn = 0;
        for _ in 0..40_000 {
            let left = disk.crash().unreadable;
            let all: Vec<u64> = (8..16).collect();
            assert!(left.is_empty() || left.iter().eq(all.iter()), "{left:?}");
            torn += u32::from(!left.is_empty());
            world.sleep_until(world.now().plus(Duration::from_micros(1))).await;
        }
        assert!(torn > 0 && SECTOR == 512);
        assert!(matches!(
            runtime::race(&mut write, async {}).await,
            runtime::Either::Left(Some(Ok(())))
        ));
    });
}
