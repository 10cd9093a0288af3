//! Cost of a durable write through the ring: `durable_writes PATH [COUNT]`, on a file or block
//! device whose content may be lost. One 4 KiB write with RWF_DSYNC after the other, asleep and
//! polling; then write and flush, asleep.

use device::{Buffer, Disk, Durability, World};
use disks::{DiskAccess, FileDisk};
use runtime::{RealWorld, spawn_with_result};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

const BLOCK: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: durable_writes PATH [COUNT]")?;
    let count: u64 = arguments.next().map_or(Ok(2000), |count| count.parse())?;
    measure(&path, "durable write, asleep", count, false, true)?;
    measure(&path, "durable write, awake ", count, true, true)?;
    measure(&path, "write and flush      ", count, false, false)?;
    let world = RealWorld::new()?;
    let inner = world.clone();
    world.run(async move { measure_runtime(&inner).await });
    Ok(())
}

/// Measures in a world of its own: nothing learnt about polling is passed on.
fn measure(
    path: &str,
    name: &'static str,
    count: u64,
    awake: bool,
    at_once: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let world = RealWorld::new()?;
    if !awake {
        world.poll_at_most(Duration::ZERO);
    }
    let disk = FileDisk::open(world.ring(), Path::new(path), DiskAccess::ReadWrite)?;
    println!("{path}: {:?}, direct I/O: {}", disk.geometry(), disk.is_direct());
    let inner = world.clone();
    Ok(world.run(async move { write_all(&inner, &disk, name, count, awake, at_once).await })?)
}

async fn write_all(
    world: &RealWorld,
    disk: &FileDisk,
    name: &str,
    count: u64,
    awake: bool,
    at_once: bool,
) -> Result<(), device::DeviceError> {
    let block = Rc::new(Buffer::zeroed(BLOCK as usize));
    let places = disk.geometry().size / BLOCK;
    world.expect_soon(awake);
    let mut times = Vec::new();
    for index in 0..count {
        let begin = world.now();
        let at = index % places * BLOCK;
        if at_once {
            disk.write(at, vec![block.clone()], Durability::Durable).await?;
        } else {
            disk.write(at, vec![block.clone()], Durability::Cached).await?;
            disk.flush().await?;
        }
        times.push(world.now().since(begin));
    }
    world.expect_soon(false);
    times.sort();
    let total: Duration = times.iter().sum();
    let rate = count as f64 / total.as_secs_f64();
    println!(
        "{name}  {rate:8.0}/s  p50 {:?}  p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    Ok(())
}

/// Cost of the runtime itself: tasks that each make one ring operation that the kernel completes at
/// once.
async fn measure_runtime(world: &RealWorld) {
    let null: runtime::File = Rc::new(std::fs::File::open("/dev/zero").expect("/dev/zero").into());
    let begin = world.now();
    let rounds = 1000;
    for _ in 0..rounds {
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (ring, null) = (world.ring().clone(), null.clone());
                spawn_with_result(
                    world,
                    async move { ring.read(&null, 0, 512).await.expect("zeros") },
                )
            })
            .collect();
        for task in tasks {
            task.await;
        }
    }
    let each = world.now().since(begin) / (rounds * 200);
    println!("task + 512-byte read + channel: {each:?} each; {:?}", world.ring().statistics());
    let begin: Instant = world.now();
    for _ in 0..200_000 {
        world.spawn(Box::pin(async {}));
    }
    runtime::yield_now().await;
    println!("empty task: {:?} each", world.now().since(begin) / 200_000);
}
