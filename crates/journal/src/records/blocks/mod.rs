//! `records=blocks`: the log as in JBD2, descriptors followed by whole blocks; plus our multiwrite
//! blocks, which hold parts of blocks (paper, section 3.1).
//!
//! With multiwrite blocks allowed and checksums on, the commit block carries a checksum over the
//! whole transaction, and needs no barrier before it. A plain log needs that barrier: the kernel
//! and e2fsck look at the checksums of blocks only while replaying. To them a torn last transaction
//! would be corruption, not the end.

mod decide;
mod replay;
mod scan;
mod write;

use super::{CommitStamp, Decoder, RecordWriter, Records, Scanner};
use crate::pass_outcome::RecoverError;
use crate::ranges::RangeSet;
use crate::transaction::{Coverage, Holdings, LockedTransaction};
use format::jbd2::{JournalSuperblock, LogLayout, RevokeBlock, live_fast_commit};
use units::{LogBlock, TransactionId};

#[derive(Clone, Copy, Debug)]
pub struct BlockRecords {
    layout: LogLayout,
    /// Commit blocks may carry checksum v1.
    has_ancient_checksum: bool,
    /// First block of the kernel's fast commits, beside the log.
    fast_commits: Option<LogBlock>,
}

impl BlockRecords {
    pub fn of(superblock: &JournalSuperblock) -> BlockRecords {
        BlockRecords {
            layout: superblock.layout(),
            has_ancient_checksum: superblock.has_ancient_checksum(),
            fast_commits: superblock.fast_commit_start(),
        }
    }

    /// Whether commit blocks carry a checksum over the whole transaction.
    fn is_sealed(&self) -> bool {
        self.layout.multiwrite && self.layout.has_checksums()
    }
}

impl Records for BlockRecords {
    fn block_bytes(&self) -> usize {
        self.layout.block_size.bytes()
    }
    fn holds_parts(&self) -> bool {
        self.layout.multiwrite
    }
    fn logs_images(&self) -> bool {
        true
    }
    fn writer<'a>(
        &self,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> Box<dyn RecordWriter + 'a> {
        Box::new(write::BlockWriter::new(*self, transaction, stamp))
    }
    /// Returns `Whole`: metadata is logged in regular blocks, however little changed.
    fn metadata_coverage(&self, _ranges: &RangeSet) -> Coverage {
        Coverage::Whole
    }

    fn log_blocks_bound(&self, holdings: &Holdings) -> u32 {
        let block = self.block_bytes() as u64;
        let Holdings { blocks: regular, fragments, fragment_bytes, revokes } = *holdings;
        // The longest tags take 16 bytes, 20 with a range. All count 20, so that a fragment made
        // with the credit of a regular block never raises the bound. Capacity: a block without
        // header, UUID and checksum, and up to 19 bytes at its end in which no tag fits.
        let descriptors = ((regular + fragments) * 20).div_ceil(block - 12 - 16 - 4 - 19);
        // Two consecutive multiwrite blocks hold more than one block of bytes, else they would be
        // one; each descriptor begins anew.
        let multiwrite = fragments.min(2 * fragment_bytes / block + 1 + descriptors);
        let revokes = revokes.div_ceil((block - 16 - 4) / 8);
        u32::try_from(regular + descriptors + multiwrite + revokes + 1).unwrap_or(u32::MAX)
    }
    fn revoke_blocks_bound(&self, revokes: u64) -> u32 {
        revokes.div_ceil(RevokeBlock::capacity(&self.layout) as u64) as u32
    }

    fn scanner(&self, first: TransactionId) -> Box<dyn Scanner> {
        Box::new(scan::BlockScanner::new(*self, first))
    }
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(replay::BlockDecoder::new(self.layout))
    }
    fn proves_commits(&self) -> bool {
        self.layout.has_checksums()
    }
    fn epilogue(&self) -> Option<LogBlock> {
        self.fast_commits
    }
    fn check_epilogue(&self, end: TransactionId, block: &[u8]) -> Result<(), RecoverError> {
        match live_fast_commit(block, end) {
            true => Err(RecoverError::FastCommits { transaction: end }),
            false => Ok(()),
        }
    }
}
