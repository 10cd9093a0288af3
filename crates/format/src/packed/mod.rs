//! Packed transactions: one contiguous run of log blocks, big-endian, that holds byte ranges of
//! home blocks.  The run: a header of 32 bytes; records, one behind the other; zeros up to the end
//! of the last log block. A log block is a *unit*: the sector that the disk writes as one, not a
//! block of the volume. Each unit after the first begins with a byte 0, which is no part of the
//! records. So no byte of a file is ever taken for a header.
//!
//! A record begins with two varints: the distance of its home block from the one before (wrapping),
//! then kind and count. For parts of a block `count` times this follows: varint gap behind the part
//! before, varint length, bytes. For a whole block its bytes follow.
//!
//! Validity: the header's checksum is right, and the body's checksum in it is that of all bytes
//! behind it, padding included. Both begin with the journal's UUID and the log's nonce: leftovers
//! of another journal, or of an earlier mount, are not valid. Tables: `docs/ON_DISK.md` (printed by
//! [`tables`]).

mod again;
mod header;
mod read;
mod tables;
mod varint;
mod write;

pub use again::{read_again, units_from};
pub use header::PackedHeader;
pub use read::{Item, RecordReader};
pub use tables::tables;
pub use varint::{MalformedRun, length as varint_length};
pub use write::{RunPieces, RunWriter};

/// The first four bytes of a run. The first of them is not 0, and they differ from JBD2's.
pub const MAGIC: u32 = 0x4f6b_5061;

/// Parameters of a log of packed transactions in the journal superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedLog {
    /// Bytes of a log block: a power of two from 512 on, at most a block of the volume. `s_start`
    /// counts in these.
    pub unit: u32,
    /// Random number, chosen whenever a log is begun.
    pub nonce: u64,
    /// Maximum number of units between a transaction and the one before it. 0: there are no gaps.
    pub gap_max: u32,
}

/// The shortest unit: no sector is shorter.
pub const UNIT_MIN: u32 = 512;

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Parts,
    /// Parts; all other bytes of the block are zeros.
    BaseZero,
    Whole,
    Revoke,
}

impl Kind {
    const BITS: u32 = 2;
    const ALL: [Kind; 4] = [Kind::Parts, Kind::BaseZero, Kind::Whole, Kind::Revoke];

    fn number(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests;
