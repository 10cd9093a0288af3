use super::error::JournalFormatError;
use crate::field::{be32, put32};
use crate::seed::Seed;
use crate::whole_transaction::{TransactionSums, WholeTransaction};
use units::{BlockSize, LogBlock, TransactionId};

/// Checksums in the tags of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagFormat {
    /// No checksums in tags (checksum v1, if any, sits in the commit block).
    Plain,
    /// 16 bits in the tag.
    ChecksumV2,
    /// 32 bits in the tag.
    ChecksumV3,
}

/// Layout parameters of descriptors, revokes and commit blocks of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLayout {
    pub block_size: BlockSize,
    pub tags: TagFormat,
    /// Block numbers have 64 bits.
    pub wide: bool,
    /// Multiwrite tags may occur.
    pub multiwrite: bool,
    /// The log lies in scattered logs: tags may mark a block as staying there.
    pub scattered: bool,
    /// Checksums of whole transactions, where commit blocks have them.
    pub sums: TransactionSums,
    pub uuid: [u8; 16],
    /// Seed of the UUID; computed once.
    pub seed: Seed,
}

impl LogLayout {
    pub fn new(block_size: BlockSize, tags: TagFormat, uuid: [u8; 16]) -> LogLayout {
        let seed = Seed::of_journal(&uuid);
        let sums = TransactionSums::Crc32c;
        LogLayout {
            block_size,
            tags,
            wide: false,
            multiwrite: false,
            scattered: false,
            sums,
            uuid,
            seed,
        }
    }
    /// Bytes of a tag, without a multiwrite range or UUID behind it.
    pub fn tag_bytes(&self) -> usize {
        match (self.tags, self.wide) {
            (TagFormat::ChecksumV3, _) => 16,
            (TagFormat::ChecksumV2, true) => 14,
            (TagFormat::ChecksumV2, false) => 10,
            (TagFormat::Plain, true) => 12,
            (TagFormat::Plain, false) => 8,
        }
    }
    /// Bytes of the checksum at the end of descriptor and revoke blocks.
    pub fn tail_bytes(&self) -> usize {
        if self.has_checksums() { 4 } else { 0 }
    }
    /// The checksum of `transaction`: over UUID, its number, and all its log blocks in log order.
    /// The commit block is excluded.
    pub fn whole_transaction(&self, transaction: TransactionId) -> WholeTransaction {
        WholeTransaction::new(self.sums, self.seed.with(&transaction.0.to_be_bytes()))
    }
    /// Checksums v2 or v3.
    pub fn has_checksums(&self) -> bool {
        self.tags != TagFormat::Plain
    }
    /// Bytes of a block number in a revoke block.
    pub fn revoke_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }
    /// The first byte behind tags and revokes.
    pub(super) fn end(&self) -> usize {
        self.block_size.bytes() - self.tail_bytes()
    }
    pub(super) fn check_size(
        &self,
        block: &[u8],
        what: &'static str,
        at: LogBlock,
    ) -> Result<(), JournalFormatError> {
        if block.len() == self.block_size.bytes() {
            return Ok(());
        }
        Err(JournalFormatError::Block {
            at,
            what,
            why: format!("{} bytes instead of a block", block.len()),
        })
    }

    /// Sets the checksum at the end of a descriptor or revoke block, if this journal has one.
    pub(super) fn seal(&self, block: &mut [u8]) {
        if self.has_checksums() {
            let sum = self.tail_checksum(block);
            put32(block, self.end(), sum);
        }
    }
    /// Whether the checksum at the end of a descriptor or revoke block is right. True without
    /// checksums.
    pub fn is_intact(&self, block: &[u8]) -> bool {
        !self.has_checksums() || be32(block, self.end()) == self.tail_checksum(block)
    }
    fn tail_checksum(&self, block: &[u8]) -> u32 {
        self.seed.with(&block[..self.end()]).with(&[0; 4]).0
    }
}
