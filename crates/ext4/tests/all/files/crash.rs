//! Power cuts while files grow and shrink. What was acknowledged is there, sizes are those of some
//! moment, no stale byte shows, and e2fsck is content.

use crate::files::image::{EXT3_1K, EXT4, EXT4_1K, Kind, MODES, TestImage, open_in, with_volume};
use crate::image::{micros, world_with};
use device::World;
use disks::{Atomicity, CrashPolicy, MemoryDisk};
use ext4::{Caller, Inode, SyncWhat, Volume, WriteFlags};
use journal::DataMode;
use runtime::{race, spawn_with_result};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

/// The superblock, the only thing written in place without a journal, is 1 KiB: it must not be
/// torn.
const TEARING: Atomicity = Atomicity::Unit(1024);
const FILES: usize = 3;
const STEPS: usize = 25;
const CUTS: u64 = 12;

/// The sizes a file may have after a crash: the last acknowledged one first, then those since.
struct History {
    sizes: Vec<u64>,
}

/// Byte `at` of file `file`, for any length.
fn content(file: usize, at: u64) -> u8 {
    (at as u8) ^ (at >> 8) as u8 ^ (file as u8 + 1).wrapping_mul(0x35)
}

/// Appends, some of them synchronous, and now and then makes the file shorter.
async fn grow_and_shrink(
    world: Rc<dyn World>,
    volume: Rc<Volume>,
    inode: Rc<Inode>,
    file: usize,
    histories: Rc<RefCell<Vec<History>>>,
) {
    let mut size = 0;
    for _ in 0..STEPS {
        let note = |size: u64| histories.borrow_mut()[file].sizes.push(size);
        if size > 5000 && world.random() % 6 == 0 {
            size = world.random() % size;
            note(size);
            volume.truncate(&inode, size).await.unwrap();
        } else {
            let longest = if world.random() % 3 == 0 { 9000 } else { 400 };
            let length = 1 + world.random() % longest;
            let bytes: Vec<u8> = (size..size + length).map(|at| content(file, at)).collect();
            note(size + length);
            volume.write(&inode, &Caller::ROOT, size, &bytes, WriteFlags::default()).await.unwrap();
            size += length;
        }
        if world.random() % 2 == 0 {
            let what = [SyncWhat::All, SyncWhat::Data][(world.random() % 2) as usize];
            volume.sync_file(&inode, what).await.unwrap();
            histories.borrow_mut()[file].sizes = vec![size];
        }
    }
}

/// Runs the script until the power is cut; gives the number of changes the disk saw.
fn run(
    image: &TestImage,
    numbers: &[InodeNumber],
    mode: DataMode,
    seed: u64,
    cut: Option<u64>,
) -> (MemoryDisk, Vec<History>) {
    let (virtual_world, world, disk) = image.world(seed);
    disk.set_latency(micros(50, 200));
    cut.into_iter().for_each(|cut| disk.cut_at(cut));
    let histories: Vec<History> = (0..FILES).map(|_| History { sizes: vec![0] }).collect();
    let histories = Rc::new(RefCell::new(histories));
    let (home, numbers, written) = (disk.clone(), numbers.to_vec(), histories.clone());
    virtual_world.run(async move {
        let script = async {
            let volume = open_in(&world, &home, mode).await.unwrap();
            let mut tasks = Vec::new();
            for (file, number) in numbers.into_iter().enumerate() {
                let inode = volume.inode(number).await.unwrap();
                let task =
                    grow_and_shrink(world.clone(), volume.clone(), inode, file, written.clone());
                tasks.push(spawn_with_result(&*world, task));
            }
            for task in tasks {
                task.await;
            }
            volume.close().await.unwrap();
        };
        race(script, home.power_lost()).await;
    });
    (disk, histories.take())
}

/// A truncate zeros the rest of the last block. Where data is written home before the commit, the
/// zeros may be there and the new size not (in the kernel's ordered mode as well).
fn may_be_zeroed(mode: DataMode, history: &History, at: u64) -> bool {
    let logs_all = matches!(mode, DataMode::Journal | DataMode::Wasteless);
    !logs_all && history.sizes.iter().any(|size| (*size..size.next_multiple_of(4096)).contains(&at))
}

