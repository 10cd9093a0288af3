//! `records=packed`: a transaction is one contiguous run of the bytes that changed, of metadata as
//! well as of data. It has one checksum over all of it, and may be as short as a sector.
//!
//! 1. Changes of a metadata block are logged as ranges; near ones are joined where that is shorter.
//!    The block is logged whole from half a block on, so that a record supersedes what it nearly
//!    replaces.
//! 2. A block that was newly made was declared to have changed as a whole. It is logged whole, or
//!    as bytes on a base of zeros: its home content never matters.
//! 3. Ranges of file data are never joined: the bytes between them may not be in memory.
//! 4. Only the durable floor in a later header proves that a transaction was durable, never that
//!    there is a later one.

mod parts;
mod replay;
mod scan;
mod write;

use super::{CommitStamp, Decoder, RecordWriter, Records, Scanner};
use crate::ranges::RangeSet;
use crate::transaction::{Coverage, Holdings, LockedTransaction};
use device::Buffer;
use format::TransactionSums;
use format::jbd2::{JournalSuperblock, Seed};
use format::packed::{PackedHeader, PackedLog, RunWriter, read_again, units_from};
use units::{BlockSize, TransactionId};

/// Least bytes of a buffer: few are shorter.
const BUFFER_MIN: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub struct PackedRecords {
    /// Bytes of a log block.
    unit: usize,
    /// Size of home blocks.
    block_size: BlockSize,
    seed: Seed,
    sums: TransactionSums,
}

impl PackedRecords {
    pub fn of(superblock: &JournalSuperblock, packed: PackedLog) -> PackedRecords {
        PackedRecords {
            unit: packed.unit as usize,
            block_size: superblock.block_size,
            seed: superblock.packed_seed(),
            sums: superblock.transaction_sums(),
        }
    }
}

impl Records for PackedRecords {
    fn block_bytes(&self) -> usize {
        self.unit
    }
    /// Returns the unit's bytes plus its share of what a buffer takes beyond them. The buffer
    /// counts as one that is as long as a block, since that of a short run is no longer.
    fn block_memory(&self) -> usize {
        self.unit + Buffer::overhead_of(self.unit.min(BUFFER_MIN))
    }
    fn holds_parts(&self) -> bool {
        true
    }
    fn writer<'a>(
        &self,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> Box<dyn RecordWriter + 'a> {
        Box::new(write::PackedWriter::new(*self, transaction, stamp))
    }
    fn blocks_of_whole(&self, offset: usize, bytes: usize) -> u32 {
        units_from(offset, bytes, self.unit)
    }
    fn read_whole(&self, log: &[u8], offset: usize, block: &mut [u8]) {
        read_again(log, self.unit, offset, block);
    }
    fn metadata_coverage(&self, ranges: &RangeSet) -> Coverage {
        match parts::logs_parts(ranges, self.block_size) {
            true if units::fault!("packed-coverage") => Coverage::Whole,
            true => Coverage::Fragment,
            false => Coverage::Whole,
        }
    }

    fn log_blocks_bound(&self, holdings: &Holdings) -> u32 {
        let Holdings { blocks, fragments, fragment_bytes, revokes } = *holdings;
        // Parts of a metadata block are logged only if they take less than the block does. A
        // fragment of data counts as a record of its own. So one that is made with the credit of a
        // block never raises the bound.
        let head = RunWriter::HEAD_MAX as u64;
        let bytes = blocks * (self.block_size.bytes() as u64 + head)
            + (fragments * head + fragment_bytes)
            + revokes * RunWriter::REVOKE_MAX as u64;
        PackedHeader::units_of(bytes, self.unit)
    }
    fn revoke_blocks_bound(&self, revokes: u64) -> u32 {
        let bytes = revokes * RunWriter::REVOKE_MAX as u64;
        // One byte of each unit belongs to no record, and a record need not fill the rest of the
        // last unit.
        u32::try_from(bytes.div_ceil(self.unit as u64 - 1) + 1).unwrap_or(u32::MAX)
    }

    fn scanner(&self, first: TransactionId) -> Box<dyn Scanner> {
        Box::new(scan::PackedScanner::new(*self, first))
    }
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(replay::PackedDecoder::new(*self))
    }
    fn proves_commits(&self) -> bool {
        true
    }
}
