//! A volume whose disk has become longer grows, or stays as it was, wherever the power fails.

use crate::common::{
    Images, Life, Making, coerce, eviction_of, filled, make, open, options, write,
};
use blocks::{BlockVolume, BlocksError, GroupBytes, Persistence, grow};
use device::{Disk, Durability, Operation};
use disks::{Atomicity, CrashPolicy, Fault, Image};
use engine::{EngineOptions, LogKind};
use format::blocks::{SUPERBLOCK_AT, blocks_copy_at};
use runtime::{Either, race};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: usize = 4096;
/// Size of the disk, not a whole number of reserved areas: the ends of both disks are cut off.
const DISK: u64 = (6 << 20) + 512;
const MORE: u64 = (2 << 20) + 1536;

fn makings() -> [Making; 4] {
    let groups = Some(GroupBytes { log: 256 << 10, group: 1 << 20 });
    let making = Making { disk_bytes: DISK, journal_bytes: 1 << 20, ..Making::default() };
    let journal_disk = Some(4 << 20);
    let eviction = Some(eviction_of(16));
    [
        making,
        Making { groups, ..making },
        Making { journal_disk, ..making },
        Making { eviction, ..making },
    ]
}

fn options_of(making: &Making) -> EngineOptions {
    let log = if making.groups.is_some() { LogKind::Scattered } else { LogKind::Circular };
    EngineOptions { log, ..options() }
}

fn longer(mut images: Images) -> Images {
    images[0].grow(MORE);
    images
}

async fn put(volume: &BlockVolume, at: u64, byte: u8) {
    volume.write(at, filled(byte, BLOCK), Durability::Cached).await.expect("a write");
    volume.flush().await.expect("a flush");
}

/// Progress of a life: 1 when the old end was written, 2 when the volume has grown, 3 when the new
/// end was written.
type Progress = Rc<Cell<u32>>;

async fn life(volume: BlockVolume, old: u64, progress: Progress) {
    put(&volume, old - BLOCK as u64, 1).await;
    progress.set(1);
    let size = volume.grow().await.expect("a disk that has grown");
    assert!(size > old && size == volume.geometry().size);
    progress.set(2);
    put(&volume, size - BLOCK as u64, 2).await;
    progress.set(3);
}

fn size_of(images: &Images, making: &Making) -> u64 {
    let life = Life::new(1, images);
    let parts = life.parts(&options_of(making), Persistence::WriteBack);
    life.play(async move { open(parts).await.geometry().size }).0
}

/// Returns what the next life finds: the bytes, and the content of the old and the new end.
fn look(images: &Images, making: &Making, old: u64) -> (u64, u8, Option<u8>) {
    let life = Life::new(1, images);
    let parts = life.parts(&options_of(making), Persistence::WriteBack);
    let found = async move {
        let volume = open(parts).await;
        let size = volume.geometry().size;
        let at = |end: u64| volume.read(end - BLOCK as u64, BLOCK);
        let new = if size > old { Some(at(size).await.unwrap()[7]) } else { None };
        (size, at(old).await.unwrap()[7], new)
    };
    life.play(found).0
}

fn check(images: &Images, making: &Making, (old, new, done): (u64, u64, u32), context: &str) {
    let (size, at_old_end, at_new_end) = look(images, making, old);
    assert!(size == old || size == new, "{context}: {size} bytes");
    assert!(done < 1 || at_old_end == 1, "{context}: the old end is lost");
    assert!(done < 2 || size == new, "{context}: what has grown is short again");
    assert!(done < 3 || at_new_end == Some(2), "{context}: the new end is lost");
    if size == new {
        let mut damaged = images.clone();
        damaged[0].fill(SUPERBLOCK_AT, BLOCK as u64, 0);
        assert_eq!(size_of(&damaged, making), new, "{context}: the copy is not there");
    }
}

#[test]
fn a_growing_volume_survives_every_power_cut_twice() {
    for making in makings() {
        let fresh = make(&making).expect("a volume");
        let old = size_of(&fresh, &making);
        let new = old + (MORE >> 20 << 20);
        let mut cuts = 0;
        for cut in 0.. {
            let policies = [
                CrashPolicy::LoseAll,
                CrashPolicy::KeepAll,
                CrashPolicy::Random { seed: cut, atomicity: Atomicity::Unit(512) },
            ];
            let policy = policies[(cut % 3) as usize];
            let mut images = longer(fresh.clone());
            let mut context = format!("{making:?}");
            let mut whole = false;
            // The second life is cut a few changes later than the first.
            for number in [cut / 3, cut / 3 + cut % 5] {
                let life_of = Life::new(cut, &images);
                life_of.disks[0].cut_at(number);
                let parts = life_of.parts(&options_of(&making), Persistence::WriteBack);
                let progress = Progress::default();
                let of_life = progress.clone();
                let (ended, left) = life_of.run(policy, async move {
                    let volume = open(coerce(parts).await).await;
                    match volume.geometry().size == old {
                        true => life(volume, old, of_life).await,
                        false => put(&volume, old - BLOCK as u64, 1).await,
                    }
                });
                context = format!("{context}, cut {number} {policy:?}");
                check(&left, &making, (old, new, progress.get()), &context);
                (images, whole) = (left, ended.is_some());
                cuts += u32::from(!whole);
            }
            if whole {
                break;
            }
        }
        assert!(cuts > 20, "{making:?}: {cuts} cuts");
    }
}

