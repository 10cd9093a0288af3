//! Every possible size of disk, block, journal and group has one home for each block, and
//! impossible ones are refused.

use crate::common::{Life, Making, eviction_of, filled, make, open, options};
use blocks::{BlockVolume, BlocksError, BlocksLayout, GroupBytes, Persistence};
use device::{Disk, Durability};
use disks::CrashPolicy;
use engine::{EngineOptions, LogKind};
use format::blocks::{BlocksSuperblock, RESERVED_BYTES, SUPERBLOCK_AT};
use runtime::SplitMix;
use std::ops::Range;
use std::rc::Rc;

const MIB: u64 = 1 << 20;

fn random_making(random: &SplitMix) -> Making {
    let one_of = |count: u64| random.next() % count;
    let block_size = [1024, 2048, 4096][one_of(3) as usize];
    let sector = 512 * one_of(3);
    let disk_bytes = match one_of(3) {
        0 => one_of(6) * MIB + sector,
        1 => one_of(64) * MIB + one_of(2048) * 512,
        _ => (64 + one_of(2000)) * MIB + sector,
    };
    let group = (one_of(9) + 1) * MIB / 2 + one_of(3) * 4096;
    Making {
        disk_bytes,
        block_size,
        journal_disk: (one_of(4) == 0).then(|| (2 + one_of(6)) * MIB + sector),
        journal_bytes: [0, 4096, 256 << 10, MIB, MIB, 1_234_567, 1_234_567, 3 * MIB]
            [one_of(8) as usize],
        groups: (one_of(3) == 0)
            .then(|| GroupBytes { log: [64 << 10, 256 << 10, MIB / 2][one_of(3) as usize], group }),
        eviction: (one_of(4) == 0).then(|| eviction_of(1 + one_of(300) as usize)),
    }
}

/// Sizes of every magnitude up to 4 TiB: powers of two, a little less or more, multiples of a group
/// and a little less or more, and any.
fn random_long_making(random: &SplitMix) -> Making {
    let one_of = |count: u64| random.next() % count;
    let block_size = [1024, 2048, 4096][one_of(3) as usize];
    let power = MIB << (6 + one_of(17));
    let log = ((64 << 10) * (1 + one_of(4))) << one_of(8);
    // Few enough logs for an opening to look at all of them.
    let group = (2 * log).max(power >> one_of(9)) + one_of(3) * 4096;
    let around = |size: u64| size - 8192 + 512 * one_of(33);
    let disk_bytes = match one_of(4) {
        0 => power,
        1 => around(power),
        2 => around(4 * MIB + group * (1 + power / group)),
        _ => (power + one_of(power)) / 512 * 512,
    };
    Making {
        disk_bytes,
        block_size,
        journal_disk: (one_of(4) == 0).then(|| around((4 * MIB) << one_of(7))),
        journal_bytes: MIB << one_of(8),
        groups: (one_of(2) == 0).then_some(GroupBytes { log, group }),
        eviction: (one_of(4) == 0).then(|| eviction_of(1 + one_of(300) as usize)),
    }
}

/// Checks the place of an exported block by the content of the disk.
fn check_layout(layout: &BlocksLayout, making: &Making) {
    let superblock = layout.superblock();
    let block = u64::from(making.block_size);
    let logs_bytes =
        superblock.groups.map_or(0, |it| u64::from(it.logs) * u64::from(it.log_blocks));
    assert_eq!(layout.blocks() + logs_bytes, superblock.data_blocks, "{making:?}");
    assert!(superblock.data_at * block >= RESERVED_BYTES, "{making:?}");
    assert_eq!(superblock.zone_blocks > 0, making.eviction.is_some(), "{making:?}");
    assert!(
        (superblock.data_at + superblock.data_blocks) * block + RESERVED_BYTES <= making.disk_bytes,
        "{making:?}"
    );
    assert!(layout.data_offset() % RESERVED_BYTES == 0, "{making:?}");
}

fn superblock_of(image: &disks::Image) -> BlocksSuperblock {
    let mut bytes = [0; 512];
    image.read(SUPERBLOCK_AT, &mut bytes);
    BlocksSuperblock::parse(&bytes).expect("a superblock")
}

