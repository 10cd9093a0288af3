//! No step of a task lasts: what visits many blocks yields, and what memory has nothing of is not
//! visited at all. Virtual time charges nothing for the processor, so real processor time is asked
//! for (`World::long_steps`), with bounds far above what the steps take.

use crate::common::{Layout, Rig, Setup, file_update};
use engine::{CheckpointTimes, Contents, Credits, Engine, FileUpdate};
use journal::DataMode;
use journal::records::RecordFormat;
use runtime::{Either, race, spawn_with_result, yield_now};
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock};

/// Processor time of the longest step yet.
fn longest(engine: &Rc<Engine>) -> Duration {
    engine.world().long_steps().first().map_or(Duration::ZERO, |steps| steps.longest)
}

fn update(at: u64, bytes: &[u8], request: u64) -> FileUpdate<'_> {
    FileUpdate { request, in_place: true, ..file_update(at, 0, bytes) }
}

/// A terabyte, of which memory knows a few blocks.
#[test]
fn a_freed_range_costs_what_memory_has_of_it() {
    const RUN: u64 = 1 << 28;
    let setup = Setup::new(DataMode::Selective, Layout::Separate, 4096);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        let mut handle = engine.start_writing(engine.credits_revokes(), 2).await.unwrap();
        handle.write_file_data(update(7, &[1; 100], 100)).await.unwrap();
        handle.write_file_data(update(200, &[1; 4096], 4096)).await.unwrap();
        assert_eq!(engine.freeable_in_one_handle(HomeBlock(0), RUN), RUN);
        handle.forget(HomeBlock(0), RUN, Contents::Data);
        engine.commit(handle.stop()).await.unwrap();
        assert_eq!(engine.statistics().cache.blocks, 0);
        let longest = longest(&engine);
        assert!(longest < Duration::from_millis(500), "{longest:?}");
        engine.shutdown().await.unwrap();
    });
}

/// Neither the handle that frees nor the commit visits them all in one step.
#[test]
fn blocks_in_memory_are_freed_in_short_steps() {
    const BLOCKS: u64 = 150_000;
    const AT_ONCE: u32 = 400;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 1024);
    setup.home_blocks = BLOCKS + 1;
    setup.options.cache_bytes = 1 << 30;
    setup.options.expire = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        for from in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let mut handle = engine.start_writing(Credits(0), AT_ONCE).await.unwrap();
            for at in from..BLOCKS.min(from + u64::from(AT_ONCE)) {
                handle.write_file_data(update(at, &[3; 1024], 1024)).await.unwrap();
            }
            handle.stop();
        }
        let some = engine.freeable_in_one_handle(HomeBlock(0), BLOCKS);
        assert!(some < BLOCKS / 20, "{some} at once");
        let before = engine.world().long_steps();
        let mut handle = engine.start(engine.credits_revokes() + Credits(1)).await.unwrap();
        handle.create(HomeBlock(BLOCKS));
        let mut at = 0;
        while at < BLOCKS {
            let count = engine.freeable_in_one_handle(HomeBlock(at), BLOCKS - at);
            handle.forget(HomeBlock(at), count, Contents::Data);
            at += count;
            yield_now().await;
        }
        engine.commit(handle.stop()).await.unwrap();
        assert_eq!(engine.statistics().cache.blocks, 1);
        let commit = |steps: &[device::LongSteps]| {
            let of_commit = steps.iter().find(|steps| steps.task == "commit");
            of_commit.map_or(Duration::ZERO, |steps| steps.longest)
        };
        let (before, after) = (commit(&before), commit(&engine.world().long_steps()));
        assert!(after < before.max(Duration::from_millis(20)), "{before:?}, then {after:?}");
        engine.shutdown().await.unwrap();
    });
}

/// Counts the steps of another task while log blocks are made.
#[test]
fn others_run_while_a_large_commit_is_planned() {
    const BLOCKS: u64 = 8_000;
    const AT_ONCE: u64 = 400;
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = Setup::new(DataMode::Journal, Layout::Separate, 1024);
        setup.home_blocks = BLOCKS + 1;
        setup.log_blocks = 1 << 17;
        setup.options.records = Some(records);
        setup.options.cache_bytes = 1 << 30;
        setup.options.commit = Duration::from_secs(3600);
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            let mut last = None;
            for from in (0..BLOCKS).step_by(AT_ONCE as usize) {
                let mut handle = engine.start_writing(Credits(0), AT_ONCE as u32).await.unwrap();
                for at in from..from + AT_ONCE {
                    handle.write_file_data(update(at, &[3; 1024], 1024)).await.unwrap();
                }
                last = Some(handle.stop());
            }
            let (asking, transaction) = (engine.clone(), last.unwrap());
            let world = engine.world().clone();
            let commit =
                spawn_with_result(&*world, async move { asking.commit(transaction).await });
            let mut steps = 0;
            for _ in 0..1000 {
                yield_now().await;
                steps += u64::from(engine.is_locking());
            }
            commit.await.expect("the task ends").unwrap();
            assert!(steps > BLOCKS / 1000, "{steps} steps of another task: {records:?}");
            engine.shutdown().await.unwrap();
        });
    }
}

