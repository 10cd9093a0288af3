//! Which record format a journal has: its superblock says so, and is told so.

use super::Records;
use super::blocks::BlockRecords;
use super::packed::PackedRecords;
use format::jbd2::JournalSuperblock;
use format::packed::PackedLog;
use std::rc::Rc;
use std::str::FromStr;

/// The `records=` option of a mount: how transactions are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFormat {
    Blocks,
    Packed,
}

impl RecordFormat {
    pub const ALL: [RecordFormat; 2] = [RecordFormat::Blocks, RecordFormat::Packed];

    pub fn name(self) -> &'static str {
        match self {
            RecordFormat::Blocks => "blocks",
            RecordFormat::Packed => "packed",
        }
    }
}

impl FromStr for RecordFormat {
    type Err = String;
    fn from_str(name: &str) -> Result<RecordFormat, String> {
        let found = RecordFormat::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| format!("records={name}: unknown format; known are blocks, packed"))
    }
}

/// What a mount wants of the records of its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordsWanted {
    /// Parts of blocks are logged ([`crate::Policy::logs_bytes`]).
    pub bytes: bool,
    /// `journal_checksum`.
    pub checksums: bool,
    /// A checksum over each transaction, also where no bytes are logged. Only with `checksums`.
    pub transaction_checksum: bool,
    /// Home addresses beyond 32 bits.
    pub wide: bool,
    /// Packed transactions, in units of at least so many bytes; what else is wanted then concerns the superblock alone.
    pub packed: Option<PackedLog>,
}

/// The record format of the log that `superblock` describes.
pub fn of(superblock: &JournalSuperblock) -> Rc<dyn Records> {
    match superblock.packed {
        Some(packed) => Rc::new(PackedRecords::of(superblock, packed)),
        None => Rc::new(BlockRecords::of(superblock)),
    }
}

/// Chooses the format in which an empty log will be written, and says it in the superblock.
pub fn begin(superblock: &mut JournalSuperblock, wanted: RecordsWanted) -> Rc<dyn Records> {
    let multiwrite = wanted.bytes || wanted.transaction_checksum && wanted.checksums;
    // Without a checksum of the superblock a flipped bit of its nonce would make every run a stranger's.
    let checksums = wanted.checksums || wanted.packed.is_some();
    superblock.set_log_format(checksums, wanted.wide || superblock.is_wide(), multiwrite);
    if let Some(packed) = wanted.packed {
        let most = superblock.block_size.bytes() as u32;
        let unit = packed.unit.max(superblock.shortest_unit()).min(most);
        superblock.set_packed(PackedLog { unit, ..packed });
    }
    of(superblock)
}

/// An empty log holds no records that others would not understand.
pub fn clear(superblock: &mut JournalSuperblock, checksums: bool) {
    superblock.set_log_format(checksums, superblock.is_wide(), false);
}
