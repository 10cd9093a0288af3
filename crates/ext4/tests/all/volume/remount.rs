//! Volumes that are read-only, then not, then again, without being closed.

use crate::image::{in_mode, open as open_volume, with_engine};
use crate::volume::image::{ALL, EXT4_1K, Kind, TestImage, with_volume};
use device::{Buffer, Disk, Durability, Operation, World};
use disks::{Atomicity, CrashPolicy, Fault, MemoryDisk};
use engine::{Credits, DataMode, EngineError, EngineOptions};
use ext4::{Access, Atime, Caller, Error, Volume, VolumeOptions};
use format::ext4::VolumeSuperblock;
use runtime::{VirtualWorld, join_all};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);
const ROUNDS: u32 = 3;
/// Directories in each round.
const DIRECTORIES: u32 = 20;

async fn open(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    data: DataMode,
    access: Access,
) -> ext4::Result<Rc<Volume>> {
    // As on an image without a loop device, where the log is begun at once, in the extended modes.
    let keep_others_out = data == DataMode::Wasteless;
    let engine = EngineOptions { data, keep_others_out, ..EngineOptions::default() };
    open_volume(world, disk, None, VolumeOptions { access, ..with_engine(engine) }).await
}

fn name(round: u32, index: u32) -> Vec<u8> {
    format!("round {round} directory {index}").into_bytes()
}

async fn make(volume: &Rc<Volume>, name: &[u8]) -> ext4::Result<()> {
    let root = volume.inode(ROOT).await?;
    let caller = Caller::ROOT;
    volume.mkdir(&root, name, &caller, 0o755).await.map(drop)
}

async fn refuses_changes(volume: &Rc<Volume>) {
    let refused = make(volume, b"never made").await;
    assert!(matches!(refused, Err(Error::Engine(EngineError::ReadOnly))), "{refused:?}");
}

async fn expect(volume: &Rc<Volume>, rounds: u32) {
    let root = volume.inode(ROOT).await.unwrap();
    for round in 0..rounds {
        for index in 0..DIRECTORIES {
            volume.lookup(&root, &name(round, index)).await.unwrap();
        }
    }
}

fn expect_clean(image: &TestImage, disk: &MemoryDisk, what: &str) {
    disk.crash(CrashPolicy::LoseAll).write_file(&image.path()).unwrap();
    image.check_as(what);
    assert!(!image.dumpe2fs().contains("needs_recovery"), "{what}");
}

#[test]
fn a_volume_made_read_only_again_is_as_clean_as_a_closed_one() {
    for (seed, (kind, data)) in ALL.into_iter().zip(DataMode::ALL.into_iter().cycle()).enumerate() {
        println!("{kind:?} {data} seed {seed}");
        let image = TestImage::of(kind);
        let (virtual_world, world, disk) = image.world(seed as u64);
        let left = TestImage::of(kind);
        virtual_world.run(async move {
            let volume = open(&world, &disk, data, Access::ReadOnly).await.unwrap();
            for round in 0..ROUNDS {
                refuses_changes(&volume).await;
                volume.allow_changes().await.unwrap();
                for index in 0..DIRECTORIES {
                    make(&volume, &name(round, index)).await.unwrap();
                }
                volume.sync().await.unwrap();
                // Power cut here: the log is live.
                let after = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
                let again = open(&world, &after, data, Access::ReadWrite).await.unwrap();
                expect(&again, round + 1).await;
                again.close().await.unwrap();
                expect_clean(&left, &after, "after a crash");

                volume.forbid_changes().await.unwrap();
                expect_clean(&left, &disk, "at rest");
                expect(&volume, round + 1).await;
            }
            volume.close().await.unwrap();
            expect_clean(&left, &disk, "closed");
        });
    }
}

#[test]
fn a_volume_that_could_not_be_made_read_only_says_so_each_time() {
    let image = TestImage::of(EXT4_1K);
    let superblock = Fault { range: 1024..2048, ..Fault::forever(Operation::Write) };
    for fault in [Fault::forever(Operation::Flush), superblock] {
        println!("{fault:?}");
        image.in_world(7, async move |world, disk| {
            let volume = open(&world, &disk, DataMode::Ordered, Access::ReadWrite).await.unwrap();
            for index in 0..DIRECTORIES {
                make(&volume, &name(0, index)).await.unwrap();
            }
            volume.sync().await.unwrap();
            disk.inject(fault);
            assert!(volume.forbid_changes().await.is_err());
            disk.heal();
            assert!(volume.forbid_changes().await.is_err(), "again");
            assert!(volume.allow_changes().await.is_err(), "what has failed stays so");
            expect(&volume, 1).await;
            assert!(volume.close().await.is_err(), "nor is it closed cleanly");
            // What was synced is in the journal.
            let after = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
            let again = open(&world, &after, DataMode::Ordered, Access::ReadWrite).await.unwrap();
            expect(&again, 1).await;
            again.close().await.unwrap();
        });
    }
}

/// Rounds of changes until the power fails; how many rounds are acknowledged.
async fn work(volume: Rc<Volume>, rounds: Rc<Cell<u32>>) -> ext4::Result<()> {
    for round in 0..ROUNDS {
        volume.allow_changes().await?;
        for index in 0..DIRECTORIES {
            make(&volume, &name(round, index)).await?;
            if index == DIRECTORIES / 2 {
                volume.sync().await?;
            }
        }
        volume.forbid_changes().await?;
        rounds.set(round + 1);
    }
    volume.close().await
}

