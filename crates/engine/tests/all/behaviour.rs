//! Behaviour of the engine, seen from outside: groups, ages, reads, counts.

use crate::common::{Layout, Rig, STALE, Setup, file_update, recovered};
use crate::restart::{content, put};
use device::{Buffer, Disk, Durability};
use disks::Latency;
use engine::{BarrierKind, Base, Contents, Credits, Engine, FileUpdate, recover};
use journal::DataMode;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Owner, TransactionId};

async fn write(
    engine: &Rc<Engine>,
    home: u64,
    start: u32,
    bytes: &[u8],
    base: Base,
) -> TransactionId {
    let mut handle = engine.start(Credits(0)).await.unwrap();
    let update = FileUpdate { owner: Owner(12), base, ..file_update(home, start, bytes) };
    handle.write_file_data(update).await.unwrap();
    handle.stop()
}

async fn sleep(engine: &Rc<Engine>, time: Duration) {
    engine.world().sleep_until(engine.world().now().plus(time)).await
}

/// Runs `script` on a fresh volume with the default periods.
fn on_fresh<T: 'static, F: Future<Output = T> + 'static>(
    mode: DataMode,
    script: impl FnOnce(Rc<Engine>) -> F + 'static,
) -> (Rig, T) {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    setup.options = engine::EngineOptions { data: mode, ..Default::default() };
    let rig = Rig::new(&setup, 1, setup.images());
    let parts = rig.parts.clone();
    let result = rig.run(async move { script(Rig::open(parts).await).await }).expect("power");
    (rig, result)
}

#[test]
fn syncs_during_a_commit_share_the_next() {
    let (_, statistics) = on_fresh(DataMode::Wasteless, |engine| async move {
        let writers = (0..200u64).map(|writer| -> device::LocalFuture<()> {
            let engine = engine.clone();
            Box::pin(async move {
                for _ in 0..5 {
                    let transaction = write(&engine, writer, 7, b"synced", Base::Home).await;
                    engine.commit(transaction).await.unwrap();
                }
            })
        });
        runtime::join_all(writers.collect()).await;
        engine.statistics()
    });
    assert!(statistics.commits <= 12, "1000 syncs took {} commits", statistics.commits);
    assert_eq!(
        (statistics.handles, statistics.payload_bytes, statistics.sync.count),
        (1000, 6000, 1000)
    );
}

#[test]
fn few_writers_that_come_back_quickly_end_up_in_one_group() {
    let (_, statistics) = on_fresh(DataMode::Wasteless, |engine| async move {
        let writers = (0..8u64).map(|writer| -> device::LocalFuture<()> {
            let engine = engine.clone();
            Box::pin(async move {
                for round in 0..50 {
                    // Back after up to 40 us, less than a commit is held.
                    sleep(&engine, Duration::from_micros((writer * 13 + round * 7) % 40)).await;
                    let transaction = write(&engine, writer, 7, b"synced", Base::Home).await;
                    engine.commit(transaction).await.unwrap();
                }
            })
        });
        runtime::join_all(writers.collect()).await;
        engine.statistics()
    });
    assert!(statistics.commits <= 60, "50 rounds of 8 writers took {} commits", statistics.commits);
}

#[test]
fn what_nobody_syncs_is_committed_and_written_home_by_age() {
    for mode in DataMode::ALL {
        let (rig, ()) = on_fresh(mode, move |engine| async move {
            let transaction = write(&engine, 5, 0, b"old", Base::Zero).await;
            assert_ne!(engine.committed(), transaction);
            sleep(&engine, Duration::from_millis(5500)).await;
            assert_eq!(engine.committed() == transaction, mode != DataMode::Writeback, "{mode}");
            sleep(&engine, Duration::from_secs(41)).await;
        });
        assert_eq!(rig.home_block(5)[..5], *b"old\0\0", "{mode}");
    }
}

