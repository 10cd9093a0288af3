//! Behaviour of a block volume, request by request.

use crate::common::{Life, Making, filled, make, open, options, write};
use blocks::{BlockVolume, BlocksError, Persistence, find_flush_zones, recover};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use disks::{Atomicity, CrashPolicy, Fault, Image};
use engine::{DataMode, EngineOptions, RecordFormat, WriteThreshold};
use format::blocks::{SUPERBLOCK_AT, blocks_copy_at};
use runtime::join_all;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: usize = 4096;

/// Options with which nothing is committed or written back unless requested.
fn quiet(data: DataMode) -> EngineOptions {
    let never = Duration::from_secs(100_000);
    EngineOptions {
        data,
        records: Some(RecordFormat::Packed),
        commit: never,
        expire: never,
        writeback: never,
        ..options()
    }
}

fn life() -> Life {
    Life::new(1, &make(&Making::default()).expect("a volume"))
}

/// Runs `script` on a fresh volume.
fn play<T: 'static>(
    options: &EngineOptions,
    script: impl AsyncFnOnce(BlockVolume) -> T + 'static,
) -> T {
    let life = life();
    let parts = life.parts(options, Persistence::WriteBack);
    life.play(async move { script(open(parts).await).await }).0
}

/// Returns the bytes that a run of requests wrote to the disk.
async fn written(disk: &disks::MemoryDisk, work: impl Future<Output = ()>) -> u64 {
    disk.record();
    work.await;
    let writes = disk.take_log().into_iter().filter(|it| it.operation == Operation::Write);
    writes.map(|it| it.length).sum()
}

#[test]
fn a_small_change_of_a_block_in_memory_logs_few_bytes() {
    for (data, few) in
        [(DataMode::Wasteless, true), (DataMode::Selective, true), (DataMode::Journal, false)]
    {
        let life = life();
        let threshold = WriteThreshold::Fixed(64 << 10);
        let disk = life.disks[0].clone();
        let (bytes, _) =
            life.on_volume(&EngineOptions { threshold, ..quiet(data) }, async move |volume| {
                write(&volume, 0, 7, 8 * BLOCK).await;
                volume.flush().await.unwrap();
                let mut changed = Buffer::zeroed(8 * BLOCK);
                changed.fill(7);
                (0..8).for_each(|block| changed[block * BLOCK + 100] = 9);
                let parts = vec![Rc::new(changed)];
                written(&disk, async {
                    volume.write(0, parts, Durability::Cached).await.unwrap();
                    volume.flush().await.unwrap();
                })
                .await
            });
        assert_eq!(bytes <= 4096, few, "{data}: {bytes} bytes");
    }
}

#[test]
fn zeros_take_hardly_any_of_the_log() {
    let life = life();
    let disk = life.disks[0].clone();
    let (bytes, _) = life.on_volume(&quiet(DataMode::Wasteless), async move |volume| {
        write(&volume, 0, 7, 64 * BLOCK).await;
        volume.flush().await.unwrap();
        written(&disk, async {
            write(&volume, 0, 0, 64 * BLOCK).await;
            volume.flush().await.unwrap();
        })
        .await
    });
    assert!(bytes <= 4096, "{bytes} bytes");
}

#[test]
fn a_flush_without_a_write_before_it_writes_nothing() {
    let life = life();
    let disk = life.disks[0].clone();
    life.on_volume(&quiet(DataMode::Wasteless), async move |volume| {
        write(&volume, 0, 7, BLOCK).await;
        volume.flush().await.unwrap();
        disk.record();
        volume.flush().await.unwrap();
        // Bytes that memory holds already are no change.
        write(&volume, 0, 7, BLOCK).await;
        volume.flush().await.unwrap();
        assert_eq!(disk.take_log(), vec![]);
    });
}

