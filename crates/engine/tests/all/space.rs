//! Bounded things: the log, the cache, a transaction. Nothing waits for ever when they are full.

use crate::common;

use crate::common::{
    Cut, Layout, Rig, Script, Setup, cuts_of, file_update, run_on, run_until, verify, write_byte,
};
use engine::{
    Base, CommitPacing, Contents, Credits, EngineError, EngineOptions, EngineParts, FileUpdate,
    NoPacing, RecordFormat, Statistics,
};
use journal::DataMode;
use runtime::{Either, race};
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock};

/// Enough transactions to write a log of 1024 blocks several times over.
const LONG: Script = Script { writers: 6, handles: 900, sync_one_in: 2, seed: 11 };

#[test]
fn a_log_that_wraps_many_times_keeps_every_promise() {
    let kinds =
        DataMode::ALL.into_iter().flat_map(|mode| [true, false].map(|access| (mode, access)));
    for (mode, forced_unit_access) in kinds {
        let mut setup = Setup { forced_unit_access, ..Setup::new(mode, Layout::Internal, 1024) };
        // Nothing is written back but for want of log space.
        setup.options.expire = Duration::from_secs(3600);
        let (rig, history, ended) = run_until(&setup, LONG, None);
        assert!(ended);
        verify(&setup, 0, rig.crash(1), &history.borrow()).unwrap();
        let changes = rig.changes();
        let tears = move |number| {
            let is_cut = (1..24).any(|part| changes * part / 24 == number);
            number..number + u64::from(is_cut)
        };
        let cuts = cuts_of(&setup, LONG, tears);
        assert_eq!(cuts.len(), 23);
        for Cut { number, images, history } in cuts {
            for (tear, images) in images {
                verify(&setup, tear, images, &history)
                    .unwrap_or_else(|why| panic!("{setup:?} {LONG:?} cut {number}: {why}"));
            }
        }
    }
}

/// A volume is used, crashes, is recovered and used again, ten times: each time all of it must be
/// right.
#[test]
fn crashed_volumes_go_on_being_used() {
    for mode in DataMode::ALL {
        let setup = Setup::new(mode, Layout::Separate, 4096);
        let mut images = setup.images();
        for round in 0..10 {
            let script = Script { writers: 4, handles: 60, sync_one_in: 3, seed: round };
            // Writers begin with nothing; what earlier ones left is to them what stale bytes are.
            let rig = Rig::new(&setup, round, images);
            rig.cut_at(20 + round * 2);
            let (history, ended) = run_on(&rig, &setup, script);
            assert!(ended.is_none(), "the script is long enough to be cut");
            images = rig.crash(round * 4 + 2);
            if history.borrow().all_begun() {
                verify(&setup, round, images.clone(), &history.borrow())
                    .unwrap_or_else(|why| panic!("{setup:?} {script:?} round {round}: {why}"));
            }
        }
    }
}

#[test]
fn the_cache_stays_within_its_bound_however_much_is_written_and_read() {
    for mode in DataMode::ALL {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.home_blocks = 4096;
        setup.options.cache_bytes = 64 << 12;
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            for number in 0..3000 {
                let mut handle = engine.start(Credits(2)).await.unwrap();
                handle.create(HomeBlock(number % 1000));
                let update = FileUpdate {
                    base: if number % 2 == 0 { Base::Zero } else { Base::Home },
                    sequential: true,
                    ..file_update(1000 + number, 5, &[1, 2, 3, 4])
                };
                handle.write_file_data(update).await.unwrap();
                handle.stop();
                engine.read_data(HomeBlock(number), 3).await.unwrap();
                let cache = engine.statistics().cache;
                assert!(cache.blocks <= 64 + 8, "{mode}: {cache:?}");
            }
            engine.shutdown().await.unwrap();
            let bytes = engine.read_data(HomeBlock(3999), 1).await.unwrap();
            assert_eq!(bytes[0][4..10], [common::STALE, 1, 2, 3, 4, common::STALE]);
        });
    }
}

