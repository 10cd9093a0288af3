//! `mmp`: who uses a volume counts in a block of it, and looks whether others do.

use crate::features::support::*;
use crate::image::{in_mode, open as open_volume};
use crate::volume::journal::name_journal;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use disks::{CrashPolicy, Fault, Image, Latency, MemoryDisk};
use ext4::{Caller, Error, OpenParts, Volume};
use format::ext4::VolumeSuperblock;
use format::ext4::mmp::{MmpBlock, Use};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn protected(arguments: &str) -> TestImage {
    TestImage::scripted(&format!("-O mmp {arguments}"), "16M", "touch file")
}
fn place(image: &Image) -> (u64, Option<u32>) {
    let mut bytes = vec![0; 1024];
    image.read(1024, &mut bytes);
    let superblock = VolumeSuperblock::parse(&bytes).unwrap();
    let checksums = superblock.features.has(format::ext4::feature::METADATA_CSUM);
    (
        superblock.mmp_block << superblock.block_size.shift(),
        checksums.then_some(superblock.checksum_seed),
    )
}
fn mmp(image: &Image) -> MmpBlock {
    let (at, seed) = place(image);
    let mut bytes = vec![0; 1024];
    image.read(at, &mut bytes);
    MmpBlock::parse(&bytes, seed).unwrap()
}
/// Claims the volume as another computer would.
async fn claim(disk: &MemoryDisk, used_by: Use) {
    let image = disk.image();
    let (at, seed) = place(&image);
    let mut bytes = Buffer::zeroed(1024);
    image.read(at, &mut bytes);
    MmpBlock { used_by, node: b"elsewhere".to_vec(), ..mmp(&image) }.serialize(&mut bytes, seed);
    disk.write(at, vec![Rc::new(bytes)], Durability::Durable).await.unwrap();
}

#[test]
fn a_volume_in_use_is_refused_to_others_until_it_is_closed() {
    for arguments in ["-b 4096", "-b 1024 -O ^metadata_csum"] {
        let image = protected(arguments);
        assert_eq!(mmp(&image.read()).used_by, Use::Nobody);
        let (virtual_world, world, disk) = image.world(1);
        let home = disk.clone();
        virtual_world.run(async move {
            let begun = world.now();
            let volume = open(&world, &home, MODES[1]).await.unwrap();
            assert!(world.now().since(begun) >= 10 * SECOND, "the kernel waits 10 s");
            let first = mmp(&home.image());
            assert!(
                matches!(first.used_by, Use::Counted(_)) && first.check_interval == 10,
                "{first:?}"
            );
            world.sleep_until(world.now().plus(20 * SECOND)).await;
            assert_ne!(mmp(&home.image()).used_by, first.used_by, "it counts on");
            let refused = open(&world, &home, MODES[1]).await.err().unwrap();
            assert!(matches!(refused, Error::InUse(_)), "{refused}");
            assert!(refused.to_string().contains("in use on okeanos"), "{refused}");
            let as_disk: Rc<dyn device::Disk> = Rc::new(home.clone());
            assert!(ext4::check_unused(&world, &as_disk).await.is_err());
            write(&volume, &at(&volume, "file").await, 0, b"content").await;
            volume.close().await.unwrap();
            assert_eq!(mmp(&home.image()).used_by, Use::Nobody);
            ext4::check_unused(&world, &as_disk).await.unwrap();
        });
        disk.write_image(&image.path()).unwrap();
        image.check();
    }
}

#[test]
fn the_kernel_mounts_what_we_closed_and_we_what_it_unmounted() {
    let image = protected("-b 4096");
    let work = |text: &'static [u8]| {
        image.with_volume(MODES[3], move |volume| async move {
            write(&volume, &at(&volume, "file").await, 0, text).await;
            content(&volume, &at(&volume, "file").await).await
        })
    };
    work(b"ours");
    assert_eq!(image.with_kernel("cat file; echo theirs >file"), "ours");
    assert_eq!(work(b"our"), b"ourirs\n");
}

