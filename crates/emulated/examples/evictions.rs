//! Workloads that evict a small write from a lying drive's cache, and their duration: a coarse
//! table.
//!
//! `cargo run --release -p emulated --example evictions MODEL random|sequential TRIALS
//! WRITES,.. MB,..`

use device::{Buffer, Disk, Durability, World};
use emulated::{DriveOptions, EmulatedDisk, Lies, Model, SECTOR, shipped};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Copy)]
pub struct Workload {
    pub writes: u64,
    /// Bytes of each write, in whole sectors.
    pub bytes: u64,
    pub is_random: bool,
}

impl Workload {
    /// A workload of `amount` times 1,000,000 bytes in `writes` writes.
    pub fn new(is_random: bool, writes: u64, amount: f64) -> Workload {
        let sectors = (amount * 1e6 / writes as f64 / SECTOR as f64).ceil() as u64;
        Workload { writes, bytes: sectors * SECTOR, is_random }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, pattern, trials, writes, megabytes] = &arguments[..] else {
        panic!("MODEL random|sequential TRIALS WRITES,.. MB,..")
    };
    let (_, text) = shipped().find(|(shipped, _)| shipped == name).expect("a shipped model");
    let trials: u64 = trials.parse().expect("a number");
    let numbers =
        |text: &str| text.split(',').map(|number| number.parse().expect("a number")).collect();
    let (writes, megabytes): (Vec<f64>, Vec<f64>) = (numbers(writes), numbers(megabytes));
    let mut cheapest: Option<(f64, f64, f64)> = None;
    print!("{:>8}", "MB");
    writes.iter().for_each(|count| print!("{count:>16}"));
    println!();
    for &amount in &megabytes {
        print!("{amount:>8}");
        for &count in &writes {
            let workload = Workload::new(pattern == "random", count as u64, amount);
            let (evicted, ms) = try_out(text, workload, trials);
            print!("{:>7.2}{ms:>7.0}ms", evicted as f64 / trials as f64);
            if evicted == trials && cheapest.is_none_or(|(least, ..)| ms < least) {
                cheapest = Some((ms, count, amount));
            }
        }
        println!();
    }
    println!("cheapest that always evicted (ms, writes, MB): {cheapest:?}");
}

/// A trial: a small write anywhere, the workload, a flush, a second of rest, and whether reading
/// the small write back is slow. Returns the number of trials that evicted, and the mean time of
/// the workload in ms.
pub fn try_out(text: &str, workload: Workload, trials: u64) -> (u64, f64) {
    let world = VirtualWorld::new(1);
    let options = DriveOptions {
        lies: Lies { ignores_flush: true, ..Lies::default() },
        ..DriveOptions::default()
    };
    let model = Model::parse(text).expect("a valid model");
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, options);
    let inner = world.clone();
    let result = world.run(async move {
        let (mut evicted, mut time) = (0, 0.0);
        let random = SplitMix::new(workload.writes * 1000 + workload.bytes);
        let sectors = disk.geometry().size / SECTOR;
        let write = |at: u64, bytes: u64| {
            disk.write(at, vec![Rc::new(Buffer::zeroed(bytes as usize))], Durability::Cached)
        };
        for _ in 0..trials {
            let target = random.next() % sectors * SECTOR;
            write(target, 512).await.expect("a write");
            let begin = inner.now();
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
            time += inner.now().since(begin).as_secs_f64() * 1e3;
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
            let begin = inner.now();
            disk.read(target, 512).await.expect("a read");
            evicted += u64::from(inner.now().since(begin) > Duration::from_millis(1));
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
        }
        (evicted, time / trials as f64)
    });
    world.end();
    result
}
