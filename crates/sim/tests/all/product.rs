//! Scattered logs as a product: every data mode x both record formats x flush and eviction x a disk
//! or a RAID-0. Writers sync all their writes. At many changes the power fails, for each member by
//! a random number generator of its own, and acknowledged writes must be there.

use crate::common::{in_each_mode, made};
use device::{Disk, Operation};
use disks::{Atomicity, CrashPolicy, Image, LineReplacement, MemoryDisk, Raid0};
use engine::{DataMode, EngineOptions, LogKind, RecordFormat, WriteThreshold};
use ext4::{Caller, Inode, OpenParts, SyncWhat, Volume, VolumeOptions, WriteFlags};
use runtime::{VirtualWorld, join_all};
use sim::lying_disk::{LyingDisk, TRIALS};
use sim::setup::{self, Disks};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::InodeNumber;

const MEMBERS: [usize; 2] = [1, 3];
const CHUNK: u64 = 16 << 10;
const WRITERS: usize = 3;
const VERSIONS: usize = 16;
/// One in this many changes is a cut, and one in this many cuts is given to e2fsck.
const CHANGES_A_CUT: u64 = 2;
const CUTS_A_CHECK: u64 = 12;
const SECTOR: usize = 512;

#[derive(Clone)]
struct Combination {
    data: DataMode,
    records: RecordFormat,
    /// The drives ignore flushes, and every barrier is an eviction.
    lying_disk: Option<LyingDisk>,
    members: usize,
    seed: u64,
}

impl Combination {
    fn name(&self) -> String {
        let barrier = if self.lying_disk.is_some() { "coerce" } else { "flush" };
        let (data, members, seed) = (self.data.name(), self.members, self.seed);
        format!("{data} x {:?} x {barrier} x {members} disks, seed {seed}", self.records)
    }
    fn zone(&self) -> u64 {
        self.lying_disk.as_ref().map_or(0, LyingDisk::zone_size)
    }
}

/// The members, and the whole that the volume is on.
#[derive(Clone)]
struct Drives(Vec<MemoryDisk>);

impl Drives {
    fn of(world: &VirtualWorld, images: Vec<Image>) -> Drives {
        Drives(
            images
                .into_iter()
                .map(|image| MemoryDisk::from_image(Rc::new(world.clone()), image))
                .collect(),
        )
    }
    fn fresh(world: &VirtualWorld, fresh: &Disks, of: &Combination) -> Drives {
        let share = fresh.home.size().div_ceil(of.members as u64).next_multiple_of(CHUNK);
        let mut images = match of.members {
            1 => vec![fresh.home.clone()],
            members => Raid0::deal(&fresh.home, members, share, CHUNK),
        };
        images.iter_mut().for_each(|image| image.grow(of.zone()));
        let drives = Drives::of(world, images);
        for drive in &drives.0 {
            of.lying_disk.iter().for_each(|lying_disk| drive.lie(lying_disk.lying(of.seed)));
            if of.seed % 2 == 0 {
                drive.hide_forced_unit_access();
            }
        }
        drives
    }
    /// Returns the disk as the mount sees it: each drive is evicted by itself.
    fn whole(&self, world: &VirtualWorld, lying_disk: Option<&LyingDisk>) -> Rc<dyn Disk> {
        let trusted = |drive: &MemoryDisk| -> Rc<dyn Disk> {
            lying_disk.map_or_else(
                || Rc::new(drive.clone()) as Rc<dyn Disk>,
                |lying_disk| lying_disk.coerce(world, drive),
            )
        };
        Raid0::of(self.0.iter().map(trusted).collect(), CHUNK)
    }
    fn crash(&self, cut: u64) -> Vec<Image> {
        let left = |(member, drive): (u64, &MemoryDisk)| {
            let seed = cut * 8 + member;
            drive.crash(match cut % 4 {
                0 => CrashPolicy::LoseAll,
                1 => CrashPolicy::KeepAll,
                2 => CrashPolicy::Random { seed, atomicity: Atomicity::Write },
                _ => CrashPolicy::Random { seed, atomicity: Atomicity::Unit(SECTOR as u32) },
            })
        };
        (0..).zip(&self.0).map(left).collect()
    }
}

