//! Data that no commit waits for, until somebody syncs it: all in `writeback`, overwrites in place
//! that bypass the log elsewhere.

use crate::common::{Layout, Rig, STALE, Setup, overwrite, write_byte};
use device::Operation;
use disks::{CrashPolicy, Fault, Latency};
use engine::{Contents, Credits, Engine};
use journal::DataMode;
use runtime::{Either, race, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Owner};

/// A sync in flight has an older image of a block that memory wants home. That one must not come
/// later, nor may the newer one count as home because the older one is.
#[test]
fn synced_data_is_not_overwritten_by_an_older_image_of_itself() {
    const LAST: u64 = 1000;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 4096);
    setup.home_blocks = 4096;
    setup.options.cache_bytes = 512 << 12;
    setup.options.commit = Duration::from_secs(5);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        // No neighbours: more writes than go out at once, so that the last has to wait.
        for number in 0..200 {
            write_byte(&engine, 1, 2 * number, 1).await;
        }
        let first = write_byte(&engine, 1, LAST, 1).await;
        let sync = engine.sync_owner(Owner(1), first);
        let rest = async {
            // Behind the lock.
            engine.world().sleep_until(engine.world().now().plus(Duration::from_nanos(1))).await;
            let mut second = write_byte(&engine, 1, LAST, 2).await;
            for number in 0..100 {
                second = write_byte(&engine, 1, LAST + 1 + 2 * number, 2).await;
            }
            second
        };
        // The sync has ended before the second one begins.
        let mut rest = std::pin::pin!(rest);
        let mut sync = std::pin::pin!(sync);
        let second = match race(&mut sync, &mut rest).await {
            Either::Left(_) => panic!("the sync has ended before anything was overwritten"),
            Either::Right(second) => second,
        };
        sync.await.unwrap();
        engine.sync_owner(Owner(1), second).await.unwrap();
    });
    let mut byte = [0];
    rig.crash(1)[0].read(LAST << 12, &mut byte);
    assert_eq!(byte, [2]);
}

/// A sync whose data needs a commit waits for log space like everybody.
#[test]
fn syncing_data_while_the_log_is_full_waits_for_room() {
    const FILES: u64 = 4;
    // A descriptor, the block, the commit block.
    const TRANSACTION: u64 = 3;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 1024);
    setup.home_blocks = 4096;
    setup.options.commit = Duration::from_secs(3600);
    setup.options.expire = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    // Nothing is written back while the log fills.
    let slow = Duration::from_secs(10);
    rig.disks[0].set_latency(Latency { least: slow, spread: Duration::ZERO });
    rig.play(async move |engine| {
        let mut lazy = Vec::new();
        for owner in 0..FILES {
            lazy.push((Owner(12 + owner), write_byte(&engine, 12 + owner, 100 + owner, 7).await));
        }
        let now = || engine.world().now();
        // Not one block is to be left.
        let rest = engine.statistics().log.free_blocks % TRANSACTION;
        let mut handle = engine.start(Credits(1 + rest as u32)).await.unwrap();
        (0..=rest).for_each(|number| drop(handle.create(HomeBlock(900 + number))));
        engine.commit(handle.stop()).await.unwrap();
        for number in 0.. {
            let patience = engine.world().sleep_until(now().plus(Duration::from_secs(1)));
            match race(Box::pin(engine.start(Credits(1))), patience).await {
                Either::Left(handle) => {
                    let mut handle = handle.unwrap();
                    handle.create(HomeBlock(1000 + number));
                    engine.commit(handle.stop()).await.unwrap();
                }
                Either::Right(()) => break,
            }
        }
        for (owner, transaction) in lazy {
            engine.sync_owner(owner, transaction).await.unwrap();
        }
    });
    for owner in 0..FILES {
        assert_eq!(rig.home_block(100 + owner)[0], 7);
    }
}

/// Modes in which overwrites in place bypass the log.
const BYPASSING: [DataMode; 3] = [DataMode::Ordered, DataMode::Selective, DataMode::Adaptive];

/// Returns a rig in which nothing is written back or committed by age.
fn still(mode: DataMode) -> Rig {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    setup.options.commit = Duration::from_secs(3600);
    setup.options.expire = Duration::from_secs(3600);
    Rig::new(&setup, 1, setup.images())
}