/// Writes blocks at both ends, around logs, and at random places, the last with FUA, and loses what
/// is volatile. The next life finds all of them and writes them home, and the third finds them
/// there.
fn play(making: &Making, images: Vec<disks::Image>, seed: u64) {
    let log = if making.groups.is_some() { LogKind::Scattered } else { LogKind::Circular };
    let options = EngineOptions { log, ..options() };
    let making = *making;
    let block = u64::from(making.block_size);
    let places = move |blocks: u64| -> Vec<u64> {
        let random = SplitMix::new(seed);
        let data_a_group = making.groups.map_or(u64::MAX, |it| it.group / block - it.log / block);
        let groups = (1..4).chain([blocks / data_a_group]);
        let near_logs = groups.flat_map(|group| [-1i64, 0].map(|off| (group, off)));
        let near_logs = near_logs
            .filter_map(|(group, off)| data_a_group.checked_mul(group)?.checked_add_signed(off));
        let mut places: Vec<u64> = near_logs.chain([0]).collect();
        places.extend((0..6).map(|_| random.next() % blocks));
        places.retain(|place| *place < blocks - 1);
        places.sort_unstable();
        places.dedup();
        places
    };
    let byte = |place: u64| (place % 251 + 1) as u8;
    let mut images = images;
    for life in 0..3 {
        let this = Life::new(seed, &images);
        let parts = this.parts(&options, Persistence::WriteBack);
        let script = async move {
            let volume = open(parts).await;
            check_layout(&volume.layout(), &making);
            let last = volume.layout().blocks() - 1;
            let filled = |place| filled(byte(place), block as usize);
            for place in places(last + 1) {
                if life == 0 {
                    let written = volume.write(place * block, filled(place), Durability::Cached);
                    written.await.expect("a write");
                } else {
                    check_block(&volume, place, block, byte(place)).await;
                }
            }
            match life {
                0 => {
                    volume.flush().await.expect("a flush");
                    let written = volume.write(last * block, filled(last), Durability::Durable);
                    written.await.expect("a durable write");
                }
                1 => {
                    check_block(&volume, last, block, byte(last)).await;
                    volume.drain().await.expect("all of it at home");
                }
                _ => {
                    check_block(&volume, last, block, byte(last)).await;
                    volume.close().await.expect("a close");
                }
            }
        };
        let (ended, left) = this.run(CrashPolicy::LoseAll, script);
        ended.expect("the power stays on");
        images = left;
    }
}

async fn check_block(volume: &BlockVolume, place: u64, block: u64, byte: u8) {
    let found = volume.read(place * block, block as usize).await.expect("a read");
    assert!(found.iter().all(|it| *it == byte), "block {place}");
}

/// Plays random sizes, and returns how many were made and how many refused.
fn play_sizes(seeds: Range<u64>, random_making: impl Fn(&SplitMix) -> Making) -> (u32, u32) {
    let (mut made, mut refused) = (0, 0);
    for seed in seeds {
        let making = random_making(&SplitMix::new(seed));
        println!("seed {seed}: {making:?}");
        match make(&making) {
            Ok(images) => {
                made += 1;
                assert_eq!(superblock_of(&images[0]).disk_bytes, making.disk_bytes);
                play(&making, images, seed);
            }
            Err(BlocksError::BadSizes { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (made, refused)
}

#[test]
fn every_size_is_made_right_or_refused() {
    let (made, refused) = play_sizes(0..160, random_making);
    assert!(made > 40 && refused > 40, "{made} were made, {refused} refused");
}

#[test]
fn sizes_up_to_4_tib_keep_what_was_written() {
    let (made, _) = play_sizes(1000..1160, random_long_making);
    assert!(made > 100, "{made} were made");
}

/// Sizes that people give, with the journal and the logs that `okeanos blocks format` makes there,
/// and disks up to a group longer: one in ten has a block behind the data of its last whole group.
#[test]
fn ordinary_sizes_keep_what_was_written() {
    const GIB: u64 = 1 << 30;
    let ends = (0..10).map(|tenth| tenth * 10 * MIB);
    let sizes = [4, 30, 60, 250, 500, 1000].into_iter().map(|gibibytes| gibibytes * GIB);
    let disks = sizes.flat_map(|size| ends.clone().map(move |more| size + more));
    for (seed, disk_bytes) in (0..).zip(disks) {
        for groups in [None, Some(GroupBytes { log: 10 * MIB, group: 100 * MIB })] {
            let journal_bytes = 256 * MIB;
            let making = Making { disk_bytes, journal_bytes, groups, ..Making::default() };
            println!("seed {seed}: {making:?}");
            play(&making, make(&making).expect("a volume"), seed);
        }
    }
}

#[test]
fn a_log_is_never_the_home_of_a_block() {
    for groups in [None, Some(GroupBytes { log: 512 << 10, group: 1536 << 10 })] {
        let making = Making { groups, ..Making::default() };
        let images = make(&making).expect("a volume");
        let log = if groups.is_some() { LogKind::Scattered } else { LogKind::Circular };
        let options = EngineOptions { log, ..options() };
        let life = Life::new(1, &images);
        let (size, left) = life.on_volume(&options, async move |volume| {
            let size = volume.geometry().size;
            for at in (0..size).step_by(1 << 20) {
                let length = (size - at).min(1 << 20) as usize;
                volume.write(at, filled(0x5a, length), Durability::Cached).await.expect("a write");
            }
            volume.close().await.expect("a close");
            size
        });
        // Everything exported is at home, and only the log has the same bytes.
        let image = Rc::new(left[0].clone());
        let superblock = superblock_of(&image);
        let data = superblock.data_at..superblock.data_at + superblock.data_blocks;
        let is_home = |block: u64| {
            let mut bytes = vec![0; 4096];
            image.read(block * 4096, &mut bytes);
            bytes.iter().all(|byte| *byte == 0x5a)
        };
        let homes = data.filter(|block| is_home(*block)).count() as u64;
        assert!(homes >= size / 4096, "{homes} homes of {} blocks", size / 4096);
        let reserved = [0, making.disk_bytes / 4096 - 256];
        assert!(reserved.iter().all(|at| (*at..at + 256).all(|block| !is_home(block))));
    }
}
