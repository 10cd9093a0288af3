use super::error::JournalFormatError;
use super::header::{BlockHeader, BlockType};
use super::layout::LogLayout;
use crate::field::{be32, be64, put32, put64};
use units::{HomeBlock, LogBlock, TransactionId};

/// Bytes of the header and `r_count`.
const START: usize = 16;

/// Blocks whose log copies, up to this transaction, must not be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevokeBlock {
    pub transaction: TransactionId,
    pub blocks: Vec<HomeBlock>,
}

impl RevokeBlock {
    /// Returns the number of block numbers that fit.
    pub fn capacity(layout: &LogLayout) -> usize {
        (layout.end() - START) / layout.revoke_bytes()
    }

    pub fn serialize(&self, layout: &LogLayout, block: &mut [u8]) {
        assert!(
            self.blocks.len() <= Self::capacity(layout),
            "{} revokes do not fit",
            self.blocks.len()
        );
        block.fill(0);
        BlockHeader::put(BlockType::Revoke, self.transaction, block);
        let mut at = START;
        for home in &self.blocks {
            match layout.wide {
                true => put64(block, at, home.get()),
                false => put32(
                    block,
                    at,
                    u32::try_from(home.get()).expect("a 32-bit journal has 32-bit homes"),
                ),
            }
            at += layout.revoke_bytes();
        }
        put32(block, BlockHeader::SIZE, at as u32);
        layout.seal(block);
    }

    /// `block`: a whole log block whose header says revoke; intactness is asked of
    /// [`LogLayout::is_intact`].
    pub fn parse(
        block: &[u8],
        layout: &LogLayout,
        at: LogBlock,
    ) -> Result<RevokeBlock, JournalFormatError> {
        layout.check_size(block, "revoke block", at)?;
        let wrong = |why: String| JournalFormatError::Block { at, what: "revoke block", why };
        let header =
            BlockHeader::parse(block).filter(|header| header.kind == Some(BlockType::Revoke));
        let Some(BlockHeader { transaction, .. }) = header else {
            return Err(wrong("its header is gone".to_owned()));
        };
        let used = be32(block, BlockHeader::SIZE) as usize;
        if used < START || used > layout.end() {
            return Err(wrong(format!("it claims to use {used} bytes")));
        }
        let entries = block[START..used].chunks_exact(layout.revoke_bytes());
        let number =
            |entry: &[u8]| if layout.wide { be64(entry, 0) } else { u64::from(be32(entry, 0)) };
        Ok(RevokeBlock {
            transaction,
            blocks: entries.map(|entry| HomeBlock(number(entry))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::TagFormat;
    use super::*;
    use units::BlockSize;

    const AT: LogBlock = LogBlock(5);

    #[test]
    fn empty_and_full_revoke_blocks_come_back_as_written() {
        for size in [1024, 2048, 4096] {
            for (tags, wide) in [
                (TagFormat::Plain, false),
                (TagFormat::ChecksumV3, false),
                (TagFormat::ChecksumV3, true),
            ] {
                let layout = LogLayout::new(BlockSize::new(size).unwrap(), tags, [3; 16]);
                let layout = LogLayout { wide, ..layout };
                let high = if wide { 1 << 40 } else { 0 };
                for count in [0, 1, RevokeBlock::capacity(&layout)] {
                    let blocks = (0..count as u64).map(|number| HomeBlock(high + number)).collect();
                    let revoke = RevokeBlock { transaction: TransactionId(8), blocks };
                    let mut block = vec![0; size as usize];
                    revoke.serialize(&layout, &mut block);
                    assert!(layout.is_intact(&block));
                    assert_eq!(RevokeBlock::parse(&block, &layout, AT).unwrap(), revoke);
                }
            }
        }
    }

    #[test]
    fn a_count_outside_the_block_is_refused() {
        let layout = LogLayout::new(BlockSize::new(1024).unwrap(), TagFormat::ChecksumV3, [3; 16]);
        let mut block = vec![0; 1024];
        RevokeBlock { transaction: TransactionId(8), blocks: vec![] }
            .serialize(&layout, &mut block);
        for used in [0, 15, 1021, u32::MAX] {
            put32(&mut block, BlockHeader::SIZE, used);
            assert!(RevokeBlock::parse(&block, &layout, AT).is_err(), "{used}");
        }
    }
}