#[test]
fn after_a_power_cut_a_mount_waits_and_replays() {
    let image = protected("-b 1024");
    let (virtual_world, world, disk) = image.world(1);
    let home = disk.clone();
    virtual_world.run(async move {
        let volume = open(&world, &home, MODES[1]).await.unwrap();
        write(&volume, &at(&volume, "file").await, 0, b"durable").await;
        volume.sync().await.unwrap();
    });
    virtual_world.end();
    let (after, found) = run_on(disk.crash(CrashPolicy::LoseAll), MODES[1], |volume| async move {
        content(&volume, &at(&volume, "file").await).await
    });
    assert_eq!(found, b"durable");
    assert_eq!(mmp(&after).used_by, Use::Nobody);
}

#[test]
fn a_running_check_is_refused_and_a_second_mount_stops_the_first() {
    let image = protected("-b 1024");
    image.in_world(1, async move |world, disk| {
        claim(&disk, Use::Checked).await;
        let refused = open(&world, &disk, MODES[1]).await.err().unwrap();
        assert!(refused.to_string().contains("in use on elsewhere"), "{refused}");
        assert_eq!(mmp(&disk.image()).used_by, Use::Checked, "nothing was written");
        claim(&disk, Use::Nobody).await;
        let volume = open(&world, &disk, MODES[1]).await.unwrap();
        claim(&disk, Use::Counted(77)).await;
        world.sleep_until(world.now().plus(30 * SECOND)).await;
        let file = at(&volume, "file").await;
        let written = volume.write(&file, &Caller::ROOT, 0, b"lost", Default::default()).await;
        assert!(written.is_err() || volume.sync().await.is_err());
        assert!(volume.close().await.is_err());
        assert_eq!(mmp(&disk.image()).used_by, Use::Counted(77), "the other one has it");
    });
}

/// The computer was stopped, or the disk: another one believes it dead, and takes the volume.
/// Opens the volume, writes, and lets the next beat meet a disk that answers much later; then
/// another computer claims the volume. Writes that follow must fail, and change neither disk.
fn write_after_a_long_gap(image: &TestImage, journal: Option<&TestImage>) {
    let (virtual_world, world, disk) = image.world(1);
    let log = journal.map(|journal| MemoryDisk::from_image(world.clone(), journal.read()));
    virtual_world.run(async move {
        let journal = log.clone().map(|log| Rc::new(log) as Rc<dyn Disk>);
        let volume = open_volume(&world, &disk, journal, in_mode(MODES[1])).await.unwrap();
        let file = at(&volume, "file").await;
        write(&volume, &file, 0, b"ours").await;
        volume.sync().await.unwrap();
        // The next beat is within five seconds.
        disk.set_latency(Latency { least: 40 * SECOND, spread: Duration::ZERO });
        world.sleep_until(world.now().plus(6 * SECOND)).await;
        disk.set_latency(Latency { least: Duration::ZERO, spread: Duration::ZERO });
        world.sleep_until(world.now().plus(14 * SECOND)).await;
        claim(&disk, Use::Counted(77)).await;
        let changes = || (disk.changes(), log.as_ref().map(MemoryDisk::changes));
        let taken = changes();
        let written = volume.write(&file, &Caller::ROOT, 0, b"lost", Default::default()).await;
        assert!(written.is_err() || volume.sync().await.is_err());
        assert_eq!(changes(), taken, "something was written to the other one's volume");
        assert!(volume.close().await.is_err());
        assert_eq!((mmp(&disk.image()).used_by, changes()), (Use::Counted(77), taken));
    });
}

#[test]
fn after_a_long_gap_nothing_is_written_before_the_claim_is_read() {
    write_after_a_long_gap(&protected("-b 1024"), None);
    // A commit may touch the journal's disk alone, where the other one's log begins by now.
    let journal = TestImage::make(&["-O", "journal_dev", "-b", "1024"], "8M");
    let image = protected("-b 1024 -O ^has_journal");
    name_journal(&image, &journal);
    write_after_a_long_gap(&image, Some(&journal));
}