#[test]
fn missing_neighbours_come_with_one_read_and_readers_share_it() {
    let (rig, ()) = on_fresh(DataMode::Ordered, |engine| async move {
        let readers = (0..10).map(|_| -> device::LocalFuture<()> {
            let engine = engine.clone();
            Box::pin(async move {
                let blocks = engine.read_data(HomeBlock(20), 32).await.unwrap();
                assert!(blocks.len() == 32 && blocks.iter().all(|block| block[0] == STALE));
            })
        });
        runtime::join_all(readers.collect()).await;
        engine.metadata(HomeBlock(25)).await.unwrap();
    });
    assert_eq!(rig.disks[0].statistics().reads, 1);
}

fn bytes_of(buffers: &[Rc<Buffer>]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.to_vec()).collect()
}

#[test]
fn long_reads_for_another_cache_see_this_one_and_leave_nothing_in_it() {
    let (rig, ()) = on_fresh(DataMode::Wasteless, |engine| async move {
        let read = async |at, count| {
            bytes_of(&engine.read_data_past_cache(HomeBlock(at), count).await.unwrap())
        };
        assert_eq!(read(100, 64).await, vec![STALE; 64 * 4096]);
        let statistics = engine.statistics();
        assert_eq!((statistics.cache.blocks, statistics.home_reads), (0, 1));
        // Changed, and not home: at the start, in the middle, in part, behind a short run, at the
        // end.
        let mut expected = vec![STALE; 64 * 4096];
        for (block, start, length) in [(0, 0, 4096), (30, 100, 7), (34, 0, 4096), (63, 4000, 96)] {
            write(&engine, 100 + block, start, &vec![1; length], Base::Home).await;
            let start = (block * 4096) as usize + start as usize;
            expected[start..start + length].fill(1);
        }
        assert!(read(100, 64).await == expected);
        // The changed ones, and the short run between two of them.
        assert_eq!(engine.statistics().cache.blocks, 7);
        assert!(read(90, 84).await[10 * 4096..74 * 4096] == expected);
        // Short reads are kept, as were those of ten blocks on both sides.
        read(200, 15).await;
        assert_eq!(engine.statistics().cache.blocks, 42);
        assert!(engine.read_data_past_cache(HomeBlock(u64::MAX - 1), 1).await.is_err());
    });
    assert!(rig.disks[0].statistics().reads > 0);
}

/// A reader past the cache must notice that a block was changed, written back and evicted since it
/// looked the block up.
#[test]
fn uncached_read_sees_changes_made_during_it() {
    for mode in [DataMode::Ordered, DataMode::Wasteless, DataMode::Writeback] {
        on_fresh(mode, move |engine| async move {
            let reader = engine.clone();
            let mut read = runtime::spawn_with_result(&**engine.world(), async move {
                bytes_of(&reader.read_data_past_cache(HomeBlock(100), 64).await.unwrap())
            });
            runtime::yield_now().await;
            write(&engine, 110, 0, &[1; 4096], Base::Home).await;
            write(&engine, 130, 9, &[2; 5], Base::Home).await;
            let mut expected = vec![STALE; 64 * 4096];
            expected[10 * 4096..11 * 4096].fill(1);
            expected[30 * 4096 + 9..30 * 4096 + 14].fill(2);
            assert!((&mut read).await.unwrap() == expected, "{mode}");
        });
    }
}

/// A read fills in what a small write did not say of a block. During the read the block is
/// freed, written by another owner, and written home.
#[test]
fn block_reused_during_read_is_never_mixed() {
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    setup.options.commit = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    let disk = rig.disks[0].clone();
    rig.play(async move |engine| {
        write(&engine, 9, 100, &[1; 5], Base::Home).await;
        let latency = |least| disk.set_latency(Latency { least, spread: Duration::ZERO });
        latency(Duration::from_secs(10));
        let reader = engine.clone();
        let mut read = runtime::spawn_with_result(&**engine.world(), async move {
            bytes_of(&reader.read_data(HomeBlock(9), 1).await.unwrap())
        });
        runtime::yield_now().await;
        latency(Duration::from_micros(10));
        let mut handle = engine.start(engine.credits_revokes()).await.unwrap();
        handle.forget(HomeBlock(9), 1, Contents::Data);
        engine.commit(handle.stop()).await.unwrap();
        write(&engine, 9, 0, &[2; 4096], Base::Zero).await;
        engine.checkpoint().await.unwrap();
        assert!((&mut read).await.unwrap() == [2; 4096]);
        engine.shutdown().await.unwrap();
    });
}

