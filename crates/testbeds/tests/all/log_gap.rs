//! Tests of `log_gap=auto` on emulated disks: a rotating disk no longer loses a revolution for each
//! commit, and others get no gap.

use engine::{BarrierKind, DataMode, EngineOptions, LogGap, LogKind};
use std::time::Duration;
use testbeds::{Stage, StageOptions, Traffic};
use workloads::{PeriodicOptions, SyncKind, periodic};

/// Runs one writer who waits for each sync. Returns the number of syncs and the disk's traffic.
fn play(model: &str, log_gap: LogGap) -> (u64, Traffic) {
    let mut options = StageOptions::of_manylogs(DataMode::Wasteless, LogKind::Circular);
    options.home.model = model.into();
    options.home.options.size = Some(1 << 30);
    options.journal_size = 128 << 20;
    options.engine = EngineOptions {
        data: DataMode::Wasteless,
        barrier: BarrierKind::Flush,
        log_gap,
        ..EngineOptions::default()
    };
    let stage = Stage::build(&options).unwrap();
    let streams = PeriodicOptions {
        streams: 1,
        size: 128,
        period: Duration::ZERO,
        time: Duration::from_secs(4),
        count: u64::MAX,
        sync: SyncKind::OSync,
    };
    let report = stage.run(move |files| async move { periodic(&files, streams).await }).unwrap();
    (report.operations, stage.home_traffic())
}

#[test]
fn a_disk_that_turns_syncs_several_times_as_often() {
    let (off, auto) = (play("cheetah-15k5", LogGap::Off).0, play("cheetah-15k5", LogGap::Auto).0);
    assert!(auto > 3 * off, "{off} syncs without gaps, {auto} with them");
}

#[test]
fn a_disk_that_does_not_turn_is_written_to_as_without_gaps() {
    let (off, auto) = (play("nvme-ssd", LogGap::Off), play("nvme-ssd", LogGap::Auto));
    assert_eq!(off, auto);
}
