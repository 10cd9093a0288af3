//! Two lives of scattered logs, each ended by a power cut: the second goes on with what the first
//! has left in the middle of a swap. What either has acknowledged is there in the third.

use crate::common::{Rig, STALE};
use crate::swap::{self, Versions};
use crate::{restart, swap::FILLS_THREE_LOGS};
use disks::{Atomicity, CrashPolicy, Image, MemoryDisk};
use engine::{Contents, Credits, Engine, RecoveryReport};
use format::run_table::TABLE_BYTES;
use std::cell::RefCell;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// Change of the first cut: before the first swap all is as in other tests.
const FIRST_CUT: u64 = 15;
/// Blocks that the second life logs again, in one transaction.
const AGAIN: u64 = 9;
const VERSION_AGAIN: u8 = 5;

/// Cuts the first life within its swaps, and the second behind one acknowledged transaction.
/// `snapshot_after`: of the first life, and of the later ones.
fn live_twice(snapshot_after: [Option<u64>; 2]) {
    let [first_life, later_lives] = snapshot_after;
    let (mut lives, mut kept) = (0, 0);
    for mut setup in swap::all() {
        setup.options.snapshot_after = first_life;
        for cut in FIRST_CUT.. {
            let first = swap::rig(&setup, swap::images(&setup));
            let seen = Versions::default();
            first.cut_at(cut);
            let written = seen.clone();
            let ended = first.try_play(async move |engine| {
                swap::log_all(&engine, 0..FILLS_THREE_LOGS, 1, &written).await;
                swap::rest(&engine).await;
            });
            for tear in cut * 4..cut * 4 + 3 {
                let mut later = setup.clone();
                later.options.snapshot_after = later_lives;
                let second = swap::rig(&later, first.crash(tear));
                let parts = second.parts.clone();
                let versions: Versions = Rc::new(RefCell::new(seen.borrow().clone()));
                let written = versions.clone();
                let report = second.run(async move {
                    let (report, engine) = restart::restart(parts).await;
                    swap::log_all(&engine, 0..AGAIN, VERSION_AGAIN, &written).await;
                    report
                });
                kept += u32::from(report.unwrap().blocks_kept > 0);
                let third = swap::rig(&later, second.crash(0));
                let parts = third.parts.clone();
                let what = format!("{:?} cut {cut} tear {tear}", setup.options.records);
                third
                    .run(async move {
                        let (report, engine) = restart::restart(parts).await;
                        swap::are_as_acknowledged(&engine, &versions, &what, &report).await;
                    })
                    .unwrap();
                lives += 1;
            }
            if ended.is_some() {
                break;
            }
        }
    }
    assert!(lives > 400, "only {lives} pairs of lives");
    assert_eq!(kept, lives, "second lives that went on with the logs");
}

/// Once it is named, the next piece is due only behind the swap.
const BACKLOG: u64 = 700 << 10;

#[test]
fn what_follows_an_interrupted_swap_is_found_beside_an_old_snapshot() {
    live_twice([Some(BACKLOG), Some(64 << 20)]);
}
#[test]
fn what_follows_an_interrupted_swap_is_found_without_a_snapshot() {
    live_twice([Some(BACKLOG), None]);
}
#[test]
fn what_follows_an_interrupted_swap_is_found_with_a_snapshot_of_each_commit() {
    live_twice([Some(1), Some(1)]);
}
#[test]
fn what_follows_an_interrupted_swap_is_found_beside_snapshots_of_the_first_life() {
    live_twice([Some(1), Some(64 << 20)]);
}
#[test]
fn what_follows_an_interrupted_swap_is_found_though_later_lives_write_none() {
    live_twice([Some(1), None]);
}

