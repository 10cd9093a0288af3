//! Tests of how long a volume with scattered logs takes to open after a power cut, and which reads
//! take the time.

use crate::mapped_file;
use disks::{HostScheduler, MemoryDisk};
use engine::{DataMode, DurableMemory, LogKind, RecoveryReport};
use ext4::{Caller, WriteFlags};
use format::run_table::TABLE_BYTES;
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use testbeds::{Stage, StageOptions};

const FILES: u64 = 16;
const FILE: u64 = 1 << 30;
/// Updates between two syncs.
const TOGETHER: u64 = 20;
/// Number of updates that `expire=` leaves of a writer who waits for each sync.
const HALF_A_MINUTE: u64 = 5_000;

/// Source from which a restart learns of the runs, beside their headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    None,
    /// The table of runs on memory.
    Table,
    /// The snapshot of the mapping table.
    Snapshot,
}

/// Movement of the arm between two updates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// The arm rests: runs are adjacent.
    Rests,
    /// Reads somewhere in three quarters of the volume: each run lies in another log.
    Wanders,
}

/// Updates of blocks all over the disk, each of a number of bytes and logged once; then the power
/// is cut.
#[derive(Clone, Copy)]
struct Script {
    data: DataMode,
    log: LogKind,
    updates: u64,
    bytes: usize,
    /// Updates before a sync.
    together: u64,
    elevator: Option<HostScheduler>,
    index: Index,
    arm: Arm,
}

impl Script {
    fn new(data: DataMode, updates: u64, bytes: usize) -> Script {
        Script {
            data,
            log: LogKind::Scattered,
            updates,
            bytes,
            together: TOGETHER,
            elevator: Some(HostScheduler::NOOP),
            index: Index::Snapshot,
            arm: Arm::Rests,
        }
    }
}

fn play(script: Script) -> RecoveryReport {
    let Script { data, log, updates, bytes, together, elevator, index, arm } = script;
    let length = if arm == Arm::Wanders { 3 * FILE } else { FILE };
    let mut options = StageOptions { seed: 5, ..StageOptions::of_manylogs(data, log) };
    options.home.options.size = Some(64 << 30);
    options.home.elevator = elevator;
    options.journal_size = 64 << 20;
    if index != Index::Snapshot {
        options.engine.snapshot_after = None;
    }
    let world = VirtualWorld::new(options.seed);
    if index == Index::Table {
        let memory = MemoryDisk::new(Rc::new(world.clone()), TABLE_BYTES);
        options.engine.run_table = Some(DurableMemory(Rc::new(memory)));
    }
    let mut stage = Stage::build_in(world, &options).unwrap();
    let (world, volume) = (stage.world().clone(), stage.volume().clone());
    world.run(async move {
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(mapped_file(&volume, &format!("tenant-{number}"), length).await);
        }
        volume.sync().await.unwrap();
        volume.engine().checkpoint().await.unwrap();
        let rng = SplitMix::new(5);
        for update in 0..updates {
            let file = &files[(update % FILES) as usize];
            let at = rng.below(length >> 12) << 12;
            volume
                .write(file, &Caller::ROOT, at, &vec![7; bytes], WriteFlags::default())
                .await
                .unwrap();
            if (update + 1) % together == 0 {
                if arm == Arm::Wanders {
                    let elsewhere = rng.below(length >> 12) << 12;
                    volume.read(&files[rng.below(FILES) as usize], elsewhere, 4096).await.unwrap();
                }
                volume.sync().await.unwrap();
            }
        }
    });
    let report = stage.crash_and_recover().unwrap();
    println!(
        "{updates} updates of {bytes} bytes: {} logs, {} pages of a table and {} blocks of a snapshot read, {:.2} s in all: {:.2} to \
         read the snapshot, {:.2} to find the runs, {:.2} to scan {} of {} of them, {:.2} to read them again; {} blocks home, {} kept, {} \
         of them in part",
        report.logs_read,
        report.table_pages_read,
        report.snapshot_blocks_read,
        seconds(report.nanoseconds),
        seconds(report.snapshot_nanoseconds),
        seconds(report.find_nanoseconds),
        seconds(report.scan.nanoseconds),
        report.scan.counts.transactions,
        report.transactions,
        seconds(report.replay.nanoseconds),
        report.home_blocks_written,
        report.blocks_kept,
        report.blocks_in_part
    );
    stage.close_and_check().unwrap();
    report
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Logged blocks stay in the logs: a restart reads them, and writes one block of the volume home.
#[test]
fn a_restart_writes_nothing_home_that_the_logs_hold_whole() {
    for (updates, longest) in [(2_000, 3.0), (20_000, 8.0)] {
        let [searched, indexed] = [Index::None, Index::Table]
            .map(|index| play(Script { index, ..Script::new(DataMode::Adaptive, updates, 4096) }));
        assert!(searched.logs_read > 0 && searched.find_nanoseconds > 0);
        for report in [&searched, &indexed] {
            assert!(
                report.blocks_kept * 10 > updates * 9 && report.home_blocks_written <= 1,
                "{report:?}"
            );
            assert!(seconds(report.nanoseconds) < longest, "{report:?}");
        }
        assert!(indexed.table_refused.is_none() && indexed.find_nanoseconds == 0, "{indexed:?}");
        let saved = searched.nanoseconds - indexed.nanoseconds;
        assert!(saved * 2 > searched.find_nanoseconds, "{searched:?}, {indexed:?}");
    }
}

