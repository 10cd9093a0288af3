//! Synchronous writes of many blocks by several writers, in a log that holds few of them. At
//! whatever instant the power fails, each write is applied whole or not at all where the mode logs
//! data.

use crate::files::image::{EXT3_1K, EXT4_1K, Kind, TestImage, open_in};
use crate::image::{micros, world_with};
use disks::{Atomicity, CrashPolicy, MemoryDisk};
use ext4::{Caller, Inode, RangeMode, SyncWhat, Volume, WriteFlags};
use journal::DataMode;
use runtime::{race, spawn_with_result};
use std::cell::RefCell;
use std::rc::Rc;

const FILES: usize = 4;
const BLOCK: usize = 1024;
/// Offset within a block, so that the first and the last one are written in part.
const AT: usize = 399;
/// Less than an eighth of a log of 1,024 blocks, and more than a sixteenth of it.
const LENGTH: usize = 100 << 10;
/// Number of times each file is overwritten, with bytes that give the version.
const VERSIONS: u8 = 3;
const CUTS: u64 = 16;
/// Distance of holes, in blocks, before each write but the first, which is all hole.
const HOLE_EACH: usize = 8;

async fn overwrite(
    volume: Rc<Volume>,
    inode: Rc<Inode>,
    file: usize,
    acknowledged: Rc<RefCell<Vec<u8>>>,
) {
    for version in 1..=VERSIONS {
        let bytes = vec![version; LENGTH];
        volume
            .write(&inode, &Caller::ROOT, AT as u64, &bytes, WriteFlags::default())
            .await
            .unwrap();
        volume.sync_file(&inode, SyncWhat::Data).await.unwrap();
        acknowledged.borrow_mut()[file] = version;
        for block in (HOLE_EACH..LENGTH / BLOCK).step_by(HOLE_EACH) {
            let (at, length) = ((block * BLOCK) as u64, BLOCK as u64);
            volume
                .fallocate(&inode, &Caller::ROOT, RangeMode::PunchHole, true, at, length)
                .await
                .unwrap();
        }
    }
}

/// Runs all writers until the power is cut; returns the acknowledged content of each file.
fn run(image: &TestImage, mode: DataMode, seed: u64, cut: Option<u64>) -> (MemoryDisk, Vec<u8>) {
    let (virtual_world, world, disk) = image.world(seed);
    disk.set_latency(micros(50, 200));
    cut.into_iter().for_each(|cut| disk.cut_at(cut));
    let acknowledged = Rc::new(RefCell::new(vec![0; FILES]));
    let numbers: Vec<_> = (0..FILES).map(|file| image.inode(file)).collect();
    let (home, known) = (disk.clone(), acknowledged.clone());
    virtual_world.run(async move {
        let script = async {
            let volume = open_in(&world, &home, mode).await.unwrap();
            let mut tasks = Vec::new();
            for (file, number) in numbers.into_iter().enumerate() {
                let inode = volume.inode(number).await.unwrap();
                let task = overwrite(volume.clone(), inode, file, known.clone());
                tasks.push(spawn_with_result(&*world, task));
            }
            for task in tasks {
                task.await;
            }
            volume.close().await.unwrap();
        };
        race(script, home.power_lost()).await;
    });
    (disk, acknowledged.take())
}

/// Recovers, and holds every file against what was acknowledged of it.
fn check_after(image: &TestImage, mode: DataMode, crashed: disks::Image, acknowledged: Vec<u8>) {
    let (virtual_world, world, disk) = world_with(1, crashed);
    let (home, numbers) =
        (disk.clone(), (0..FILES).map(|file| image.inode(file)).collect::<Vec<_>>());
    virtual_world.run(async move {
        let volume = open_in(&world, &home, mode).await.unwrap();
        for (file, number) in numbers.into_iter().enumerate() {
            let inode = volume.inode(number).await.unwrap();
            let found = volume.read(&inode, 0, usize::MAX).await.unwrap().to_vec();
            let known = acknowledged[file];
            if found.is_empty() && known == 0 {
                continue;
            }
            assert_eq!(found.len(), AT + LENGTH, "file {file}, version {known} acknowledged");
            let version = found[AT];
            assert!(
                (known..=known + 1).contains(&version),
                "file {file}: {version}, {known} acknowledged"
            );
            let is_hole = |at: usize| (at / BLOCK) % HOLE_EACH == 0;
            let torn = (AT..AT + LENGTH)
                .find(|at| found[*at] != version && !(is_hole(*at) && found[*at] == 0));
            assert_eq!(
                torn, None,
                "file {file}: version {version} up to there, {known} acknowledged"
            );
        }
        volume.close().await.unwrap();
    });
}

fn tear(kind: Kind, arguments: &'static [&'static str]) {
    let image = TestImage::of_files(Kind { arguments, ..kind }, "8M", FILES);
    for mode in [DataMode::Journal, DataMode::Wasteless] {
        for seed in 1..=2 {
            let (whole, _) = run(&image, mode, seed, None);
            for index in 0..CUTS {
                let cut = whole.changes() * index / CUTS;
                // Shown only when the test fails.
                eprintln!("{} {mode:?} seed {seed} cut {cut}", kind.name);
                let (disk, acknowledged) = run(&image, mode, seed, Some(cut));
                let policy = CrashPolicy::Random { seed: cut, atomicity: Atomicity::Unit(1024) };
                check_after(&image, mode, disk.crash(policy), acknowledged);
            }
        }
    }
}

#[test]
fn a_write_over_many_blocks_is_whole_after_any_power_cut() {
    tear(EXT4_1K, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
}
#[test]
fn a_write_over_many_pointers_is_whole_after_any_power_cut() {
    tear(EXT3_1K, &["-t", "ext3", "-b", "1024", "-J", "size=1"]);
}