/// The second life writes no snapshots, but goes on with that of the first, and a swap adds a piece
/// to it, which records what was freed.
#[test]
fn a_freed_block_stays_freed_behind_a_swap_without_snapshots() {
    const FREED: u64 = 3;
    for mut setup in swap::all() {
        setup.options.snapshot_after = Some(1);
        let first = swap::rig(&setup, swap::images(&setup));
        let (parts, seen) = (first.parts.clone(), Versions::default());
        let ended = first.run(async move {
            let engine = Rig::open(parts).await;
            swap::log_all(&engine, 0..AGAIN, 1, &seen).await;
            swap::rest(&engine).await;
        });
        assert!(ended.is_some());
        setup.options.snapshot_after = None;
        let second = swap::rig(&setup, first.crash(0));
        let parts = second.parts.clone();
        let ended = second.run(async move {
            let (report, engine) = restart::restart(parts).await;
            assert!(report.snapshot_transactions > 0, "{report:?}");
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.forget(HomeBlock(FREED), 1, Contents::Metadata);
            engine.commit(handle.stop()).await.unwrap();
            swap::log_all(&engine, AGAIN..AGAIN + FILLS_THREE_LOGS, 1, &Versions::default()).await;
            swap::rest(&engine).await;
            assert!(engine.statistics().swaps > 0, "{:?}", engine.statistics());
        });
        assert!(ended.is_some());
        let third = swap::rig(&setup, second.crash(0));
        let parts = third.parts.clone();
        let ended = third.run(async move {
            let (report, engine) = restart::restart(parts).await;
            assert!(report.snapshot_transactions > 1, "the swap recorded nothing: {report:?}");
            let found = engine.read_data(HomeBlock(FREED), 1).await.unwrap();
            assert!(found[0].iter().all(|byte| *byte == STALE), "what was freed is back");
        });
        assert!(ended.is_some());
    }
}

const LOGS: u64 = 80;
const LOG_BLOCKS: u64 = 64;
const BLOCKS: u64 = 4096;
/// Log over which the arm stays between swaps.
const LAST: u64 = LOGS - 1;

fn log_home(log: u64) -> HomeBlock {
    HomeBlock(BLOCKS + log * LOG_BLOCKS)
}

fn many_logs(setup: &crate::common::Setup, images: Vec<disks::Image>) -> Rig {
    let mut rig = Rig::new(setup, 1, images);
    let homes = (0..LOGS).map(log_home).collect();
    rig.scatter(LogBlock(setup.log_blocks), LOG_BLOCKS as u32, homes);
    rig
}

/// Reads another block of the log each time, because a cached one moves no arm.
async fn go_to(engine: &Engine, log: u64, time: u64) {
    engine.read_data(log_home(log).plus(time % 3), 1).await.unwrap();
}

async fn put(engine: &Rc<Engine>, first: u64, count: u64, version: u8, seen: &Versions) {
    swap::log_parts(engine, first..first + count, count, version, seen).await;
}

/// A first log moves to the last while the snapshot has a backlog of more than a piece, and on to
/// another; a run that is torn begins the last log again.
async fn move_twice(engine: Rc<Engine>, disk: MemoryDisk, seen: Versions) -> u64 {
    go_to(&engine, 0, 1).await;
    for at in 0..4 {
        put(&engine, at * 10, 10, 1, &seen).await;
    }
    for log in 2..50 {
        go_to(&engine, log, 1).await;
        for number in 0..4 {
            put(&engine, 600 + (log * 4 + number) * 9, 9, 2, &seen).await;
        }
    }
    go_to(&engine, 0, 2).await;
    let before = engine.statistics().swaps;
    swap::rest(&engine).await;
    go_to(&engine, LAST, 1).await;
    put(&engine, 300, 9, 1, &seen).await;
    swap::rest(&engine).await;
    let swaps = engine.statistics().swaps - before;
    go_to(&engine, LAST, 2).await;
    let log = log_home(LAST).get() * 4096..(log_home(LAST).get() + LOG_BLOCKS) * 4096;
    disk.on_change(move |disk, _, change| {
        if log.contains(&change.at) {
            disk.power_off();
        }
    });
    put(&engine, 320, 9, 7, &seen).await;
    swaps
}

/// The snapshot records fewer runs than are committed, and copies that were left behind have later
/// durable floors than its end says.
#[test]
fn twice_moved_run_is_found_beside_snapshot_backlog() {
    for tear in 0..16u64 {
        let mut setup = swap::all()[0].clone();
        setup.home_blocks = BLOCKS + LOGS * LOG_BLOCKS;
        setup.log_blocks = 16;
        setup.options.snapshot_after = Some(1);
        setup.options.cache_bytes = 64 << 20;
        let (first, seen) = (many_logs(&setup, setup.images()), Versions::default());
        first.play({
            let seen = seen.clone();
            async move |engine| {
                go_to(&engine, 60, 0).await;
                put(&engine, 590, 1, 1, &seen).await;
                swap::rest(&engine).await;
            }
        });
        let images = first.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
        setup.options.snapshot_after = Some(1 << 40);
        let second = many_logs(&setup, images);
        let (parts, disk, written) = (second.parts.clone(), second.disks[0].clone(), seen.clone());
        let ended = second.run(async move {
            let (_, engine) = restart::restart(parts).await;
            move_twice(engine, disk, written).await
        });
        assert!(ended.is_none(), "{ended:?}: the torn run never came");
        let policy = match tear {
            0 => CrashPolicy::LoseAll,
            1 => CrashPolicy::KeepAll,
            seed => CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) },
        };
        let images = second.disks.iter().map(|disk| disk.crash(policy)).collect();
        let third = many_logs(&setup, images);
        let parts = third.parts.clone();
        let report: Option<RecoveryReport> = third.run(async move {
            let (report, engine) = restart::restart(parts).await;
            swap::are_as_acknowledged(&engine, &seen, &format!("tear {tear}"), &report).await;
            report
        });
        let report = report.unwrap();
        assert!(report.snapshot_refused.is_none(), "{report:?}");
    }
}