/// Either superblock of a grown volume is restored from the other.
#[test]
fn both_superblocks_know_the_new_size() {
    for making in makings() {
        let fresh = make(&making).expect("a volume");
        let (old, images) = (size_of(&fresh, &making), longer(fresh));
        let life = Life::new(1, &images);
        let parts = life.parts(&options_of(&making), Persistence::WriteBack);
        let (size, images) = life.play(async move { grow(&parts).await.expect("it grows") });
        assert_eq!(size, old + (MORE >> 20 << 20));
        for at in [SUPERBLOCK_AT, blocks_copy_at(DISK + MORE).unwrap()] {
            let mut damaged = images.clone();
            damaged[0].fill(at, BLOCK as u64, 0);
            assert_eq!(size_of(&damaged, &making), size, "{making:?}");
        }
    }
}

#[test]
fn a_disk_that_is_no_longer_or_shorter_changes_nothing() {
    let making = makings()[0];
    let fresh = make(&making).expect("a volume");
    let old = size_of(&fresh, &making);
    let life = Life::new(1, &fresh);
    let parts = life.parts(&options(), Persistence::WriteBack);
    let (size, left) = life.play(async move {
        let size = grow(&parts).await.expect("nothing to do");
        assert_eq!(open(parts).await.grow().await.expect("nothing to do"), size);
        size
    });
    assert!(size == old && left[0].is_equal_in(&fresh[0], 0..SUPERBLOCK_AT + BLOCK as u64));
    let mut short = Image::new(DISK - (1 << 20));
    let mut start = vec![0; 2 << 20];
    fresh[0].read(0, &mut start);
    short.write(0, &start);
    let life = Life::new(1, &[short]);
    let parts = life.parts(&options(), Persistence::WriteBack);
    let (refused, _) = life.play(async move { grow(&parts).await });
    assert!(matches!(refused, Err(BlocksError::Shrunk { .. })));
}

#[test]
fn a_volume_that_may_not_change_does_not_grow() {
    let making = makings()[0];
    let images = longer(make(&making).expect("a volume"));
    let life = Life::new(1, &images);
    life.on_volume(&EngineOptions { read_only: true, ..options() }, async move |volume| {
        let spare = volume.report().warnings.iter().any(|it| it.contains("has grown"));
        assert!(spare && volume.grow().await.is_err());
    });
    let life = Life::new(1, &images);
    life.on_volume(&options(), async move |volume| {
        volume.close().await.unwrap();
        assert!(volume.grow().await.is_err());
    });
}

/// Data that the failed flush covered may be lost, and no later flush proves anything of it: here
/// of a block that was written back, whose record in the log the next move of the tail gives up.
#[test]
fn a_failed_flush_of_a_growing_volume_is_remembered() {
    let making = makings()[0];
    let life = Life::new(1, &longer(make(&making).expect("a volume")));
    let (soon, never) = (Duration::from_millis(10), Duration::from_secs(100_000));
    let expire = Duration::from_millis(100);
    let options = EngineOptions { commit: never, expire, writeback: soon, ..options() };
    let disk = life.disks[0].clone();
    life.on_volume(&options, async move |volume| {
        let world = volume.engine().world().clone();
        let pause = async |milliseconds| {
            world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
        };
        write(&volume, 0, 7, BLOCK).await;
        pause(50).await;
        // It holds the tail, and no flush goes with that, when the block before is written back.
        put(&volume, 8 * BLOCK as u64, 7).await;
        put(&volume, 0, 1).await;
        let home = volume.layout().data_offset();
        while disk.image().copy(home, 512)[0] != 1 {
            pause(1).await;
        }
        disk.inject(Fault::once(Operation::Flush));
        assert!(volume.grow().await.is_err());
        assert!(volume.flush().await.is_err(), "a later flush proves nothing");
        assert!(volume.write(0, filled(2, BLOCK), Durability::Cached).await.is_err());
        assert!(volume.grow().await.is_err() && volume.close().await.is_err());
    });
}

/// The caller of `grow` may give up: the answers of the disk count all the same.
#[test]
fn a_growing_volume_whose_caller_gives_up_still_grows() {
    let making = makings()[0];
    let life = Life::new(1, &longer(make(&making).expect("a volume")));
    life.on_volume(&options(), async move |volume| {
        let (world, old) = (volume.engine().world().clone(), volume.geometry().size);
        let moment = world.sleep_until(world.now().plus(Duration::from_micros(10)));
        let left = race(Box::pin(volume.grow()), moment).await;
        assert!(matches!(left, Either::Right(())), "it takes several requests of the disk");
        world.sleep_until(world.now().plus(Duration::from_millis(100))).await;
        assert_eq!(volume.geometry().size, old + (MORE >> 20 << 20));
    });
}
