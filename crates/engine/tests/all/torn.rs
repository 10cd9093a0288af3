//! Transactions of which a power cut left a sector of an earlier wrap of the log, where CRC-32C is
//! blind to that. It is for blocks that hold a CRC-32C of their own, as a superblock or a node of
//! an extent tree does. All versions give it the same.

use crate::common::{Layout, Rig, Setup};
use crate::restart::{rig, setup as scattered};
use disks::{CrashPolicy, Image};
use engine::{Credits, Engine, RecordFormat};
use format::jbd2::Seed;
use journal::DataMode;
use std::rc::Rc;
use units::{BlockRange, HomeBlock};

const BYTES: usize = 4096;
const SECTOR: usize = 512;
/// Offset at which versions of a block differ: not in its first sector, where a packed transaction
/// has its header.
const CHANGED: usize = 2100;
/// The second block holds which version was committed.
const BLIND: HomeBlock = HomeBlock(20);
const BESIDE: HomeBlock = HomeBlock(21);

/// Returns content without zeros, so that packed records log it whole.
fn content(block: HomeBlock, version: u8) -> Vec<u8> {
    let byte = |at: usize| 1 | (at as u8).wrapping_mul(31) ^ block.get() as u8;
    let mut content: Vec<u8> = (0..BYTES).map(byte).collect();
    if block == BLIND {
        // What is changed, and its CRC-32C right behind it.
        let change = [&[version][..], &Seed(0).with(&[version]).0.to_le_bytes()].concat();
        content[CHANGED..].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
    } else {
        content[CHANGED] = version;
    }
    content
}

async fn put(engine: &Rc<Engine>, version: u8) {
    let mut handle = engine.start(Credits(2)).await.unwrap();
    for block in [BLIND, BESIDE] {
        let made = handle.create(block);
        handle.change(&made, BlockRange::new(0, BYTES as u32), |bytes| {
            bytes.copy_from_slice(&content(block, version));
        });
    }
    engine.commit(handle.stop()).await.unwrap();
}

fn rig_of(setup: &Setup, image: Image) -> Rig {
    match setup.options.log {
        engine::LogKind::Scattered => rig(setup, vec![image]),
        engine::LogKind::Circular => Rig::new(setup, 1, vec![image]),
    }
}

/// A mount that ends with a power cut. What is left of the disk.
fn live(setup: &Setup, image: Image, version: u8) -> Image {
    let rig = rig_of(setup, image);
    rig.play(async move |engine| put(&engine, version).await);
    rig.disks[0].crash(CrashPolicy::LoseAll)
}

/// Recovers the disk; returns its image and the number of transactions found.
fn recovered(setup: &Setup, image: Image) -> (Image, u64) {
    let rig = rig_of(setup, image);
    let parts = rig.parts.clone();
    let report = rig.run(async move { engine::recover(&parts, false).await.unwrap() }).unwrap();
    (rig.disks[0].image(), report.transactions)
}

fn home(image: &Image, block: HomeBlock) -> Vec<u8> {
    image.copy(block.get() * BYTES as u64, BYTES).to_vec()
}

/// The sectors in which the two images differ by `BLIND` alone.
fn blind_sectors(before: &Image, after: &Image, versions: [u8; 2]) -> Vec<u64> {
    let [old, new] = versions.map(|version| content(BLIND, version));
    let changed: Vec<u8> =
        old.iter().zip(&new).map(|(old, new)| old ^ new).filter(|byte| *byte != 0).collect();
    let is_blind = |at: &u64| {
        let [before, after] = [before, after].map(|image| image.copy(*at, SECTOR));
        let differs = before.iter().zip(after.iter()).map(|(before, after)| before ^ after);
        differs.filter(|byte| *byte != 0).eq(changed.iter().copied())
    };
    (0..before.size()).step_by(SECTOR).filter(is_blind).collect()
}

fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        setups.push(scattered(DataMode::Journal, records));
        let mut circular = Setup::new(DataMode::Wasteless, Layout::Internal, BYTES as u32);
        circular.options.records = Some(records);
        setups.push(circular);
    }
    let mut plain = Setup::new(DataMode::Ordered, Layout::Internal, BYTES as u32);
    plain.options.transaction_checksum = true;
    setups.push(plain);
    setups
}

#[test]
fn versions_of_a_block_with_its_own_crc_look_alike_to_a_crc() {
    let [old, new] = [1, 2].map(|version| content(BLIND, version));
    assert_ne!(old, new);
    assert_eq!(Seed(7).with(&old), Seed(7).with(&new));
}

#[test]
fn what_an_earlier_turn_of_the_log_left_is_not_taken_for_new() {
    for setup in setups() {
        let said = format!("{:?}, {:?}", setup.options.log, setup.options.records);
        let (first, count) = recovered(&setup, live(&setup, setup.images().remove(0), 1));
        assert_eq!((count, home(&first, BLIND)), (1, content(BLIND, 1)), "{said}");
        // Home has the third version, and the log still that of the first wrap, where the next will
        // begin.
        let mut before = first;
        for block in [BLIND, BESIDE] {
            before.write(block.get() * BYTES as u64, &content(block, 3));
        }
        let second = live(&setup, before.clone(), 2);
        let sectors = blind_sectors(&before, &second, [1, 2]);
        let [at] = sectors[..] else { panic!("{said}: {sectors:?}") };
        let mut torn = second;
        torn.write(at, &before.copy(at, SECTOR));
        let (after, count) = recovered(&setup, torn);
        let shows = [BLIND, BESIDE]
            .map(|block| (1..=3).find(|version| home(&after, block) == content(block, *version)));
        assert_eq!((count, shows), (0, [Some(3); 2]), "{said}: the transaction is torn");
    }
}