#[test]
fn flushes_that_come_together_share_a_commit() {
    let life = life();
    let disk = life.disks[0].clone();
    life.on_volume(&quiet(DataMode::Wasteless), async move |volume| {
        write(&volume, 0, 1, BLOCK).await;
        volume.flush().await.unwrap();
        disk.record();
        let client = |number: u64| -> device::LocalFuture<()> {
            let volume = volume.clone();
            Box::pin(async move {
                write(&volume, number * BLOCK as u64, 7, BLOCK).await;
                volume.flush().await.unwrap();
            })
        };
        join_all((0..100).map(client).collect()).await;
        let writes = disk.take_log().len();
        assert!(writes <= 8, "{writes} requests for a hundred flushes");
    });
}

#[test]
fn only_what_was_flushed_or_forced_is_promised() {
    for persistence in [Persistence::WriteBack, Persistence::WriteThrough] {
        let life = life();
        let parts = life.parts(&quiet(DataMode::Wasteless), persistence);
        let (ended, images) = life.run(CrashPolicy::LoseAll, async move {
            let volume = open(parts).await;
            write(&volume, 0, 1, BLOCK).await;
            volume.flush().await.unwrap();
            let forced = filled(2, BLOCK);
            volume.write(BLOCK as u64, forced, Durability::Durable).await.unwrap();
            write(&volume, 2 * BLOCK as u64, 3, BLOCK).await;
        });
        assert!(ended.is_some());
        let life = Life::new(1, &images);
        let parts = life.parts(&quiet(DataMode::Wasteless), persistence);
        let (found, _) = life.play(async move {
            let content = open(parts).await.read(0, 3 * BLOCK).await.unwrap();
            [0, 1, 2].map(|block| content[block * BLOCK + 5])
        });
        let last = if persistence == Persistence::WriteThrough { 3 } else { 0 };
        assert_eq!(found, [1, 2, last], "{persistence:?}");
    }
}

/// The last block is read before it changes, and other clients flush in between.
#[test]
fn a_write_within_blocks_is_one_transaction() {
    for cut in 0..24 {
        let life = life();
        life.disks[0].cut_at(cut);
        let parts = life.parts(&quiet(DataMode::Journal), Persistence::WriteBack);
        let (_, images) = life.run(CrashPolicy::LoseAll, async move {
            let volume = open(parts).await;
            let (flushing, length) = (volume.clone(), volume.atomic_bytes() as usize);
            let world = volume.engine().world().clone();
            let flushes: device::LocalFuture<()> = Box::pin(async move {
                for _ in 0..100 {
                    flushing.flush().await.unwrap();
                    world.sleep_until(world.now().plus(Duration::from_micros(10))).await;
                }
            });
            let one: device::LocalFuture<()> =
                Box::pin(async move { write(&volume, 512, 7, length).await });
            join_all(vec![one, flushes]).await;
        });
        let life = Life::new(1, &images);
        let (found, _) = life.on_volume(&quiet(DataMode::Journal), async move |volume| {
            let length = volume.atomic_bytes() as usize;
            volume.read(512, length).await.unwrap()
        });
        assert!(found.iter().all(|byte| *byte == found[0]), "cut {cut}: a part is there");
    }
}

/// A large write bypassed the log and is only in the disk's cache. Records over it must not rely on
/// it.
#[test]
fn no_difference_is_logged_over_content_home_may_lose() {
    let threshold = WriteThreshold::Fixed(BLOCK as u64 + 1);
    let options =
        EngineOptions { threshold, commit: Duration::from_millis(3), ..quiet(DataMode::Selective) };
    let life = life();
    let parts = life.parts(&options, Persistence::WriteBack);
    let (_, images) = life.run(CrashPolicy::LoseAll, async move {
        let volume = open(parts).await;
        write(&volume, 0, 1, 64 * BLOCK).await;
        let pause = async |milliseconds| {
            let world = volume.engine().world();
            world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
        };
        pause(50).await;
        // Now it is in memory, too.
        volume.read(0, BLOCK).await.unwrap();
        let mut changed = Buffer::zeroed(BLOCK);
        changed.fill(1);
        changed[9] = 2;
        volume.write(0, vec![Rc::new(changed)], Durability::Cached).await.unwrap();
        // Nobody flushes; the transaction is committed by its age.
        pause(50).await;
    });
    let life = Life::new(1, &images);
    let parts = life.parts(&options, Persistence::WriteBack);
    let (found, _) = life.play(async move { open(parts).await.read(0, BLOCK).await.unwrap() });
    let is_old = found.iter().all(|byte| *byte == 0);
    let is_new = found[9] == 2 && found[8] == 1 && found[10..].iter().all(|byte| *byte == 1);
    assert!(is_old || is_new, "the block is mixed: {:?}", &found[..12]);
}