/// A run of which a cut has left all but the header is not found. In the next life its number and
/// its place are used again, and of that run a cut leaves the header alone.
#[test]
fn a_run_without_its_header_does_not_come_back_under_a_new_one() {
    const KEPT: u64 = 3;
    for setup in swap::all() {
        let seen = Versions::default();
        let play_and_cut = |images, version: u8, keeps_header: bool| {
            let rig = swap::rig(&setup, images);
            let (parts, disk, written) = (rig.parts.clone(), rig.disks[0].clone(), seen.clone());
            let ended = rig.run(async move {
                let (_, engine) = restart::restart(parts).await;
                if version == 1 {
                    put(&engine, KEPT, 1, version, &written).await;
                }
                let logs = 256 * 4096..(256 + 6 * 64) * 4096;
                let power = disk.clone();
                // What is wiped first is no run.
                disk.on_change(move |_, _, change| {
                    if logs.contains(&change.at) && change.length > 4096 {
                        power.power_off();
                    }
                });
                put(&engine, 2 * KEPT, 1, version, &written).await;
            });
            assert!(ended.is_none(), "{ended:?}: the run never came");
            let disk = &rig.disks[0];
            let run = disk.volatile_writes().len() - 1;
            let keeps = |write, sector| write < run || (sector == 0) == keeps_header;
            vec![disk.crash_with(keeps)]
        };
        // Without a table of runs, which would know the header.
        let first = play_and_cut(setup.images(), 1, false);
        let second = play_and_cut(first, 2, true);
        let third = swap::rig(&setup, second);
        let parts = third.parts.clone();
        third.run(async move {
            let (_, engine) = restart::restart(parts).await;
            let found = engine.read_data(HomeBlock(2 * KEPT), 1).await.unwrap();
            assert!(
                found[0].iter().all(|byte| *byte == STALE),
                "what nobody has committed is there"
            );
        });
    }
}

/// A table of runs records the same place in the second life. The cut comes before what the place
/// begins with is wiped, or behind that.
#[test]
fn a_run_without_its_header_does_not_come_back_by_the_table_of_runs() {
    const KEPT: u64 = 3;
    const LOGS_AT: std::ops::Range<u64> = 256 * 4096..(256 + 6 * 64) * 4096;
    for setup in swap::all() {
        for longer_than in [0, 4096] {
            let seen = Versions::default();
            // The power is cut with the first write to the logs that is longer.
            let play = |images, version: u8, longer_than: u64| {
                let rig = swap::rig(&setup, images);
                let (parts, written) = (rig.parts.clone(), seen.clone());
                let power = rig.disks.clone();
                let ended = rig.run(async move {
                    let (_, engine) = restart::restart(parts).await;
                    if version == 1 {
                        put(&engine, KEPT, 1, version, &written).await;
                    }
                    power[0].clone().on_change(move |_, _, change| {
                        if LOGS_AT.contains(&change.at) && change.length > longer_than {
                            power.iter().for_each(MemoryDisk::power_off);
                        }
                    });
                    put(&engine, 2 * KEPT, 1, version, &written).await;
                });
                assert!(ended.is_none(), "{ended:?}: the run never came");
                rig
            };
            let first = play(setup.images(), 1, 4096);
            let run = first.disks[0].volatile_writes().len() - 1;
            let image = first.disks[0].crash_with(|write, sector| write < run || sector > 0);
            let second = play(vec![image, Image::new(TABLE_BYTES)], 2, longer_than);
            let images = second.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll));
            let third = swap::rig(&setup, images.collect());
            let parts = third.parts.clone();
            let ended = third.run(async move {
                let (_, engine) = restart::restart(parts).await;
                let found = engine.read_data(HomeBlock(2 * KEPT), 1).await.unwrap();
                assert!(
                    found[0].iter().all(|byte| *byte == STALE),
                    "what nobody has committed is there"
                );
            });
            assert!(ended.is_some());
        }
    }
}