async fn pause(engine: &Rc<Engine>, time: Duration) {
    engine.world().sleep_until(engine.world().now().plus(time)).await
}

/// First bytes of blocks after a cut that leaves only what is durable.
fn durable<const N: usize>(rig: &Rig, blocks: [u64; N]) -> [u8; N] {
    let image = &rig.crash(0)[0];
    blocks.map(|block| {
        let mut byte = [0];
        image.read(block << 12, &mut byte);
        byte[0]
    })
}

#[test]
fn a_sync_writes_back_overwrites_of_its_own_file_alone() {
    for mode in BYPASSING {
        let rig = still(mode);
        rig.play(async move |engine| {
            overwrite(&engine, 1, 50, 1).await;
            let own = overwrite(&engine, 2, 60, 2).await;
            engine.sync_owner(Owner(2), own).await.unwrap();
        });
        let [stranger, own] = durable(&rig, [50, 60]);
        assert_eq!((stranger == 1, own), (false, 2), "{mode}");
    }
}

#[test]
fn a_sync_of_everything_brings_all_overwrites_home() {
    for mode in BYPASSING {
        let rig = still(mode);
        rig.play(async move |engine| {
            for owner in 1..4 {
                overwrite(&engine, owner, 50 + 2 * owner, owner as u8).await;
            }
            engine.sync().await.unwrap();
        });
        assert_eq!(durable(&rig, [52, 54, 56]), [1, 2, 3], "{mode}");
    }
}

/// The other sync has it in flight, and this one finds nothing more to do.
#[test]
fn a_sync_whose_overwrite_another_sync_took_along_waits_for_that_commit() {
    for mode in BYPASSING {
        let rig = still(mode);
        let slow = Latency { least: Duration::from_millis(10), spread: Duration::ZERO };
        rig.disks.iter().for_each(|disk| disk.set_latency(slow));
        rig.play(async move |engine| {
            overwrite(&engine, 1, 50, 1).await;
            // An overwrite alone is nothing to commit.
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.create(HomeBlock(40));
            let first = handle.stop();
            engine.commit(first).await.unwrap();
            assert_eq!(engine.committed(), first);
            overwrite(&engine, 2, 60, 2).await;
            let all = engine.sync();
            let own = async {
                pause(&engine, Duration::from_millis(1)).await;
                // What it knows of is committed already.
                engine.sync_owner(Owner(1), first).await.unwrap();
            };
            let (mut all, mut own) = (std::pin::pin!(all), std::pin::pin!(own));
            race(&mut all, &mut own).await;
        });
        assert_eq!(durable(&rig, [50]), [1], "{mode}");
    }
}

/// Write-back has it in a disk's cache: the sync of the owner, who has nothing in memory any more,
/// must flush.
#[test]
fn a_sync_flushes_overwrites_that_write_back_sent_home() {
    for mode in BYPASSING {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.options.expire = Duration::from_millis(10);
        setup.options.writeback = Duration::from_millis(10);
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            let own = overwrite(&engine, 1, 50, 1).await;
            engine.commit(own).await.unwrap();
            // Less than the second after which nobody need ask for it.
            pause(&engine, Duration::from_millis(300)).await;
            engine.sync_owner(Owner(1), own).await.unwrap();
        });
        assert_eq!(durable(&rig, [50]), [1], "{mode}");
    }
}

/// The block is zeroed in part, or appended to: its older overwrite is written home with it, before
/// the commit.
#[test]
fn an_ordered_change_takes_the_overwrite_below_it_along() {
    let rig = still(DataMode::Ordered);
    rig.play(async move |engine| {
        overwrite(&engine, 1, 50, 1).await;
        let ordered = write_byte(&engine, 1, 50, 2).await;
        engine.commit(ordered).await.unwrap();
        assert_eq!(engine.statistics().cache.dirty_blocks, 0);
    });
    assert_eq!(durable(&rig, [50]), [2]);
}