#[test]
fn parts_of_a_block_are_written_in_every_mode() {
    for data in DataMode::ALL {
        play(&EngineOptions { data, ..options() }, async move |volume| {
            write(&volume, 0, 1, 2 * BLOCK).await;
            for (at, length) in [(512, 512), (4096 - 512, 1024), (7680, 512)] {
                write(&volume, at, 2, length).await;
            }
            volume.flush().await.unwrap();
            let found = volume.read(0, 2 * BLOCK).await.unwrap();
            let sectors: Vec<u8> = found.chunks(512).map(|sector| sector[17]).collect();
            assert_eq!(sectors, [1, 2, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 2], "{data}");
            volume.close().await.unwrap();
        });
    }
}

#[test]
fn rewritten_discarded_blocks_bring_nothing_old_back() {
    for data in DataMode::ALL {
        let life = life();
        let parts = life.parts(&quiet(data), Persistence::WriteBack);
        let (_, images) = life.run(CrashPolicy::LoseAll, async move {
            let volume = open(parts).await;
            write(&volume, 0, 1, 4 * BLOCK).await;
            volume.flush().await.unwrap();
            volume.discard(0, 4 * BLOCK as u64).await.unwrap();
            write(&volume, 0, 2, BLOCK).await;
            volume.flush().await.unwrap();
        });
        let life = Life::new(1, &images);
        let parts = life.parts(&quiet(data), Persistence::WriteBack);
        let (found, _) = life.play(async move { open(parts).await.read(0, BLOCK).await.unwrap() });
        assert!(found.iter().all(|byte| *byte == 2), "{data}: {}", found[0]);
    }
}

#[test]
fn requests_beyond_the_disk_or_its_sectors_are_refused() {
    play(&options(), async |volume| {
        let size = volume.geometry().size;
        let beyond = volume.read(size - 512, 1024).await;
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })));
        let beyond = volume.write(u64::MAX - 511, filled(1, 512), Durability::Cached).await;
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })));
        let uneven = volume.write(100, filled(1, 512), Durability::Cached).await;
        assert!(matches!(uneven, Err(DeviceError::Unaligned { .. })));
        assert!(volume.discard(size, 512).await.is_err());
        assert!(volume.read(size - 512, 512).await.is_ok());
    });
}

#[test]
fn after_a_failed_flush_changes_fail_and_reads_go_on() {
    let life = life();
    life.disks[0].hide_forced_unit_access();
    let disk = life.disks[0].clone();
    life.on_volume(&quiet(DataMode::Wasteless), async move |volume| {
        write(&volume, 0, 1, BLOCK).await;
        disk.inject(Fault::once(Operation::Flush));
        assert!(volume.flush().await.is_err() && volume.failure().is_some());
        assert!(volume.flush().await.is_err(), "an error is reported to every flush");
        assert!(volume.write(0, filled(2, BLOCK), Durability::Cached).await.is_err());
        assert_eq!(volume.read(0, BLOCK).await.unwrap()[0], 1);
        assert!(volume.close().await.is_err());
    });
}

