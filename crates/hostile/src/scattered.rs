//! Scattered logs: the superblock of their file, headers of runs, and the search for runs in logs that hold any headers.

use format::ext4::checksum::crc32c;
use format::jbd2::JournalSuperblock;
use format::scattered::{ActiveLogs, LOGS_SUPERBLOCK_SIZE, LogsSuperblock, RunHeader};
use journal::{FindRuns, LogPlaces};
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock, TransactionId};

const BLOCK: usize = 1024;
/// Four logs of so many blocks, behind a journal of 64.
const EACH: u32 = 96;
const FIRST: u32 = 64;
const LOGS: u32 = 4;

/// The first byte chooses. The others are read as the superblock of the file and as a header. Then every ten of them
/// make a header, which is put into the logs with a right checksum.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    logs_superblock(rest);
    run_header(rest);
    search(choice, rest);
}

fn logs_superblock(bytes: &[u8]) {
    let _ = LogsSuperblock::parse(bytes);
    let mut bytes = bytes.to_vec();
    bytes.resize(LOGS_SUPERBLOCK_SIZE, 0);
    bytes[..8].copy_from_slice(b"OKEANLGS");
    let sum = LOGS_SUPERBLOCK_SIZE - 4;
    for version in [None, Some(1u32)] {
        if let Some(version) = version {
            bytes[8..12].copy_from_slice(&version.to_be_bytes());
        }
        let right = !crc32c(!0, &bytes[..sum]);
        bytes[sum..].copy_from_slice(&right.to_be_bytes());
        if let Ok(parsed) = LogsSuperblock::parse(&bytes) {
            assert_eq!(LogsSuperblock::parse(&parsed.serialize()), Ok(parsed), "what was put is found");
        }
    }
}

fn run_header(bytes: &[u8]) {
    let seed = superblock().scattered_seed();
    let at =
        LogBlock(u32::from_be_bytes(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0))));
    let _ = RunHeader::parse(at, bytes, seed);
    let mut block = bytes.to_vec();
    block.resize(BLOCK, 0);
    let sum = seed.with(&block[..20]).0;
    block[20..24].copy_from_slice(&sum.to_be_bytes());
    for at in [at, LogBlock(u32::from_be_bytes(std::array::from_fn(|index| block[4 + index])))] {
        if let Some(header) = RunHeader::parse(at, &block, seed) {
            let mut again = vec![0; BLOCK];
            header.serialize(seed, &mut again);
            assert_eq!(RunHeader::parse(at, &again, seed), Some(header), "what was put is found");
        }
    }
}

fn superblock() -> JournalSuperblock {
    let size = BlockSize::new(BLOCK as u32).expect("a power of two");
    let mut superblock = JournalSuperblock::new(size, FIRST, [3; 16]);
    superblock.set_scattered(5);
    superblock
}

fn search(choice: u8, bytes: &[u8]) {
    let mut superblock = superblock();
    superblock.sequence = TransactionId(u32::MAX - 3);
    let seed = superblock.scattered_seed();
    if let Some(scattered) = &mut superblock.scattered {
        scattered.active = ActiveLogs::parse(&[choice | 1; ActiveLogs::BYTES]);
    }
    superblock.transaction_bound =
        [None, Some(100), Some(1 << 20), Some(u32::MAX)][usize::from(choice >> 4) % 4];
    let homes = (0..LOGS).map(|log| HomeBlock(1000 * u64::from(log))).collect();
    let places = LogPlaces { first: LogBlock(FIRST), blocks: EACH, homes };
    let logs = Rc::new(places.in_units(1).expect("few blocks"));
    let all = LOGS * EACH;
    let mut blocks = vec![vec![0; BLOCK]; (FIRST + all) as usize];
    for word in bytes.chunks_exact(10) {
        let number = |from: usize| u32::from(word[from]) << 8 | u32::from(word[from + 1]);
        let at = LogBlock(FIRST + number(0) % all);
        // Most lengths fit, and transactions are near the tail.
        let long = if word[8] & 7 == 0 { u32::MAX - 300 } else { 0 };
        let far = if word[8] & 0x70 == 0 { 1 << 31 } else { 0 };
        let near = |word: u32| TransactionId(superblock.sequence.0.wrapping_add(word % 64).wrapping_add(far));
        let (transaction, durable) = (near(number(4)), near(number(6)));
        let header = RunHeader { at, transaction, blocks: (number(2) % 300).wrapping_add(long), durable };
        header.serialize(seed, &mut blocks[at.get() as usize]);
        if word[9] == 0 {
            blocks[at.get() as usize][usize::from(word[8]) % RunHeader::SIZE] ^= 1;
        }
    }
    let mut find = FindRuns::new(&superblock, logs);
    let mut turns = 0;
    while let Some(at) = find.wants() {
        turns += 1;
        assert!(turns <= all, "a block of the logs is read twice");
        assert!((FIRST..FIRST + all).contains(&at.get()), "{at} lies in no log");
        find.give(&blocks[at.get() as usize]);
    }
    let Ok(found) = find.finish(choice & 8 != 0) else { return };
    let walk = found.walk();
    let (mut at, mut visited) = (found.start(), 0);
    while let Some(block) = at {
        visited += 1;
        assert!(visited <= all, "the walk has no end");
        assert!((FIRST..FIRST + all).contains(&block.get()), "{block} lies in no log");
        at = walk.next(block);
    }
}
