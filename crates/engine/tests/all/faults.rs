//! A failed write or flush ends all writing, is never forgotten, and costs nothing that was
//! acknowledged.

use crate::common::{Layout, Rig, STALE, Script, Setup, file_update, run_on, verify};
use crate::restart::{content, overwrite, put};
use crate::restart::{rig as scattered_rig, setup as scattered_setup};
use device::{LocalFuture, Operation};
use disks::{CrashPolicy, Effect, Fault};
use engine::{CheckpointTimes, Credits, Engine, EngineError, RecordFormat};
use journal::DataMode;
use runtime::{Either, join_all};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock};

/// Makes every write, or every flush, fail from some change on; the disk itself lives on.
fn fail_from(setup: &Setup, disk: usize, operation: Operation, change: u64) -> bool {
    let script = Script { writers: 3, handles: 20, sync_one_in: 2, seed: 3 };
    let rig = Rig::new(setup, 3, setup.images());
    rig.disks[disk].on_change(move |disk, number, _| {
        if number == change {
            disk.inject(Fault::forever(operation));
        }
    });
    let (history, ended) = run_on(&rig, setup, script);
    let result = ended.expect("power was never cut");
    let context = format!("{setup:?} disk {disk}: {operation:?} fails from change {change}");
    for error in &history.borrow().failed {
        let is_reported =
            matches!(error, EngineError::Aborted { .. } | EngineError::ReadOnlySince { .. });
        assert!(is_reported, "{context}: {error}");
    }
    rig.disks.iter().for_each(|disk| disk.heal());
    verify(setup, 1, rig.crash(change * 4 + 2), &history.borrow())
        .unwrap_or_else(|why| panic!("{context}: {why}"));
    result.is_err()
}

#[test]
fn what_was_acknowledged_before_a_failing_disk_is_recovered() {
    for setup in Setup::all() {
        for (disk, operation) in
            [(0, Operation::Write), (0, Operation::Flush), (1, Operation::Write)]
        {
            let disk = disk.min(setup.images().len() - 1);
            // The first flush is the mount's, before there is an engine.
            let failures =
                (1..50).filter(|change| fail_from(&setup, disk, operation, *change)).count();
            assert!(failures > 10, "{setup:?}: {operation:?} of disk {disk} failed in {failures}");
        }
    }
}

/// No commit, and no write-back by itself, would meet a failure of what home gets on request.
#[test]
fn a_failed_checkpoint_ends_the_engine_and_leaves_nobody_waiting() {
    #[derive(Clone, Copy, Debug)]
    enum Request {
        Checkpoint,
        WriteBack,
    }
    let ask = async |engine: &Engine, request| match request {
        Request::Checkpoint => engine.checkpoint().await.map(drop),
        Request::WriteBack => engine.write_back_range(&[(HomeBlock(0), 1)]).await,
    };
    let circular = Setup::new(DataMode::Journal, Layout::Internal, 4096);
    for scattered in [false, true] {
        for operation in [Operation::Write, Operation::Flush] {
            for request in [Request::Checkpoint, Request::WriteBack] {
                let what = format!("scattered: {scattered}, {operation:?}, {request:?}");
                let rig = match scattered {
                    false => Rig::new(&circular, 1, circular.images()),
                    true => {
                        let setup = scattered_setup(DataMode::Journal, RecordFormat::Blocks);
                        scattered_rig(&setup, setup.images())
                    }
                };
                let disk = rig.disks[0].clone();
                rig.try_play(async move |engine| {
                    put(&engine, 0, 1).await;
                    disk.inject(Fault::once(operation));
                    assert!(ask(&engine, request).await.is_err(), "{what}");
                    let started = engine.start(Credits(1)).await;
                    assert!(matches!(started, Err(EngineError::ReadOnlySince { .. })), "{what}");
                    let world = engine.world().clone();
                    let late = world.sleep_until(world.now().plus(Duration::from_secs(10)));
                    let synced = runtime::race(engine.sync(), late).await;
                    assert!(matches!(synced, Either::Left(Err(_))), "{what}");
                });
            }
        }
    }
}

