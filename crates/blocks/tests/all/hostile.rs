//! Forged superblocks and logs: an error or a volume, never a panic, an endless loop or memory
//! without bound.

use crate::common::{Life, Making, make, options, write};
use blocks::{BlockVolume, Persistence};
use device::Disk;
use disks::{CrashPolicy, Image};
use engine::EngineOptions;
use format::blocks::{BlockGroups, BlocksRole, BlocksSuperblock, SUPERBLOCK_AT};
use runtime::SplitMix;
use std::time::Duration;

/// Opens the volume, reads and writes a little, and closes it. Returns whether it could be opened.
fn survive(images: &[Image]) -> bool {
    let life = Life::new(1, images);
    let parts = life.parts(&options(), Persistence::WriteBack);
    let (opened, _) = life.play(async move {
        let Ok(volume) = BlockVolume::open(parts).await else { return false };
        let size = volume.geometry().size;
        for at in [0, size / 2 / 4096 * 4096, size - 4096] {
            let _ = volume.read(at, 4096).await;
            let _ =
                volume.write(at, crate::common::filled(1, 4096), device::Durability::Cached).await;
        }
        let _ = volume.flush().await;
        let _ = volume.close().await;
        true
    });
    opened
}

#[test]
fn superblocks_of_chance_with_right_checksums_are_refused_or_served() {
    let fresh = make(&Making::default()).expect("a volume");
    let mut bytes = [0; 512];
    fresh[0].read(SUPERBLOCK_AT, &mut bytes);
    let good = BlocksSuperblock::parse(&bytes).unwrap();
    let (mut served, random) = (0, SplitMix::new(5));
    for _ in 0..400 {
        let mut superblock = good.clone();
        let number = || match random.next() % 4 {
            0 => random.next(),
            1 => random.next() % 8192,
            2 => u64::MAX - random.next() % 4,
            _ => random.next() % (1 << 20),
        };
        for _ in 0..1 + random.next() % 2 {
            match random.next() % 7 {
                0 => superblock.disk_bytes = number(),
                1 => superblock.journal_at = number(),
                2 => superblock.journal_blocks = number() as u32,
                3 => superblock.data_at = number(),
                4 => superblock.data_blocks = number(),
                5 => superblock.role = BlocksRole::Journal,
                _ => {
                    let [group_blocks, log_blocks, logs] =
                        [number() as u32 % 4096, number() as u32 % 512, number() as u32 % 64];
                    superblock.groups = Some(BlockGroups { group_blocks, log_blocks, logs });
                }
            }
        }
        let mut images = fresh.clone();
        images[0].write(SUPERBLOCK_AT, &superblock.serialize());
        served += u32::from(survive(&images));
    }
    assert!(served > 0, "no such superblock is ever served");
}

#[test]
fn damaged_logs_are_refused_or_replayed() {
    let making = Making { disk_bytes: 5 << 20, journal_bytes: 1 << 20, ..Making::default() };
    let images = make(&making).expect("a volume");
    let life = Life::new(1, &images);
    let never = Duration::from_secs(100_000);
    let options = EngineOptions {
        data: engine::DataMode::Wasteless,
        commit: never,
        expire: never,
        writeback: never,
        ..options()
    };
    let parts = life.parts(&options, Persistence::WriteBack);
    let (_, images) = life.run(CrashPolicy::LoseAll, async move {
        let volume = crate::common::open(parts).await;
        for block in 0..20u64 {
            write(&volume, block * 4096, block as u8, 4096).await;
            volume.flush().await.unwrap();
        }
    });
    let random = SplitMix::new(9);
    let mut served = 0;
    for _ in 0..200 {
        let mut damaged = images.clone();
        for _ in 0..1 + random.next() % 4 {
            // The journal begins after the first mebibyte.
            let at = (1 << 20) + random.next() % (200 << 10);
            damaged[0].write(at, &random.next().to_le_bytes()[..1 + (random.next() % 8) as usize]);
        }
        served += u32::from(survive(&damaged));
    }
    assert!(served > 0, "no damaged log is ever served");
}

/// The superblock has moved the data past a block of which the log has a record.
#[test]
fn records_of_blocks_outside_the_data_are_not_written() {
    let images = make(&Making::default()).expect("a volume");
    let mut bytes = [0; 512];
    images[0].read(SUPERBLOCK_AT, &mut bytes);
    let mut superblock = BlocksSuperblock::parse(&bytes).unwrap();
    let never = Duration::from_secs(100_000);
    let options = EngineOptions {
        data: engine::DataMode::Wasteless,
        expire: never,
        writeback: never,
        ..options()
    };
    let life = Life::new(1, &images);
    let parts = life.parts(&options, Persistence::WriteBack);
    let (_, mut images) = life.run(CrashPolicy::LoseAll, async move {
        let volume = crate::common::open(parts).await;
        write(&volume, 0, 7, 4096).await;
        volume.flush().await.unwrap();
    });
    let home = superblock.data_at * 4096;
    (superblock.data_at, superblock.data_blocks) =
        (superblock.data_at + 256, superblock.data_blocks - 256);
    images[0].write(SUPERBLOCK_AT, &superblock.serialize());
    let life = Life::new(1, &images);
    let parts = life.parts(&options, Persistence::WriteBack);
    let (opened, left) = life.play(async move { BlockVolume::open(parts).await.map(drop) });
    let error = opened.expect_err("the record is of no data").to_string();
    assert!(error.contains("the data of the block volume"), "{error}");
    assert!(left[0].is_equal_in(&images[0], home..home + 4096));
}
