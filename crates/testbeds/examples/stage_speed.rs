//! Measures the speed of virtual time: many streams on the paper's two drives. Prints the disks'
//! requests, the streams' latencies, and simulated requests per second of processor time.
//!
//! `stage_speed MODE STREAMS SECONDS [BYTES [ext4]]`

use engine::DataMode;
use std::time::{Duration, Instant};
use testbeds::{Stage, StageOptions, VolumeLayout};
use workloads::{PeriodicOptions, SyncKind, periodic};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let data = match arguments.first().map(String::as_str) {
        Some("writeback") => DataMode::Writeback,
        Some("ordered") => DataMode::Ordered,
        Some("journal") => DataMode::Journal,
        Some("selective") => DataMode::Selective,
        _ => DataMode::Wasteless,
    };
    let mut options = StageOptions::of_paper(data);
    if arguments.get(4).is_some_and(|layout| layout == "ext4") {
        options.layout = VolumeLayout::Ext4;
    }
    let streams = PeriodicOptions {
        streams: number(1, 1000) as u32,
        size: number(3, 125) as usize,
        period: Duration::from_secs(1),
        time: Duration::from_secs(number(2, 300)),
        count: u64::MAX,
        sync: SyncKind::OSync,
    };
    let begun = Instant::now();
    let stage = Stage::build(&options).expect("a stage");
    println!("built in {:.2} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let report = stage
        .run(move |files| async move { periodic(&files, streams).await })
        .expect("all can write");
    let wall = begun.elapsed().as_secs_f64();
    let (journal, home) = (stage.journal_traffic(), stage.home_traffic());
    let seconds = report.took.as_secs_f64();
    println!(
        "{} writes in {seconds:.1} s, mean {:?}, longest {:?}",
        report.operations, report.mean, report.longest
    );
    let rate = |bytes: u64| bytes as f64 / seconds / f64::from(1 << 20);
    println!("journal {:.3} MiB/s {journal:?}", rate(journal.bytes_written));
    println!("home {:.3} MiB/s {home:?}", rate(home.bytes_written));
    let requests = journal.reads + journal.writes + home.reads + home.writes;
    println!("{wall:.1} s of the processor; {:.0} requests/s", requests as f64 / wall);
    println!("{}", serde_json::to_string(&stage.statistics()).expect("numbers"));
}
