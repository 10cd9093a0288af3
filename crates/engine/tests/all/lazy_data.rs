//! Data mode `writeback`: data that no commit waits for, until somebody syncs it.

use crate::common::{Layout, Rig, Setup, write_byte};
use disks::Latency;
use engine::Credits;
use journal::DataMode;
use runtime::{Either, race};
use std::time::Duration;
use units::{HomeBlock, Owner};

/// A sync under way has an older image of a block that memory wants home: that one must not come later, nor may the
/// newer one count as home because the older one is.
#[test]
fn synced_data_is_not_overwritten_by_an_older_image_of_itself() {
    const LAST: u64 = 1000;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 4096);
    setup.home_blocks = 4096;
    setup.options.cache_bytes = 512 << 12;
    setup.options.commit = Duration::from_secs(5);
    let rig = Rig::new(&setup, 1, setup.images());
    let parts = rig.parts.clone();
    rig.run(async move {
        let engine = Rig::open(parts).await;
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
        // The sync is over before the second one begins.
        let mut rest = std::pin::pin!(rest);
        let mut sync = std::pin::pin!(sync);
        let second = match race(&mut sync, &mut rest).await {
            Either::Left(_) => panic!("the sync is over before anything was overwritten"),
            Either::Right(second) => second,
        };
        sync.await.unwrap();
        engine.sync_owner(Owner(1), second).await.unwrap();
    })
    .unwrap();
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
    // Nothing comes home while the log fills.
    let slow = Duration::from_secs(10);
    rig.disks[0].set_latency(Latency { least: slow, spread: Duration::ZERO });
    let parts = rig.parts.clone();
    rig.run(async move {
        let engine = Rig::open(parts).await;
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
    })
    .unwrap();
    for owner in 0..FILES {
        assert_eq!(rig.home_block(100 + owner)[0], 7);
    }
}
