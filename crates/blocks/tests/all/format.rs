//! Volumes made over former ones, and formats that are refused.

use crate::common::{Images, JOURNAL_UUID, Life, Making, eviction_of, filled, make, open, options};
use blocks::{
    BlockVolume, BlocksDisk, BlocksError, BlocksFormatOptions, NewDisk, NewFlushZone, Persistence,
    find_superblock,
};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture};
use disks::{CrashPolicy, MemoryDisk};
use engine::{DataMode, EngineOptions, RecordFormat};
use eviction::FlushZone;
use std::rc::Rc;
use std::time::Duration;
use units::BlockSize;

const BLOCK: usize = 4096;
const NEW: [u8; 16] = [8; 16];

/// A log whose records nothing but their place and number distinguishes from those of another.
fn without_checksums() -> EngineOptions {
    let never = Duration::from_secs(100_000);
    EngineOptions {
        data: DataMode::Journal,
        records: Some(RecordFormat::Blocks),
        journal_checksum: false,
        commit: never,
        expire: never,
        writeback: never,
        ..options()
    }
}

async fn put(volume: &BlockVolume, block: u64, byte: u8) {
    let at = block * BLOCK as u64;
    volume.write(at, filled(byte, BLOCK), Durability::Cached).await.expect("a write");
    volume.flush().await.expect("a flush");
}

/// Writes these bytes to block 0, one transaction each. Power is lost afterwards.
fn live(images: &Images, bytes: &'static [u8]) -> Images {
    let life = Life::new(1, images);
    let parts = life.parts(&without_checksums(), Persistence::WriteBack);
    let write = async move {
        let volume = open(parts).await;
        for byte in bytes {
            put(&volume, 0, *byte).await;
        }
    };
    life.run(CrashPolicy::LoseAll, write).1
}

fn format_options(making: &Making) -> BlocksFormatOptions {
    BlocksFormatOptions {
        block_size: BlockSize::new(making.block_size).unwrap(),
        uuid: NEW,
        journal_uuid: making.journal_disk.map(|_| JOURNAL_UUID),
        journal_bytes: Some(making.journal_bytes),
        groups: making.groups,
        now: 1_800_000_000,
    }
}

/// Formats the disks again; the new volume has another identity. The power of the last disk fails
/// at change `cut` at the latest. Returns whether it came to the end.
fn format_again(images: &Images, making: &Making, cut: u64) -> (bool, Images) {
    let life = Life::new(1, images);
    life.disks.last().expect("a disk").cut_at(cut);
    let (disks, making) = (life.disks.clone(), *making);
    let format = async move {
        let options = format_options(&making);
        let new = |disk| NewDisk { disk, zone: None };
        let journal = disks.get(1).map(|disk| new(disk));
        blocks::format(new(&disks[0]), journal, &options).await.expect("a volume");
    };
    let (ended, images) = life.run(CrashPolicy::LoseAll, format);
    (ended.is_some(), images)
}

/// Whether the disks hold the new volume, or what is needed of it.
fn is_new(images: &Images) -> bool {
    let life = Life::new(1, images);
    let disks = life.disks.clone();
    let look = async move {
        for disk in &disks {
            let (Ok(BlocksDisk::Volume(found)) | Ok(BlocksDisk::Journal(found))) =
                find_superblock(disk).await
            else {
                return false;
            };
            if found.superblock.uuid != NEW {
                return false;
            }
        }
        true
    };
    life.play(look).0
}

/// The new volume's log ends where the former one has its second transaction. A format that the
/// power ends leaves a whole volume or none.
#[test]
fn a_former_volumes_log_is_never_replayed() {
    for journal_disk in [None, Some(4 << 20)] {
        let making = Making { journal_disk, ..Making::default() };
        let former = live(&make(&making).expect("a volume"), &[1, 2, 3, 4]);
        for cut in 0.. {
            let (is_whole, images) = format_again(&former, &making, cut);
            assert!(is_new(&images) || !is_whole);
            if is_new(&images) {
                let images = live(&images, &[9]);
                let life = Life::new(1, &images);
                let (found, _) = life.on_volume(&without_checksums(), async move |volume| {
                    let transactions = volume.report().recovery.transactions;
                    (transactions, volume.read(0, BLOCK).await.unwrap()[7])
                });
                assert_eq!(found, (1, 9), "journal device: {journal_disk:?}, cut {cut}");
            }
            if is_whole {
                break;
            }
        }
    }
}

