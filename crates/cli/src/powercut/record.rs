//! Content of a block of the file under test: the run and number of the write that put it there,
//! and a checksum over all of it.

use format::ext4::checksum::crc32c;
use runtime::SplitMix;

pub const SIZE_MIN: usize = 512;
pub const SIZE_MAX: usize = 1 << 20;

const MAGIC: &[u8; 16] = b"okeanos powercut";
const CHECKSUM: usize = 4;

/// One write: number `number` (from 0) of run `run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteRecord {
    pub run: u64,
    pub number: u64,
}

/// Content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    WriteRecord(WriteRecord),
    /// A torn record: begins as a record and is none.
    Torn,
    /// Foreign content.
    Other,
}

/// Returns the place of write `number`: all `places` in turn (a power of two), no two neighbours
/// after each other.
pub fn place(number: u64, places: u64) -> u64 {
    debug_assert!(places.is_power_of_two());
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15 >> places.leading_zeros() | 1) & (places - 1)
}

impl WriteRecord {
    /// Returns `size` bytes; every sector differs from what any other write puts there.
    pub fn bytes(&self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.run.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        let random = SplitMix::new(self.run ^ self.number.rotate_left(32));
        while bytes.len() < size {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        bytes.truncate(size - CHECKSUM);
        let checksum = crc32c(!0, &bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a block of at least [`SIZE_MIN`] bytes.
    pub fn read(block: &[u8]) -> Content {
        let (body, checksum) = block.split_at(block.len() - CHECKSUM);
        if !body.starts_with(MAGIC) {
            return Content::Other;
        }
        if crc32c(!0, body).to_le_bytes() != checksum {
            return Content::Torn;
        }
        let number =
            |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        Content::WriteRecord(WriteRecord { run: number(16), number: number(24) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const RECORD: WriteRecord = WriteRecord { run: 77, number: 1 << 40 };

    #[test]
    fn a_record_reads_back_as_written_and_a_torn_one_is_none() {
        for size in [512, 4096] {
            let bytes = RECORD.bytes(size);
            assert_eq!(bytes.len(), size);
            assert_eq!(WriteRecord::read(&bytes), Content::WriteRecord(RECORD));
            let other = WriteRecord { number: 5, ..RECORD }.bytes(size);
            for sector in (512..size).step_by(512) {
                let torn = [&bytes[..sector], &other[sector..]].concat();
                assert_eq!(WriteRecord::read(&torn), Content::Torn);
            }
        }
        assert_eq!(WriteRecord::read(&[0; 512]), Content::Other);
    }

    #[test]
    fn every_place_is_written_once_a_pass() {
        for places in [1, 2, 64, 1 << 14] {
            let seen: BTreeSet<u64> = (0..places).map(|number| place(number, places)).collect();
            assert_eq!(seen.len() as u64, places);
            assert!(seen.iter().all(|place| *place < places));
            assert_eq!(place(3, places), place(3 + places, places));
        }
        let places = 1 << 14;
        assert!(
            (0..places).all(|number| place(number, places).abs_diff(place(number + 1, places)) > 1)
        );
    }
}
