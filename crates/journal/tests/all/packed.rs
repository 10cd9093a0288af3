//! Packed transactions: what each records, and what a later one proves.
use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::records::{LogContent, RecordFormat, RecordsWanted};
use journal::*;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::*;

const LOG_BLOCKS: u32 = 64;
const HOME_BLOCKS: u64 = 40;

fn size() -> BlockSize {
    BlockSize::new(1024).unwrap()
}
pub fn format(unit: u32, nonce: u64) -> Rc<dyn Records> {
    let mut superblock = JournalSuperblock::new(size(), LOG_BLOCKS, [9; 16]);
    let wanted = RecordsWanted {
        format: RecordFormat::Packed,
        unit,
        bytes: true,
        checksums: true,
        transaction_checksum: false,
        wide: false,
        gap_bytes: 0,
    };
    records::begin(&mut superblock, wanted, || nonce)
}
fn stamp(durable: u32) -> CommitStamp {
    CommitStamp {
        time: Timestamp { seconds: 1_700_000_000, nanoseconds: 3 },
        durable: TransactionId(durable),
    }
}
fn running(id: u32) -> RunningTransaction {
    RunningTransaction::new(TransactionId(id), Instant(0), size())
}

type Home = BTreeMap<u64, Vec<u8>>;

fn bytes_of(
    records: &dyn Records,
    running: RunningTransaction,
    durable: u32,
    now: &Home,
) -> Vec<u8> {
    let bound = records.log_blocks_bound(&running.holdings());
    let images = |home: HomeBlock| Rc::new(Buffer::copy_of(&now[&home.get()]));
    let locked = running.lock();
    let mut writer = records.writer(&locked, &stamp(durable));
    // However many are written at once, the run is the same.
    let whole = records.writer(&locked, &stamp(durable)).finish(&images);
    while writer.write_some(&images, 1) {}
    let (LogContent::Sealed(units), wholes) = writer.finish(&images) else {
        panic!("a run has one checksum")
    };
    let LogContent::Sealed(at_once) = whole.0 else { panic!("a run has one checksum") };
    let at_once: Vec<u8> = at_once.iter().flat_map(|(_, piece)| piece.to_vec()).collect();
    let bytes: Vec<u8> = units.iter().flat_map(|(_, piece)| piece.to_vec()).collect();
    assert!(bytes == at_once && wholes == whole.1);
    let count = bytes.len() / records.block_bytes();
    assert!(count as u32 <= bound, "{count} units, bound {bound}");
    for (home, at) in wholes {
        let (first, offset) =
            (at as usize / records.block_bytes(), at as usize % records.block_bytes());
        let mut block = vec![0; now[&home.get()].len()];
        let end = first + records.blocks_of_whole(offset, block.len()) as usize;
        let log = &bytes[first * records.block_bytes()..end * records.block_bytes()];
        records.read_whole(log, offset, &mut block);
        assert_eq!(block, now[&home.get()], "{home} is read again from where it was logged");
    }
    bytes
}

struct Recovered {
    scanned: Scanned,
    whole: u64,
    parts: u64,
}

/// Recovers `log`, which begins with `first`, onto `home`.
fn recover(
    records: &Rc<dyn Records>,
    log: &[u8],
    first: u32,
    home: &mut Home,
) -> Result<Recovered, RecoverError> {
    recover_with(records, log, first, home, false)
}

fn recover_with(
    records: &Rc<dyn Records>,
    log: &[u8],
    first: u32,
    home: &mut Home,
    until_damage: bool,
) -> Result<Recovered, RecoverError> {
    let unit = records.block_bytes();
    let mut log = log.to_vec();
    log.resize(log.len().max(LOG_BLOCKS as usize * unit), 0x5a);
    let ring = Rc::new(LogRing::new(LogBlock(0), LogBlock((log.len() / unit) as u32)));
    let block = |at: LogBlock| &log[at.get() as usize * unit..][..unit];
    let start = LogStart { transaction: TransactionId(first), at: LogBlock(0) };
    let mut scan = ScanPass::over(records.clone(), ring, start).until_damage(until_damage);
    while let Some(at) = scan.wants() {
        scan.give(block(at))?;
    }
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    while let Some(at) = revoke.wants() {
        revoke.give(block(at))?;
    }
    let bounds = HomeBounds { blocks: HOME_BLOCKS, forbidden: Vec::new() };
    let mut replay = ReplayPass::new(&scanned, revoke.finish(), bounds);
    let mut images = ReplayImages::new(size());
    while let Some(at) = replay.wants() {
        replay.give(block(at))?;
        replay.take_actions().for_each(|action| images.apply(action));
    }
    for mut image in images.take() {
        image.fill_from(&home[&image.home.get()]);
        home.insert(image.home.get(), image.content.to_vec());
    }
    let counts = replay.counts();
    Ok(Recovered { scanned, whole: counts.whole_records, parts: counts.fragment_records })
}

