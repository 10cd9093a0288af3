//! Measures synchronous writers on a rotating disk in virtual time: what gaps between commits gain
//! (`log_gap=`).
//!
//! `log_gap MODEL WRITERS SECONDS JOURNAL_MIB GAP..`, each GAP `off`, `auto` or bytes

use engine::{BarrierKind, DataMode, EngineOptions, LogGap, LogKind};
use std::time::Duration;
use testbeds::{Stage, StageOptions};
use workloads::{PeriodicOptions, SyncKind, periodic};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, writers, seconds, mebibytes, gaps @ ..] = &arguments[..] else {
        panic!("log_gap MODEL WRITERS SECONDS JOURNAL_MIB GAP..")
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    for gap in gaps {
        let of_paper = StageOptions::of_manylogs(DataMode::Wasteless, LogKind::Circular);
        let mut options = StageOptions {
            engine: EngineOptions {
                data: DataMode::Wasteless,
                barrier: BarrierKind::Flush,
                log_gap: match gap.as_str() {
                    "off" => LogGap::Off,
                    "auto" => LogGap::Auto,
                    bytes => LogGap::Always(number(&bytes.to_owned()) as u32),
                },
                ..EngineOptions::default()
            },
            journal_size: number(mebibytes) << 20,
            ..of_paper
        };
        options.home.model = model.clone();
        let streams = PeriodicOptions {
            streams: number(writers) as u32,
            size: 128,
            period: Duration::ZERO,
            time: Duration::from_secs(number(seconds)),
            count: u64::MAX,
            sync: SyncKind::OSync,
        };
        let stage = Stage::build(&options).expect("a stage");
        let report = stage
            .run(move |files| async move { periodic(&files, streams).await })
            .expect("all can write");
        let rate = report.operations as f64 / report.took.as_secs_f64();
        let home = stage.home_traffic();
        println!(
            "{gap}: {rate:.0} syncs/s, mean {:?}, longest {:?}; {} writes of {} MiB",
            report.mean,
            report.longest,
            home.writes,
            home.bytes_written >> 20
        );
    }
}
