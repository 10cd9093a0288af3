//! Writes the run of a transaction: its blocks in order of their addresses, whatever kind of record
//! each has.

use super::{PackedRecords, parts};
use crate::plan::BlockKind;
use crate::ranges::RangeSet;
use crate::records::{CommitStamp, Images, LogContent, WholeBlocks};
use crate::transaction::{LockedTransaction, Record};
use device::Buffer;
use format::packed::RunWriter;
use std::rc::Rc;
use units::HomeBlock;

/// Bytes that small synchronous writes record of a block, and a little more.
const BYTES_OF_A_BLOCK: usize = 256;

/// Record of one block in a transaction.
enum BlockRecord<'a> {
    Revoked,
    Metadata(&'a RangeSet),
    Data(&'a Record),
}

pub(super) fn write(
    records: &PackedRecords,
    transaction: &LockedTransaction,
    images: Images,
    stamp: &CommitStamp,
    wholes: &mut WholeBlocks,
) -> LogContent {
    let revoked = transaction.revoked().map(|home| (home, BlockRecord::Revoked));
    let metadata =
        transaction.metadata_ranges().map(|(home, ranges)| (home, BlockRecord::Metadata(ranges)));
    let data = transaction.data().map(|(home, record)| (home, BlockRecord::Data(record)));
    let mut records_of_blocks: Vec<(HomeBlock, BlockRecord)> =
        revoked.chain(metadata).chain(data).collect();
    // No block is in two of them. Near addresses take fewer bytes.
    records_of_blocks.sort_by_key(|(home, _)| *home);

    let mut run = RunWriter::new(records.unit, records_of_blocks.len() * BYTES_OF_A_BLOCK);
    for (home, record) in records_of_blocks {
        match record {
            BlockRecord::Revoked if units::fault!("packed-revoke") => {}
            BlockRecord::Revoked => run.revoke(home),
            BlockRecord::Metadata(ranges) => {
                let whole = metadata_block(records, home, ranges, &images(home), &mut run);
                wholes.extend(whole.map(|at| (home, at)));
            }
            BlockRecord::Data(Record::Whole) => wholes
                .push((home, run.whole(home, &images(home), transaction.is_durable_only(home)))),
            BlockRecord::Data(Record::Bytes { ranges, base_zero }) => {
                let joined = parts::of_metadata(ranges, records.block_size);
                let joined = joined.filter(|_| units::fault!("packed-data-joined"));
                run.parts(
                    home,
                    joined.as_deref().unwrap_or(ranges.as_slice()),
                    &images(home),
                    *base_zero,
                )
            }
        }
    }
    let pieces =
        run.finish(transaction.id, stamp.durable, stamp.time, (records.sums, records.seed));
    // Each is freed before the next is copied.
    let piece = |bytes: Vec<u8>| (BlockKind::Packed, Rc::new(Buffer::copy_of(&bytes)));
    LogContent::Sealed(pieces.into_iter().map(piece).collect())
}

/// Records a metadata block, whose image is known as a whole, so it may be logged whole, and
/// without its zeros. Returns where it is whole.
fn metadata_block(
    records: &PackedRecords,
    home: HomeBlock,
    ranges: &RangeSet,
    image: &[u8],
    run: &mut RunWriter,
) -> Option<u64> {
    assert_eq!(image.len(), records.block_size.bytes(), "the image of {home}");
    if let Some(parts) = parts::of_metadata(ranges, records.block_size) {
        run.parts(home, &parts, image, false);
    } else if let Some(parts) = parts::of_image(image, records.block_size) {
        let base_zero = parts.is_empty() || !units::fault!("packed-base");
        run.parts(home, &parts, image, base_zero);
    } else {
        return Some(run.whole(home, image, false));
    }
    None
}