/// The commit of an unmount hangs, and another computer takes the volume before it fails. The note
/// of that failure in the journal's superblock would go over the other one's log.
#[test]
fn a_failed_close_leaves_no_note_on_a_volume_that_was_taken() {
    let (virtual_world, world, disk) = protected("-b 1024").world(1);
    virtual_world.run(async move {
        let sleep = async |seconds| world.sleep_until(world.now().plus(SECOND * seconds)).await;
        let volume = open(&world, &disk, MODES[1]).await.unwrap();
        let file = at(&volume, "file").await;
        // The journal's superblock says that the log has begun.
        write(&volume, &file, 0, b"ours").await;
        volume.sync().await.unwrap();
        write(&volume, &file, 0, b"lost").await;
        disk.set_latency(Latency { least: 60 * SECOND, spread: Duration::ZERO });
        let (block, _) = place(&disk.image());
        for range in [0..block, block + 1024..u64::MAX] {
            disk.inject(Fault { range, ..Fault::once(Operation::Write) });
        }
        let closing = volume.clone();
        let closed =
            runtime::spawn_with_result(&*world, async move { closing.close().await.is_err() });
        // The next beat hangs, too.
        sleep(6).await;
        disk.set_latency(Latency { least: Duration::ZERO, spread: Duration::ZERO });
        sleep(34).await;
        claim(&disk, Use::Counted(77)).await;
        let taken = disk.changes();
        assert!(closed.await.unwrap());
        sleep(60).await;
        assert_eq!(disk.changes(), taken, "something was written to the other one's volume");
        assert_eq!(mmp(&disk.image()).used_by, Use::Counted(77), "the other one has it");
    });
}

/// A disk whose operations take effect at once, and are answered later: the process was stopped
/// while their completions were on its ring.
struct LateReplies {
    disk: MemoryDisk,
    world: Rc<dyn World>,
    /// Of the block alone.
    reads: Cell<Duration>,
    writes: Cell<Duration>,
    block: u64,
}

impl LateReplies {
    fn new(world: &Rc<dyn World>, disk: &MemoryDisk) -> Rc<LateReplies> {
        let (reads, writes, (block, _)) = (Cell::default(), Cell::default(), place(&disk.image()));
        Rc::new(LateReplies { disk: disk.clone(), world: world.clone(), reads, writes, block })
    }
    fn answer<T: 'static>(&self, late: Duration, operation: LocalFuture<T>) -> LocalFuture<T> {
        let world = self.world.clone();
        Box::pin(async move {
            let result = operation.await;
            world.sleep_until(world.now().plus(late)).await;
            result
        })
    }
    async fn open(self: &Rc<Self>) -> ext4::Result<Rc<Volume>> {
        let (world, home) = (self.world.clone(), self.clone());
        let options = in_mode(MODES[1]);
        Volume::open(OpenParts { world, home, journal: None, options }).await
    }
    async fn sleep(&self, seconds: u32) {
        self.world.sleep_until(self.world.now().plus(SECOND * seconds)).await;
    }
}

impl Disk for LateReplies {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn physical_sector(&self) -> u32 {
        self.disk.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let late = if at == self.block { self.reads.get() } else { Duration::ZERO };
        self.answer(late, self.disk.read(at, length))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.answer(self.writes.get(), self.disk.write(at, parts, durability))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.flush()
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.discard(at, length)
    }
}

fn with_late_replies(test: impl AsyncFnOnce(Rc<LateReplies>) + 'static) {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = LateReplies::new(&world, &protected("-b 1024").disk(&world));
    virtual_world.run(async move { test(disk).await });
}

#[test]
fn a_claim_seen_before_a_gap_is_not_counted_on() {
    with_late_replies(async |disk| {
        let volume = disk.open().await.unwrap();
        let file = at(&volume, "file").await;
        // The next beat is within five seconds.
        disk.reads.set(60 * SECOND);
        disk.sleep(6).await;
        disk.reads.set(Duration::ZERO);
        disk.sleep(30).await;
        claim(&disk.disk, Use::Counted(77)).await;
        disk.sleep(60).await;
        assert_eq!(mmp(&disk.disk.image()).used_by, Use::Counted(77), "the other one has it");
        let written = volume.write(&file, &Caller::ROOT, 0, b"lost", Default::default()).await;
        assert!(written.is_err() || volume.sync().await.is_err());
        assert!(volume.close().await.is_err());
        assert_eq!(mmp(&disk.disk.image()).used_by, Use::Counted(77));
    });
}