#[test]
fn memory_stays_within_its_bound_under_writes() {
    for data in [DataMode::Wasteless, DataMode::Ordered] {
        let options = EngineOptions { cache_bytes: 1 << 20, ..quiet(data) };
        play(&options, async move |volume| {
            for round in 0..3u8 {
                for at in 0..160 {
                    write(&volume, at * (64 << 10), round + 1, 64 << 10).await;
                    let cache = volume.statistics().cache;
                    let most = cache.limit_bytes + (1 << 20);
                    assert!(cache.bytes <= most, "{data}: {} of {most}", cache.bytes);
                }
            }
            volume.flush().await.unwrap();
            let found = volume.read(5 << 20, 1 << 20).await.unwrap();
            assert!(found.iter().all(|byte| *byte == 3));
        });
    }
}

#[test]
fn a_volume_that_is_read_only_refuses_changes_and_shows_what_was_flushed() {
    let life = life();
    let parts = life.parts(&quiet(DataMode::Wasteless), Persistence::WriteBack);
    let (_, images) = life.run(CrashPolicy::LoseAll, async move {
        let volume = open(parts).await;
        write(&volume, 0, 1, BLOCK).await;
        volume.flush().await.unwrap();
    });
    let life = Life::new(1, &images);
    let options = EngineOptions { read_only: true, ..options() };
    life.on_volume(&options, async move |volume| {
        assert_eq!(volume.read(0, BLOCK).await.unwrap()[9], 1);
        assert!(volume.write(0, filled(2, BLOCK), Durability::Cached).await.is_err());
        assert!(volume.discard(0, BLOCK as u64).await.is_err());
        assert_eq!(volume.read(0, BLOCK).await.unwrap()[9], 1);
        volume.flush().await.expect("nothing is to be flushed");
    });
}

#[test]
fn a_drained_volume_holds_everything_at_its_offset_and_goes_on() {
    let life = life();
    let disk = life.disks[0].clone();
    life.on_volume(&quiet(DataMode::Wasteless), async move |volume| {
        write(&volume, 5 * BLOCK as u64, 3, BLOCK).await;
        let writing = volume.clone();
        let busy: device::LocalFuture<()> =
            Box::pin(async move { write(&writing, 0, 4, BLOCK).await });
        let draining = volume.clone();
        let drain: device::LocalFuture<()> =
            Box::pin(async move { draining.drain().await.expect("a drain") });
        join_all(vec![drain, busy]).await;
        let home = disk.image().copy(volume.layout().data_offset() + 5 * BLOCK as u64, BLOCK);
        assert!(home.iter().all(|byte| *byte == 3));
        write(&volume, 5 * BLOCK as u64, 6, BLOCK).await;
        volume.flush().await.unwrap();
        assert_eq!(volume.read(5 * BLOCK as u64, 512).await.unwrap()[0], 6);
    });
}

fn opened(images: &[Image]) -> Result<(bool, Vec<Image>), BlocksError> {
    let life = Life::new(1, images);
    let parts = life.parts(&options(), Persistence::WriteBack);
    let (restored, images) = life.play(async move {
        let volume = BlockVolume::open(parts).await?;
        volume.close().await?;
        Ok(!volume.report().superblocks_restored.is_empty())
    });
    restored.map(|restored| (restored, images))
}

#[test]
fn either_superblock_is_restored_from_the_other() {
    let fresh = make(&Making::default()).expect("a volume");
    let size = fresh[0].size();
    let copy_at = blocks_copy_at(size).unwrap();
    let damage = |at: u64| {
        let mut images = fresh.clone();
        images[0].fill(at, 20, 0xa5);
        images
    };
    let (restored, images) = opened(&damage(SUPERBLOCK_AT)).unwrap();
    assert!(restored && !opened(&images).unwrap().0);
    let (restored, images) = opened(&damage(copy_at)).unwrap();
    assert!(!restored);
    let mut again = images;
    again[0].fill(SUPERBLOCK_AT, 4096, 0);
    assert!(opened(&again).unwrap().0, "the copy was written anew");
    let mut both = damage(SUPERBLOCK_AT);
    both[0].fill(copy_at, 4096, 0xa5);
    assert!(matches!(opened(&both), Err(BlocksError::NoVolume { .. })));
}