async fn open(world: VirtualWorld, home: Rc<dyn Disk>, of: Combination) -> Rc<Volume> {
    let engine = EngineOptions {
        data: of.data,
        threshold: WriteThreshold::Fixed(4096),
        records: Some(of.records),
        log: LogKind::Scattered,
        commit: Duration::from_millis(20),
        writeback: Duration::from_micros(300),
        expire: Duration::from_micros(900),
        swap_above: Some(1),
        ..EngineOptions::default()
    };
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
    let parts = OpenParts { world: Rc::new(world), home, journal: None, options };
    Volume::open(parts).await.unwrap_or_else(|error| panic!("{}: {error}", of.name()))
}

fn file_name(writer: usize) -> String {
    format!("file-{writer}")
}

/// Returns the content of a file after `version` writes: small ones, ones of some blocks, and one
/// that adaptive sends home.
fn content(writer: usize, version: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for version in 1..=version {
        let (at, piece) = piece(writer, version);
        bytes.resize(bytes.len().max(at + piece.len()), 0);
        bytes[at..at + piece.len()].copy_from_slice(&piece);
    }
    bytes
}
fn piece(writer: usize, version: usize) -> (usize, Vec<u8>) {
    let (at, length) =
        [(0, 700), (300, 5000), (4096, 8192), (100, 200), (0, 40 << 10)][(version + writer) % 5];
    (at, vec![(version * 4 + writer) as u8 | 0x80; length])
}

/// Acknowledged version of each file, and the one that was begun.
type Progress = Rc<RefCell<[(usize, usize); WRITERS]>>;

async fn write(volume: Rc<Volume>, file: Rc<Inode>, writer: usize, progress: Progress) {
    for version in 1..=VERSIONS {
        progress.borrow_mut()[writer].1 = version;
        let (at, bytes) = piece(writer, version);
        volume.write(&file, &Caller::ROOT, at as u64, &bytes, WriteFlags::default()).await.unwrap();
        volume.sync_file(&file, SyncWhat::All).await.unwrap();
        progress.borrow_mut()[writer].0 = version;
    }
}

struct Cut {
    number: u64,
    images: Vec<Image>,
    progress: [(usize, usize); WRITERS],
}

/// Records all images that power cuts during the run would have left.
fn record(of: &Combination, fresh: &Disks) -> Vec<Cut> {
    let world = VirtualWorld::new(of.seed);
    let drives = Drives::fresh(&world, fresh, of);
    let whole = drives.whole(&world, of.lying_disk.as_ref());
    let (cuts, progress): (Rc<RefCell<Vec<Cut>>>, Progress) = Default::default();
    world.run({
        let (world, of, drives, cuts) = (world.clone(), of.clone(), drives.clone(), cuts.clone());
        async move {
            let zone = of.zone();
            let volume = open(world, whole, of).await;
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let mut files = Vec::new();
            for writer in 0..WRITERS {
                let name = file_name(writer);
                let made = volume
                    .mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0)
                    .await
                    .unwrap();
                files.push(made.value);
            }
            volume.sync().await.unwrap();
            watch(&drives, zone, &progress, &cuts);
            let writers = files.into_iter().enumerate();
            let writers =
                writers.map(|(number, file)| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
                    Box::pin(write(volume.clone(), file, number, progress.clone()))
                });
            join_all(writers.collect()).await;
            volume.close().await.unwrap();
        }
    });
    world.end();
    drives.0.iter().for_each(MemoryDisk::stop_watching);
    cuts.take()
}

fn watch(drives: &Drives, zone: u64, progress: &Progress, cuts: &Rc<RefCell<Vec<Cut>>>) {
    let changes = Rc::new(Cell::new(0u64));
    for drive in &drives.0 {
        let (drives, progress, cuts, changes) =
            (drives.clone(), progress.clone(), cuts.clone(), changes.clone());
        drive.on_change(move |drive, _, logged| {
            let evicts =
                logged.operation == Operation::Write && logged.at >= drive.geometry().size - zone;
            if evicts || changes.replace(changes.get() + 1) % CHANGES_A_CUT != 0 {
                return;
            }
            let number = cuts.borrow().len() as u64;
            let (images, progress) = (drives.crash(number), *progress.borrow());
            cuts.borrow_mut().push(Cut { number, images, progress });
        });
    }
}

