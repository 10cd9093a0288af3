//! Effects of time alone: blocks are written back by age, and transaction numbers begin again at 0.

use crate::common;

use crate::common::{Layout, Rig, STALE, Setup, file_update};
use engine::{Base, CheckpointTimes, Credits, Engine, EngineOptions, FileUpdate};
use journal::DataMode;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, Owner, TransactionId};

/// Looks at home so often.
const LOOK: Duration = Duration::from_millis(50);
/// Time that commits, reads and writes may add.
const SLACK: Duration = Duration::from_millis(200);

/// Modes that log all of it, so that home is written by age alone.
const LOGGED: [DataMode; 3] = [DataMode::Journal, DataMode::Wasteless, DataMode::Selective];

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn fresh(mode: DataMode, writeback: Duration, expire: Duration) -> Rig {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    setup.options = EngineOptions { data: mode, writeback, expire, ..EngineOptions::default() };
    Rig::new(&setup, 1, setup.images())
}

async fn sleep(engine: &Rc<Engine>, time: Duration) {
    engine.world().sleep_until(engine.world().now().plus(time)).await
}

async fn write_data(engine: &Rc<Engine>, home: u64, bytes: &[u8]) -> TransactionId {
    let mut handle = engine.start(Credits(0)).await.unwrap();
    let update = FileUpdate { owner: Owner(12), base: Base::Home, ..file_update(home, 0, bytes) };
    handle.write_file_data(update).await.unwrap();
    handle.stop()
}

async fn write_metadata(engine: &Rc<Engine>, home: u64, bytes: &[u8]) -> TransactionId {
    let block = engine.metadata(HomeBlock(home)).await.unwrap();
    let mut handle = engine.start(Credits(1)).await.unwrap();
    let range = BlockRange::new(0, bytes.len() as u32);
    handle.change(&block, range, |block| block[range.as_usize()].copy_from_slice(bytes));
    handle.stop()
}

/// Returns when home first held something new in block `home`, watched until `end` after now.
fn watch(
    rig: &Rig,
    home: u64,
    end: Duration,
) -> (Rc<Cell<Option<Duration>>>, device::LocalFuture<()>) {
    let arrived = Rc::new(Cell::new(None));
    let (seen, world, disk) = (arrived.clone(), rig.parts.world.clone(), rig.disks[0].clone());
    let shift = rig.parts.block_size.shift();
    let looking = Box::pin(async move {
        let begun = world.now();
        while seen.get().is_none() && world.now().since(begun) < end {
            world.sleep_until(world.now().plus(LOOK)).await;
            let mut byte = [0];
            disk.image().read(home << shift, &mut byte);
            if byte[0] != STALE {
                seen.set(Some(world.now().since(begun)));
            }
        }
    });
    (arrived, looking)
}

#[test]
fn a_block_is_written_back_at_the_first_tick_after_its_expiry() {
    for mode in DataMode::ALL {
        for (writeback, expire) in
            [(5, 32), (2, 11), (7, 3), (10, 15)].map(|(a, b)| (seconds(a), seconds(b)))
        {
            let rig = fresh(mode, writeback, expire);
            let end = expire + writeback + seconds(10);
            let (metadata, looking_for_metadata) = watch(&rig, 5, end);
            let (data, looking_for_data) = watch(&rig, 6, end);
            rig.try_play(async move |engine| {
                let first = write_metadata(&engine, 5, b"metadata").await;
                let second = write_data(&engine, 6, b"data").await;
                engine.commit(first).await.unwrap();
                engine.commit(second).await.unwrap();
                runtime::join_all(vec![looking_for_metadata, looking_for_data]).await;
            })
            .unwrap();
            let context = format!("{mode}, writeback {writeback:?}, expire {expire:?}");
            let in_time = |arrived: Option<Duration>| {
                let arrived = arrived.unwrap_or_else(|| panic!("{context}: never"));
                assert!(arrived >= expire, "{context}: after {arrived:?}");
                // Ticks are counted from the opening, which was at the same time.
                let ticks = expire.as_secs().div_ceil(writeback.as_secs()) * writeback.as_secs();
                assert!(arrived <= seconds(ticks) + SLACK, "{context}: after {arrived:?}");
            };
            in_time(metadata.get());
            if mode != DataMode::Ordered {
                in_time(data.get());
            }
        }
    }
}