fn fresh_home() -> Home {
    (0..HOME_BLOCKS).map(|at| (at, vec![at as u8 ^ 0xee; size().bytes()])).collect()
}

/// Metadata in parts and whole, data in all ways, frees: logged over several transactions, and
/// replayed over the home content.
#[test]
fn random_transactions_are_replayed_to_the_byte() {
    for seed in 0..400 {
        let rng = SplitMix::new(seed);
        let records = format([512, 1024][rng.below(2) as usize], seed);
        let (mut home, mut now) = (fresh_home(), fresh_home());
        let mut freed = std::collections::BTreeSet::new();
        let (mut log, count) = (Vec::new(), 1 + rng.below(6) as u32);
        for id in 1..=count {
            let mut running = running(id);
            for _ in 0..1 + rng.below(12) {
                let at = rng.below(HOME_BLOCKS);
                let start = rng.below(1000) as u32;
                let most = if rng.below(3) == 0 { 900 } else { 60 };
                let length = 1 + rng.below(most) as u32;
                let range = BlockRange::new(start, (start + length).min(1024));
                let block = now.get_mut(&at).unwrap();
                let kind = if freed.contains(&at) { 3 + rng.below(2) } else { rng.below(7) };
                match kind {
                    0 | 1 => {
                        block[range.as_usize()].fill(rng.next() as u8);
                        running.add_metadata(HomeBlock(at), &[range]);
                    }
                    2 => {
                        block[range.as_usize()].fill(rng.next() as u8);
                        running.add_data_bytes(HomeBlock(at), range, false);
                    }
                    3 => {
                        block.fill(0);
                        block[range.as_usize()].fill(rng.next() as u8);
                        running.add_data_bytes(HomeBlock(at), range, true);
                        freed.remove(&at);
                    }
                    4 => {
                        // A new block of metadata is mostly zeros.
                        block.fill(0);
                        block[range.as_usize()].fill(rng.next() as u8);
                        running.add_metadata(HomeBlock(at), &[size().whole()]);
                        freed.remove(&at);
                    }
                    5 => {
                        block.fill(rng.next() as u8);
                        running.add_data_block(HomeBlock(at), 1024);
                    }
                    _ => {
                        running.free(HomeBlock(at), true);
                        freed.insert(at);
                    }
                }
            }
            log.extend(bytes_of(&*records, running, id - 1, &now));
        }
        let recovered = recover(&records, &log, 1, &mut home).unwrap();
        assert_eq!(recovered.scanned.end, TransactionId(count + 1), "seed {seed}");
        for (at, block) in home {
            assert!(freed.contains(&at) || block == now[&at], "seed {seed}: block {at}");
        }
    }
}

pub fn one_change(records: &dyn Records, id: u32, durable: u32, bytes: u32) -> Vec<u8> {
    let mut running = running(id);
    running.add_data_bytes(HomeBlock(id.into()), BlockRange::new(0, bytes), false);
    bytes_of(records, running, durable, &fresh_home())
}

/// The first of two transactions in flight may be lost, and the second not.
#[test]
fn a_later_transaction_proves_an_earlier_one_only_by_its_durable_floor() {
    let records = format(512, 1);
    let torn = |mut run: Vec<u8>| {
        let end = run.len() - 1;
        run[end] ^= 1;
        run
    };
    // 3 was issued while 2 was in flight, 4 while 3 was: nothing records that 2 was ever durable.
    let first = one_change(&*records, 1, 0, 100);
    let second = torn(one_change(&*records, 2, 1, 700));
    let in_flight = [one_change(&*records, 3, 1, 100), one_change(&*records, 4, 1, 100)].concat();
    let log = [first.clone(), second.clone(), in_flight].concat();
    for until_damage in [false, true] {
        let recovered = recover_with(&records, &log, 1, &mut fresh_home(), until_damage).unwrap();
        assert_eq!((recovered.scanned.end, recovered.scanned.gave_up), (TransactionId(2), false));
    }
    // 4 was issued when 2 was durable: the remains of 2 are damage.
    let after = [one_change(&*records, 3, 1, 100), one_change(&*records, 4, 2, 100)].concat();
    let log = [first, second, after].concat();
    let recovered = recover_with(&records, &log, 1, &mut fresh_home(), true).unwrap();
    assert_eq!((recovered.scanned.end, recovered.scanned.gave_up), (TransactionId(2), true));
    let error = recover(&records, &log, 1, &mut fresh_home()).err();
    assert!(
        matches!(error, Some(RecoverError::Damaged { transaction: TransactionId(2), .. })),
        "{error:?}"
    );
}

