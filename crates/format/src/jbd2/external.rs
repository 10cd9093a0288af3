use super::error::JournalFormatError;
use crate::field::uuid;
use crate::seed::Seed;
use units::{BlockSize, LogBlock};

const SUPERBLOCK_AT: usize = 1024;
const MAGIC: u16 = 0xef53;
const JOURNAL_DEV: u32 = 0x8;
const WIDE: u32 = 0x80;
const METADATA_CSUM: u32 = 0x400;
const CHECKSUM_AT: usize = 0x3fc;

/// A journal on its own device (`mke2fs -O journal_dev`): with an ext2 superblock at byte 1024; the
/// journal superblock follows in the next block. Log blocks are counted from the start of the
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalJournal {
    pub block_size: BlockSize,
    /// Blocks of the device that the journal may use.
    pub blocks: u64,
    /// UUID by which the volume's superblock refers to its journal device.
    pub uuid: [u8; 16],
}

impl ExternalJournal {
    /// Parses the first 2048 bytes of the device. `Ok(None)`: no journal device (say, a volume).
    pub fn parse(start: &[u8]) -> Result<Option<ExternalJournal>, JournalFormatError> {
        let Some(bytes) = start.get(SUPERBLOCK_AT..SUPERBLOCK_AT + 1024) else {
            return Err(JournalFormatError::External(format!(
                "{} bytes instead of 2048",
                start.len()
            )));
        };
        let le32 = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let incompatible = le32(0x60);
        if u16::from_le_bytes([bytes[0x38], bytes[0x39]]) != MAGIC
            || incompatible & JOURNAL_DEV == 0
        {
            return Ok(None);
        }
        if le32(0x64) & METADATA_CSUM != 0
            && le32(CHECKSUM_AT) != Seed(!0).with(&bytes[..CHECKSUM_AT]).0
        {
            return Err(JournalFormatError::External(
                "its superblock's checksum is wrong".to_owned(),
            ));
        }
        let shift = le32(0x18);
        let block_size = if shift <= 6 { BlockSize::new(1024 << shift) } else { None };
        let Some(block_size) = block_size else {
            return Err(JournalFormatError::External(format!(
                "a block size of 2^({shift} + 10) bytes"
            )));
        };
        let high = if incompatible & WIDE != 0 { u64::from(le32(0x150)) << 32 } else { 0 };
        Ok(Some(ExternalJournal {
            block_size,
            blocks: high | u64::from(le32(0x04)),
            uuid: uuid(bytes, 0x68),
        }))
    }

    /// Block of the journal superblock.
    pub fn superblock_at(&self) -> LogBlock {
        // The ext2 superblock fills block 1 of 1 KiB blocks, and a part of block 0 of larger ones.
        LogBlock(if self.block_size.bytes() == 1024 { 2 } else { 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_no_journal_device_and_short_input_is_refused() {
        let mut start = vec![0; 2048];
        assert_eq!(ExternalJournal::parse(&start), Ok(None));
        start[1024 + 0x38..1024 + 0x3a].copy_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(ExternalJournal::parse(&start), Ok(None));
        start[1024 + 0x60] = JOURNAL_DEV as u8;
        let found = ExternalJournal::parse(&start).unwrap().unwrap();
        assert_eq!((found.block_size.bytes(), found.superblock_at()), (1024, LogBlock(2)));
        start[1024 + 0x18] = 200;
        assert!(ExternalJournal::parse(&start).is_err());
        assert!(ExternalJournal::parse(&start[..2047]).is_err());
    }
}