/// Opens what the crash left, compares, closes, and has it checked.
fn check_after(
    numbers: &[InodeNumber],
    mode: DataMode,
    crashed: disks::Image,
    histories: Vec<History>,
) {
    let (virtual_world, world, disk) = world_with(1, crashed);
    let (home, numbers) = (disk.clone(), numbers.to_vec());
    virtual_world.run(async move {
        let volume = open_in(&world, &home, mode).await.unwrap();
        for (file, (number, history)) in numbers.into_iter().zip(histories).enumerate() {
            let inode = volume.inode(number).await.unwrap();
            let found = volume.read(&inode, 0, usize::MAX).await.unwrap().to_vec();
            let size = found.len() as u64;
            assert!(
                history.sizes.contains(&size),
                "file {file} has {size} bytes of {:?}",
                history.sizes
            );
            // Writeback promises only what was synchronous.
            let promised =
                if mode == DataMode::Writeback { size.min(history.sizes[0]) } else { size };
            let is_right = |at: u64| {
                let byte = found[at as usize];
                byte == content(file, at) || (byte == 0 && may_be_zeroed(mode, &history, at))
            };
            let stale = (0..promised).find(|at| !is_right(*at));
            assert_eq!(stale, None, "file {file} of {size} bytes, {:?}", history.sizes);
        }
        volume.close().await.unwrap();
    });
    let fresh = TestImage::empty();
    disk.write_image(&fresh.path()).unwrap();
    fresh.check();
}

fn crashes(kind: Kind, seed: u64) {
    let image = TestImage::of_files(kind, "8M", FILES);
    let numbers: Vec<InodeNumber> = (0..FILES).map(|index| image.inode(index)).collect();
    for mode in MODES {
        let (whole, _) = run(&image, &numbers, mode, seed, None);
        for index in 0..CUTS {
            let cut = whole.changes() * index / CUTS + seed % 7;
            // Shown only when the test fails.
            eprintln!("{} {mode:?} seed {seed} cut {cut}", kind.name);
            let (disk, histories) = run(&image, &numbers, mode, seed, Some(cut));
            let policy = CrashPolicy::Random { seed: cut, atomicity: TEARING };
            check_after(&numbers, mode, disk.crash(policy), histories);
        }
    }
}

#[test]
fn acknowledged_appends_survive_power_cuts_in_every_mode() {
    crashes(EXT4, 1);
    crashes(EXT3_1K, 2);
}

#[test]
fn a_long_truncate_is_whole_after_a_power_cut() {
    const EXTENTS: u64 = 3000;
    let kind = Kind { arguments: &["-t", "ext4", "-b", "1024", "-J", "size=1"], ..EXT4_1K };
    let image = TestImage::of_files(kind, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        for place in 0..EXTENTS {
            let bytes: Vec<u8> = (0..700).map(|at| content(0, place * 2048 + at)).collect();
            volume
                .write(&inodes[0], &Caller::ROOT, place * 2048, &bytes, WriteFlags::default())
                .await
                .unwrap();
        }
    });
    let number = image.inode(0);
    let shrink = |seed: u64, cut: Option<u64>| {
        let (virtual_world, world, disk) = image.world(seed);
        disk.set_latency(micros(50, 200));
        cut.into_iter().for_each(|cut| disk.cut_at(cut));
        let home = disk.clone();
        virtual_world.run(async move {
            let script = async {
                let volume = open_in(&world, &home, DataMode::Ordered).await.unwrap();
                let inode = volume.inode(number).await.unwrap();
                // Commits fall between the steps.
                let syncs = async {
                    loop {
                        volume.sync().await.unwrap();
                        world.sleep_until(world.now().plus(Duration::from_micros(20))).await;
                    }
                };
                race(volume.truncate(&inode, 5000), syncs).await;
                volume.close().await.unwrap();
            };
            race(script, home.power_lost()).await;
        });
        disk
    };
    let changes = shrink(1, None).changes();
    let mut finished = 0;
    for cut in 0..changes {
        eprintln!("cut {cut} of {changes}");
        let crashed =
            shrink(1, Some(cut)).crash(CrashPolicy::Random { seed: cut, atomicity: TEARING });
        let (virtual_world, world, disk) = world_with(2, crashed);
        let home = disk.clone();
        finished += virtual_world.run(async move {
            let volume = open_in(&world, &home, DataMode::Ordered).await.unwrap();
            let inode = volume.inode(number).await.unwrap();
            let after = volume.getattr(&inode);
            assert!(
                [5000, (EXTENTS - 1) * 2048 + 700].contains(&after.size),
                "size {}",
                after.size
            );
            assert!(after.size > 5000 || after.sectors <= 10, "{} sectors", after.sectors);
            volume.close().await.unwrap();
            volume.open_report().orphans.truncated
        });
        let fresh = TestImage::empty();
        disk.write_image(&fresh.path()).unwrap();
        fresh.check();
    }
    assert!(finished > 2, "only {finished} of {changes} cuts fell between the truncate's steps");
}
