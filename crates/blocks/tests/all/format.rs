//! Volumes made over former ones.

use crate::common::{Images, JOURNAL_UUID, Life, Making, filled, make, open, options};
use blocks::{
    BlockVolume, BlocksDisk, BlocksFormatOptions, Persistence, find_superblock,
    format_journal_zoned, format_volume_zoned,
};
use device::{Disk, Durability};
use disks::CrashPolicy;
use engine::{DataMode, EngineOptions, RecordFormat};
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

/// Formats the disks again; the new volume has another identity. The power of the last disk fails
/// at change `cut` at the latest. Returns whether it came to the end.
fn format_again(images: &Images, making: &Making, cut: u64) -> (bool, Images) {
    let life = Life::new(1, images);
    life.disks.last().expect("a disk").cut_at(cut);
    let (disks, making) = (life.disks.clone(), *making);
    let format = async move {
        let options = BlocksFormatOptions {
            block_size: BlockSize::new(making.block_size).unwrap(),
            uuid: NEW,
            journal_uuid: disks.get(1).map(|_| JOURNAL_UUID),
            journal_bytes: Some(making.journal_bytes),
            groups: making.groups,
            now: 1_800_000_000,
        };
        if let Some(journal) = disks.get(1) {
            format_journal_zoned(journal, &options, None).await.expect("a journal");
        }
        format_volume_zoned(&disks[0], &options, None).await.expect("a volume");
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
                let parts = life.parts(&without_checksums(), Persistence::WriteBack);
                let (found, _) = life.play(async move {
                    let volume = open(parts).await;
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
