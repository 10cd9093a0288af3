use super::*;
use crate::seed::Seed;
use crate::whole_transaction::{TransactionSums, WholeTransaction};
use units::{BlockRange, BlockSize, HomeBlock, SplitMix, Timestamp, TransactionId};

const SEED: Seed = Seed(0x1234_5678);
const SUMS: TransactionSums = TransactionSums::Xxh64;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Owned {
    Revoke(HomeBlock),
    Whole(HomeBlock, bool, Vec<u8>),
    Part(HomeBlock, BlockRange, Vec<u8>, bool),
}

/// Reads the units of a run, each cut at `cut`.
fn read(run: &[u8], unit: usize, size: BlockSize, cut: usize) -> Result<Vec<Owned>, MalformedRun> {
    let header = PackedHeader::parse(run, SEED).expect("a header");
    assert_eq!(header.units(unit) as usize * unit, run.len());
    let mut whole = WholeTransaction::new(SUMS, SEED);
    whole.add(&run[PackedHeader::SIZE..]);
    assert_eq!(header.body_sum, whole.sum());
    let (mut reader, mut found) = (RecordReader::new(size, header.length), Vec::new());
    for (index, unit) in run.chunks(unit).enumerate() {
        let records = PackedHeader::records_in(index == 0, unit);
        let (left, right) = records.split_at(cut.min(records.len()));
        for piece in [left, right] {
            reader.give(piece, &mut |item| {
                found.push(match item {
                    Item::Revoke(home) => Owned::Revoke(home),
                    Item::Whole { home, durable_only, bytes, .. } => {
                        Owned::Whole(home, durable_only, bytes.to_vec())
                    }
                    Item::Part { home, range, bytes, base_zero } => {
                        Owned::Part(home, range, bytes.to_vec(), base_zero)
                    }
                });
                Ok::<(), MalformedRun>(())
            })?;
        }
    }
    if reader.is_complete() { Ok(found) } else { Err(MalformedRun("the end is missing")) }
}

fn random_parts(random: &SplitMix, size: BlockSize) -> Vec<BlockRange> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for _ in 0..1 + random.below(4) {
        let start = at + random.below(300) as u32;
        let most = if random.below(4) == 0 { 1000 } else { 40 };
        let end = start + 1 + random.below(most) as u32;
        if end as usize > size.bytes() {
            break;
        }
        parts.push(BlockRange::new(start, end));
        at = end;
    }
    parts
}

fn finish(
    writer: RunWriter,
    transaction: TransactionId,
    durable: TransactionId,
    time: Timestamp,
) -> Vec<Vec<u8>> {
    let mut pieces = writer.end((SUMS, SEED));
    let rest: Vec<_> = std::iter::from_fn(|| pieces.next_behind_first()).collect();
    [vec![pieces.first(transaction, durable, time)], rest].concat()
}

#[test]
fn every_written_run_is_read_back() {
    for seed in 0..300 {
        let random = SplitMix::new(seed);
        let unit = [512, 1024, 4096][random.below(3) as usize];
        let size = BlockSize::new([1024, 4096][random.below(2) as usize]).unwrap();
        let (mut writer, mut expected) = (RunWriter::new(unit, 0), Vec::new());
        let mut home = HomeBlock(random.below(1 << 30) << random.below(33));
        for _ in 0..random.below(60) {
            let most = 1 << random.below(30);
            home = HomeBlock(home.get().wrapping_add(1 + random.below(most)));
            let byte = random.below(256) as u8;
            // Many a byte is the header's magic: none may be taken for it.
            let is_magic = random.below(2) == 0;
            let image: Vec<u8> = (0..size.bytes())
                .map(|at| if is_magic { MAGIC.to_be_bytes()[at % 4] } else { at as u8 ^ byte })
                .collect();
            match random.below(4) {
                0 => {
                    writer.revoke(home);
                    expected.push(Owned::Revoke(home));
                }
                1 => {
                    let durable_only = random.below(2) == 0;
                    writer.whole(home, &image, durable_only);
                    expected.push(Owned::Whole(home, durable_only, image));
                }
                kind => {
                    let (parts, base_zero) = (random_parts(&random, size), kind == 2);
                    if parts.is_empty() && !base_zero {
                        continue;
                    }
                    writer.parts(home, &parts, &image, base_zero);
                    if parts.is_empty() {
                        expected.push(Owned::Part(home, BlockRange::new(0, 0), vec![], true));
                    }
                    expected.extend(parts.iter().enumerate().map(|(index, part)| {
                        let first = base_zero && index == 0;
                        Owned::Part(home, *part, image[part.as_usize()].to_vec(), first)
                    }));
                }
            }
        }
        let time = Timestamp { seconds: -3, nanoseconds: 7 };
        let (transaction, durable) =
            (TransactionId(random.below(1 << 32) as u32), TransactionId(9));
        let run = finish(writer, transaction, durable, time).concat();
        let header = PackedHeader::parse(&run, SEED).unwrap();
        assert_eq!((header.transaction, header.durable, header.time), (transaction, durable, time));
        let cut = random.below(unit as u64) as usize;
        assert_eq!(read(&run, unit, size, cut), Ok(expected), "seed {seed}");
        for further in run.chunks(unit).skip(1) {
            assert_eq!(PackedHeader::parse(further, SEED), None, "seed {seed}");
        }
    }
}