#[test]
fn what_an_earlier_log_left_behind_is_neither_replayed_nor_proof() {
    let (earlier, now) = (format(512, 1), format(512, 2));
    let left = |id| one_change(&*earlier, id, id - 1, 100);
    let log = [one_change(&*now, 1, 0, 100), left(2), left(3), left(4)].concat();
    let recovered = recover(&now, &log, 1, &mut fresh_home()).unwrap();
    assert_eq!(recovered.scanned.end, TransactionId(2));
}

/// A file may hold what looks like a transaction of this very log, at any place.
#[test]
fn bytes_of_a_file_are_never_taken_for_a_transaction() {
    let records = format(512, 7);
    let forged = one_change(&*records, 9, 8, 100);
    for shift in 0..512 {
        let mut home = fresh_home();
        let block = home.get_mut(&1).unwrap();
        block[shift..shift + forged.len()].copy_from_slice(&forged);
        let mut running = running(1);
        running.add_data_block(HomeBlock(1), 1024);
        let mut log = bytes_of(&*records, running, 0, &home);
        // The first unit is lost.
        log[..512].fill(0);
        let recovered = recover(&records, &log, 1, &mut fresh_home()).unwrap();
        assert_eq!(recovered.scanned.end, TransactionId(1), "shift {shift}");
    }
}

#[test]
fn a_new_block_shows_nothing_of_what_the_disk_held() {
    let records = format(512, 1);
    let mut now = fresh_home();
    // Nearly empty, empty, and full.
    for (at, from, byte) in [(3, 1000, 7), (4, 1024, 0), (5, 0, 9)] {
        let block = now.get_mut(&at).unwrap();
        block.fill(0);
        block[from..].fill(byte);
    }
    let mut running = running(1);
    (3..6).for_each(|at| _ = running.add_metadata(HomeBlock(at), &[size().whole()]));
    let log = bytes_of(&*records, running, 0, &now);
    assert_eq!(log.len(), 1536, "the zeros of new blocks are not logged");
    let mut home = fresh_home();
    let recovered = recover(&records, &log, 1, &mut home).unwrap();
    assert_eq!((recovered.whole, recovered.parts), (1, 2));
    assert!((3..6).all(|at| home[&at] == now[&at]));
}

/// Memory may have the written bytes and not those between: then it holds zeros there.
#[test]
fn what_lies_between_near_writes_of_file_data_stays_as_home_has_it() {
    let records = format(512, 1);
    let (mut unread, mut running, mut expected) = (fresh_home(), running(1), fresh_home());
    unread.get_mut(&5).unwrap().fill(0);
    for (start, end) in [(10, 12), (13, 20), (24, 25)] {
        let range = BlockRange::new(start, end);
        for home in [&mut unread, &mut expected] {
            home.get_mut(&5).unwrap()[range.as_usize()].fill(7);
        }
        running.add_data_bytes(HomeBlock(5), range, false);
    }
    let (log, mut home) = (bytes_of(&*records, running, 0, &unread), fresh_home());
    recover(&records, &log, 1, &mut home).unwrap();
    assert!(home == expected && home[&5][12] != 0, "{:?}", &home[&5][8..26]);
}

/// A block of a damaged volume may be one owner's metadata and another's data.
#[test]
fn a_block_with_two_owners_keeps_the_changes_of_both() {
    let records = format(512, 1);
    let mut now = fresh_home();
    let (left, right) = (BlockRange::new(0, 8), BlockRange::new(900, 908));
    for at in 1..4 {
        let block = now.get_mut(&at).unwrap();
        block[left.as_usize()].fill(1);
        block[right.as_usize()].fill(2);
    }
    let mut running = running(1);
    running.add_metadata(HomeBlock(1), &[left]);
    running.add_data_bytes(HomeBlock(1), right, false);
    running.add_data_bytes(HomeBlock(2), right, false);
    running.add_metadata(HomeBlock(2), &[left]);
    running.add_metadata(HomeBlock(3), &[left]);
    running.add_data_block(HomeBlock(3), 8);
    let log = bytes_of(&*records, running, 0, &now);
    let mut home = fresh_home();
    recover(&records, &log, 1, &mut home).unwrap();
    assert_eq!(home, now);
}

