//! Writes the run of a transaction: its blocks in order of their addresses, whatever kind of record
//! each has.

use super::{PackedRecords, parts};
use crate::plan::BlockKind;
use crate::ranges::RangeSet;
use crate::records::{CommitStamp, Images, LogBlocks, LogContent, RecordWriter, WholeBlocks};
use crate::transaction::{LockedTransaction, Record};
use device::Buffer;
use format::packed::{RunPieces, RunWriter};
use std::rc::Rc;
use units::HomeBlock;

/// Bytes that small synchronous writes record of a block, and a little more.
const BYTES_OF_A_BLOCK: usize = 256;
/// Blocks of 4 KiB in a piece: what sum and copy of it count as.
const BLOCKS_OF_A_PIECE: usize = RunWriter::PIECE / 4096;

/// Record of one block in a transaction.
enum BlockRecord<'a> {
    Revoked,
    Metadata(&'a RangeSet),
    Data(&'a Record),
}

pub(super) struct PackedWriter<'a> {
    records: PackedRecords,
    transaction: &'a LockedTransaction,
    stamp: CommitStamp,
    wholes: WholeBlocks,
    /// Blocks without a record yet.
    blocks: std::vec::IntoIter<(HomeBlock, BlockRecord<'a>)>,
    /// The run; `None` behind its last record, when its pieces are taken.
    run: Option<RunWriter>,
    ended: Option<RunPieces>,
    /// Pieces that were taken.
    pieces: LogBlocks,
}

impl<'a> PackedWriter<'a> {
    pub fn new(
        records: PackedRecords,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> PackedWriter<'a> {
        let revoked = transaction.revoked().map(|home| (home, BlockRecord::Revoked));
        let metadata = transaction
            .metadata_ranges()
            .map(|(home, ranges)| (home, BlockRecord::Metadata(ranges)));
        let data = transaction.data().map(|(home, record)| (home, BlockRecord::Data(record)));
        let mut blocks: Vec<(HomeBlock, BlockRecord)> =
            revoked.chain(metadata).chain(data).collect();
        // No block is in two of them. Near addresses take fewer bytes.
        blocks.sort_by_key(|(home, _)| *home);
        PackedWriter {
            records,
            transaction,
            stamp: *stamp,
            wholes: WholeBlocks::new(),
            run: Some(RunWriter::new(records.unit, blocks.len() * BYTES_OF_A_BLOCK)),
            blocks: blocks.into_iter(),
            ended: None,
            pieces: LogBlocks::new(),
        }
    }

    /// Writes a record, or takes a piece behind the last one. Returns false if none is left.
    fn write_one(&mut self, images: Images) -> bool {
        if let Some((home, record)) = self.blocks.next() {
            self.write_record(home, record, images);
            return true;
        }
        let next = self.ended().next_behind_first();
        next.map(|piece| self.pieces.push(block_of(piece))).is_some()
    }

    fn write_record(&mut self, home: HomeBlock, record: BlockRecord, images: Images) {
        let run = self.run.as_mut().expect("records come before the end of the run");
        match record {
            BlockRecord::Revoked if units::fault!("packed-revoke") => {}
            BlockRecord::Revoked => run.revoke(home),
            BlockRecord::Metadata(ranges) => {
                let whole = metadata_block(&self.records, home, ranges, &images(home), run);
                self.wholes.extend(whole.map(|at| (home, at)));
            }
            BlockRecord::Data(Record::Whole) => {
                let durable_only = self.transaction.is_durable_only(home);
                self.wholes.push((home, run.whole(home, &images(home), durable_only)));
            }
            BlockRecord::Data(Record::Bytes { ranges, base_zero }) => {
                let joined = parts::of_metadata(ranges, self.records.block_size);
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

    fn ended(&mut self) -> &mut RunPieces {
        let (run, sums) = (&mut self.run, (self.records.sums, self.records.seed));
        self.ended.get_or_insert_with(|| run.take().expect("a run that has not ended").end(sums))
    }
}

impl RecordWriter for PackedWriter<'_> {
    fn write_some(&mut self, images: Images, blocks: usize) -> bool {
        let mut left = blocks;
        while left > 0 {
            let work = if self.blocks.len() > 0 { 1 } else { BLOCKS_OF_A_PIECE };
            if !self.write_one(images) {
                return false;
            }
            left = left.saturating_sub(work);
        }
        true
    }

    fn finish(mut self: Box<Self>, images: Images) -> (LogContent, WholeBlocks) {
        while self.write_one(images) {}
        let PackedWriter { transaction, stamp, wholes, ended, pieces, .. } = *self;
        let ended = ended.expect("a run whose pieces were taken");
        let first = block_of(ended.first(transaction.id, stamp.durable, stamp.time));
        (LogContent::Sealed(std::iter::once(first).chain(pieces).collect()), wholes)
    }
}

fn block_of(piece: Vec<u8>) -> (BlockKind, Rc<Buffer>) {
    (BlockKind::Packed, Rc::new(Buffer::copy_of(&piece)))
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