#[test]
fn a_small_update_needs_no_read_before_its_commit_in_wasteless_mode() {
    let (rig, ()) = on_fresh(DataMode::Wasteless, |engine| async move {
        let transaction = write(&engine, 9, 100, b"blind", Base::Home).await;
        engine.commit(transaction).await.unwrap();
        assert_eq!(engine.statistics().home_reads, 0);
        // Only who wants to see it has the rest fetched.
        let block = &engine.read_data(HomeBlock(9), 1).await.unwrap()[0];
        assert_eq!((block[99], &block[100..105], block[105]), (STALE, &b"blind"[..], STALE));
        write(&engine, 10, 100, b"blind", Base::Home).await;
        engine.shutdown().await.unwrap();
        assert_eq!(engine.statistics().home_reads, 2);
    });
    let block = rig.home_block(10);
    assert_eq!((block[99], &block[100..105], block[105]), (STALE, &b"blind"[..], STALE));
}

#[test]
fn wasteless_logs_a_fraction_of_what_journal_logs() {
    let logged = |mode| {
        let (_, statistics) = on_fresh(mode, |engine| async move {
            for round in 0..10 {
                let mut last = TransactionId(0);
                for writer in 0..100 {
                    last = write(&engine, writer, 128 * round, &[1; 128], Base::Home).await;
                }
                engine.commit(last).await.unwrap();
            }
            engine.statistics()
        });
        assert_eq!(statistics.payload_bytes, 128_000);
        statistics.log_bytes()
    };
    let (journal, wasteless) = (logged(DataMode::Journal), logged(DataMode::Wasteless));
    assert!(journal > 10 * wasteless, "journal {journal}, wasteless {wasteless} bytes");
}

#[test]
fn a_handle_that_is_dropped_does_not_hold_up_the_commit() {
    on_fresh(DataMode::Ordered, |engine| async move {
        let transaction = {
            let mut handle = engine.start(Credits(3)).await.unwrap();
            handle.create(HomeBlock(1));
            handle.transaction()
        };
        engine.commit(transaction).await.unwrap();
        // One in which nothing happened is not written at all.
        let idle = engine.start(Credits(3)).await.unwrap().stop();
        engine.commit(idle).await.unwrap();
        assert_eq!(engine.statistics().commits, 1);
    });
}

#[test]
fn a_dry_run_reports_what_recovery_would_do_and_writes_nothing() {
    let setup = Setup::new(DataMode::Wasteless, Layout::Internal, 4096);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.try_play(async move |engine| {
        let transaction = write(&engine, 3, 1, b"fragment", Base::Home).await;
        engine.commit(transaction).await.unwrap();
    });
    let rig = Rig::new(&setup, 1, rig.crash(0));
    let parts = rig.parts.clone();
    let reports = rig.run(async move {
        let dry = recover(&parts, true).await.unwrap();
        let untouched = parts.home.read(HomeBlock(3), 1).await.unwrap();
        assert_eq!(untouched[1], STALE);
        let refused = Engine::open(parts.clone()).await;
        assert!(matches!(refused, Err(engine::EngineError::NeedsRecovery)));
        (dry, recover(&parts, false).await.unwrap(), recover(&parts, false).await.unwrap())
    });
    let (dry, real, again) = reports.unwrap();
    assert!(dry.dry_run && dry.transactions == 1 && dry.replay.counts.fragment_records == 1);
    assert_eq!((real.transactions, real.home_blocks_written, real.home_blocks_read), (1, 1, 1));
    assert!(again.clean && again.transactions == 0);
    assert_eq!(rig.home_block(3)[1..9], *b"fragment");
}