/// Ordered data is written home before the commit in any case. The commit then waits for what went
/// before it.
#[test]
fn memory_that_runs_short_in_ordered_mode_asks_for_no_commit() {
    const BLOCKS: u64 = 3000;
    for layout in [Layout::Internal, Layout::Separate] {
        let mut setup = Setup::new(DataMode::Ordered, layout, 4096);
        setup.home_blocks = 4096;
        setup.options.cache_bytes = 64 << 12;
        setup.options.commit = Duration::from_secs(5);
        let rig = Rig::new(&setup, 1, setup.images());
        let (before, after) = rig.play(async move |engine| {
            let mut last = None;
            for number in 0..BLOCKS {
                let mut handle = engine.start(Credits(1)).await.unwrap();
                let bytes = (number as u32).to_le_bytes();
                let update =
                    FileUpdate { sequential: true, ..file_update(1000 + number, 0, &bytes) };
                handle.write_file_data(update).await.unwrap();
                last = Some(handle.stop());
            }
            let before = engine.statistics().commits;
            engine.commit(last.unwrap()).await.unwrap();
            (before, engine.statistics().commits)
        });
        assert_eq!((before, after), (0, 1), "{layout:?}");
        let home = &rig.crash(1)[0];
        for number in 0..BLOCKS {
            let mut bytes = [0; 4];
            home.read((1000 + number) << 12, &mut bytes);
            assert_eq!(
                u32::from_le_bytes(bytes),
                number as u32,
                "{layout:?}: durable when it was answered"
            );
        }
    }
}

/// Returns the whole update of a request, into a new block.
fn four_bytes(home: HomeBlock, bytes: &[u8; 4]) -> FileUpdate<'_> {
    file_update(home.get(), 0, bytes)
}

/// 2000 small commits, over a log that is written several times over. The disks have no cheaper way
/// to make a commit durable than a flush, which makes all durable.
fn full_log(mode: DataMode, pacing: Rc<dyn CommitPacing>) -> Statistics {
    let mut setup = Setup::new(mode, Layout::Internal, 4096);
    setup.forced_unit_access = false;
    setup.options.expire = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    let parts = EngineParts { pacing, ..rig.parts.clone() };
    let statistics = rig
        .run(async move {
            let engine = Rig::open(parts).await;
            for number in 0..2000 {
                let mut handle = engine.start(Credits(1)).await.unwrap();
                let bytes = (number as u32).to_le_bytes();
                let update = four_bytes(HomeBlock(number % 100), &bytes);
                handle.write_file_data(update).await.unwrap();
                engine.commit(handle.stop()).await.unwrap();
            }
            engine.statistics()
        })
        .unwrap();
    assert!(statistics.tail_updates > 3, "{mode}: the log is written several times over");
    statistics
}

#[test]
fn full_log_needs_no_extra_barriers() {
    for (mode, barriers) in [(DataMode::Wasteless, 1), (DataMode::Journal, 2)] {
        let statistics = full_log(mode, Rc::new(NoPacing));
        // The first commit writes the journal superblock before anything else.
        assert_eq!(statistics.flushes, 1 + barriers * statistics.commits, "{mode}");
    }
}

#[test]
fn a_host_that_separates_barriers_flushes_what_a_full_log_sends_home() {
    struct Separate;
    impl CommitPacing for Separate {
        fn separates_barriers(&self) -> bool {
            true
        }
    }
    let statistics = full_log(DataMode::Journal, Rc::new(Separate));
    // Before each move of the tail what was written back is flushed.
    assert_eq!(statistics.flushes, 1 + 2 * statistics.commits + statistics.tail_updates);
}

