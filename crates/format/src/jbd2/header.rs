use super::MAGIC;
use crate::field::{be32, put32};
use units::TransactionId;

/// Type of a journal block (`h_blocktype`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockType {
    Descriptor,
    Commit,
    SuperblockV1,
    SuperblockV2,
    Revoke,
}

impl BlockType {
    pub const fn number(self) -> u32 {
        match self {
            BlockType::Descriptor => 1,
            BlockType::Commit => 2,
            BlockType::SuperblockV1 => 3,
            BlockType::SuperblockV2 => 4,
            BlockType::Revoke => 5,
        }
    }
    pub fn from_number(number: u32) -> Option<BlockType> {
        use BlockType::*;
        [Descriptor, Commit, SuperblockV1, SuperblockV2, Revoke]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// The 12 bytes at the start of every journal block that is not a logged one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Block type; `None` for an unknown one, which ends the log like a missing magic.
    pub kind: Option<BlockType>,
    pub transaction: TransactionId,
}

impl BlockHeader {
    pub const SIZE: usize = 12;

    /// Parses the header of a block of 12 bytes or more. `None` without the magic: the block is a
    /// logged one, or the log ends here.
    pub fn parse(block: &[u8]) -> Option<BlockHeader> {
        if block.len() < Self::SIZE || be32(block, 0) != MAGIC {
            return None;
        }
        let kind = BlockType::from_number(be32(block, 4));
        Some(BlockHeader { kind, transaction: TransactionId(be32(block, 8)) })
    }

    pub(super) fn put(kind: BlockType, transaction: TransactionId, block: &mut [u8]) {
        put32(block, 0, MAGIC);
        put32(block, 4, kind.number());
        put32(block, 8, transaction.0);
    }
}

/// Zeroes the first four bytes of a logged block that begins with the magic: it would look like a
/// journal block to a scan that starts at the wrong place. Returns true if that was needed; the
/// block's tag is then flagged.
pub fn escape(block: &mut [u8]) -> bool {
    let needed = be32(block, 0) == MAGIC;
    if needed {
        put32(block, 0, 0);
    }
    needed
}

/// Undoes [`escape`] for a block whose tag is flagged.
pub fn unescape(block: &mut [u8]) {
    put32(block, 0, MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_block_is_no_journal_block_and_comes_back_unchanged() {
        let mut block = vec![7; 1024];
        assert!(!escape(&mut block));
        BlockHeader::put(BlockType::Commit, TransactionId(3), &mut block);
        let original = block.clone();
        let header = BlockHeader { kind: Some(BlockType::Commit), transaction: TransactionId(3) };
        assert_eq!(BlockHeader::parse(&block), Some(header));
        assert!(escape(&mut block));
        assert_eq!(BlockHeader::parse(&block), None);
        unescape(&mut block);
        assert_eq!(block, original);
    }
}