#[test]
fn after_a_failed_write_every_sync_and_every_start_reports_it() {
    for mode in DataMode::ALL {
        let setup = Setup::new(mode, Layout::Internal, 4096);
        let rig = Rig::new(&setup, 1, setup.images());
        let disk = rig.disks[0].clone();
        rig.try_play(async move |engine| {
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.create(HomeBlock(3));
            let transaction = handle.stop();
            disk.inject(Fault::once(Operation::Write));
            for _ in 0..3 {
                // Only the first write fails; the disk is well again, but what it holds is unknown.
                let aborted = engine.commit(transaction).await;
                assert!(matches!(aborted, Err(EngineError::Aborted { .. })), "{mode}: {aborted:?}");
            }
            assert!(matches!(
                engine.start(Credits(1)).await,
                Err(EngineError::ReadOnlySince { .. })
            ));
            assert!(matches!(engine.sync().await, Err(EngineError::Aborted { .. })));
            assert!(matches!(engine.shutdown().await, Err(EngineError::Aborted { .. })));
            assert_eq!(
                engine.metadata(HomeBlock(3)).await.unwrap().bytes()[0],
                0,
                "reads still work"
            );
        });
    }
}

#[test]
fn a_failed_read_is_its_readers_alone() {
    let setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    let rig = Rig::new(&setup, 1, setup.images());
    let disk = rig.disks[0].clone();
    rig.try_play(async move |engine| {
        let bad = Fault { range: 5 << 12..6 << 12, ..Fault::once(Operation::Read) };
        disk.inject(bad);
        assert!(matches!(engine.metadata(HomeBlock(5)).await, Err(EngineError::Device(_))));
        let mut handle = engine.start(Credits(1)).await.unwrap();
        let block = engine.metadata(HomeBlock(5)).await.expect("the second read succeeds");
        handle.change(&block, BlockRange::new(0, 1), |bytes| bytes[0] = 1);
        let transaction = handle.stop();
        engine.commit(transaction).await.unwrap();
        engine.shutdown().await.unwrap();
    });
}

/// A base that cannot be read delays the write-back of its block, and nothing else.
#[test]
fn a_block_whose_base_cannot_be_read_is_written_back_once_it_can() {
    let setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    let rig = Rig::new(&setup, 1, setup.images());
    let disk = rig.disks[0].clone();
    rig.try_play(async move |engine| {
        let bad = Fault { range: 5 << 12..6 << 12, ..Fault::forever(Operation::Read) };
        disk.inject(bad);
        let mut handle = engine.start(Credits(0)).await.unwrap();
        for home in [4, 5, 6] {
            let update =
                engine::FileUpdate { base: engine::Base::Home, ..file_update(home, 8, b"late") };
            handle.write_file_data(update).await.unwrap();
        }
        engine.commit(handle.stop()).await.unwrap();
        let world = engine.world();
        world.sleep_until(world.now().plus(std::time::Duration::from_secs(1))).await;
        assert_eq!(engine.statistics().home_written["data"].blocks, 2);
        disk.heal();
        engine.shutdown().await.unwrap();
    });
    for home in [4, 5, 6] {
        assert_eq!(rig.home_block(home)[8..12], *b"late");
    }
}