/// A file system made over the volume leaves the copy at the end of the disk.
#[test]
fn a_copy_revives_no_overwritten_volume() {
    let fresh = make(&Making::default()).expect("a volume");
    for at in [0, 1080, SUPERBLOCK_AT, 64 << 10, (1 << 20) - 512] {
        let mut images = fresh.clone();
        images[0].fill(0, 1 << 20, 0);
        images[0].fill(at, 512, 0x53);
        for unreadable in [None, Some(SUPERBLOCK_AT + 512)] {
            // Nothing is known of a page that cannot be read.
            if unreadable.is_some() && at == SUPERBLOCK_AT {
                continue;
            }
            let life = Life::new(1, &images);
            if let Some(at) = unreadable {
                let range = at..at + 512;
                life.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
            }
            let parts = life.parts(&options(), Persistence::WriteBack);
            let (opened, left) =
                life.play(async move { BlockVolume::open(parts).await.map(|_| ()) });
            assert!(left[0].is_equal_in(&images[0], 0..images[0].size()), "byte {at}");
            let found = match opened {
                Err(BlocksError::Overwritten { at, .. }) => at,
                other => panic!("byte {at}: {other:?}"),
            };
            assert_eq!(found, at);
        }
    }
}

/// A disk may answer a sector with an error, and a bad sector beside the superblock counts as one
/// in it.
#[test]
fn a_superblock_that_cannot_be_read_is_restored_from_its_copy() {
    let making = Making { journal_disk: Some(4 << 20), ..Making::default() };
    let fresh = make(&making).expect("a volume");
    let copy_at = blocks_copy_at(fresh[0].size()).unwrap();
    let opened_with = |number: usize, places: &[u64]| {
        let life = Life::new(1, &fresh);
        for at in places {
            let unreadable = Fault { range: *at..at + 512, ..Fault::forever(Operation::Read) };
            life.disks[number].inject(unreadable);
        }
        let parts = life.parts(&options(), Persistence::WriteBack);
        let open = async move {
            let (home, journal) = find_flush_zones(&parts).await;
            home.and(journal)?;
            let volume = BlockVolume::open(parts).await?;
            volume.close().await?;
            Ok(!volume.report().superblocks_restored.is_empty())
        };
        life.play(open)
    };
    for at in [SUPERBLOCK_AT, SUPERBLOCK_AT + 7 * 512] {
        let (restored, images) = opened_with(0, &[at]);
        assert!(restored.unwrap() && !opened(&images).unwrap().0);
        let (restored, images) = opened_with(1, &[at]);
        assert!(restored.unwrap() && !opened(&images).unwrap().0, "the journal's device has one");
    }
    for damaged in [SUPERBLOCK_AT, blocks_copy_at(fresh[1].size()).unwrap()] {
        let mut images = fresh.clone();
        images[1].fill(damaged, 20, 0xa5);
        let (_, images) = opened(&images).unwrap();
        assert!(images[1].is_equal_in(&fresh[1], damaged..damaged + 4096), "byte {damaged}");
    }
    let (neither, _) = opened_with(0, &[SUPERBLOCK_AT, copy_at]);
    assert!(matches!(neither, Err(BlocksError::Device(_))));
}