/// A commit in flight has an older image of a block that memory wants home: that one must not come
/// later.
#[test]
fn data_is_not_written_home_past_an_older_image_of_itself() {
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    setup.home_blocks = 4096;
    setup.options.cache_bytes = 512 << 12;
    setup.options.commit = Duration::from_secs(5);
    let rig = Rig::new(&setup, 1, setup.images());
    const LAST: u64 = 3000;
    rig.try_play(async move |engine| {
        let write = |home, byte| write_byte(&engine, 1, home, byte);
        // No neighbours: more writes than go out at once, so that the last has to wait.
        let mut first = write(LAST, 1).await;
        for number in 0..200 {
            first = write(2 * number, 1).await;
        }
        let commit = engine.commit(first);
        let rest = async {
            // Behind the lock.
            engine.world().sleep_until(engine.world().now().plus(Duration::from_nanos(1))).await;
            let mut second = write(LAST, 2).await;
            for number in 0..100 {
                second = write(1001 + 2 * number, 2).await;
            }
            engine.commit(second).await
        };
        let mut rest = std::pin::pin!(rest);
        match runtime::race(commit, &mut rest).await {
            Either::Left(committed) => committed.unwrap(),
            Either::Right(_) => panic!("the first commit has ended before the second"),
        }
        rest.await.unwrap();
    })
    .unwrap();
    let mut byte = [0];
    rig.crash(1)[0].read(LAST << 12, &mut byte);
    assert_eq!(byte, [2]);
}

/// Room for what they may write, not for the most that a handle can: else a few that wait for reads
/// keep all others out.
#[test]
fn handles_that_write_little_do_not_keep_one_another_out() {
    for mode in [DataMode::Journal, DataMode::Wasteless, DataMode::Selective] {
        let setup = Setup::new(mode, Layout::Separate, 4096);
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            let mut handles = Vec::new();
            for number in 0..20 {
                let start = engine.start_writing(Credits(2), 1 + number % 3);
                let late =
                    engine.world().sleep_until(engine.world().now().plus(Duration::from_secs(1)));
                match race(Box::pin(start), late).await {
                    Either::Left(handle) => handles.push(handle.unwrap()),
                    Either::Right(()) => panic!("{mode}: {number} handles fill a transaction"),
                }
            }
        });
    }
}

/// Ten seconds of old data are written back, 2048 blocks at a time, while one writer needs the
/// whole log several times.
#[test]
fn who_needs_log_space_does_not_wait_until_everything_old_is_home() {
    const OLD: u64 = 8000;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 1024);
    setup.home_blocks = 2 * OLD + 100;
    setup.options = EngineOptions {
        data: setup.mode,
        expire: Duration::from_secs(5),
        ..EngineOptions::default()
    };
    let rig = Rig::new(&setup, 1, setup.images());
    let each = Duration::from_millis(20);
    rig.disks[0].set_latency(disks::Latency { least: each, spread: Duration::ZERO });
    let longest = rig.try_play(async move |engine| {
        let block = engine.metadata(HomeBlock(1)).await.unwrap();
        for number in 0..OLD {
            let mut handle = engine.start(Credits(0)).await.unwrap();
            // No two are neighbours.
            let update = file_update(100 + 2 * number, 0, &[7; 1024]);
            handle.write_file_data(update).await.unwrap();
            handle.stop();
        }
        let (world, mut longest) = (engine.world().clone(), Duration::ZERO);
        let end = world.now().plus(Duration::from_secs(20));
        while world.now() < end {
            let asked = world.now();
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle
                .change(&block, BlockRange::new(0, 8), |bytes| bytes[0] = bytes[0].wrapping_add(1));
            engine.commit(handle.stop()).await.unwrap();
            longest = longest.max(world.now().since(asked));
        }
        assert_eq!(engine.statistics().cache.dirty_blocks, 1);
        longest
    });
    let longest = longest.unwrap();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn oversized_handle_is_refused_full_one_not_extended() {
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    // Memory is no reason to refuse it.
    setup.options.cache_bytes = 64 << 20;
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        assert!(matches!(
            engine.start(Credits(1000)).await,
            Err(EngineError::HandleTooLarge { .. })
        ));
        let mut handle = engine.start(Credits(10)).await.unwrap();
        assert!(handle.extend(Credits(100)));
        assert!(!handle.extend(Credits(1000)));
        drop(handle);
        engine.shutdown().await.unwrap();
    });
}

