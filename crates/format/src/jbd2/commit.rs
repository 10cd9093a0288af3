use super::header::{BlockHeader, BlockType};
use super::layout::LogLayout;
use crate::field::{be32, be64, put32, put64};
use units::{Timestamp, TransactionId};

pub(super) const CHECKSUM_TYPE: usize = 12;
pub(super) const CHECKSUM_SIZE: usize = 13;
pub(super) const OWN_CHECKSUM: usize = 16;
pub(super) const WHOLE_CHECKSUM: usize = 20;
pub(super) const SECONDS: usize = 48;
pub(super) const NANOSECONDS: usize = 56;
/// `h_chksum_type`: CRC-32 (checksum v1), and our checksum of whole transactions, whose kind the
/// superblock states.
const CRC32: u8 = 1;
const OURS: u8 = 4;

/// Ends a transaction: with it on disk, the transaction is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitBlock {
    pub transaction: TransactionId,
    pub time: Timestamp,
    /// Our checksum of all the transaction's other log blocks, in the second checksum word.
    pub whole: Option<u32>,
}

impl CommitBlock {
    pub fn serialize(&self, layout: &LogLayout, block: &mut [u8]) {
        block.fill(0);
        BlockHeader::put(BlockType::Commit, self.transaction, block);
        if let Some(sum) = self.whole {
            (block[CHECKSUM_TYPE], block[CHECKSUM_SIZE]) = (OURS, 4);
            put32(block, WHOLE_CHECKSUM, sum);
        }
        put64(block, SECONDS, self.time.seconds as u64);
        put32(block, NANOSECONDS, self.time.nanoseconds);
        if layout.has_checksums() {
            let sum = own_checksum(layout, block);
            put32(block, OWN_CHECKSUM, sum);
        }
    }

    /// Parses a commit block. `None` unless the header says commit and, with checksums v2 and v3,
    /// the block's own checksum is right. A torn commit block commits nothing.
    pub fn parse(block: &[u8], layout: &LogLayout) -> Option<CommitBlock> {
        let header =
            BlockHeader::parse(block).filter(|header| header.kind == Some(BlockType::Commit))?;
        let intact = || be32(block, OWN_CHECKSUM) == own_checksum(layout, block);
        if block.len() != layout.block_size.bytes() || layout.has_checksums() && !intact() {
            return None;
        }
        // The kernel leaves the type 0 under checksums v2 and v3.
        let has_whole = layout.multiwrite && layout.has_checksums() && block[CHECKSUM_TYPE] == OURS;
        let seconds = be64(block, SECONDS) as i64;
        let time = Timestamp { seconds, nanoseconds: be32(block, NANOSECONDS) };
        Some(CommitBlock {
            transaction: header.transaction,
            time,
            whole: has_whole.then(|| be32(block, WHOLE_CHECKSUM)),
        })
    }

    /// Whether `sum` over the transaction matches checksum v1 of this commit block, if it has one.
    pub fn matches_ancient(block: &[u8], sum: u32) -> bool {
        let found = be32(block, OWN_CHECKSUM);
        match (block[CHECKSUM_TYPE], block[CHECKSUM_SIZE]) {
            (0, 0) => found == 0,
            (CRC32, 4) => found == sum,
            _ => false,
        }
    }
}

fn own_checksum(layout: &LogLayout, block: &[u8]) -> u32 {
    layout.seed.with(&block[..OWN_CHECKSUM]).with(&[0; 4]).with(&block[OWN_CHECKSUM + 4..]).0
}

#[cfg(test)]
mod tests {
    use super::super::TagFormat;
    use super::*;
    use units::BlockSize;

    fn layout(tags: TagFormat) -> LogLayout {
        LogLayout {
            multiwrite: true,
            ..LogLayout::new(BlockSize::new(1024).unwrap(), tags, [3; 16])
        }
    }

    #[test]
    fn commit_blocks_come_back_as_written_and_no_changed_byte_is_missed() {
        let layout = layout(TagFormat::ChecksumV3);
        for whole in [None, Some(0), Some(0xdead_beef)] {
            let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 999 };
            let commit = CommitBlock { transaction: TransactionId(8), time, whole };
            let mut block = vec![0; 1024];
            commit.serialize(&layout, &mut block);
            assert_eq!(CommitBlock::parse(&block, &layout), Some(commit));
            for at in 0..block.len() {
                block[at] ^= 1;
                assert_eq!(CommitBlock::parse(&block, &layout), None, "byte {at}");
                block[at] ^= 1;
            }
        }
    }

    #[test]
    fn the_ancient_checksum_is_checked_only_where_there_is_one() {
        let mut block = vec![0; 1024];
        let commit =
            CommitBlock { transaction: TransactionId(8), time: Timestamp::default(), whole: None };
        commit.serialize(&layout(TagFormat::Plain), &mut block);
        assert!(CommitBlock::matches_ancient(&block, 5));
        (block[CHECKSUM_TYPE], block[CHECKSUM_SIZE]) = (CRC32, 4);
        put32(&mut block, OWN_CHECKSUM, 5);
        assert!(CommitBlock::matches_ancient(&block, 5));
        assert!(!CommitBlock::matches_ancient(&block, 6));
    }
}
