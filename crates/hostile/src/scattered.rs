//! Scattered logs: the superblock of their file, and headers of runs. Logs and tables of runs hold
//! any such headers, and runs are searched there. Snapshots of the mapping table hold any items.

use format::ext4::checksum::crc32c;
use format::jbd2::JournalSuperblock;
use format::run_table::{self, TABLE_PAGE};
use format::scattered::NamedSnapshot;
use format::scattered::{ActiveLogs, LOGS_SUPERBLOCK_SIZE, LogsSuperblock, RunHeader};
use format::snapshot::{ITEM_BYTES, SnapshotItem};
use journal::{
    Address, FindRuns, FoundRuns, HomeBounds, Logs, ReadSnapshot, ReadTable, ScatteredLogMap,
    SnapshotContents, SnapshotRing, Step, plan_piece,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock, TransactionId, arrays};

const BLOCK: usize = 1024;
/// Blocks of each of the four logs, behind a journal of 64.
const EACH: u32 = 96;
const FIRST: u32 = 64;
const LOGS: u32 = 4;
const ALL: u32 = LOGS * EACH;

/// Runs an input, whose first byte holds parameters. The others are read as the superblock of the
/// file and as a header. Then every ten of them make a header, which is put into the logs with a
/// correct checksum.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    logs_superblock(rest);
    run_header(rest);
    search(choice, rest);
    table(choice, rest);
    snapshot(choice, rest);
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
            assert_eq!(
                LogsSuperblock::parse(&parsed.serialize()),
                Ok(parsed),
                "what was put is found"
            );
        }
    }
}

fn run_header(bytes: &[u8]) {
    let seed = superblock().scattered_seed();
    let at = LogBlock(u32::from_be_bytes(std::array::from_fn(|index| {
        bytes.get(index).copied().unwrap_or(0)
    })));
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
    let mut blocks = vec![vec![0; BLOCK]; (FIRST + ALL) as usize];
    for word in bytes.chunks_exact(10) {
        let header = header_of(word, superblock.sequence);
        let block = &mut blocks[header.at.get() as usize];
        header.serialize(seed, block);
        if word[9] == 0 {
            block[usize::from(word[8]) % RunHeader::SIZE] ^= 1;
        }
    }
    let mut find = FindRuns::new(&superblock, logs());
    let mut steps = 0;
    while let Some(at) = find.wants() {
        steps += 1;
        assert!(steps <= ALL, "a block of the logs is read twice");
        assert!((FIRST..FIRST + ALL).contains(&at.get()), "{at} lies in no log");
        find.give(&blocks[at.get() as usize]);
    }
    if let Ok(found) = find.finish(choice & 8 != 0) {
        is_walked_once(&found);
    }
}

fn logs() -> Rc<Logs> {
    let homes = (0..LOGS).map(|log| HomeBlock(1000 * u64::from(log))).collect();
    let places = ScatteredLogMap { first: LogBlock(FIRST), blocks: EACH, homes };
    Rc::new(places.in_units(1).expect("few blocks"))
}

/// Makes a header of ten bytes. Most lengths fit, and most transactions are near the tail.
fn header_of(word: &[u8], tail: TransactionId) -> RunHeader {
    let number = |from: usize| u32::from(word[from]) << 8 | u32::from(word[from + 1]);
    let at = LogBlock(FIRST + number(0) % ALL);
    let long = if word[8] & 7 == 0 { u32::MAX - 300 } else { 0 };
    let far = if word[8] & 0x70 == 0 { 1 << 31 } else { 0 };
    let near = |word: u32| TransactionId(tail.0.wrapping_add(word % 64).wrapping_add(far));
    let (transaction, durable) = (near(number(4)), near(number(6)));
    RunHeader { at, transaction, blocks: (number(2) % 300).wrapping_add(long), durable }
}

