//! The block of multiple mount protection (feature mmp): the user of the volume increments a number
//! in it, so that others see the use (kernel: `Documentation/filesystems/ext4/mmp.rst`).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0x000 | 4 | magic 0x004d4d50 |
//! | 0x004 | 4 | sequence |
//! | 0x008 | 8 | seconds since 1970, for people |
//! | 0x010 | 64 | name of the computer, for people |
//! | 0x050 | 32 | name of the device, for people |
//! | 0x070 | 2 | seconds within which the user increments the sequence |
//! | 0x3fc | 4 | with metadata_csum the CRC-32C of all before it |

use super::checksum::crc32c;

const MAGIC: u32 = 0x004d_4d50;
const SEQUENCE_MAX: u32 = 0xe24d_4d4f;
const SEQUENCE_CHECKED: u32 = 0xe24d_4d50;
const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
const NODE: std::ops::Range<usize> = 0x10..0x50;
const DEVICE: std::ops::Range<usize> = 0x50..0x70;
const CHECKSUM: usize = 0x3fc;
pub const LENGTH: usize = 0x400;

/// User of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Nobody,
    /// e2fsck or a similar program, which does not increment the sequence.
    Checked,
    /// A mount that increments the sequence, or did when the power failed.
    Counted(u32),
}

impl Use {
    /// Returns the sequence to write next.
    pub fn next(sequence: u32) -> u32 {
        if sequence >= SEQUENCE_MAX { 1 } else { sequence + 1 }
    }
    /// Returns a random first sequence.
    pub fn at_random(random: u64) -> u32 {
        (random % u64::from(SEQUENCE_MAX)) as u32 + 1
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MmpBlock {
    pub used_by: Use,
    pub seconds: u64,
    pub node: Vec<u8>,
    pub device: Vec<u8>,
    pub check_interval: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MmpError {
    #[error("the magic number is missing")]
    Magic,
    #[error("its checksum is wrong")]
    Checksum,
}

impl MmpBlock {
    /// Parses a block. `seed`: of checksums, with metadata_csum.
    pub fn parse(bytes: &[u8], seed: Option<u32>) -> Result<MmpBlock, MmpError> {
        if bytes.len() < LENGTH || u32_at(bytes, 0) != MAGIC {
            return Err(MmpError::Magic);
        }
        if seed.is_some_and(|seed| crc32c(seed, &bytes[..CHECKSUM]) != u32_at(bytes, CHECKSUM)) {
            return Err(MmpError::Checksum);
        }
        let used_by = match u32_at(bytes, 4) {
            SEQUENCE_CLEAN => Use::Nobody,
            sequence if sequence <= SEQUENCE_MAX => Use::Counted(sequence),
            // Reserved values are not safe either.
            _ => Use::Checked,
        };
        let text = |range| {
            let bytes: &[u8] = &bytes[range];
            bytes.iter().copied().take_while(|byte| *byte != 0).collect()
        };
        Ok(MmpBlock {
            used_by,
            seconds: u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32,
            node: text(NODE),
            device: text(DEVICE),
            check_interval: u16::from_le_bytes([bytes[0x70], bytes[0x71]]),
        })
    }

    /// Writes all fields; preserves other bytes.
    pub fn serialize(&self, bytes: &mut [u8], seed: Option<u32>) {
        let sequence = match self.used_by {
            Use::Nobody => SEQUENCE_CLEAN,
            Use::Checked => SEQUENCE_CHECKED,
            Use::Counted(sequence) => sequence,
        };
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seconds.to_le_bytes());
        for (range, text) in [(NODE, &self.node), (DEVICE, &self.device)] {
            let field = &mut bytes[range];
            field.fill(0);
            // A zero byte ends it.
            let length = text.len().min(field.len() - 1);
            field[..length].copy_from_slice(&text[..length]);
        }
        bytes[0x70..0x72].copy_from_slice(&self.check_interval.to_le_bytes());
        if let Some(seed) = seed {
            let sum = crc32c(seed, &bytes[..CHECKSUM]);
            bytes[CHECKSUM..LENGTH].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_as_it_was_stored_and_every_flipped_bit_is_noticed() {
        for used_by in [Use::Nobody, Use::Checked, Use::Counted(1), Use::Counted(SEQUENCE_MAX)] {
            let node = b"a computer".to_vec();
            let block = MmpBlock {
                used_by,
                seconds: 5 << 33,
                node,
                device: b"sda1".to_vec(),
                check_interval: 10,
            };
            let mut bytes = vec![7; LENGTH];
            block.serialize(&mut bytes, Some(9));
            assert_eq!(MmpBlock::parse(&bytes, Some(9)), Ok(block));
            for bit in 0..LENGTH * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(MmpBlock::parse(&bytes, Some(9)).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!((Use::next(SEQUENCE_MAX), Use::next(5)), (1, 6));
        assert!((1..=SEQUENCE_MAX).contains(&Use::at_random(u64::MAX)));
    }
}
