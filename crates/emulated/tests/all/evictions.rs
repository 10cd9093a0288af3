//! The caches of the Discreet paper's drives: workloads that evict a small write, as they lie about
//! flushes.

use device::{Buffer, Disk, Durability, World};
use emulated::{DriveOptions, EmulatedDisk, Lies, Model, SECTOR, shipped};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;

const TRIALS: u64 = 10;

#[derive(Clone, Copy)]
struct Workload {
    writes: u64,
    /// Bytes of each write, in whole sectors.
    bytes: u64,
    is_random: bool,
}

impl Workload {
    /// A workload of `amount` times 1,000,000 bytes in `writes` writes.
    fn new(is_random: bool, writes: u64, amount: f64) -> Workload {
        let sectors = (amount * 1e6 / writes as f64 / SECTOR as f64).ceil() as u64;
        Workload { writes, bytes: sectors * SECTOR, is_random }
    }
}

/// Returns the number of trials that evicted. A trial is a small write anywhere, the workload, a
/// flush, a second of rest, and a read of the small write: a slow one came from the medium.
fn evicted(model: &str, workload: Workload) -> u64 {
    let (_, text) = shipped().find(|(name, _)| *name == model).expect("it is shipped");
    let world = VirtualWorld::new(1);
    let options = DriveOptions {
        lies: Lies { ignores_flush: true, ..Lies::default() },
        ..DriveOptions::default()
    };
    let model = Model::parse(text).expect("a valid model");
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, options);
    let inner = world.clone();
    let result = world.run(async move {
        let mut evicted = 0;
        let random = SplitMix::new(workload.writes * 1000 + workload.bytes);
        let sectors = disk.geometry().size / SECTOR;
        let write = |at: u64, bytes: u64| {
            disk.write(at, vec![Rc::new(Buffer::zeroed(bytes as usize))], Durability::Cached)
        };
        for _ in 0..TRIALS {
            let target = random.next() % sectors * SECTOR;
            write(target, 512).await.expect("a write");
            let zone = random.next() % (sectors / 2);
            for number in 0..workload.writes {
                let slot = workload.bytes / SECTOR;
                let at = match workload.is_random {
                    true => random.next() % (sectors - slot),
                    false => zone + number * slot,
                };
                write(at * SECTOR, workload.bytes).await.expect("a write");
            }
            disk.flush().await.expect("a flush");
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
            let begin = inner.now();
            disk.read(target, 512).await.expect("a read");
            evicted += u64::from(inner.now().since(begin) > Duration::from_millis(1));
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
        }
        evicted
    });
    world.end();
    result
}
fn evicted_by_stream(model: &str, writes: u64, amount: f64) -> u64 {
    evicted(model, Workload::new(false, writes, amount))
}
/// Checks that Table IV's workload evicts, and one of so much less does not.
fn prove(model: &str, (writes, amount): (u64, f64), (fewer, less): (u64, f64), at_least: u64) {
    let found = evicted(model, Workload::new(true, writes, amount));
    assert!(
        found >= at_least,
        "{model}: {found} of {TRIALS} evicted by {writes} writes of {amount} MB"
    );
    let found = evicted(model, Workload::new(true, fewer, less));
    assert!(found <= 1, "{model}: {found} of {TRIALS} evicted by {fewer} writes of {less} MB");
}

#[test]
fn hitachis_want_one_write_of_enough_data() {
    prove("hitachi-7k80", (1, 2.38), (1, 2.2), TRIALS);
    prove("hitachi-32", (1, 11.0), (1, 9.0), TRIALS);
}
/// Section V: 128 random writes of 12 KB flush each of the segments. But of a stream the amount
/// alone counts.
#[test]
fn hitachis_segments_are_taken_by_random_writes_and_filled_by_sequential_ones() {
    prove("hitachi-7k80", (128, 1.536), (96, 1.152), TRIALS);
    for writes in [64, 128, 256, 2048] {
        let (fewer, enough) = (
            evicted_by_stream("hitachi-7k80", writes, 2.0),
            evicted_by_stream("hitachi-7k80", writes, 2.6),
        );
        assert!(
            fewer <= 1 && enough == TRIALS,
            "{writes} writes: {fewer} of {TRIALS} by 2 MB, {enough} by 2.6 MB"
        );
    }
}
#[test]
fn samsungs_want_many_writes_and_are_never_certain() {
    prove("samsung-8", (128, 49.0), (1, 49.0), TRIALS - 1);
    prove("samsung-16", (512, 128.0), (1, 128.0), TRIALS - 1);
}
#[test]
fn western_digitals_count_writes() {
    prove("western-digital-16", (1792, 19.0), (1536, 19.0), TRIALS);
    prove("western-digital-16", (1792, 19.0), (1792, 13.0), TRIALS);
    prove("western-digital-64", (256, 1.0), (128, 31.0), TRIALS);
}
#[test]
fn seagates_want_scattered_writes_and_ignore_streams() {
    prove("seagate-8", (256, 31.0), (128, 31.0), TRIALS - 1);
    prove("barracuda-7200.11", (128, 17.0), (128, 13.0), TRIALS);
    prove("seagate-32", (128, 37.0), (128, 31.0), TRIALS);
    for model in ["seagate-8", "barracuda-7200.11", "seagate-32"] {
        for writes in [1, 128] {
            let found = evicted_by_stream(model, writes, 128.0);
            assert!(
                found <= 1,
                "{model}: {found} of {TRIALS} evicted by a stream of {writes} writes"
            );
        }
    }
}