#[test]
fn a_block_written_again_expires_by_its_first_change() {
    for mode in LOGGED {
        let rig = fresh(mode, seconds(2), seconds(10));
        let (arrived, looking) = watch(&rig, 6, seconds(60));
        rig.try_play(async move |engine| {
            let writing = {
                let engine = engine.clone();
                Box::pin(async move {
                    for number in 0..60u8 {
                        let transaction = write_data(&engine, 6, &[number; 100]).await;
                        engine.commit(transaction).await.unwrap();
                        sleep(&engine, seconds(1)).await;
                    }
                })
            };
            runtime::race(writing, looking).await;
        })
        .unwrap();
        let arrived = arrived.get().expect("it is written back");
        assert!(
            arrived >= seconds(10) && arrived <= seconds(12) + SLACK,
            "{mode}: after {arrived:?}"
        );
    }
}

/// The committed change is a few bytes of a block never read; memory holds the whole new block.
#[test]
fn a_block_overwritten_whole_is_written_home_as_committed() {
    let rig = fresh(DataMode::Wasteless, seconds(1), seconds(1));
    rig.play(async move |engine| {
        let first = write_data(&engine, 6, b"first").await;
        engine.commit(first).await.unwrap();
        write_data(&engine, 6, &[b'n'; 4096]).await;
        sleep(&engine, seconds(3)).await;
        assert_eq!(engine.statistics().home_written["data"].blocks, 1);
    });
    let home = rig.home_block(6);
    assert_eq!((&home[..5], &home[5..]), (&b"first"[..], &[STALE; 4091][..]));
}

#[test]
fn blocks_that_expire_between_two_ticks_are_written_back_together() {
    for mode in LOGGED {
        let rig = fresh(mode, seconds(5), seconds(12));
        let homes = [20, 21, 30, 31];
        let (arrived, mut tasks): (Vec<_>, Vec<_>) =
            homes.into_iter().map(|home| watch(&rig, home, seconds(40))).unzip();
        rig.try_play(async move |engine| {
            tasks.push(Box::pin(async move {
                for home in homes {
                    let transaction = write_data(&engine, home, b"data").await;
                    engine.commit(transaction).await.unwrap();
                    sleep(&engine, seconds(2)).await;
                }
                assert_eq!(engine.statistics().home_writes, 0);
                sleep(&engine, seconds(9)).await;
                assert_eq!(engine.statistics().home_writes, 1, "two neighbours, one write");
            }));
            runtime::join_all(tasks).await;
        })
        .unwrap();
        // Written at 0, 2, 4 and 6 seconds, due at 12, 14, 16 and 18.
        let arrived: Vec<_> = arrived.iter().map(|at| at.get().unwrap().as_secs()).collect();
        assert_eq!(arrived, [15, 15, 20, 20], "{mode}");
    }
}

#[test]
fn what_lies_beside_an_expired_block_stays_until_it_is_due() {
    for mode in DataMode::ALL {
        let rig = fresh(mode, seconds(5), seconds(12));
        // To the third tick, at which only 21 is due.
        let (arrived, mut tasks): (Vec<_>, Vec<_>) =
            (19..=23).map(|home| watch(&rig, home, seconds(16))).unzip();
        rig.try_play(async move |engine| {
            tasks.push(Box::pin(async move {
                for (home, pause) in [(21, 4), (20, 4), (22, 2), (19, 0)] {
                    let transaction = write_metadata(&engine, home, b"new").await;
                    engine.commit(transaction).await.unwrap();
                    sleep(&engine, seconds(pause)).await;
                }
            }));
            runtime::join_all(tasks).await;
        })
        .unwrap();
        let arrived: Vec<_> = arrived.iter().map(|at| at.get().map(|at| at.as_secs())).collect();
        assert_eq!(arrived, [None, None, Some(15), None, None], "{mode}");
    }
}

#[test]
fn when_the_log_is_short_neighbours_of_an_old_block_go_along() {
    for mode in DataMode::ALL {
        let rig = fresh(mode, seconds(60), seconds(60));
        rig.play(async move |engine| {
            let old = write_metadata(&engine, 21, b"new").await;
            engine.commit(old).await.unwrap();
            // The records of these are always the newest, so their own age sends none of them home.
            while engine.statistics().checkpoints == 0 {
                for home in [20, 22, 24] {
                    write_metadata(&engine, home, b"new").await;
                }
                engine.commit(write_metadata(&engine, 30, b"new").await).await.unwrap();
                // What is being changed does not go along.
                sleep(&engine, Duration::from_millis(1)).await;
            }
            sleep(&engine, seconds(1)).await;
        });
        let is_home = |home| rig.home_block(home).starts_with(b"new");
        assert_eq!([20, 21, 22, 24, 30].map(is_home), [true, true, true, false, false], "{mode}");
    }
}

