use super::header::PackedHeader;
use super::varint::{LENGTH_MAX, encode, length};
use super::{Kind, UNIT_MIN};
use crate::seed::Seed;
use crate::whole_transaction::{TransactionSums, WholeTransaction};
use units::{BlockRange, HomeBlock, Timestamp, TransactionId};

/// Writer of a run, record by record, in pieces: a long run needs no contiguous memory of its
/// length.
pub struct RunWriter {
    unit: usize,
    full: Vec<Vec<u8>>,
    /// The last piece.
    bytes: Vec<u8>,
    length: u64,
    previous: u64,
}

/// A run in pieces, all records of which are written. The length of each piece is a multiple of the
/// unit. The first one, which holds the checksum over all of them, comes last.
pub struct RunPieces {
    length: u32,
    seed: Seed,
    body: WholeTransaction,
    first: Vec<u8>,
    rest: std::vec::IntoIter<Vec<u8>>,
}

impl RunPieces {
    /// Returns the next piece behind the first.
    pub fn next_behind_first(&mut self) -> Option<Vec<u8>> {
        self.rest.next().inspect(|piece| self.body.add(piece))
    }
    /// Returns the first piece. All others have been taken.
    pub fn first(
        mut self,
        transaction: TransactionId,
        durable: TransactionId,
        time: Timestamp,
    ) -> Vec<u8> {
        assert!(self.rest.len() == 0, "the checksum covers all pieces");
        let (length, body_sum) = (self.length, self.body.sum());
        let header = &mut self.first[..PackedHeader::SIZE];
        PackedHeader { transaction, length, durable, time, body_sum }.serialize(self.seed, header);
        self.first
    }
}

impl RunWriter {
    /// Maximum number of bytes that a record takes beside those of its block: for each part of it,
    /// if it has any.
    pub const HEAD_MAX: usize = LENGTH_MAX + 3 + 3 + 3;
    pub const REVOKE_MAX: usize = LENGTH_MAX + 1;
    /// Bytes of every piece of a run but the last: a multiple of every unit.
    pub const PIECE: usize = 64 << 10;

    /// Creates a writer. `unit`: bytes of a log block. `expected`: expected length of the run in
    /// bytes, for which memory is reserved at once.
    pub fn new(unit: usize, expected: usize) -> RunWriter {
        assert!(unit.is_power_of_two() && unit >= UNIT_MIN as usize, "a unit of {unit} bytes");
        assert!(unit <= RunWriter::PIECE, "a unit of {unit} bytes");
        let mut bytes = Vec::with_capacity(expected.clamp(PackedHeader::SIZE, RunWriter::PIECE));
        bytes.resize(PackedHeader::SIZE, 0);
        RunWriter { unit, full: Vec::new(), bytes, length: 0, previous: 0 }
    }

    /// Number of bytes that `parts` take, without the record's head, which takes two or more.
    pub fn parts_length(parts: impl IntoIterator<Item = BlockRange>) -> usize {
        let (mut bytes, mut end) = (0, 0);
        for part in parts {
            bytes += length((part.start - end).into()) + length(part.len() as u64) + part.len();
            end = part.end;
        }
        bytes
    }

    pub fn revoke(&mut self, home: HomeBlock) {
        self.head(home, Kind::Revoke, 0);
    }
    /// Adds a whole block. Returns the byte of the run at which the image begins, as
    /// [`super::read_again`] takes it. `durable_only`: durability is enough for the block's file.
    pub fn whole(&mut self, home: HomeBlock, image: &[u8], durable_only: bool) -> u64 {
        self.head(home, Kind::Whole, durable_only.into());
        let used = (self.full.len() * RunWriter::PIECE + self.bytes.len()) as u64;
        self.put(image);
        // A unit begins with a byte of its own.
        if used % (self.unit as u64) == 0 { used + 1 } else { used }
    }
    /// Adds a record of parts, sorted and without overlap; no parts only with `base_zero`.
    pub fn parts(&mut self, home: HomeBlock, parts: &[BlockRange], image: &[u8], base_zero: bool) {
        assert!(base_zero || !parts.is_empty(), "a record of {home} that says nothing");
        self.head(home, if base_zero { Kind::BaseZero } else { Kind::Parts }, parts.len() as u64);
        let mut end = 0;
        for part in parts {
            assert!(part.start >= end && !part.is_empty(), "{home}: {parts:?}");
            self.numbers([(part.start - end).into(), part.len() as u64]);
            self.put(&image[part.as_usize()]);
            end = part.end;
        }
    }

    /// Ends the run, whose records are complete.
    pub fn end(mut self, (sums, seed): (TransactionSums, Seed)) -> RunPieces {
        let length = u32::try_from(self.length).expect("a transaction is shorter than the log");
        self.bytes.resize(self.bytes.len().next_multiple_of(self.unit), 0);
        self.full.push(self.bytes);
        let mut rest = self.full.into_iter();
        let first = rest.next().expect("the last piece is one");
        let mut body = WholeTransaction::new(sums, seed);
        body.add(&first[PackedHeader::SIZE..]);
        RunPieces { length, seed, body, first, rest }
    }

    fn head(&mut self, home: HomeBlock, kind: Kind, count: u64) {
        self.numbers([home.get().wrapping_sub(self.previous), count << Kind::BITS | kind.number()]);
        self.previous = home.get();
    }
    fn numbers(&mut self, values: [u64; 2]) {
        let mut bytes = [0; 2 * LENGTH_MAX];
        let first = encode(values[0], &mut bytes);
        let count = first + encode(values[1], &mut bytes[first..]);
        self.put(&bytes[..count]);
    }
    fn put(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        // The unit is a power of two.
        let used = self.bytes.len() & (self.unit - 1);
        if used > 0 && bytes.len() <= self.unit - used {
            self.bytes.extend_from_slice(bytes);
            return;
        }
        while !bytes.is_empty() {
            let used = self.bytes.len() % self.unit;
            if used == 0 {
                if self.bytes.len() == RunWriter::PIECE {
                    let next = Vec::with_capacity(RunWriter::PIECE);
                    self.full.push(std::mem::replace(&mut self.bytes, next));
                }
                self.bytes.push(0);
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.unit - used));
            self.bytes.extend_from_slice(now);
            bytes = later;
        }
    }
}