/// The reply that is late is the first, by which nobody has the volume, or that by which our claim
/// has stood for long enough.
#[test]
fn a_volume_that_was_taken_during_a_gap_is_not_mounted() {
    for (before, until_counted) in [(0, 35), (5, 55)] {
        with_late_replies(async move |disk| {
            let opening = disk.clone();
            let opened = runtime::spawn_with_result(&*disk.world.clone(), async move {
                opening.sleep(1).await;
                opening.open().await.map(drop)
            });
            disk.sleep(before).await;
            disk.reads.set(60 * SECOND);
            disk.sleep(30).await;
            claim(&disk.disk, Use::Counted(77)).await;
            disk.reads.set(Duration::ZERO);
            disk.sleep(until_counted).await;
            let last = match mmp(&disk.disk.image()).used_by {
                Use::Counted(77) => Use::Counted(78),
                other => panic!("{other:?} was written over the claim"),
            };
            claim(&disk.disk, last).await;
            let refused = opened.await.unwrap();
            assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
            assert_eq!(mmp(&disk.disk.image()).used_by, last);
        });
    }
}

#[test]
fn a_write_that_waited_for_the_claim_checks_it_after_a_gap() {
    with_late_replies(async |disk| {
        let volume = disk.open().await.unwrap();
        let file = at(&volume, "file").await;
        write(&volume, &file, 0, b"ours").await;
        volume.sync().await.unwrap();
        let (start, _) = place(&disk.disk.image());
        let range = start..start + 1024;
        disk.disk.inject(Fault { range, ..Fault::forever(Operation::Read) });
        disk.sleep(13).await;
        disk.disk.heal();
        disk.writes.set(60 * SECOND);
        let (writer, ours) = (volume.clone(), file.clone());
        let written = runtime::spawn_with_result(&*disk.world.clone(), async move {
            let flags = Default::default();
            writer.write(&ours, &Caller::ROOT, 0, b"lost", flags).await.is_err()
                || writer.sync().await.is_err()
        });
        disk.sleep(1).await;
        disk.writes.set(Duration::ZERO);
        disk.sleep(40).await;
        claim(&disk.disk, Use::Counted(77)).await;
        let taken = disk.disk.changes();
        assert!(written.await.unwrap());
        assert_eq!(disk.disk.changes(), taken, "something was written to the other one's volume");
    });
}

#[test]
fn a_power_cut_amid_a_count_leaves_a_volume_that_mounts() {
    const SECTOR: usize = 512;
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = protected("-b 1024").disk(&world);
    let home = disk.clone();
    let (at, versions) = virtual_world.run(async move {
        let volume = open(&world, &home, MODES[1]).await.unwrap();
        write(&volume, &at(&volume, "file").await, 0, b"durable").await;
        volume.sync().await.unwrap();
        let (start, _) = place(&home.image());
        let mut versions = Vec::new();
        for _ in 0..2 {
            let mut bytes = vec![0; 2 * SECTOR];
            home.image().read(start, &mut bytes);
            versions.push(bytes);
            world.sleep_until(world.now().plus(6 * SECOND)).await;
        }
        (start, versions)
    });
    assert_ne!(versions[0], versions[1]);
    virtual_world.end();
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut crashed = disk.crash(CrashPolicy::LoseAll);
        crashed.write(at, &versions[first][..SECTOR]);
        crashed.write(at + SECTOR as u64, &versions[second][SECTOR..]);
        let (after, found) = run_on(crashed, MODES[1], |volume| async move {
            content(&volume, &crate::features::support::at(&volume, "file").await).await
        });
        assert_eq!(found, b"durable", "sectors {first} and {second}");
        assert_eq!(mmp(&after).used_by, Use::Nobody);
    }
}
