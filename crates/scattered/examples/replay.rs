//! Replays windows of a block trace side by side on one 7200 rpm drive without write cache, in
//! virtual time, with and without scattered logs. Prints latency, and how many requests the drive
//! had at a time. For investigating a figure (`okeanos-lab reproduce manylogs-6`).
//!
//!     zcat trace.csv.gz >trace.csv
//!     cargo run -p scattered --example replay -- \
//!         trace.csv FROM,FROM,... SECONDS SLOWER [DRIVE-TRACE-PREFIX]
//!
//! FROM: the second of the trace at which a stream begins. SLOWER: factor that lengthens the times
//! between requests.

use device::{Disk, World};
use disks::{MemoryDisk, TraceFile as Requests, Watched};
use emulated::replay::{self, Recorded, Timing, Trace};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, shipped};
use runtime::VirtualWorld;
use scattered::{CheckpointPolicy, ScatteredDisk, Settings, Sizes};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// By then the logs have been opened.
const BEGIN: Duration = Duration::from_secs(5);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, from, seconds, slower, prefix @ ..] = &words[..] else {
        panic!("TRACE FROM,... SECONDS SLOWER [PREFIX]")
    };
    let text = std::fs::read_to_string(path).expect("the trace");
    let trace = Trace::parse(&text, u64::MAX).expect("a trace");
    let (seconds, slower): (f64, u32) =
        (seconds.parse().expect("seconds"), slower.parse().expect("a factor"));
    let requests = mixed(&trace.requests, from, seconds / f64::from(slower), slower);
    for logged in [None, Some(32 << 10), Some(256 << 10)] {
        run(&requests, logged, prefix.first().map(PathBuf::from));
    }
}

fn mixed(all: &[Recorded], from: &str, seconds: f64, slower: u32) -> Vec<Recorded> {
    // One read at the very begin keeps the times from being moved.
    let mut requests = vec![Recorded {
        is_write: false,
        at: 0,
        length: 512,
        time: Duration::ZERO,
        measured: None,
    }];
    for (stream, from) in (0u64..).zip(from.split(',')) {
        let from = all[0].time + Duration::from_secs(from.parse().expect("a second"));
        let until = from + Duration::from_secs_f64(seconds);
        for request in all.iter().filter(|request| (from..until).contains(&request.time)) {
            let (at, time) =
                (request.at + stream * (170 << 30), (request.time - from) * slower + BEGIN);
            requests.push(Recorded { at, time, measured: None, ..request.clone() });
        }
    }
    requests.sort_by_key(|request| request.time);
    requests
}

fn run(requests: &[Recorded], logged: Option<u64>, trace: Option<PathBuf>) {
    let (_, text) = shipped().find(|(name, _)| *name == "constellation-es3").expect("a model");
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let options = DriveOptions { cache: CacheMode::Off, ..DriveOptions::default() };
    let drive = EmulatedDisk::new(in_world.clone(), Model::parse(text).expect("a model"), options);
    let name = logged.map_or("none".to_owned(), |size| format!("MLB-{}", size >> 10));
    let mut beneath: Rc<dyn Disk> = Rc::new(drive);
    if let Some(prefix) = trace {
        let path = PathBuf::from(format!("{}-{name}.csv", prefix.display()));
        let to = Requests::new(in_world.clone(), &path, false).expect("a file");
        beneath = Rc::new(Watched { disk: beneath, watch: to });
    }
    let logs = logged.map(|logged_write_size| {
        let drive = beneath.clone();
        let settings = Settings {
            logged_write_size,
            checkpoint: CheckpointPolicy::Manual,
            ..Settings::default()
        };
        world.run(async move {
            let table: Rc<dyn Disk> = Rc::new(MemoryDisk::new(in_world.clone(), 1 << 30));
            ScatteredDisk::format(&in_world, &drive, Some(&table), Sizes::default())
                .await
                .expect("logs");
            ScatteredDisk::open(in_world, drive, Some(table), settings)
                .await
                .expect("an open disk")
                .0
        })
    });
    let disk = logs.clone().map_or(beneath, |logs| Rc::new(logs) as Rc<dyn Disk>);
    let trace = Rc::new(Trace { timing: Timing::Timestamps, requests: requests.to_vec() });
    let times = replay::run(&world, &disk, trace).expect("a replay");
    for (what, writes) in [("reads", false), ("writes", true)] {
        let of =
            requests.iter().zip(&times).skip(1).filter(|(request, _)| request.is_write == writes);
        let mut latency: Vec<f64> = of.map(|(_, time)| *time as f64 / 1e6).collect();
        latency.sort_by(f64::total_cmp);
        let Some(last) = latency.len().checked_sub(1) else { continue };
        let at = |percent: usize| latency[last * percent / 100];
        let mean = latency.iter().sum::<f64>() / latency.len() as f64;
        println!(
            "{name:<8} {what:<6} {:>6}: mean {mean:>8.2} ms, p10 {:.2}, p50 {:.2}, p90 {:.1}, p99 {:.1}",
            latency.len(),
            at(10),
            at(50),
            at(90),
            at(99)
        );
    }
    let took = world.now().0 as f64 / 1e9;
    if let Some(logs) = logs {
        println!("{name:<8} {took:.0} s, {:?}", logs.statistics());
    }
    world.end();
}