#[test]
fn a_range_written_back_is_home_and_durable() {
    for mode in [DataMode::Wasteless, DataMode::Journal, DataMode::Ordered, DataMode::Writeback] {
        let (rig, ()) = on_fresh(mode, |engine| async move {
            for block in [10, 11, 12, 30] {
                write(&engine, block, 100, b"update", Base::Home).await;
            }
            engine.write_back_range(&[(HomeBlock(10), 2), (HomeBlock(30), 1)]).await.unwrap();
        });
        // What the disk may lose it loses now.
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.options = engine::EngineOptions { data: mode, ..Default::default() };
        for seed in 0..8 {
            let after = Rig::new(&setup, seed, rig.crash(seed));
            for block in [10, 11, 30] {
                let home = after.home_block(block);
                assert_eq!(
                    (home[99], &home[100..106], home[106]),
                    (STALE, &b"update"[..], STALE),
                    "{mode:?}"
                );
            }
        }
        if mode == DataMode::Wasteless {
            assert_eq!(rig.home_block(12)[100], STALE, "nobody asked for this one");
        }
    }
}

#[test]
fn what_others_wrote_to_a_block_written_back_survives_recovery() {
    const FOREIGN: u8 = 0x77;
    for mut setup in Setup::all() {
        // Write-back must not move the log's tail past what replay could do.
        (setup.options.writeback, setup.options.expire) =
            (Duration::from_secs(60), Duration::from_secs(60));
        let rig = Rig::new(&setup, 1, setup.images());
        let size = setup.block_size.bytes();
        let disk = rig.disks[0].clone();
        rig.try_play(async move |engine| {
            // Of the first transaction, and not asked for: the log begins with it.
            for block in [12, 10, 11] {
                write(&engine, block, 100, b"update", Base::Home).await;
            }
            engine.sync().await.unwrap();
            engine.write_back_range(&[(HomeBlock(10), 2)]).await.unwrap();
            let foreign = Buffer::copy_of(&vec![FOREIGN; 2 * size]);
            disk.write(10 * size as u64, vec![Rc::new(foreign)], Durability::Durable)
                .await
                .unwrap();
            write(&engine, 12, 200, b"second", Base::Home).await;
            engine.sync().await.unwrap();
        })
        .expect("power");
        let after = Rig::new(&setup, 2, rig.crash(0));
        let parts = after.parts.clone();
        after.run(async move { recover(&parts, false).await }).expect("power").unwrap();
        for block in [10, 11] {
            assert!(after.home_block(block).iter().all(|byte| *byte == FOREIGN), "{setup:?}");
        }
        let kept = after.home_block(12);
        assert_eq!(
            (&kept[100..106], &kept[200..206]),
            (&b"update"[..], &b"second"[..]),
            "{setup:?}"
        );
    }
}

/// The end of a long request: a small part of a block.
#[test]
fn a_threshold_is_held_against_the_request_or_against_each_block_as_asked() {
    for per_block in [false, true] {
        let mut setup = Setup::new(DataMode::Selective, Layout::Separate, 4096);
        setup.options.threshold_per_block = per_block;
        setup.options.expire = Duration::from_secs(3600);
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            let mut handle = engine.start(Credits(0)).await.unwrap();
            let update = FileUpdate { request: 8292, ..file_update(70, 0, &[9; 100]) };
            handle.write_file_data(update).await.unwrap();
            engine.commit(handle.stop()).await.unwrap();
        });
        let mut byte = [0];
        rig.crash(1)[0].read(70 << 12, &mut byte);
        assert_eq!(byte[0] != 9, per_block, "what is logged is not home yet");
    }
}

/// Data committed without barriers is in caches, and the sync behind them finds nothing to
/// commit.
#[test]
fn a_sync_after_barriers_begin_covers_what_came_before() {
    for layout in [Layout::Internal, Layout::Separate] {
        for fua in [true, false] {
            let mut setup = Setup::new(DataMode::Journal, layout, 4096);
            setup.forced_unit_access = fua;
            setup.options.barrier = BarrierKind::None;
            let never = Duration::from_secs(3600);
            (setup.options.writeback, setup.options.expire) = (never, never);
            let rig = Rig::new(&setup, 1, setup.images());
            rig.play(async move |engine| {
                put(&engine, 9, 1).await;
                engine.set_barrier(BarrierKind::Flush).await.unwrap();
                engine.sync().await.unwrap();
            });
            let after = recovered(&setup, 2, rig.crash(0)).unwrap();
            assert!(after.home_block(9)[..] == content(9, 1), "{layout:?}, FUA: {fua}: lost");
        }
    }
}