/// Neighbours are read and written together, but only what the log has in part needs what home
/// holds.
#[test]
fn recovery_reads_home_only_for_partial_records() {
    const BLOCK: u64 = 4096;
    let (whole, part) = (20, 21);
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = Setup::new(DataMode::Wasteless, Layout::Internal, BLOCK as u32);
        setup.options.records = Some(records);
        (setup.options.writeback, setup.options.expire) =
            (Duration::from_secs(5), Duration::from_secs(5));
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            put(&engine, whole, 1).await;
            overwrite(&engine, part, BlockRange::new(0, 100), &[1; 100], 100).await;
        });
        let image = rig.disks[0].crash(CrashPolicy::LoseAll);
        for unreadable in [whole, part] {
            let rig = Rig::new(&setup, 1, vec![image.clone()]);
            let range = unreadable * BLOCK..(unreadable + 1) * BLOCK;
            rig.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
            let recover = || {
                let parts = rig.parts.clone();
                rig.run(async move { engine::recover(&parts, false).await }).expect("power")
            };
            let recovered = recover();
            assert_eq!(
                recovered.is_ok(),
                unreadable == whole,
                "{records:?}, {unreadable}: {recovered:?}"
            );
            if unreadable == part {
                let skipping = Rig::new(&setup, 1, vec![image.clone()]);
                skipping.disks[0].inject(Fault {
                    range: part * BLOCK..(part + 1) * BLOCK,
                    ..Fault::forever(Operation::Read)
                });
                let mut parts = skipping.parts.clone();
                parts.options.skip_unreadable = true;
                let report = skipping.run(async move { engine::recover(&parts, false).await });
                assert_eq!(report.expect("power").unwrap().skipped_blocks, [part]);
                assert_eq!(skipping.home_block(whole)[..], content(whole, 1), "{records:?}");
                assert_eq!(skipping.home_block(part)[..], [STALE; BLOCK as usize]);
            }
            // Where it stopped, the log is as it was.
            rig.disks[0].heal();
            if recovered.is_err() {
                assert_eq!(recover().unwrap().transactions, 2);
            }
            assert_eq!(rig.home_block(whole)[..], content(whole, 1));
            assert_eq!(rig.home_block(part)[..101], [&[1; 100][..], &[STALE]].concat());
        }
    }
}

/// A disk may carry out two writes to one place in any order while both are in flight: the note of
/// a failure waits for an update of the log's tail.
#[test]
fn no_update_of_the_tail_undoes_the_note_of_a_failure() {
    // Where the rig has it on the disk of the log.
    const SUPERBLOCK: u64 = 4096;
    let setup = Setup::new(DataMode::Journal, Layout::Separate, 4096);
    // Plays a checkpoint, and a change beside it that fails when the tail's update is in flight.
    // Returns the number of that update, and what the disks hold then.
    let play = |delayed: Option<u64>| {
        let rig = Rig::new(&setup, 1, setup.images());
        let log = rig.disks[1].clone();
        let moved = Rc::new(Cell::new(None));
        let seen = moved.clone();
        log.on_change(move |_, number, logged| {
            if logged.operation == Operation::Write && logged.at == SUPERBLOCK {
                seen.set(seen.get().or(Some(number)));
            }
        });
        if let Some(number) = delayed {
            log.delay_change(number, Duration::from_secs(1));
        }
        let tail = moved.clone();
        rig.play(async move |engine| {
            put(&engine, 7, 1).await;
            tail.set(None);
            let asked = engine.clone();
            let checkpoint = async move { drop(asked.checkpoint().await) };
            let watched = log.clone();
            let change = async move {
                let world = engine.world();
                while tail.get().is_none() {
                    world.sleep_until(world.now().plus(Duration::from_micros(10))).await;
                }
                if delayed.is_some() {
                    let range = SUPERBLOCK + 4096..u64::MAX;
                    watched.inject(Fault { range, ..Fault::forever(Operation::Write) });
                }
                let mut handle = engine.start(Credits(1)).await.unwrap();
                let made = handle.create(HomeBlock(8));
                drop(made);
                let committed = engine.commit(handle.stop()).await;
                assert_eq!(committed.is_err(), delayed.is_some());
                world.sleep_until(world.now().plus(Duration::from_secs(2))).await;
            };
            let both: Vec<LocalFuture<()>> = vec![Box::pin(checkpoint), Box::pin(change)];
            join_all(both).await;
            log.stop_watching();
        });
        let left = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
        (moved.get().expect("the tail moved"), left)
    };
    let (tail, _) = play(None);
    let (_, left) = play(Some(tail));
    let rig = Rig::new(&setup, 1, left);
    let parts = rig.parts.clone();
    let report = rig.run(async move { engine::recover(&parts, false).await });
    assert_ne!(report.expect("power").unwrap().recorded_error, 0);
}