/// Reads the same headers from a table, each with a correct checksum; some are marked as the
/// latest.
fn table(choice: u8, bytes: &[u8]) {
    let mut superblock = superblock();
    superblock.sequence = TransactionId(u32::MAX - 3);
    if let Some(scattered) = &mut superblock.scattered {
        scattered.active = ActiveLogs::parse(&[choice | 1; ActiveLogs::BYTES]);
        scattered.table_mark = 9;
    }
    let seed = run_table::table_seed(superblock.scattered_seed(), 9);
    let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut put = |page, put: &mut dyn FnMut(&mut [u8])| {
        put(pages.entry(page).or_insert_with(|| vec![0; TABLE_PAGE]));
    };
    for word in bytes.chunks_exact(10) {
        let header = header_of(word, superblock.sequence);
        let transaction = header.transaction;
        put(run_table::slot_page(transaction), &mut |page| {
            run_table::put_slot(&header, seed, page)
        });
        if word[9] & 3 == 0 {
            put(run_table::latest_page(transaction), &mut |page| {
                run_table::put_latest(&header, seed, page)
            });
        }
    }
    let mut table = ReadTable::new(&superblock, logs()).expect("the superblock names one");
    let mut steps = 0;
    while let Some(page) = table.wants() {
        steps += 1;
        assert!(
            steps <= run_table::TABLE_BYTES / TABLE_PAGE as u64 + 1,
            "a page of the table is read twice"
        );
        let zeros = vec![0; TABLE_PAGE];
        if table.give(pages.get(&page).unwrap_or(&zeros)).is_err() {
            return;
        }
    }
    if let Ok(found) = table.finish() {
        is_walked_once(&found);
    }
}

/// Maximum number of items of a piece, and bound on the blocks of a snapshot.
const PIECE_ITEMS: usize = 40;
const BLOCKS_MAX: usize = 50;

/// Reads the same bytes as a snapshot, with correct checksums. Then the logs behind it are
/// searched.
fn snapshot(choice: u8, bytes: &[u8]) {
    let (items, _) = arrays::<ITEM_BYTES>(bytes);
    items.for_each(|bytes| {
        if let Some(item) = SnapshotItem::parse(bytes) {
            assert_eq!(item.serialize(), *bytes, "what was put is found");
        }
    });
    let mut superblock = superblock();
    superblock.sequence = TransactionId(u32::MAX - 3);
    let active = ActiveLogs::parse(&[choice | 1; ActiveLogs::BYTES]);
    if let Some(scattered) = &mut superblock.scattered {
        scattered.active = active.clone();
    }
    let (mut ring, mut next) = (SnapshotRing::new(&superblock), superblock.sequence);
    let items: Vec<_> =
        bytes.chunks_exact(10).map(|word| item_of(word, &mut next, choice)).collect();
    let mut blocks = vec![vec![0; BLOCK]; FIRST as usize];
    let mut from = superblock.sequence;
    for (items, word) in items.chunks(PIECE_ITEMS).zip(bytes.chunks(10 * PIECE_ITEMS)) {
        let runs =
            items.iter().filter(|item| matches!(item, SnapshotItem::Run { .. })).count() as u32;
        let off = if word[0] == 0 { u32::from(word[1 % word.len()]) } else { 0 };
        let end = TransactionId(from.0.wrapping_add(runs).wrapping_add(off));
        let Some(piece) = ring.begin_piece(from..end, end.previous(), items) else { break };
        from = end;
        for step in plan_piece(Some(&piece)).steps {
            if let Step::Write(write) = step {
                if let Address::Log(at) = write.at {
                    let bytes = write
                        .blocks
                        .iter()
                        .flat_map(|(_, bytes)| bytes.iter().copied())
                        .collect::<Vec<_>>();
                    let blocks = blocks.iter_mut().skip(at.get() as usize);
                    blocks
                        .zip(bytes.chunks(BLOCK))
                        .for_each(|(block, bytes)| block.copy_from_slice(bytes));
                }
            }
        }
        let read_from = TransactionId(from.0.wrapping_sub(u32::from(word[0]) % 8));
        let Some(named) = ring.name(superblock.sequence, Some(&piece), read_from) else { break };
        let longest = u32::from(word[0]) << (choice % 32);
        let named = NamedSnapshot { since: active.clone(), longest, ..named };
        ring.counts(&named, Some(piece));
        superblock.name_snapshot(Some(named));
    }
    if choice & 0x40 != 0 {
        if let Some(mut named) = superblock.named_snapshot().cloned() {
            named.last = named.last.wrapping_sub(3);
            named.end = TransactionId(named.end.0.wrapping_add(u32::from(choice)));
            superblock.name_snapshot(Some(named));
        }
    }
    if let Some(snapshot) = read_snapshot(&superblock, &blocks) {
        search_behind(&superblock, &snapshot, bytes);
    }
}

