//! Speed of simulated drives: requests for each second of processor time, by kind of work.
//!
//! `cargo run --release -p emulated --example requests_per_second [MODEL]`

use device::{Buffer, Disk, Durability, World};
use emulated::{DriveOptions, EmulatedDisk, Model, SECTOR, shipped};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;

const REQUESTS: u64 = 200_000;

#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    /// Tasks that wait at once.
    tasks: u64,
    bytes: usize,
    random: bool,
    write: bool,
    durability: Durability,
    /// Requests of each task between flushes; 0: no flushes.
    flush_every: u64,
}

const WORKS: [Work; 8] = {
    let random = Work {
        name: "1 random durable write, 4 KiB",
        tasks: 1,
        bytes: 4096,
        random: true,
        write: true,
        durability: Durability::Durable,
        flush_every: 0,
    };
    let cached = Work { durability: Durability::Cached, ..random };
    [
        random,
        Work { name: "1,000 random durable writes, 4 KiB", tasks: 1000, ..random },
        Work { name: "1,000 random cached writes, 4 KiB", tasks: 1000, ..cached },
        Work {
            name: "32 random cached writes, 512 B, flushes",
            tasks: 32,
            bytes: 512,
            flush_every: 50,
            ..cached
        },
        Work { name: "1 sequential durable write, 64 KiB", bytes: 65536, random: false, ..random },
        Work { name: "1 sequential cached write, 4 KiB", random: false, ..cached },
        Work { name: "32 random reads, 4 KiB", tasks: 32, write: false, ..cached },
        Work {
            name: "1 sequential read, 64 KiB",
            bytes: 65536,
            random: false,
            write: false,
            ..cached
        },
    ]
};

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or("cheetah-15k5".to_owned());
    let (_, text) = shipped().find(|(name, _)| *name == wanted).expect("a shipped model");
    for work in WORKS {
        let world = VirtualWorld::new(1);
        let model = Model::parse(text).expect("a valid model");
        let disk = EmulatedDisk::new(Rc::new(world.clone()), model, DriveOptions::default());
        let start = processor_seconds();
        let inner = world.clone();
        world.run(async move {
            let task = |number| {
                let (disk, work) = (disk.clone(), work);
                runtime::spawn_with_result(&inner, async move { run(disk, work, number).await })
            };
            let tasks: Vec<_> = (0..work.tasks).map(task).collect();
            for task in tasks {
                task.await.expect("it ends");
            }
        });
        let (seconds, virtual_seconds) = (processor_seconds() - start, world.now().0 as f64 / 1e9);
        let rate = REQUESTS as f64 / seconds;
        println!(
            "{:42} {rate:9.0} requests/s; {virtual_seconds:7.1} s of the drive in {seconds:.2} s",
            work.name
        );
        world.end();
    }
}

/// Processor time of this thread since its start.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}

async fn run(disk: EmulatedDisk, work: Work, task: u64) {
    let random = SplitMix::new(task);
    let places = disk.geometry().size / SECTOR - 1000;
    let mut next = 0;
    for number in 0..REQUESTS / work.tasks {
        let at = if work.random { random.next() % places * SECTOR } else { next };
        next = (at + work.bytes as u64) % (1 << 30);
        if work.write {
            disk.write(at, vec![Rc::new(Buffer::zeroed(work.bytes))], work.durability)
                .await
                .expect("a write");
        } else {
            disk.read(at, work.bytes).await.expect("a read");
        }
        if work.flush_every > 0 && number % work.flush_every == 0 {
            disk.flush().await.expect("a flush");
        }
    }
}