/// The journal may be that of a volume in use, whose log is lost with it.
#[test]
fn a_format_that_is_refused_writes_to_neither_disk() {
    // The journal's device has space for a zone.
    let making = Making { journal_disk: Some(8 << 20), ..Making::default() };
    let former = live(&make(&making).expect("a volume"), &[1, 2, 3]);
    let workload = eviction_of(1);
    let zone = |bytes| NewFlushZone { superblock: workload.superblock(), bytes };
    let long = zone(2 * making.disk_bytes);
    let fits = zone(FlushZone::size(&workload, 4096));
    for (of_volume, of_journal) in [(&long, &fits), (&fits, &long)] {
        let life = Life::new(1, &former);
        let (disks, of_volume, of_journal) =
            (life.disks.clone(), of_volume.clone(), of_journal.clone());
        life.play(async move {
            let volume = NewDisk { disk: &disks[0], zone: Some(&of_volume) };
            let journal = NewDisk { disk: &disks[1], zone: Some(&of_journal) };
            let made = blocks::format(volume, Some(journal), &format_options(&making)).await;
            assert!(matches!(made, Err(BlocksError::BadSizes { .. })), "{made:?}");
            let changes: Vec<u64> = disks.iter().map(MemoryDisk::changes).collect();
            assert_eq!(changes, [0, 0]);
        });
    }
}

/// A disk with sectors of 4096 bytes, which refuses other requests.
struct LargeSectors(MemoryDisk);

impl LargeSectors {
    fn check(&self, at: u64, length: usize) {
        assert!((at | length as u64) % 4096 == 0, "{length} bytes at {at}");
    }
}

impl Disk for LargeSectors {
    fn name(&self) -> &str {
        "a disk with large sectors"
    }
    fn geometry(&self) -> Geometry {
        Geometry { logical_sector: 4096, ..self.0.geometry() }
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.check(at, length);
        self.0.read(at, length)
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.check(at, parts.iter().map(|part| part.len()).sum());
        self.0.write(at, parts, durability)
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.0.flush()
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.0.discard(at, length)
    }
}

#[test]
fn blocks_below_a_disks_sectors_are_refused() {
    for (block_size, is_possible) in [(1024, false), (2048, false), (4096, true)] {
        for journal_disk in [None, Some(4 << 20)] {
            let making = Making { block_size, journal_disk, ..Making::default() };
            let images = make(&making).expect("a volume on sectors of 512 bytes");
            let life = Life::new(1, &images);
            let mut parts = life.parts(&options(), Persistence::WriteBack);
            let disks = life.disks.clone();
            life.play(async move {
                let large = |at: usize| disks.get(at).cloned().map(LargeSectors);
                let (volume, journal) = (large(0).expect("a disk"), large(1));
                // Only the journal's device may have them.
                let small = NewDisk { disk: &disks[0], zone: None };
                let new = NewDisk { disk: &volume, zone: None };
                let of_journal = journal.as_ref().map(|disk| NewDisk { disk, zone: None });
                let volumes = if journal.is_some() { vec![small, new] } else { vec![new] };
                for new in volumes {
                    let made = blocks::format(new, of_journal, &format_options(&making)).await;
                    match made {
                        Ok(_) => assert!(is_possible, "{making:?}"),
                        Err(BlocksError::BadSizes { why, .. }) => {
                            assert!(!is_possible && why.contains("sectors of 4096"), "{why}");
                        }
                        Err(error) => panic!("{making:?}: {error}"),
                    }
                }
                match journal {
                    Some(journal) => parts.journal = Some(Rc::new(journal)),
                    None => parts.disk = Rc::new(volume),
                }
                match BlockVolume::open(parts).await {
                    Ok(volume) => {
                        assert!(is_possible, "{making:?}");
                        put(&volume, 0, 7).await;
                        volume.close().await.expect("a close");
                    }
                    Err(BlocksError::SmallBlocks { sector_bytes, .. }) => {
                        assert!(!is_possible && sector_bytes == 4096, "{making:?}");
                    }
                    Err(error) => panic!("{making:?}: {error}"),
                }
            });
        }
    }
}
