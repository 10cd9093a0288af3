use super::scan::{LogArea, check_size};
use super::{Pass, PassCounts, RecoverError};
use format::jbd2::{BlockHeader, BlockType, JournalSuperblock, LogLayout};
use units::{LogBlock, TransactionId};

/// Finds where the log begins when the superblock has forgotten it: `tune2fs` of e2fsprogs 1.47.0 writes `s_start` 0
/// before it refuses a log with multiwrite blocks, and nothing else. `s_sequence` still names the first transaction,
/// so the log begins with that one's first descriptor or revoke block. Reads each log block once.
pub struct FindPass {
    log: LogArea,
    layout: LogLayout,
    sequence: TransactionId,
    at: Option<LogBlock>,
    /// Blocks that may be the first, in the order of their addresses.
    found: Vec<LogBlock>,
    counts: PassCounts,
}

impl FindPass {
    pub fn new(superblock: &JournalSuperblock) -> FindPass {
        let log = LogArea::of(superblock);
        FindPass {
            log,
            layout: superblock.layout(),
            sequence: superblock.sequence,
            at: Some(log.first),
            found: Vec::new(),
            counts: PassCounts::default(),
        }
    }

    /// The log block with which the log begins.
    pub fn finish(self) -> Option<LogBlock> {
        // A transaction takes less than half of the log, so before its first block is the widest gap.
        let before = self.found.last().into_iter().chain(&self.found);
        let gap = |(at, before): &(&LogBlock, &LogBlock)| {
            let blocks = self.log.blocks();
            match (at.get() + blocks - before.get()) % blocks {
                0 => blocks,
                gap => gap,
            }
        };
        self.found.iter().zip(before).max_by_key(gap).map(|(at, _)| *at)
    }
}

impl Pass for FindPass {
    fn wants(&self) -> Option<LogBlock> {
        self.at
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let at = self.at.expect("no block was wanted");
        check_size(block, &self.layout, at)?;
        self.counts.log_blocks_read += 1;
        let begins = BlockHeader::parse(block).is_some_and(|header| {
            header.transaction == self.sequence
                && matches!(header.kind, Some(BlockType::Descriptor | BlockType::Revoke))
                && self.layout.is_intact(block)
        });
        if begins {
            self.found.push(at);
        }
        self.at = Some(self.log.after(at)).filter(|next| *next != self.log.first);
        Ok(())
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}