/// The overwrite is in flight to home as its file is deleted, and the next owner's data comes
/// behind it.
#[test]
fn an_overwrite_of_a_freed_block_never_lands_on_its_next_owner() {
    for mode in BYPASSING {
        let rig = still(mode);
        let home = rig.disks[0].clone();
        rig.play(async move |engine| {
            let first_byte = || home.image().copy(50 << 12, 512)[0];
            let first = overwrite(&engine, 1, 50, 1).await;
            let before = home.changes();
            // Longer than all that follows.
            home.delay_change(before, Duration::from_secs(1));
            let (own, world) = (engine.clone(), engine.world().clone());
            let sync =
                spawn_with_result(&*world, async move { own.sync_owner(Owner(1), first).await });
            pause(&engine, Duration::from_millis(1)).await;
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.forget(HomeBlock(50), 1, Contents::Data);
            // As a bitmap changes.
            handle.create(HomeBlock(40));
            let deleted = handle.stop();
            let in_flight = (home.changes() - before, first_byte());
            assert_eq!(in_flight, (1, STALE), "{mode}: one write has begun, and not ended");
            engine.commit(deleted).await.unwrap();
            let next = write_byte(&engine, 2, 50, 2).await;
            engine.sync_owner(Owner(2), next).await.unwrap();
            sync.await.unwrap().unwrap();
            // The first owner has nothing left that would be sent.
            engine.sync_owner(Owner(1), next).await.unwrap();
            engine.shutdown().await.unwrap();
        });
        assert_eq!(rig.home_block(50)[0], 2, "{mode}");
    }
}

#[test]
fn an_overwrite_that_cannot_be_written_home_fails_the_sync() {
    for mode in BYPASSING {
        let rig = still(mode);
        let disk = rig.disks[0].clone();
        rig.play(async move |engine| {
            let own = overwrite(&engine, 1, 50, 1).await;
            engine.commit(own).await.unwrap();
            disk.inject(Fault::forever(Operation::Write));
            assert!(engine.sync_owner(Owner(1), own).await.is_err(), "{mode}");
            assert!(
                engine.sync_owner(Owner(1), own).await.is_err(),
                "{mode}: reported once and forgotten"
            );
        });
    }
}

/// Data written before the log is emptied, and synced while it is, at each moment: nobody may
/// change anything any more, but the sync is no change.
#[test]
fn a_sync_while_the_log_is_emptied_waits_for_its_data() {
    const TICK: Duration = Duration::from_millis(1);
    let mut synced = 0;
    for mode in DataMode::ALL {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        let never = Duration::from_secs(3600);
        (setup.options.commit, setup.options.expire) = (never, never);
        for (written_at, synced_at) in (0..8).flat_map(|at| (0..16).map(move |later| (at, later))) {
            let rig = Rig::new(&setup, 1, setup.images());
            let slow = Latency { least: 2 * TICK, spread: Duration::ZERO };
            rig.disks.iter().for_each(|disk| disk.set_latency(slow));
            let (what, disks) =
                (format!("{mode}: {written_at}, {synced_at} ms later"), rig.disks.clone());
            let left = rig.play(async move |engine| {
                write_byte(&engine, 1, 7, 1).await;
                let world = engine.world().clone();
                let sync = async {
                    world.sleep_until(world.now().plus(TICK * written_at)).await;
                    let _still_allowed = engine.start(Credits(0)).await.ok()?.stop();
                    let transaction = overwrite(&engine, 1, 9, 2).await;
                    world.sleep_until(world.now().plus(TICK * synced_at)).await;
                    Some(engine.sync_owner(Owner(1), transaction).await)
                };
                let (mut sync, mut quiesce) =
                    (std::pin::pin!(sync), std::pin::pin!(engine.quiesce()));
                let result = match race(&mut quiesce, &mut sync).await {
                    Either::Left(quiesced) => {
                        quiesced.unwrap();
                        sync.await
                    }
                    Either::Right(result) => result,
                }?;
                result.unwrap_or_else(|error| panic!("{what}: {error}"));
                Some(disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect())
            });
            let Some(images) = left else { continue };
            synced += 1;
            let after = Rig::new(&setup, 2, images);
            let parts = after.parts.clone();
            after.run(async move { engine::recover(&parts, false).await.unwrap() });
            assert_eq!(after.home_block(9)[..], [2; 4096], "{mode}: {written_at}, {synced_at}");
        }
    }
    assert!(synced > 200, "only {synced} were written in time");
}