/// A sound volume is not denied for the sake of its second superblock.
#[test]
fn a_superblock_that_cannot_be_written_again_is_a_warning() {
    let fresh = make(&Making::default()).expect("a volume");
    for at in [SUPERBLOCK_AT, blocks_copy_at(fresh[0].size()).unwrap()] {
        let life = Life::new(1, &fresh);
        for operation in [Operation::Read, Operation::Write] {
            life.disks[0].inject(Fault { range: at..at + 512, ..Fault::forever(operation) });
        }
        let parts = life.parts(&options(), Persistence::WriteBack);
        let (warnings, _) = life.play(async move {
            let volume = BlockVolume::open(parts).await?;
            volume.close().await?;
            Ok::<_, BlocksError>(volume.report().warnings.clone())
        });
        let warnings = warnings.expect("the other superblock is good");
        assert!(
            warnings.iter().any(|warning| warning.contains("cannot be written")),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_journal_on_its_own_device_is_the_volumes_or_is_refused() {
    let making = Making { journal_disk: Some(4 << 20), ..Making::default() };
    let images = make(&making).expect("a volume");
    assert!(opened(&images).is_ok());
    assert!(matches!(opened(&images[..1]), Err(BlocksError::JournalMissing(_))));
    assert!(matches!(opened(&images[1..]), Err(BlocksError::IsJournal { .. })));
    let twice = [images[0].clone(), images[0].clone()];
    assert!(matches!(opened(&twice), Err(BlocksError::IsVolume { .. })));
    let inside = make(&Making::default()).expect("a volume");
    let wrong = [inside[0].clone(), images[1].clone()];
    assert!(matches!(opened(&wrong), Err(BlocksError::JournalInside { .. })));
    let mut cut = Image::new(8 << 20);
    let mut start = vec![0; 2 << 20];
    images[0].read(0, &mut start);
    cut.write(0, &start);
    assert!(matches!(opened(&[cut, images[1].clone()]), Err(BlocksError::Shrunk { .. })));
}

#[test]
fn recovery_writes_everything_back_and_a_dry_run_nothing() {
    let life = life();
    let parts = life.parts(&quiet(DataMode::Wasteless), Persistence::WriteBack);
    let policy = CrashPolicy::Random { seed: 5, atomicity: Atomicity::Unit(512) };
    let (_, images) = life.run(policy, async move {
        let volume = open(parts).await;
        write(&volume, 0, 1, 3 * BLOCK).await;
        volume.flush().await.unwrap();
    });
    for dry_run in [true, false] {
        let life = Life::new(1, &images);
        let parts = life.parts(&options(), Persistence::WriteBack);
        let (report, left) =
            life.play(async move { recover(&parts, dry_run).await.expect("a recovery") });
        assert!(!report.clean && report.dry_run == dry_run);
        assert_eq!(dry_run, left[0].is_equal_in(&images[0], 0..images[0].size()));
    }
}

/// A disk that notes where in memory the content of its last read lies.
struct Located {
    disk: Rc<dyn Disk>,
    last: Rc<Cell<*const u8>>,
}

impl Disk for Located {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let (reading, last) = (self.disk.read(at, length), self.last.clone());
        Box::pin(async move { reading.await.inspect(|content| last.set(content.as_ptr())) })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.write(at, parts, durability)
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.flush()
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.discard(at, length)
    }
}

/// A front end counts the bytes of a request once.
#[test]
fn a_long_read_is_in_memory_once() {
    let life = life();
    let last = Rc::new(Cell::new(std::ptr::null()));
    let mut parts = life.parts(&quiet(DataMode::Selective), Persistence::WriteBack);
    parts.disk = Rc::new(Located { disk: parts.disk, last: last.clone() });
    life.play(async move {
        let volume = open(parts).await;
        let content = volume.read(BLOCK as u64, 256 * BLOCK).await.unwrap();
        assert_eq!(content.as_ptr(), last.get());
        // A block that is in memory is not read with the others.
        write(&volume, 9 * BLOCK as u64, 7, BLOCK).await;
        let content = volume.read(BLOCK as u64, 256 * BLOCK).await.unwrap();
        let sevens = |byte: &u8| *byte == 7;
        assert!(content[8 * BLOCK..9 * BLOCK].iter().all(sevens));
        assert!(!content[..8 * BLOCK].iter().chain(&content[9 * BLOCK..]).any(sevens));
    });
}