/// A write every six seconds, more than the age of a commit, for seven days, another mode each day,
/// and each night the power fails.
#[test]
fn a_week_of_commits_by_age_passes_the_last_transaction_number() {
    const ROUNDS: u32 = 24 * 3600 / 6;
    let mut setup = Setup::new(DataMode::Ordered, Layout::Internal, 1024);
    // The numbers begin again on the fourth day.
    setup.first_transaction = TransactionId(u32::MAX - 3 * ROUNDS - ROUNDS / 2);
    let mut images = setup.images();
    let mut last = 0;
    let mut numbers = Vec::new();
    for day in 0..7u64 {
        setup.mode = DataMode::ALL[day as usize % DataMode::ALL.len()];
        setup.options = EngineOptions { data: setup.mode, ..EngineOptions::default() };
        let rig = Rig::new(&setup, day, images);
        let (begun, committed, number) = rig.play(async move |engine| {
            let begun = engine.committed();
            let mut sent = Vec::new();
            for round in 1..=ROUNDS {
                let number = last + round;
                write_data(&engine, 10 + u64::from(number % 200), &number.to_le_bytes()).await;
                sent.push((write_metadata(&engine, 5, &number.to_le_bytes()).await, number));
                sleep(&engine, seconds(6)).await;
            }
            let statistics = engine.statistics();
            assert!(statistics.commits >= u64::from(ROUNDS) - 10, "{} commits", statistics.commits);
            assert!(statistics.cache.blocks <= 256);
            let committed = engine.committed();
            let number = sent.iter().rev().find(|(by, _)| committed.is_at_or_after(*by)).unwrap().1;
            (begun, committed, number)
        });
        numbers.push((begun.0, committed.0));
        images = rig.crash(day);
        let after = common::recovered(&setup, day, images.clone()).unwrap();
        let word = |home| u32::from_le_bytes(after.home_block(home)[..4].try_into().unwrap());
        assert!(
            word(5) >= number && word(5) <= last + ROUNDS,
            "day {day}: {} of {number}",
            word(5)
        );
        if matches!(setup.mode, DataMode::Journal | DataMode::Wasteless) {
            for number in number - 150..=number {
                assert!(
                    word(10 + u64::from(number % 200)) >= number,
                    "day {day}: the data of {number}"
                );
            }
        }
        last += ROUNDS;
    }
    assert!(numbers.iter().any(|(begun, committed)| committed < begun), "{numbers:?}");
}

/// Whether home has something new in block 5, which holds metadata, and in block 6, which holds
/// data.
fn is_home(rig: &Rig) -> [bool; 2] {
    let (disk, shift) = (&rig.disks[0], rig.parts.block_size.shift());
    [5u64, 6].map(|home| {
        let mut byte = [0];
        disk.image().read(home << shift, &mut byte);
        byte[0] != STALE
    })
}

fn fresh_with(mode: DataMode, checkpoint: CheckpointTimes) -> Rig {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    let (writeback, expire) = (seconds(2), seconds(5));
    setup.options =
        EngineOptions { data: mode, writeback, expire, checkpoint, ..EngineOptions::default() };
    Rig::new(&setup, 1, setup.images())
}

#[test]
fn without_checkpoints_the_log_stays_and_other_data_expires() {
    for mode in DataMode::ALL {
        let rig = Rc::new(fresh_with(mode, CheckpointTimes::Manual));
        let of_run = rig.clone();
        rig.try_play(async move |engine| {
            write_metadata(&engine, 5, b"metadata").await;
            write_data(&engine, 6, b"data").await;
            engine.sync().await.unwrap();
            sleep(&engine, seconds(60)).await;
            let data_is_logged = LOGGED.contains(&mode) || mode == DataMode::Adaptive;
            assert_eq!(is_home(&of_run), [false, !data_is_logged], "{mode}");
            let report = engine.checkpoint().await.unwrap();
            assert_eq!(is_home(&of_run), [true, true], "{mode}");
            assert_eq!(report.blocks_logged, 1 + u64::from(data_is_logged), "{mode}: {report:?}");
            assert_eq!(report.blocks_written, report.blocks_logged, "{mode}: {report:?}");
            engine.shutdown().await.unwrap();
        })
        .unwrap();
    }
}

#[test]
fn a_checkpoint_comes_at_its_time_and_not_before() {
    let at = 40;
    let time = seconds(at);
    for times in [CheckpointTimes::Periodic(time), CheckpointTimes::Idle(time)] {
        let rig = Rc::new(fresh_with(DataMode::Journal, times));
        let of_run = rig.clone();
        rig.try_play(async move |engine| {
            write_metadata(&engine, 5, b"metadata").await;
            write_data(&engine, 6, b"data").await;
            engine.sync().await.unwrap();
            sleep(&engine, seconds(at - 4)).await;
            assert_eq!(is_home(&of_run), [false, false], "{times:?}");
            // Write-back looks every two seconds.
            sleep(&engine, seconds(10)).await;
            assert_eq!(is_home(&of_run), [true, true], "{times:?}");
            engine.shutdown().await.unwrap();
        })
        .unwrap();
    }
}
