use super::{MAGIC, UNIT_MIN};
use crate::seed::Seed;
use units::{Timestamp, TransactionId};

/// Offsets of the fields.
pub(super) mod at {
    pub const MAGIC: usize = 0;
    pub const TRANSACTION: usize = 4;
    pub const LENGTH: usize = 8;
    pub const DURABLE: usize = 12;
    pub const TIME: usize = 16;
    pub const BODY_SUM: usize = 24;
    pub const OWN_SUM: usize = 28;
}

const NANOSECONDS: i64 = 1_000_000_000;

/// The header at the start of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedHeader {
    pub transaction: TransactionId,
    /// Bytes of the records, without the byte at the start of each further unit.
    pub length: u32,
    /// The durable floor: when this run was issued, that transaction and all before it were
    /// durable. There is no other proof that another transaction was.
    pub durable: TransactionId,
    /// Time to the nanosecond, from 1678 to 2262.
    pub time: Timestamp,
    /// Checksum of all bytes behind the header, padding included.
    pub body_sum: u32,
}

impl PackedHeader {
    pub const SIZE: usize = 32;

    /// Parses a header; `None` unless the unit begins with a header whose own checksum is right.
    /// `seed`: the log's identity.
    pub fn parse(unit: &[u8], seed: Seed) -> Option<PackedHeader> {
        let bytes = unit.get(..Self::SIZE)?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if word(at::MAGIC) != MAGIC || word(at::OWN_SUM) != seed.with(&bytes[..at::OWN_SUM]).0 {
            return None;
        }
        let time = (i64::from(word(at::TIME)) << 32) | i64::from(word(at::TIME + 4));
        Some(PackedHeader {
            transaction: TransactionId(word(at::TRANSACTION)),
            length: word(at::LENGTH),
            durable: TransactionId(word(at::DURABLE)),
            time: Timestamp {
                seconds: time.div_euclid(NANOSECONDS),
                nanoseconds: time.rem_euclid(NANOSECONDS) as u32,
            },
            body_sum: word(at::BODY_SUM),
        })
    }

    pub fn serialize(&self, seed: Seed, bytes: &mut [u8]) {
        let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        let seconds = self.time.seconds.saturating_mul(NANOSECONDS);
        let time = seconds.saturating_add(self.time.nanoseconds.into()) as u64;
        put(at::MAGIC, MAGIC);
        put(at::TRANSACTION, self.transaction.0);
        put(at::LENGTH, self.length);
        put(at::DURABLE, self.durable.0);
        put(at::TIME, (time >> 32) as u32);
        put(at::TIME + 4, time as u32);
        put(at::BODY_SUM, self.body_sum);
        let sum = seed.with(&bytes[..at::OWN_SUM]).0;
        bytes[at::OWN_SUM..Self::SIZE].copy_from_slice(&sum.to_be_bytes());
    }

    /// Number of units in the run.
    pub fn units(&self, unit: usize) -> u32 {
        PackedHeader::units_of(self.length.into(), unit)
    }
    /// Number of units in a run of `length` bytes of records.
    pub fn units_of(length: u64, unit: usize) -> u32 {
        assert!(unit >= UNIT_MIN as usize);
        let (first, further) = ((unit - Self::SIZE) as u64, unit as u64 - 1);
        u32::try_from(1 + length.saturating_sub(first).div_ceil(further)).unwrap_or(u32::MAX)
    }
    /// The unit that has byte `at` of the records, and the offset there.
    pub fn place_of(at: u64, unit: usize) -> (u32, usize) {
        let (first, further) = ((unit - Self::SIZE) as u64, unit as u64 - 1);
        match at.checked_sub(first) {
            None => (0, Self::SIZE + at as usize),
            Some(behind) => (1 + (behind / further) as u32, 1 + (behind % further) as usize),
        }
    }
    /// The bytes of a unit that belong to records.
    pub fn records_in(is_first: bool, unit: &[u8]) -> &[u8] {
        &unit[if is_first { Self::SIZE } else { 1 }..]
    }
}
