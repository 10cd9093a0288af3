//! One append to a log: a header block that describes it, then the data blocks it names.
//!
//! Invariants: a header is accepted only at the place that it names (log, epoch, position). It must
//! follow the very record that it followed when it was written (`previous`), and the checksums of
//! its data must be right. So three records end the log: a torn one, one of an earlier epoch of the
//! log, and one after a lost record. They still do when the place is written again.

use crate::BLOCK;
use crate::fields::{NUMBER_MAX, begin, is_of, put, seal, sealed, u32_at, u64_at};
use crate::layout::DataSums;

const MAGIC: [u8; 4] = *b"OKSR";
const ENTRIES_AT: usize = 64;
const ENTRY_SIZE: usize = 16;
/// Entries that fit into a header block.
pub const MAX_ENTRIES: usize = (BLOCK - ENTRIES_AT) / ENTRY_SIZE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEntry {
    /// The next data block of the record is this home's content, in the sectors of the mask.
    Data { home: u64, mask: u8, checksum: u32 },
    /// The homes hold newer content than any record before the `age`-th record before this one,
    /// itself included.
    Drop { home: u64, length: u32, age: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub log: u32,
    /// Grows whenever the log is emptied.
    pub epoch: u32,
    /// Position of the header, in blocks from the log's begin.
    pub position: u32,
    /// Sequence number among all records of all logs.
    pub sequence: u64,
    /// Random; the next record of this log names it.
    pub tag: u64,
    pub previous: u64,
    pub entries: Vec<RecordEntry>,
}

impl Header {
    pub fn data_blocks(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, RecordEntry::Data { .. })).count()
    }

    pub fn serialize(&self, nonce: u128) -> Vec<u8> {
        assert!(self.entries.len() <= MAX_ENTRIES, "{} entries", self.entries.len());
        let mut bytes = begin(MAGIC, nonce);
        put(&mut bytes, 24, &self.log.to_le_bytes());
        put(&mut bytes, 28, &self.epoch.to_le_bytes());
        put(&mut bytes, 32, &self.position.to_le_bytes());
        put(&mut bytes, 36, &(self.entries.len() as u32).to_le_bytes());
        put(&mut bytes, 40, &self.sequence.to_le_bytes());
        put(&mut bytes, 48, &self.tag.to_le_bytes());
        put(&mut bytes, 56, &self.previous.to_le_bytes());
        for (number, entry) in self.entries.iter().enumerate() {
            let (place, length, last) = match *entry {
                RecordEntry::Data { home, mask, checksum } => {
                    (home << 8 | u64::from(mask), 1, checksum)
                }
                RecordEntry::Drop { home, length, age } => (home << 8, length, age),
            };
            let at = ENTRIES_AT + number * ENTRY_SIZE;
            put(&mut bytes, at, &place.to_le_bytes());
            put(&mut bytes, at + 8, &length.to_le_bytes());
            put(&mut bytes, at + 12, &last.to_le_bytes());
        }
        seal(bytes)
    }

    /// `homes` is the number of blocks of the logical disk.
    pub fn parse(bytes: &[u8], nonce: u128, homes: u64) -> Option<Header> {
        let bytes = sealed(bytes, MAGIC, Some(nonce))?;
        let count = u32_at(bytes, 36) as usize;
        if count > MAX_ENTRIES || u64_at(bytes, 40) > NUMBER_MAX {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for number in 0..count {
            let at = ENTRIES_AT + number * ENTRY_SIZE;
            let (place, length, last) =
                (u64_at(bytes, at), u32_at(bytes, at + 8), u32_at(bytes, at + 12));
            let (home, mask) = (place >> 8, place as u8);
            if home + u64::from(length) > homes || length == 0 || (mask != 0 && length != 1) {
                return None;
            }
            entries.push(match mask {
                0 => RecordEntry::Drop { home, length, age: last },
                mask => RecordEntry::Data { home, mask, checksum: last },
            });
        }
        Some(Header {
            log: u32_at(bytes, 24),
            epoch: u32_at(bytes, 28),
            position: u32_at(bytes, 32),
            sequence: u64_at(bytes, 40),
            tag: u64_at(bytes, 48),
            previous: u64_at(bytes, 56),
            entries,
        })
    }

    /// Returns whether a record that followed the one with this tag was begun there, whole or not.
    /// Its first sector is enough.
    pub fn was_begun(bytes: &[u8], nonce: u128, previous: u64) -> bool {
        bytes.len() >= BLOCK && is_of(bytes, MAGIC, nonce) && u64_at(bytes, 56) == previous
    }

    /// Returns whether `data`, which follows the header, is what it names.
    pub fn holds(&self, data: &[u8], sums: DataSums) -> bool {
        let expected = self.entries.iter().filter_map(|entry| match entry {
            RecordEntry::Data { checksum, .. } => Some(*checksum),
            RecordEntry::Drop { .. } => None,
        });
        let mut blocks = data.chunks_exact(BLOCK);
        let ignored = units::fault!("block-data-sum-ignored");
        expected
            .into_iter()
            .all(|sum| blocks.next().is_some_and(|block| ignored || sums.of(block) == sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: DataSums = DataSums::Xxh64;

    fn header() -> Header {
        let data = vec![5; BLOCK];
        let entries = vec![
            RecordEntry::Drop { home: 70, length: 9, age: 3 },
            RecordEntry::Data { home: 12, mask: 0x81, checksum: SUMS.of(&data) },
        ];
        Header { log: 3, epoch: 9, position: 40, sequence: 1 << 40, tag: 77, previous: 78, entries }
    }

    #[test]
    fn a_header_comes_back_and_of_another_disk_or_damaged_it_does_not() {
        let bytes = header().serialize(1);
        assert_eq!(Header::parse(&bytes, 1, 79), Some(header()));
        assert_eq!(Header::parse(&bytes, 2, 79), None);
        assert_eq!(Header::parse(&bytes, 1, 78), None, "it names a block behind the end");
        for bit in (0..BLOCK * 8).step_by(97) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&bytes, 1, 79), None, "bit {bit}");
        }
        assert_eq!(Header::parse(&bytes[..BLOCK - 1], 1, 79), None);
    }
    /// Like nodes of an extent tree, in a log that holds an older one where the newer was to be.
    #[test]
    fn older_data_with_a_crc_of_its_own_is_no_record() {
        let node = |version: u8| {
            let mut block = vec![version; BLOCK];
            let own = !crc32c::crc32c(&block[..BLOCK - 4]);
            block[BLOCK - 4..].copy_from_slice(&own.to_le_bytes());
            block
        };
        let [older, newer] = [node(3), node(4)];
        for (sums, is_blind) in [(DataSums::Crc32c, true), (SUMS, false)] {
            let entries =
                vec![RecordEntry::Data { home: 12, mask: 0xff, checksum: sums.of(&newer) }];
            let header = Header { entries, ..header() };
            assert!(header.holds(&newer, sums));
            assert_eq!(header.holds(&older, sums), is_blind, "{sums:?}");
        }
    }
    #[test]
    fn torn_data_is_no_record() {
        let mut data = vec![5; BLOCK];
        assert!(header().holds(&data, SUMS));
        data[4000] = 4;
        assert!(!header().holds(&data, SUMS) && !header().holds(&data[..512], SUMS));
    }
}
