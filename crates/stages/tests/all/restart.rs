//! How long a volume with scattered logs takes to open after a power cut, and where the time goes.

use crate::mapped_file;
use disks::{HostScheduler, MemoryDisk};
use engine::{DataMode, DurableMemory, LogKind, RecoveryReport};
use ext4::{Caller, WriteFlags};
use format::run_table::TABLE_BYTES;
use runtime::{SplitMix, VirtualWorld};
use stages::{Stage, StageOptions};
use std::rc::Rc;

const FILES: u64 = 16;
const FILE: u64 = 1 << 30;
/// Then comes a sync.
const TOGETHER: u64 = 20;

/// Of the runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Nowhere,
    OnMemory,
}

/// Blocks all over the disk, so many of them, each updated by so many bytes and logged once; then the power is cut.
fn restart_after(
    data: DataMode,
    updates: u64,
    bytes: usize,
    elevator: Option<HostScheduler>,
    table: Table,
) -> RecoveryReport {
    let mut options = StageOptions { seed: 5, ..StageOptions::of_manylogs(data, LogKind::Scattered) };
    options.home.options.size = Some(64 << 30);
    options.home.elevator = elevator;
    options.journal_size = 64 << 20;
    let world = VirtualWorld::new(options.seed);
    if table == Table::OnMemory {
        let memory = MemoryDisk::new(Rc::new(world.clone()), TABLE_BYTES);
        options.engine.run_table = Some(DurableMemory(Rc::new(memory)));
    }
    let mut stage = Stage::build_in(world, &options).unwrap();
    let (world, volume) = (stage.world().clone(), stage.volume().clone());
    world.run(async move {
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(mapped_file(&volume, &format!("tenant-{number}"), FILE).await);
        }
        volume.sync().await.unwrap();
        volume.engine().checkpoint().await.unwrap();
        let dice = SplitMix::new(5);
        for update in 0..updates {
            let file = &files[(update % FILES) as usize];
            let at = dice.below(FILE >> 12) << 12;
            volume.write(file, &Caller::ROOT, at, &vec![7; bytes], WriteFlags::default()).await.unwrap();
            if (update + 1) % TOGETHER == 0 {
                volume.sync().await.unwrap();
            }
        }
    });
    let report = stage.crash_and_recover().unwrap();
    println!(
        "{updates} updates of {bytes} bytes: {} logs and {} pages of a table read, {:.2} s in all: {:.2} to find the runs, {:.2} to \
         scan them, {:.2} to read them again; {} blocks home, {} kept",
        report.logs_read,
        report.table_pages_read,
        seconds(report.nanoseconds),
        seconds(report.find_nanoseconds),
        seconds(report.scan.nanoseconds),
        seconds(report.replay.nanoseconds),
        report.home_blocks_written,
        report.blocks_kept
    );
    stage.close_and_check().unwrap();
    report
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// What lies in the logs stays there: a restart reads it, and writes one block of the volume home.
#[test]
fn a_restart_writes_nothing_home_that_the_logs_hold_whole() {
    for (updates, longest) in [(2_000, 3.0), (20_000, 8.0)] {
        let [searched, told] = [Table::Nowhere, Table::OnMemory]
            .map(|table| restart_after(DataMode::Adaptive, updates, 4096, Some(HostScheduler::NOOP), table));
        assert!(searched.logs_read > 0 && searched.find_nanoseconds > 0);
        for report in [&searched, &told] {
            assert!(report.blocks_kept * 10 > updates * 9 && report.home_blocks_written <= 1, "{report:?}");
            assert!(seconds(report.nanoseconds) < longest, "{report:?}");
        }
        assert!(told.table_refused.is_none() && told.find_nanoseconds == 0, "{told:?}");
        let saved = searched.nanoseconds - told.nanoseconds;
        assert!(saved * 2 > searched.find_nanoseconds, "{searched:?}, {told:?}");
    }
}

/// Parts of blocks go home.
#[test]
fn replay_leaves_a_drive_that_sorts_something_to_choose_from() {
    let [alone, sorted] = [Some(HostScheduler::NOOP), None]
        .map(|elevator| restart_after(DataMode::Wasteless, 2_000, 512, elevator, Table::Nowhere));
    assert_eq!(alone.home_blocks_written, sorted.home_blocks_written);
    assert!(alone.home_blocks_written >= 1_900);
    assert!(sorted.nanoseconds * 3 < alone.nanoseconds * 2, "{alone:?}, {sorted:?}");
}