#[test]
fn what_was_done_before_read_only_survives_a_power_cut_at_any_write() {
    let image = TestImage::of(EXT4_1K);
    let pristine = image.bytes();
    let mut most = 0;
    for (seed, data) in (0..60).zip(DataMode::ALL.into_iter().cycle()) {
        std::fs::write(image.path(), &pristine).unwrap();
        let (virtual_world, world, disk) = image.world(seed);
        disk.cut_at(seed * 4);
        println!("{data} seed {seed} cut at write {}", seed * 4);
        let (home, rounds) = (disk.clone(), Rc::new(Cell::new(0)));
        let acknowledged = rounds.clone();
        virtual_world.run(async move {
            let done = Rc::new(Cell::new(false));
            let (finished, for_work, on) = (done.clone(), world.clone(), home.clone());
            world.spawn(Box::pin(async move {
                if let Ok(volume) = open(&for_work, &on, data, Access::ReadOnly).await {
                    let _ = work(volume, acknowledged).await;
                }
                finished.set(true);
            }));
            while !done.get() && !home.is_off() {
                world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
            }
        });
        most = most.max(rounds.get());
        let left = disk.crash(CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) });
        left.write_file(&image.path()).unwrap();
        let rounds = rounds.get();
        with_volume(&image, seed, move |volume| async move { expect(&volume, rounds).await });
    }
    assert!(most >= 2, "the cuts come too early: {most} rounds");
}

#[test]
fn orphans_found_by_a_read_only_mount_are_freed_when_it_becomes_writable() {
    let image = TestImage::of(Kind { arguments: "-t ext3 -b 1024", size: "40M" });
    let world = VirtualWorld::new(1);
    let for_run: Rc<dyn World> = Rc::new(world.clone());
    let disk = image.disk(&for_run);
    let path = image.path();
    world.run(async move {
        let world = for_run;
        let volume = open(&world, &disk, DataMode::Ordered, Access::ReadWrite).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        crate::volume::allocation::create(&volume, &root, 0o100_600).await.unwrap();
        volume.sync().await.unwrap();
        let after = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open(&world, &after, DataMode::Ordered, Access::ReadOnly).await.unwrap();
        assert_eq!(volume.allow_changes().await.unwrap().orphans.freed, 1);
        volume.close().await.unwrap();
        after.write_image(&path).unwrap();
    });
    image.check_as("orphans freed");
}

#[test]
fn a_volume_changed_by_others_is_not_written_to() {
    let image = TestImage::of(EXT4_1K);
    let world = VirtualWorld::new(1);
    let for_run: Rc<dyn World> = Rc::new(world.clone());
    let disk = image.disk(&for_run);
    world.run(async move {
        let world = for_run;
        let volume = open(&world, &disk, DataMode::Ordered, Access::ReadOnly).await.unwrap();
        let other = open(&world, &disk, DataMode::Ordered, Access::ReadWrite).await.unwrap();
        make(&other, b"of another").await.unwrap();
        other.close().await.unwrap();
        let error = volume.allow_changes().await.unwrap_err().to_string();
        assert!(error.contains("changed by others"), "{error}");
        refuses_changes(&volume).await;
    });
}

/// A read-only mount of the kernel leaves it so: it frees orphans, and changes no time.
#[test]
fn a_volume_whose_orphans_others_freed_is_not_written_to() {
    let image = TestImage::of(Kind { arguments: "-t ext3 -b 1024", size: "40M" });
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk, DataMode::Ordered, Access::ReadWrite).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        crate::volume::allocation::create(&volume, &root, 0o100_600).await.unwrap();
        volume.forbid_changes().await.unwrap();
        let mut bytes = [0; 1024];
        disk.image().read(1024, &mut bytes);
        let mut superblock = VolumeSuperblock::parse(&bytes).unwrap();
        assert_ne!(std::mem::take(&mut superblock.last_orphan), 0);
        let bytes = Rc::new(Buffer::copy_of(&superblock.serialize()));
        disk.write(1024, vec![bytes], Durability::Durable).await.unwrap();
        let error = volume.allow_changes().await.unwrap_err().to_string();
        assert!(error.contains("changed by others"), "{error}");
        refuses_changes(&volume).await;
    });
}

/// A read changes an access time while the times are stored, which wait for a commit.
#[test]
fn a_read_while_a_volume_becomes_read_only_spoils_no_sync() {
    const TICK: Duration = Duration::from_millis(1);
    let image = TestImage::of(EXT4_1K);
    image.in_world(1, async move |world, disk| {
        let options = VolumeOptions { atime: Atime::Always, ..in_mode(DataMode::Ordered) };
        let volume = open_volume(&world, &disk, None, options).await.unwrap();
        make(&volume, &name(0, 0)).await.unwrap();
        make(&volume, &name(0, 1)).await.unwrap();
        volume.sync().await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        let read = async |index| {
            let directory = volume.lookup(&root, &name(0, index)).await.unwrap();
            volume.readdir(&directory, 0, 10).await.unwrap();
        };
        let after = |ticks| world.sleep_until(world.now().plus(TICK * ticks));
        read(0).await;
        let handle = volume.engine().start(Credits(1)).await.unwrap();
        let commit = async { volume.engine().commit(volume.engine().running()).await.unwrap() };
        let forbid = async {
            after(1).await;
            volume.forbid_changes().await.unwrap();
        };
        let read_late = async {
            after(2).await;
            read(1).await;
            handle.stop();
        };
        let all: Vec<Pin<Box<dyn Future<Output = ()>>>> =
            vec![Box::pin(commit), Box::pin(forbid), Box::pin(read_late)];
        join_all(all).await;
        volume.sync().await.unwrap();
        volume.close().await.unwrap();
    });
}