/// Makes an item of ten bytes. Runs mostly follow each other.
fn item_of(word: &[u8], next: &mut TransactionId, choice: u8) -> SnapshotItem {
    let number = |from: usize| u32::from(word[from]) << 8 | u32::from(word[from + 1]);
    let home = HomeBlock(u64::from(number(0)) % if choice & 4 == 0 { 1000 } else { 5000 });
    let start = LogBlock(FIRST + number(2) % (ALL + 8));
    match word[8] % 8 {
        0..=2 => {
            let transaction = *next;
            if word[9] != 0 {
                *next = next.next();
            }
            SnapshotItem::Run {
                transaction,
                start,
                blocks: number(4) % 12 + u32::from(word[9] == 1) * (u32::MAX - 20),
            }
        }
        3 | 4 => SnapshotItem::Whole {
            home,
            durable_only: word[8] & 16 == 0,
            offset: number(4),
            sum: number(6),
        },
        5 => SnapshotItem::Other { home },
        6 => SnapshotItem::Revoke { home },
        _ => SnapshotItem::Moved {
            transaction: TransactionId(next.0.wrapping_sub(number(4) % 8)),
            start,
        },
    }
}

fn read_snapshot(superblock: &JournalSuperblock, blocks: &[Vec<u8>]) -> Option<SnapshotContents> {
    let mut pieces = ReadSnapshot::new(superblock, logs(), BLOCKS_MAX).ok()?;
    let mut steps = 0;
    while let Some(at) = pieces.wants() {
        steps += 1;
        assert!(steps <= 2 * FIRST, "a block of the ring is read repeatedly");
        assert!((1..FIRST).contains(&at.get()), "{at} lies in no ring");
        pieces.give(&blocks[at.get() as usize]).ok()?;
    }
    let snapshot = pieces
        .finish(&HomeBounds {
            blocks: 4000,
            forbidden: [(10, 20)].map(|(from, end)| from..end).to_vec(),
        })
        .ok()?;
    assert!(snapshot.blocks().len() <= BLOCKS_MAX, "more blocks than the bound");
    assert!(
        snapshot.blocks().keys().all(|home| home.get() < 4000 && !(10..20).contains(&home.get())),
        "{snapshot:?}"
    );
    Some(snapshot)
}

fn search_behind(superblock: &JournalSuperblock, snapshot: &SnapshotContents, bytes: &[u8]) {
    let seed = superblock.scattered_seed();
    let mut blocks = vec![vec![0; BLOCK]; (FIRST + ALL) as usize];
    for word in bytes.chunks_exact(10) {
        let header = header_of(word, superblock.sequence);
        header.serialize(seed, &mut blocks[header.at.get() as usize]);
    }
    let mut find = FindRuns::behind(superblock, logs(), snapshot);
    let mut steps = 0;
    while let Some(at) = find.wants() {
        steps += 1;
        assert!(steps <= ALL, "a block of the logs is read twice");
        find.give(&blocks[at.get() as usize]);
    }
    if let Ok(found) = find.finish(false) {
        is_walked_once(&found);
        is_walked_once(&found.from(snapshot.read_from()));
        let _ = snapshot.check_found(found.runs());
    }
}

fn is_walked_once(found: &FoundRuns) {
    let walk = found.walk();
    let (mut at, mut visited) = (found.start(), 0);
    while let Some(block) = at {
        visited += 1;
        assert!(visited <= ALL, "the walk has no end");
        assert!((FIRST..FIRST + ALL).contains(&block.get()), "{block} lies in no log");
        at = walk.next(block);
    }
}