#[test]
fn a_header_with_any_changed_byte_or_of_another_log_is_none() {
    let mut writer = RunWriter::new(512, 0);
    writer.revoke(HomeBlock(7));
    let run = finish(writer, TransactionId(1), TransactionId(0), Timestamp::default()).concat();
    assert!(PackedHeader::parse(&run, SEED).is_some());
    assert!(PackedHeader::parse(&run, Seed(7)).is_none());
    for at in 0..PackedHeader::SIZE {
        let mut changed = run.clone();
        changed[at] ^= 4;
        assert_eq!(PackedHeader::parse(&changed, SEED), None, "byte {at}");
    }
}

#[test]
fn parts_take_as_many_bytes_as_was_said() {
    let parts = [BlockRange::new(0, 127), BlockRange::new(255, 400), BlockRange::new(1000, 1001)];
    let mut writer = RunWriter::new(512, 0);
    writer.parts(HomeBlock(3), &parts, &[1; 1024], false);
    let run = finish(writer, TransactionId(1), TransactionId(0), Timestamp::default()).concat();
    let length = PackedHeader::parse(&run, SEED).unwrap().length as usize;
    assert_eq!(length, 2 + RunWriter::parts_length(parts));
}

/// Records in orders that no writer produces, and that do not end where their length says.
#[test]
fn malformed_records_are_refused() {
    let size = BlockSize::new(1024).unwrap();
    let cases: [&[u8]; 8] = [
        &[0, 0],                     // a record of no part
        &[0, 1 << 2, 0, 0],          // an empty part
        &[0, 1 << 2, 0xff, 7, 2, 0], // a part over the end
        &[0, 0x80, 0x80, 1],         // 4096 parts
        &[0, 1 << 2 | 3],            // a revoke with parts
        &[0xff; 20],                 // a number without end
        &[0, 1 << 2, 0, 5, 1],       // cut in a part
        &[0],                        // cut in a head
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let mut reader = RecordReader::new(size, case.len() as u32);
        let given = reader.give::<MalformedRun>(case, &mut |_| Ok(()));
        assert!(given.is_err() || !reader.is_complete(), "case {number}");
    }
}

#[test]
fn a_long_run_comes_in_pieces_that_are_whole_units() {
    for unit in [512, 4096] {
        let (size, image) = (BlockSize::new(4096).unwrap(), vec![5; 4096]);
        let mut writer = RunWriter::new(unit, 0);
        for home in 0..100 {
            writer.whole(HomeBlock(home), &image, false);
        }
        let pieces = finish(writer, TransactionId(1), TransactionId(0), Timestamp::default());
        let (last, full) = pieces.split_last().unwrap();
        assert_eq!(full.len(), 100 * 4096 / RunWriter::PIECE);
        assert!(full.iter().all(|piece| piece.len() == RunWriter::PIECE) && last.len() % unit == 0);
        let found = read(&pieces.concat(), unit, size, unit).unwrap();
        assert!(found.into_iter().eq((0..100).map(|home| Owned::Whole(
            HomeBlock(home),
            false,
            image.clone()
        ))));
    }
}