/// A disk that drops out has no unreadable blocks to leave out.
#[test]
fn a_home_disk_that_is_gone_is_not_left_out() {
    const BLOCK: u64 = 1024;
    const PARTS: u64 = 8;
    const ENODEV: i32 = 19;
    const EIO: i32 = 5;
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, BLOCK as u32);
    setup.options.records = Some(RecordFormat::Packed);
    setup.options.checkpoint = CheckpointTimes::Manual;
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        for block in 0..PARTS {
            overwrite(&engine, 10 + block, BlockRange::new(0, 100), &[1; 100], 100).await;
        }
    });
    let left: Vec<_> = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
    // What the disk says, of which blocks, and those that a recovery leaves out.
    let all = 0..u64::from(u32::MAX);
    let cases = [(ENODEV, all.clone(), None), (EIO, all, None), (EIO, 12..13, Some(vec![12]))];
    for (code, blocks, expected) in cases {
        let rig = Rig::new(&setup, 1, left.clone());
        let range = blocks.start * BLOCK..blocks.end * BLOCK;
        let gone = Fault { range, effect: Effect::Fail(code), ..Fault::forever(Operation::Read) };
        rig.disks[0].inject(gone);
        let mut parts = rig.parts.clone();
        parts.options.skip_unreadable = true;
        let report = rig.run(async move { engine::recover(&parts, false).await }).expect("power");
        assert_eq!(report.as_ref().ok().map(|report| report.skipped_blocks.clone()), expected);
        if expected.is_none() {
            let left = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
            let rig = Rig::new(&setup, 1, left);
            let parts = rig.parts.clone();
            let report = rig.run(async move { engine::recover(&parts, false).await });
            assert_eq!(report.expect("power").unwrap().home_blocks_written, PARTS);
        }
    }
}

/// A block that was left out stays as it is: of later records only one of the whole block counts.
#[test]
fn a_block_left_out_of_a_replay_gets_no_later_part() {
    const BLOCK: u64 = 1024;
    // More blocks than recovery writes at once.
    const OTHERS: u64 = 8192;
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, BLOCK as u32);
    (setup.home_blocks, setup.log_blocks) = (OTHERS + 100, 2 * OTHERS as u32);
    setup.options.records = Some(RecordFormat::Packed);
    (setup.options.checkpoint, setup.options.cache_bytes) = (CheckpointTimes::Manual, 1 << 30);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        for block in [5, 6] {
            overwrite(&engine, block, BlockRange::new(0, 100), &[1; 100], 100).await;
        }
        let mut next = 10;
        while next < 10 + OTHERS {
            let mut handle = engine.start(Credits(64)).await.unwrap();
            for block in next..next + 64 {
                drop(handle.create(HomeBlock(block)));
            }
            engine.commit(handle.stop()).await.unwrap();
            next += 64;
        }
        overwrite(&engine, 5, BlockRange::new(200, 300), &[2; 100], 100).await;
        let whole = BlockRange::new(0, BLOCK as u32);
        overwrite(&engine, 6, whole, &[3; BLOCK as usize], BLOCK).await;
    });
    let left = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
    let rig = Rig::new(&setup, 1, left);
    let range = 5 * BLOCK..7 * BLOCK;
    rig.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
    let mut parts = rig.parts.clone();
    parts.options.skip_unreadable = true;
    let report = rig.run(async move { engine::recover(&parts, false).await });
    assert_eq!(report.expect("power").unwrap().skipped_blocks, [5]);
    assert!(rig.home_block(5)[..] == [STALE; BLOCK as usize], "a part of it is home");
    assert!(rig.home_block(6)[..] == [3; BLOCK as usize], "it was logged whole");
}