/// A block is logged as metadata, freed, and used again for data that bypasses the log: replay must
/// not bring the old copy back.
#[test]
fn freed_blocks_never_come_back_from_the_log() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = Setup::new(DataMode::Ordered, Layout::Internal, 1024);
        setup.options.records = Some(records);
        let mut reused = 0;
        for cut in 0..40 {
            let rig = Rig::new(&setup, cut, setup.images());
            rig.cut_at(cut);
            rig.run(use_free_and_use_again(rig.parts.clone()));
            let after = common::recovered(&setup, 1, rig.crash(cut)).unwrap();
            if after.home_block(2)[0] == 1 {
                assert_eq!(after.home_block(9)[..4], [0xbb; 4], "{records:?}, cut {cut}");
                reused += 1;
            }
        }
        assert!(reused > 5, "{records:?}: {reused} cuts after the block was used again");
    }
}

async fn use_free_and_use_again(parts: EngineParts) {
    let at = HomeBlock(9);
    let engine = Rig::open(parts).await;
    let mut handle = engine.start(Credits(1)).await.unwrap();
    let block = handle.create(at);
    handle.change(&block, BlockRange::new(0, 4), |bytes| bytes[..4].fill(0xaa));
    engine.commit(handle.stop()).await.unwrap();

    let mut handle = engine.start(Credits(0)).await.unwrap();
    handle.forget(at, 1, Contents::Metadata);
    engine.commit(handle.stop()).await.unwrap();

    let mut handle = engine.start(Credits(1)).await.unwrap();
    let update = four_bytes(at, &[0xbb; 4]);
    handle.write_file_data(update).await.unwrap();
    let done = handle.create(HomeBlock(2));
    handle.change(&done, BlockRange::new(0, 1), |bytes| bytes[0] = 1);
    engine.commit(handle.stop()).await.unwrap();

    for _ in 0..20 {
        let mut handle = engine.start(Credits(1)).await.unwrap();
        handle.create(HomeBlock(3));
        engine.commit(handle.stop()).await.unwrap();
    }
}

/// Recovery looks no further ahead than the superblock says that transactions reach.
#[test]
fn no_transaction_is_written_before_the_superblock_has_its_length() {
    for layout in [Layout::Internal, Layout::Separate] {
        let mut setup = Setup::new(DataMode::Journal, layout, 4096);
        setup.options.commit = Duration::from_secs(3600);
        let rig = Rig::new(&setup, 1, setup.images());
        let parts = rig.parts.clone();
        let said = move |parts: EngineParts| async move {
            let area = parts.log.clone().unwrap();
            let block = parts.read_journal_superblock(&area).await.unwrap();
            let superblock =
                format::jbd2::JournalSuperblock::parse(&block, parts.block_size, u64::MAX).unwrap();
            superblock.transaction_bound.expect("a log that is live")
        };
        rig.run(async move {
            let engine = Rig::open(parts.clone()).await;
            for blocks in [1, 100, 200, 3, 250] {
                let mut last = write_byte(&engine, 1, 1, 1).await;
                for number in 1..blocks {
                    last = write_byte(&engine, 1, number, 1).await;
                }
                engine.commit(last).await.unwrap();
                let bound = u64::from(said(parts.clone()).await);
                assert!(
                    bound >= blocks && bound <= 2 * blocks.max(128),
                    "{layout:?}: {bound} for {blocks}"
                );
            }
        })
        .unwrap();
    }
}
