//! Durability without syncs: after `commit=`, and in `writeback` a file's content after `expire=`,
//! `writeback=` and a second together. Judged by cutting the power, in virtual time.

use crate::image::world_with;
use crate::image::{open as open_volume, with_engine};
use crate::volume::image::{EXT4, TestImage};
use device::World;
use disks::{CrashPolicy, Image, MemoryDisk};
use engine::EngineOptions;
use ext4::{Caller, Volume, WriteFlags};
use journal::DataMode;
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, Instant};

/// Time that the disk may take for expired data. A commit that was in flight when one began has
/// this, too.
const DISK_TIME: Duration = Duration::from_millis(50);
/// Longest wait of data written home for another flush.
const VOLATILE_MAX: Duration = Duration::from_secs(1);
/// Files, each made and written at a moment of its own.
const FILES: u32 = 40;
/// Time between two writes, no divisor of any period, so that they fall everywhere in it.
const APART: Duration = Duration::from_millis(877);

fn name(file: u32) -> Vec<u8> {
    format!("file {file}").into_bytes()
}
/// Longer than a block, and longer than what any mode takes for small.
fn content(file: u32) -> Vec<u8> {
    vec![file as u8 + 1; 9000]
}

async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, engine: EngineOptions) -> Rc<Volume> {
    open_volume(world, disk, None, with_engine(engine)).await.unwrap()
}

/// Kind of data written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    New,
    /// Files that are durable, over what they hold.
    InPlace,
}

/// Writes files, syncs none, and cuts the power when each is to be durable: what is left each time.
fn play(image: &TestImage, engine: &EngineOptions, target: Target, bound: Duration) -> Vec<Image> {
    let (virtual_world, world, disk) = image.world(1);
    let engine = engine.clone();
    let left = virtual_world.run(async move {
        let volume = open(&world, &disk, engine).await;
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        if target == Target::InPlace {
            for file in 0..FILES {
                let made =
                    volume.mknod(&root, &name(file), &Caller::ROOT, 0o100_644, 0).await.unwrap();
                let old = vec![0; content(file).len()];
                volume
                    .write(&made.value, &Caller::ROOT, 0, &old, WriteFlags::default())
                    .await
                    .unwrap();
            }
            volume.sync().await.unwrap();
        }
        let (mut left, mut deadlines) = (Vec::new(), std::collections::VecDeque::<Instant>::new());
        let begin = world.now();
        let mut begun = 0;
        while left.len() < FILES as usize {
            let next = (begun < FILES).then(|| begin.plus(APART * begun));
            match (next, deadlines.front().copied()) {
                (Some(at), due) if due.is_none_or(|due| at < due) => {
                    world.sleep_until(at).await;
                    let inode = match target {
                        Target::New => {
                            volume
                                .mknod(&root, &name(begun), &Caller::ROOT, 0o100_644, 0)
                                .await
                                .unwrap()
                                .value
                        }
                        Target::InPlace => volume.lookup(&root, &name(begun)).await.unwrap(),
                    };
                    let bytes = content(begun);
                    let written =
                        volume.write(&inode, &Caller::ROOT, 0, &bytes, WriteFlags::default()).await;
                    assert_eq!(written.unwrap().count, bytes.len());
                    deadlines.push_back(world.now().plus(bound + DISK_TIME));
                    begun += 1;
                }
                (_, due) => {
                    world.sleep_until(due.expect("a file that is not durable yet")).await;
                    deadlines.pop_front();
                    left.push(disk.crash(CrashPolicy::LoseAll));
                }
            }
        }
        volume.close().await.unwrap();
        left
    });
    virtual_world.end();
    left
}

/// The name of each file, and its content, after a cut at the time when it was due.
fn judge(left: Vec<Image>, engine: &EngineOptions, has_content: bool) {
    for (file, image) in (0..).zip(left) {
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let (disk, engine) = (MemoryDisk::from_image(world.clone(), image), engine.clone());
        virtual_world.run(async move {
            let what = format!("{:?}, file {file}", engine.data);
            let volume = open(&world, &disk, engine).await;
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let inode = volume
                .lookup(&root, &name(file))
                .await
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            if has_content {
                let found = volume.read(&inode, 0, usize::MAX).await.unwrap().to_vec();
                assert!(found == content(file), "{what}: not as it was written");
            }
        });
        virtual_world.end();
    }
}

#[test]
fn unsynced_data_is_durable_after_the_commit_time_in_every_mode() {
    let image = TestImage::of(EXT4);
    for data in DataMode::ALL {
        for seconds in [1, 5, 12] {
            let commit = Duration::from_secs(seconds);
            let engine = EngineOptions { data, commit, ..EngineOptions::default() };
            judge(play(&image, &engine, Target::New, commit), &engine, data != DataMode::Writeback);
        }
    }
}

#[test]
fn content_that_no_commit_waits_for_is_durable_within_its_bound() {
    let image = TestImage::of(EXT4);
    for (expire, writeback) in [(30, 5), (3, 2)] {
        let (expire, writeback) = (Duration::from_secs(expire), Duration::from_secs(writeback));
        for (data, target) in [
            (DataMode::Writeback, Target::New),
            (DataMode::Writeback, Target::InPlace),
            (DataMode::Ordered, Target::InPlace),
            (DataMode::Selective, Target::InPlace),
            (DataMode::Adaptive, Target::InPlace),
        ] {
            let engine = EngineOptions { data, expire, writeback, ..EngineOptions::default() };
            judge(play(&image, &engine, target, expire + writeback + VOLATILE_MAX), &engine, true);
        }
    }
}

/// Shows that the tests above prove a bound.
#[test]
fn unsynced_data_is_lost_if_the_power_fails_at_once() {
    let image = TestImage::of(EXT4);
    for (data, target) in
        DataMode::ALL.into_iter().flat_map(|data| [(data, Target::New), (data, Target::InPlace)])
    {
        let engine = EngineOptions { data, ..EngineOptions::default() };
        let left = play(&image, &engine, target, Duration::ZERO);
        let (virtual_world, world, disk) = world_with(1, left[0].clone());
        virtual_world.run(async move {
            let volume = open(&world, &disk, engine).await;
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let found = volume.lookup(&root, &name(0)).await;
            match target {
                Target::New => assert!(found.is_err(), "{data:?}: durable without a commit"),
                Target::InPlace => {
                    let found = volume.read(&found.unwrap(), 0, usize::MAX).await.unwrap().to_vec();
                    assert!(
                        found == vec![0; content(0).len()],
                        "{data:?}: overwritten without a commit"
                    );
                }
            }
        });
        virtual_world.end();
    }
}