/// The coverage that replay relies on matches the written record.
#[test]
fn coverage_is_that_of_the_record() {
    let records = format(512, 1);
    for end in [1, 100, 506, 507, 508, 700, 1024] {
        let range = BlockRange::new(0, end);
        let mut running = running(1);
        running.add_metadata(HomeBlock(2), &[range]);
        let log = bytes_of(&*records, running, 0, &fresh_home());
        let recovered = recover(&records, &log, 1, &mut fresh_home()).unwrap();
        let mut ranges = RangeSet::new();
        ranges.insert(range);
        let is_whole = records.metadata_coverage(&ranges) == Coverage::Whole;
        assert_eq!(is_whole, recovered.whole == 1, "{range:?}");
        assert_eq!(is_whole, end > 506, "{range:?}");
    }
}

/// A bitmap that changes with every commit, and other blocks that are written back: the log never
/// waits for the bitmap.
#[test]
fn a_block_that_changes_all_the_time_does_not_hold_up_the_tail() {
    const HOT: HomeBlock = HomeBlock(0);
    let records = format(512, 1);
    let capacity = 2 * LOG_BLOCKS;
    let mut log = CircularLog::new(LogBlock(2), LogBlock(2 + capacity + 1));
    let mut checkpoint = Checkpoint::new(TransactionId(1));
    let now = fresh_home();
    for id in 1..2000u32 {
        let mut running = running(id);
        running.add_metadata(HOT, &[BlockRange::new(id % 1000, id % 1000 + 2)]);
        running.add_metadata(HomeBlock(1 + u64::from(id) % 30), &[BlockRange::new(4, 300)]);
        let mut locked = running.lock();
        checkpoint.log_hot_blocks_whole(&mut locked, capacity);
        let images = |home: HomeBlock| Rc::new(Buffer::copy_of(&now[&home.get()]));
        let mut plan = plan_commit(&locked, &images, &mut log, &*records, &stamp(id - 1)).unwrap();
        plan.issue(&mut log);
        checkpoint.committed(&plan.carried_out(locked.start_commit()));
        // Write-back under pressure: all but the hot block.
        for home in checkpoint.all_blocks().into_iter().filter(|home| *home != HOT) {
            checkpoint.home_written(home, TransactionId(id));
        }
        log.release_before(checkpoint.tail());
        assert!(log.free() > capacity / 2, "transaction {id}: {} of {capacity} free", log.free());
    }
}

/// Log bytes of syncs of 128 bytes: one writer alone, and a group of 100 whose inodes lie 4 to a
/// block.
#[test]
fn a_sync_of_128_bytes_takes_a_sector_or_250_bytes_in_a_group() {
    let block_records = {
        let mut superblock = JournalSuperblock::new(size(), LOG_BLOCKS, [9; 16]);
        let wanted = RecordsWanted {
            format: RecordFormat::Blocks,
            unit: 0,
            bytes: true,
            checksums: true,
            transaction_checksum: false,
            wide: false,
            gap_bytes: 0,
        };
        records::begin(&mut superblock, wanted, || unreachable!("blocks have no nonce"))
    };
    // Fields of an inode: size, blocks, version, times, and both halves of the checksum.
    const OF_INODE: [(u32, u32); 7] =
        [(4, 8), (12, 20), (28, 32), (36, 40), (124, 126), (130, 140), (144, 152)];
    let blocks = |records: &dyn Records, writers: u64| {
        let mut running = running(1);
        for writer in 0..writers {
            running.add_data_bytes(HomeBlock(5000 + writer * 7), BlockRange::new(128, 256), false);
            let inode = (writer % 4 * 256) as u32;
            for (start, end) in OF_INODE {
                let range = BlockRange::new(inode + start, inode + end);
                running.add_metadata(HomeBlock(1000 + writer / 4), &[range]);
            }
        }
        let image = Rc::new(Buffer::copy_of(&[7; 1024]));
        let locked = running.lock();
        let (written, _) = records.writer(&locked, &stamp(0)).finish(&|_| image.clone());
        written.count(records.block_bytes()) as usize * records.block_bytes()
    };
    let packed = format(512, 1);
    for (name, records) in [("blocks", &block_records), ("packed", &packed)] {
        let (alone, group) = (blocks(&**records, 1), blocks(&**records, 100));
        println!("records={name}: {alone} bytes for a sync alone, {} for each of 100", group / 100);
    }
    assert_eq!(blocks(&*packed, 1), 512);
    assert!(blocks(&*packed, 100) <= 100 * 250, "{}", blocks(&*packed, 100));
    assert!(blocks(&*block_records, 100) > 2 * blocks(&*packed, 100));
}