/// Blocks of 100 GB of logs, 10 MB in each group of 100 MB, all full. It is more than logs ever
/// hold: write-back keeps three eighths of them free.
const LOGGED_BLOCKS: u64 = 100_000_000_000 / 4096;

/// Bounds a restart's reads besides the snapshot, whatever the logs hold. At worst each run lies in
/// another log, and the restart looks into as many logs as it ever does. The time of reading a
/// snapshot per block in it gives the rest.
#[test]
fn a_snapshot_bounds_what_a_restart_reads() {
    let mut a_block = 0.0;
    for updates in [20_000, 40_000, 120_000] {
        let report = play(Script::new(DataMode::Adaptive, updates, 4096));
        assert!(
            report.blocks_kept * 10 > updates * 9 && report.home_blocks_written <= 1,
            "{report:?}"
        );
        assert!(
            report.snapshot_refused.is_none() && report.snapshot_transactions > 0,
            "{report:?}"
        );
        assert!(seconds(report.nanoseconds) < 3.0, "{report:?}");
        a_block = seconds(report.snapshot_nanoseconds) / report.blocks_kept as f64;
    }
    let worst = play(Script { arm: Arm::Wanders, ..Script::new(DataMode::Adaptive, 12_000, 4096) });
    assert!(worst.snapshot_refused.is_none() && worst.snapshot_transactions > 0, "{worst:?}");
    assert!(worst.logs_read > 256, "{worst:?}");
    let full = seconds(worst.nanoseconds) + a_block * LOGGED_BLOCKS as f64;
    println!(
        "{:.3} us for a block in the snapshot; {full:.2} s with {LOGGED_BLOCKS} of them",
        a_block * 1e6
    );
    assert!(full < 10.0, "{full:.2} s: {worst:?}");
}

/// Parts of blocks stay in the logs and in memory. A restart reads the runs that hold them, and one
/// block of home.
#[test]
fn restart_does_no_home_io_for_partial_blocks() {
    for (updates, together, arm, longest) in [
        (2_000, TOGETHER, Arm::Rests, 2.0),
        (20_000, TOGETHER, Arm::Rests, 3.0),
        (6_000, TOGETHER, Arm::Wanders, 4.0),
        (HALF_A_MINUTE, 1, Arm::Wanders, 6.0),
    ] {
        let report =
            play(Script { together, arm, ..Script::new(DataMode::Wasteless, updates, 512) });
        assert!(report.blocks_in_part * 10 > updates * 9, "{report:?}");
        assert!(report.home_blocks_written <= 1 && report.home_blocks_read <= 1, "{report:?}");
        assert!(seconds(report.nanoseconds) < longest, "{report:?}");
    }
}

/// Replay writes all of a log with one place home.
#[test]
fn replay_leaves_a_drive_that_sorts_something_to_choose_from() {
    let [alone, sorted] = [Some(HostScheduler::NOOP), None].map(|elevator| {
        let script = Script::new(DataMode::Wasteless, 2_000, 512);
        play(Script { log: LogKind::Circular, elevator, index: Index::None, ..script })
    });
    assert_eq!(alone.home_blocks_written, sorted.home_blocks_written);
    assert!(alone.home_blocks_written >= 1_900);
    assert!(sorted.nanoseconds * 3 < alone.nanoseconds * 2, "{alone:?}, {sorted:?}");
}
