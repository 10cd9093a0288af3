//! Latency of a block trace with and without scattered logs in front of a 7200 rpm drive without write cache, in virtual time; then what a checkpoint takes
//! and is spared. After the Manylogs paper's Figures 6 and 7, with windows of one trace as tenants.
//!
//!     zcat trace.csv.gz >trace.csv; cargo run -p scattered --example replay -- trace.csv

use device::{Disk, World};
use emulated::replay::{self, Pace, Recorded, Trace};
use emulated::{CacheMode, EmulatedDisk, Model, Options, shipped};
use runtime::VirtualWorld;
use scattered::{CheckpointPolicy, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(300);
const TENANTS: u64 = 5;
/// Opening the logs is over by then.
const BEGIN: Duration = Duration::from_secs(5);

fn main() {
    let path = std::env::args().nth(1).expect("a trace");
    let text = std::fs::read_to_string(path).expect("the trace");
    let trace = Trace::parse(&text, u64::MAX).expect("a trace");
    println!("mix              requests   mean ms    p50     p90     p99   speed-up  swaps  table KiB");
    for mix in 0..5 {
        let requests = mixed(&trace.requests, mix);
        let none = run(&requests, None);
        print_row(&format!("W{} no logging", mix + 1), &none, &none);
        for size in [32, 256] {
            let logged = run(&requests, Some(size << 10));
            print_row(&format!("W{} MLB-{size}", mix + 1), &logged, &none);
        }
    }
    let hour = run(&whole(&trace.requests), Some(256 << 10));
    println!("checkpoint after the whole trace, MLB-256: {}", hour.checkpoint);
}

/// Five windows of the trace, side by side on the disk.
fn mixed(all: &[Recorded], mix: u64) -> Vec<Recorded> {
    let first = all[0].time;
    let mut requests = Vec::new();
    for tenant in 0..TENANTS {
        let from = first + WINDOW * ((mix * 2 + tenant * 3) % 12) as u32;
        for request in all.iter().filter(|request| (from..from + WINDOW).contains(&request.time)) {
            let at = request.at + tenant * (170 << 30);
            requests.push(Recorded {
                at,
                time: request.time - from + BEGIN,
                measured: None,
                ..request.clone()
            });
        }
    }
    sorted(requests)
}
fn whole(all: &[Recorded]) -> Vec<Recorded> {
    let first = all[0].time;
    sorted(
        all.iter()
            .map(|request| Recorded { time: request.time - first + BEGIN, ..request.clone() })
            .collect(),
    )
}
/// With one read at the very begin, which keeps the times from being moved.
fn sorted(mut requests: Vec<Recorded>) -> Vec<Recorded> {
    requests.push(Recorded { is_write: false, at: 0, length: 512, time: Duration::ZERO, measured: None });
    requests.sort_by_key(|request| request.time);
    requests
}

struct Outcome {
    /// Milliseconds, ascending.
    latency: Vec<f64>,
    swaps: u64,
    table: u64,
    checkpoint: String,
}

fn run(requests: &[Recorded], logged: Option<u64>) -> Outcome {
    let (_, text) = shipped().find(|(name, _)| *name == "constellation-es3").expect("a model");
    let model = Model::parse(text).expect("a model");
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let options = Options { cache: CacheMode::Off, ..Options::default() };
    let drive: Rc<dyn Disk> = Rc::new(EmulatedDisk::new(in_world.clone(), model, options));
    let logs = logged.map(|logged_write_size| {
        let drive = drive.clone();
        let settings =
            Settings { logged_write_size, checkpoint: CheckpointPolicy::Manual, ..Settings::default() };
        world.run(async move {
            ScatteredDisk::format(&in_world, &drive, None, Sizes::default()).await.expect("logs");
            ScatteredDisk::open(in_world, drive, None, settings).await.expect("an open disk").0
        })
    });
    let disk = logs.clone().map_or(drive, |logs| Rc::new(logs) as Rc<dyn Disk>);
    let trace = Trace { pace: Pace::Timestamps, requests: requests.to_vec() };
    let times = replay::run(&world, &disk, Rc::new(trace)).expect("a replay");
    let mut latency: Vec<f64> = times[1..].iter().map(|time| *time as f64 / 1e6).collect();
    latency.sort_by(f64::total_cmp);
    let Some(logs) = logs else { return Outcome { latency, swaps: 0, table: 0, checkpoint: String::new() } };
    let statistics = logs.statistics();
    let report = world.run(async move { logs.checkpoint().await.expect("a checkpoint") });
    let checkpoint = format!(
        "{:.1} s of log reads, {:.1} s of writes home; {:.0} % of I/Os and {:.0} % of block writes reduced; table {} KiB",
        report.reading.as_secs_f64(),
        report.writing.as_secs_f64(),
        100.0 * report.writes_reduced(),
        100.0 * report.blocks_reduced(),
        statistics.table_memory >> 10
    );
    world.end();
    Outcome { latency, swaps: statistics.swaps, table: statistics.table_memory, checkpoint }
}

fn percentile(of: &[f64], percent: usize) -> f64 {
    of[(of.len() - 1) * percent / 100]
}

/// The speed-up is the mean of those at every percentile, as the paper's.
fn print_row(name: &str, outcome: &Outcome, none: &Outcome) {
    let at = |percent| percentile(&outcome.latency, percent);
    let ratios = (1..100).map(|percent| percentile(&none.latency, percent) / at(percent));
    let mean = outcome.latency.iter().sum::<f64>() / outcome.latency.len() as f64;
    println!(
        "{name:<16} {:>8} {mean:>9.2} {:>7.2} {:>7.2} {:>7.1} {:>9.2}x {:>6} {:>9}",
        outcome.latency.len(),
        at(50),
        at(90),
        at(99),
        ratios.sum::<f64>() / 99.0,
        outcome.swaps,
        outcome.table >> 10
    );
}