/// Records of the log that lie at the far end of a range alone.
#[test]
fn no_part_of_a_range_takes_more_revokes_than_are_reserved() {
    const FIRST: u64 = 20_000;
    const END: u64 = 26_000;
    const AT_ONCE: u64 = 40;
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    setup.home_blocks = END + 1;
    setup.log_blocks = 1 << 14;
    setup.options.cache_bytes = 1 << 30;
    setup.options.expire = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        for from in (FIRST..END).step_by(AT_ONCE as usize) {
            let mut handle = engine.start_writing(Credits(0), AT_ONCE as u32).await.unwrap();
            for at in from..from + AT_ONCE {
                handle.write_file_data(update(at, &[3; 8], 8)).await.unwrap();
            }
            engine.commit(handle.stop()).await.unwrap();
        }
        for from_end in [true, false] {
            let mut handle = engine.start(engine.credits_revokes()).await.unwrap();
            let count = engine.freeable_in_one_handle(HomeBlock(0), END);
            assert!(count > 0 && count < END - FIRST, "{count} blocks at once");
            let start = if from_end { END - count } else { 0 };
            // Debug builds count its revokes.
            handle.forget(HomeBlock(start), count, Contents::Data);
            engine.commit(handle.stop()).await.unwrap();
        }
        engine.shutdown().await.unwrap();
    });
}

#[test]
fn a_handle_that_a_commit_waits_for_is_not_extended() {
    let setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        let mut handle = engine.start(Credits(1)).await.unwrap();
        handle.create(HomeBlock(1));
        assert!(handle.extend(Credits(1)));
        let transaction = handle.transaction();
        let soon = engine.world().sleep_until(engine.world().now().plus(Duration::from_millis(1)));
        let commit = Box::pin(engine.commit(transaction));
        let Either::Right(commit) = (match race(commit, soon).await {
            Either::Left(_) => Either::Left(()),
            Either::Right(()) => Either::Right(engine.commit(transaction)),
        }) else {
            panic!("committed although a handle is open");
        };
        assert!(!handle.extend(Credits(1)), "all who wait for the commit wait for the handle");
        handle.stop();
        commit.await.unwrap();
        engine.shutdown().await.unwrap();
    });
}

/// Metadata stays in the log for as long as there is room, so the tail does not move, and each
/// block that bypassed the log once is remembered.
#[test]
fn update_sequences_stay_within_their_part_of_the_cache() {
    const BLOCKS: u64 = 40_000;
    const AT_ONCE: u64 = 40;
    const INODE: u64 = BLOCKS + 1;
    const NEVER_AGAIN: u64 = BLOCKS + 2;
    let mut setup = Setup::new(DataMode::Selective, Layout::Separate, 1024);
    setup.home_blocks = BLOCKS + 8;
    setup.log_blocks = 1 << 16;
    setup.options.checkpoint = CheckpointTimes::Manual;
    setup.options.expire = Duration::from_secs(3600);
    setup.options.commit = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        let mut handle = engine.start(Credits(1)).await.unwrap();
        handle.create(HomeBlock(NEVER_AGAIN));
        engine.commit(handle.stop()).await.unwrap();
        let mut most = 0;
        for from in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let mut handle = engine.start_writing(Credits(1), AT_ONCE as u32).await.unwrap();
            let inode = handle.create(HomeBlock(INODE));
            handle.change(&inode, BlockRange::new(0, 8), |bytes| bytes[0] = from as u8);
            for at in from..from + AT_ONCE {
                // Home before the commit: nothing but the first block is dirty, and holds the tail.
                let update = FileUpdate { in_place: false, ..update(at, &[3; 1024], 64 << 10) };
                handle.write_file_data(update).await.unwrap();
            }
            engine.commit(handle.stop()).await.unwrap();
            most = most.max(engine.statistics().cache.sequence_bytes);
        }
        let cache = engine.statistics().cache;
        assert!(most > cache.limit_bytes / 32, "the table was not filled: {most}");
        assert!(most < cache.limit_bytes / 16 + (32 << 10), "{most} bytes: {cache:?}");
        engine.shutdown().await.unwrap();
    });
}
