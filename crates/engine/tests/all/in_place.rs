//! Data that is overwritten where it lies, and synced without a commit.

use crate::common::{Layout, Rig, Setup, overwrite, write_byte};
use disks::Latency;
use journal::DataMode;
use runtime::race;
use std::time::Duration;
use units::Owner;

/// One commit is in flight when the sync begins; the next, for which nobody waits, begins as it
/// ends and takes the data along.
#[test]
fn synced_data_that_the_next_commit_takes_along_is_durable() {
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    setup.options.commit = Duration::from_millis(5);
    setup.options.expire = Duration::from_secs(3600);
    let rig = Rig::new(&setup, 1, setup.images());
    let slow = Latency { least: Duration::from_millis(10), spread: Duration::ZERO };
    rig.disks.iter().for_each(|disk| disk.set_latency(slow));
    rig.play(async move |engine| {
        let found = write_byte(&engine, 1, 50, 1).await;
        engine.commit(found).await.unwrap();
        let other = write_byte(&engine, 2, 60, 1).await;
        let first = engine.commit(other);
        let second = async {
            // Behind the lock of the first.
            engine.world().sleep_until(engine.world().now().plus(Duration::from_millis(1))).await;
            let overwritten = write_byte(&engine, 1, 50, 2).await;
            assert!(overwritten.is_after(other));
            // Nobody waits for it but the timer.
            if !engine.sync_in_place(Owner(1)).await.unwrap() {
                engine.sync_owner(Owner(1), overwritten).await.unwrap();
            }
        };
        let mut first = std::pin::pin!(first);
        let mut second = std::pin::pin!(second);
        race(&mut first, &mut second).await;
        second.await;
    });
    let mut byte = [0];
    // Of what was not durable nothing is left.
    rig.crash(0)[0].read(50 << 12, &mut byte);
    assert_eq!(byte, [2]);
}

/// A durable write says nothing of what write-back left in the disk's cache.
#[test]
fn synced_data_of_which_a_part_was_written_home_is_flushed() {
    for (mode, is_home) in
        [(DataMode::Ordered, false), (DataMode::Ordered, true), (DataMode::Writeback, true)]
    {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.options.writeback = Duration::from_millis(10);
        setup.options.expire = Duration::from_millis(if is_home { 10 } else { 3_600_000 });
        let rig = Rig::new(&setup, 1, setup.images());
        let flushes = rig.play(async move |engine| {
            let found = overwrite(&engine, 1, 50, 1).await;
            engine.commit(found).await.unwrap();
            overwrite(&engine, 1, 50, 2).await;
            // Less than the second after which nobody need ask for it.
            engine.world().sleep_until(engine.world().now().plus(Duration::from_millis(300))).await;
            overwrite(&engine, 1, 51, 3).await;
            let before = engine.statistics().flushes;
            assert!(engine.sync_in_place(Owner(1)).await.unwrap());
            engine.statistics().flushes - before
        });
        assert_eq!(flushes, u64::from(is_home), "{mode}");
        let mut bytes = [0; 4097];
        rig.crash(0)[0].read(50 << 12, &mut bytes);
        assert_eq!((bytes[0], bytes[4096]), (2, 3), "{mode}");
    }
}

/// Write-back fills the disk with requests of a mebibyte, one after the other.
#[test]
fn a_sync_of_several_requests_does_not_wait_for_all_of_write_back() {
    const MUCH: u64 = 2048;
    let mut setup = Setup::new(DataMode::Writeback, Layout::Separate, 4096);
    setup.home_blocks = 100 + MUCH;
    setup.options.cache_bytes = 64 << 20;
    setup.options.writeback = Duration::from_millis(10);
    setup.options.expire = Duration::from_millis(10);
    let rig = Rig::new(&setup, 1, setup.images());
    let slow = Latency { least: Duration::from_millis(10), spread: Duration::ZERO };
    rig.disks.iter().for_each(|disk| disk.set_latency(slow));
    let sent = rig.play(async move |engine| {
        for at in 100..100 + MUCH {
            overwrite(&engine, 2, at, 1).await;
        }
        while engine.statistics().home_bytes() == 0 {
            let soon = engine.world().now().plus(Duration::from_millis(1));
            engine.world().sleep_until(soon).await;
        }
        overwrite(&engine, 1, 50, 2).await;
        overwrite(&engine, 1, 60, 3).await;
        assert!(engine.sync_in_place(Owner(1)).await.unwrap());
        engine.statistics().home_bytes()
    });
    assert!(sent < MUCH << 12, "it came behind all of write-back");
    let image = &rig.crash(0)[0];
    for (at, byte) in [(50, 2), (60, 3)] {
        let mut found = [0];
        image.read(at << 12, &mut found);
        assert_eq!(found, [byte]);
    }
}
