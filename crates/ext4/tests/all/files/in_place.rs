//! fdatasync of what was overwritten where it lies: durable with one flush at most, and nothing is
//! committed for its times.

use crate::files::image::{EXT4, TestImage, open_in};
use disks::{CrashPolicy, MemoryDisk};
use ext4::{Caller, Inode, SyncWhat, Volume, WriteFlags};
use journal::DataMode;
use std::rc::Rc;

static OLD: [u8; 64 << 10] = [1; 64 << 10];

async fn write(volume: &Rc<Volume>, inode: &Rc<Inode>, at: u64, bytes: &[u8]) {
    volume.write(inode, &Caller::ROOT, at, bytes, WriteFlags::default()).await.unwrap();
}

/// Cost of one `change` and fdatasync of a file of 64 KiB: commits, flushes, durable writes,
/// journal bytes. Also the file after a power cut.
fn cost_of(
    mode: DataMode,
    change: impl AsyncFnOnce(&Rc<Volume>, &Rc<Inode>) + 'static,
) -> ([u64; 4], Vec<u8>) {
    let image = TestImage::of_files(EXT4, "64M", 1);
    let (virtual_world, world, disk) = image.world(7);
    let number = image.inode(0);
    virtual_world.run(async move {
        let volume = open_in(&world, &disk, mode).await.unwrap();
        let inode = volume.inode(number).await.unwrap();
        write(&volume, &inode, 0, &OLD).await;
        volume.sync_file(&inode, SyncWhat::All).await.unwrap();
        let before = volume.engine().statistics();
        change(&volume, &inode).await;
        volume.sync_file(&inode, SyncWhat::Data).await.unwrap();
        let after = volume.engine().statistics();
        let again = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open_in(&world, &again, mode).await.unwrap();
        let inode = volume.inode(number).await.unwrap();
        let found = volume.read(&inode, 0, 1 << 20).await.unwrap().to_vec();
        let costs = [
            after.commits - before.commits,
            after.flushes - before.flushes,
            after.durable_writes - before.durable_writes,
            after.log_bytes() - before.log_bytes(),
        ];
        (costs, found)
    })
}

#[test]
fn an_overwrite_in_place_is_synced_by_one_durable_write_and_no_commit() {
    for mode in [DataMode::Ordered, DataMode::Writeback] {
        let (costs, found) =
            cost_of(mode, async |volume, inode| write(volume, inode, 8192, &[2; 8192]).await);
        assert_eq!(costs, [0, 0, 1, 0], "{mode}");
        assert!(found[8192..16384] == [2; 8192] && found[16384..] == OLD[16384..], "{mode}");
    }
}

#[test]
fn overwrites_in_two_places_are_synced_by_one_flush() {
    for mode in [DataMode::Ordered, DataMode::Writeback] {
        let (costs, found) = cost_of(mode, async |volume, inode| {
            write(volume, inode, 0, &[2; 4096]).await;
            write(volume, inode, 32768, &[3; 4096]).await;
        });
        assert_eq!(costs, [0, 1, 0, 0], "{mode}");
        assert!(found[..4096] == [2; 4096] && found[32768..36864] == [3; 4096], "{mode}");
    }
}

#[test]
fn what_is_logged_or_grows_is_synced_by_a_commit() {
    for mode in DataMode::ALL {
        let ([commits, ..], found) = cost_of(mode, async |volume, inode| {
            write(volume, inode, OLD.len() as u64 - 10, &[3; 20]).await
        });
        assert_eq!((commits, found.len()), (1, OLD.len() + 10), "{mode}: the size is new");
        assert!(found.ends_with(&[3; 20]), "{mode}");
        let ([commits, ..], found) = cost_of(mode, async |volume, inode| {
            volume.truncate(inode, 5000).await.unwrap();
            write(volume, inode, 0, &[4; 100]).await;
        });
        assert_eq!((commits, found.len()), (1, 5000), "{mode}: truncated");
        assert_eq!(found[..100], [4; 100], "{mode}");
    }
    let ([commits, ..], found) = cost_of(DataMode::Wasteless, async |volume, inode| {
        write(volume, inode, 8192, &[5; 100]).await
    });
    assert_eq!((commits, &found[8192..8292]), (1, &[5; 100][..]), "the log holds it");
}

#[test]
fn an_overwrite_that_a_running_commit_took_along_is_durable_when_synced() {
    let (_, found) = cost_of(DataMode::Ordered, async |volume, inode| {
        for round in 0..20 {
            write(volume, inode, 4096 * (round % 3), &[round as u8; 4096]).await;
            if round % 2 == 0 {
                let (volume, inode) = (volume.clone(), inode.clone());
                let world = volume.engine().world().clone();
                world.spawn(Box::pin(async move {
                    volume.sync_file(&inode, SyncWhat::All).await.unwrap()
                }));
            }
        }
        write(volume, inode, 0, &[9; 4096]).await;
    });
    assert_eq!(found[..4096], [9; 4096]);
}
