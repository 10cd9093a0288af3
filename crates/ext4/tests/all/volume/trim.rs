//! Discards of free space, beside writers that want it.

use crate::volume::image::{EXT3, TestImage, open};
use device::{Operation, World};
use disks::{Latency, MemoryDisk};
use ext4::{Access, Caller, Volume, WriteFlags};
use runtime::VirtualWorld;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

const BLOCK: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);
/// Bytes that are free when the trim begins.
const FREE: usize = 256 * BLOCK;

async fn write(volume: &Rc<Volume>, name: &str, length: usize) -> usize {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let made = volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
    let (content, flags) = (vec![7; length], WriteFlags::default());
    volume.write(&made.value, &Caller::ROOT, 0, &content, flags).await.unwrap().count
}

/// Leaves `FREE` bytes and a little.
async fn fill(volume: &Rc<Volume>) {
    assert_eq!(write(volume, "removed", FREE).await, FREE);
    volume.sync().await.unwrap();
    let free = volume.statfs().await.unwrap().blocks_free as usize * BLOCK;
    let filled = write(volume, "filler", 2 * free).await;
    assert!(filled * 10 > free * 9, "{filled} of {free}");
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    volume.unlink(&root, b"removed").await.unwrap();
    volume.sync().await.unwrap();
}

/// Plays one writer that begins with the first discard, in a volume that is nearly full. The
/// lengths of all discards.
fn write_beside_trim(length: usize, shortest: u64) -> Vec<u64> {
    // Without extents nothing is kept for their trees.
    let (image, virtual_world) = (TestImage::of(EXT3), VirtualWorld::new(1));
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = image.disk(&world);
    disk.set_latency(Latency { least: Duration::from_micros(100), spread: Duration::ZERO });
    let discards = Rc::new(RefCell::new(Vec::new()));
    let seen = discards.clone();
    let home: MemoryDisk = disk.clone();
    virtual_world.clone().run(async move {
        let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
        fill(&volume).await;
        home.on_change(move |_, _, change| {
            if change.operation == Operation::Discard {
                seen.borrow_mut().push(change.length);
            }
        });
        let (trimmed, before) = (volume.clone(), home.statistics().discards);
        let trim = runtime::spawn_with_result(&virtual_world, async move {
            trimmed.trim(0..u64::MAX, shortest).await
        });
        while home.statistics().discards == before {
            runtime::yield_now().await;
        }
        assert_eq!(write(&volume, "beside", length).await, length, "while blocks are discarded");
        trim.await.unwrap().unwrap();
        home.stop_watching();
        volume.close().await.unwrap();
    });
    disk.image().write_file(&image.path()).unwrap();
    image.check();
    discards.take()
}

#[test]
fn a_write_beside_a_trim_gets_all_that_is_free() {
    write_beside_trim(FREE, 0);
}

#[test]
fn a_trim_withholds_little_at_a_time_and_still_discards_whole_runs() {
    // The whole run is long enough, though each of its pieces is not.
    let discards = write_beside_trim(1, (FREE / BLOCK / 2) as u64);
    let longest = *discards.iter().max().unwrap();
    assert!(longest <= FREE as u64 / 4, "{discards:?}");
    let sum: u64 = discards.iter().sum();
    assert!(sum >= FREE as u64 * 3 / 4, "{discards:?}");
}

/// Forbids changes, or shuts the volume down, during the first discard of a trim.
fn end_amid_trim(is_shutdown: bool) {
    let (image, virtual_world) = (TestImage::of(EXT3), VirtualWorld::new(1));
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let home = image.disk(&world);
    virtual_world.clone().run(async move {
        let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
        // What a late discard takes is seen.
        write(&volume, "removed", 4 * FREE).await;
        volume.sync().await.unwrap();
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        volume.unlink(&root, b"removed").await.unwrap();
        volume.sync().await.unwrap();
        home.set_latency(Latency { least: SECOND, spread: Duration::ZERO });
        let (trimmed, before) = (volume.clone(), home.statistics().discards);
        let trim = runtime::spawn_with_result(&virtual_world, async move {
            trimmed.trim(0..u64::MAX, 0).await
        });
        while home.statistics().discards == before {
            world.sleep_until(world.now().plus(SECOND / 10)).await;
        }
        match is_shutdown {
            true => volume.shut_down().await.unwrap(),
            false => volume.forbid_changes().await.unwrap(),
        }
        let (begun, left) = (home.statistics().discards, home.image());
        world.sleep_until(world.now().plus(100 * SECOND)).await;
        assert_eq!(home.statistics().discards, begun, "discards go on");
        if !is_shutdown {
            let bytes = |image: &disks::Image| {
                let mut bytes = vec![0; image.size() as usize];
                image.read(0, &mut bytes);
                bytes
            };
            assert!(bytes(&left) == bytes(&home.image()), "a discard was in flight");
        }
        assert!(trim.await.unwrap().is_err());
        home.set_latency(Latency { least: Duration::ZERO, spread: Duration::ZERO });
        let _ = volume.close().await;
    });
}

#[test]
fn no_discard_follows_a_remount_read_only() {
    end_amid_trim(false);
}

#[test]
fn no_discard_begins_after_a_shutdown() {
    end_amid_trim(true);
}