/// Opens the image of a cut, and compares.
fn judge(of: &Combination, cut: Cut, size: u64) {
    let world = VirtualWorld::new(cut.number);
    let whole = Drives::of(&world, cut.images).whole(&world, None);
    let found = world.run({
        let (world, whole, of) = (world.clone(), whole.clone(), of.clone());
        let name = format!("{}, cut {}", of.name(), cut.number);
        async move {
            let volume = open(world, whole, of).await;
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let mut found = Vec::new();
            for writer in 0..WRITERS {
                let file = volume.lookup(&root, file_name(writer).as_bytes()).await;
                let file = file.unwrap_or_else(|error| panic!("{name}: file {writer}: {error}"));
                found.push(volume.read(&file, 0, 1 << 20).await.unwrap().to_vec());
            }
            volume.close().await.unwrap();
            found
        }
    });
    for (writer, (found, (acknowledged, begun))) in found.iter().zip(cut.progress).enumerate() {
        let what = format!(
            "{}, cut {}: file {writer} of {acknowledged} to {begun}",
            of.name(),
            cut.number
        );
        let least = content(writer, acknowledged);
        assert!(found.len() >= least.len(), "{what} has {} bytes", found.len());
        let versions: Vec<_> =
            (acknowledged..=begun).map(|version| content(writer, version)).collect();
        for at in (0..least.len()).step_by(SECTOR) {
            let end = (at + SECTOR).min(least.len());
            let fits = versions.iter().any(|version| version[at..end] == found[at..end]);
            assert!(fits, "{what}: bytes {at} to {end} are of none of them");
        }
    }
    if cut.number % CUTS_A_CHECK == 0 {
        let read = world.run(async move { whole.read(0, size as usize).await.unwrap() });
        let home = Image::of_bytes(&read);
        setup::check(&Disks { home, journal: None, table: None })
            .unwrap_or_else(|why| panic!("{}, cut {}: {why}", of.name(), cut.number));
    }
    world.end();
}

fn play(data: DataMode) {
    let (_, fresh) = made("scattered-4k");
    let coerced = LyingDisk::coerced(LineReplacement::LeastRecentlyUsed, TRIALS);
    let (mut combinations, mut images) = (0, 0);
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        for lying_disk in [None, Some(coerced.clone())] {
            for members in MEMBERS {
                combinations += 1;
                let of = Combination {
                    data,
                    records,
                    lying_disk: lying_disk.clone(),
                    members,
                    seed: combinations,
                };
                let cuts = record(&of, &fresh);
                assert!(cuts.len() >= 10, "{}: only {} cuts", of.name(), cuts.len());
                images += cuts.len();
                cuts.into_iter().for_each(|cut| judge(&of, cut, fresh.home.size()));
            }
        }
    }
    println!("{}: {combinations} combinations, {images} images", data.name());
    assert_eq!(combinations, 2 * 2 * MEMBERS.len() as u64);
}

in_each_mode!(
    play: writeback_in_scattered_logs_goes_with_all_records_barriers_and_disks,
    ordered_in_scattered_logs_goes_with_all_records_barriers_and_disks,
    journal_in_scattered_logs_goes_with_all_records_barriers_and_disks,
    wasteless_in_scattered_logs_goes_with_all_records_barriers_and_disks,
    selective_in_scattered_logs_goes_with_all_records_barriers_and_disks,
    adaptive_in_scattered_logs_goes_with_all_records_barriers_and_disks
);

/// The product finds its target: drives that ignore flushes, trusted.
#[test]
#[should_panic(expected = "x flush x 3 disks")]
fn a_raid_of_drives_that_lie_loses_what_was_acknowledged() {
    let (_, fresh) = made("scattered-4k");
    let lying_disk = LyingDisk::trusted(LineReplacement::LeastRecentlyUsed);
    let data = DataMode::Wasteless;
    for seed in 1..5 {
        let of = Combination {
            data,
            records: RecordFormat::Packed,
            lying_disk: Some(lying_disk.clone()),
            members: 3,
            seed,
        };
        let cuts = record(&of, &fresh);
        let believed = Combination { lying_disk: None, ..of };
        cuts.into_iter().for_each(|cut| judge(&believed, cut, fresh.home.size()));
    }
}
