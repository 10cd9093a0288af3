//! Measures recovery time by the log's size and record format, on the paper's two drives in virtual
//! time. Prints a table in Markdown.
//!
//! Streams append synchronously for two seconds a MiB, so that the log has wrapped; then the power
//! is cut.
//!
//! `recovery_time [MEBIBYTES...]`

use engine::{DataMode, RecordFormat, RecoveryReport};
use std::time::Duration;
use testbeds::{Stage, StageOptions};
use workloads::{PeriodicOptions, SyncKind, periodic};

const STREAMS: u32 = 400;
/// Bytes of an append, and each stream's rate of appends.
const SIZE: usize = 512;
const PERIOD: Duration = Duration::from_millis(200);

fn main() {
    let sizes: Vec<u64> = std::env::args().skip(1).map(|size| size.parse().expect("MiB")).collect();
    let sizes = if sizes.is_empty() { vec![8, 32, 128] } else { sizes };
    println!(
        "| log, MiB | records | transactions | home blocks read, written | scan, s | of it looking ahead | revoke, s | replay, s | all, s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for size in sizes {
        for records in [RecordFormat::Blocks, RecordFormat::Packed] {
            let report = recover(size, records);
            let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
            println!(
                "| {size} | {} | {} | {}, {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                records.name(),
                report.transactions,
                report.home_blocks_read,
                report.home_blocks_written,
                seconds(report.scan.nanoseconds),
                seconds(report.look_ahead_nanoseconds),
                seconds(report.revoke.nanoseconds),
                seconds(report.replay.nanoseconds),
                seconds(report.nanoseconds),
            );
        }
    }
}

fn recover(mebibytes: u64, records: RecordFormat) -> RecoveryReport {
    let mut options = StageOptions::of_paper(DataMode::Wasteless);
    options.home.options.size = Some(8 << 30);
    options.journal_size = mebibytes << 20;
    options.tick = Duration::ZERO;
    options.engine.records = Some(records);
    // Blocks are written back only when log space runs short.
    (options.engine.writeback, options.engine.expire) =
        (Duration::from_secs(3600), Duration::from_secs(7200));
    let mut stage = Stage::build(&options).expect("a stage");
    let streams = PeriodicOptions {
        streams: STREAMS,
        size: SIZE,
        period: PERIOD,
        time: Duration::from_secs(2 * mebibytes),
        count: u64::MAX,
        sync: SyncKind::OSync,
    };
    stage.run(move |files| async move { periodic(&files, streams).await }).expect("all can write");
    assert!(stage.journal_traffic().bytes_written > mebibytes << 20, "the log was not filled");
    stage.crash_and_recover().expect("a recovery")
}
