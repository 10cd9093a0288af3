//! Choice of the record format of a journal, which its superblock records.

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
    /// Returns the default: a format that other implementations read, if they can; else the one
    /// that takes the fewest bytes. `bytes`: parts of blocks are logged, which others cannot read.
    pub fn by_default(bytes: bool) -> RecordFormat {
        if bytes { RecordFormat::Packed } else { RecordFormat::Blocks }
    }
    /// Whether a transaction may be issued while another is in flight: the format must record which
    /// ones were durable then. With JBD2's blocks any later transaction proves that those before it
    /// were.
    pub fn may_overlap(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether transactions can be found behind a gap.
    pub fn may_have_gaps(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether log blocks may be shorter than home blocks: [`RecordsWanted::unit`].
    pub fn has_short_units(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether the log always has a checksum of the superblock, and a nonce that distinguishes its
    /// transactions from those of logs before it. Without the checksum a flipped bit of the nonce
    /// would make all transactions foreign.
    fn has_nonce(self) -> bool {
        self == RecordFormat::Packed
    }
}

impl FromStr for RecordFormat {
    type Err = String;
    fn from_str(name: &str) -> Result<RecordFormat, String> {
        let found = RecordFormat::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| format!("records={name}: unknown format; known are blocks, packed"))
    }
}

/// Requirements of a mount on the records of its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordsWanted {
    pub format: RecordFormat,
    /// Bytes of a log block, if the format has short ones.
    pub unit: u32,
    /// Parts of blocks are logged ([`crate::Policy::logs_bytes`]).
    pub bytes: bool,
    /// `journal_checksum`.
    pub checksums: bool,
    /// A checksum over each transaction, also where no bytes are logged. Only with `checksums`.
    pub transaction_checksum: bool,
    /// Home addresses may exceed 32 bits.
    pub wide: bool,
    /// Maximum number of bytes that may lie free between two transactions, if the format allows
    /// gaps.
    pub gap_bytes: u32,
}

/// Returns the record format of the log that `superblock` describes.
pub fn of(superblock: &JournalSuperblock) -> Rc<dyn Records> {
    match superblock.packed {
        Some(packed) => Rc::new(PackedRecords::of(superblock, packed)),
        None => Rc::new(BlockRecords::of(superblock)),
    }
}

/// Records in the superblock the format in which its log, which is empty, will be written. `nonce`:
/// called if the format has one.
pub fn begin(
    superblock: &mut JournalSuperblock,
    wanted: RecordsWanted,
    nonce: impl FnOnce() -> u64,
) -> Rc<dyn Records> {
    let multiwrite = wanted.bytes || wanted.transaction_checksum && wanted.checksums;
    let has_nonce = wanted.format.has_nonce();
    superblock.set_log_format(
        wanted.checksums || has_nonce,
        wanted.wide || superblock.is_wide(),
        multiwrite,
    );
    if has_nonce {
        let most = superblock.block_size.bytes() as u32;
        let unit = wanted.unit.max(superblock.shortest_unit()).min(most);
        let gap_max = (wanted.gap_bytes / unit).min(superblock.gap_bound(unit));
        superblock.set_packed(PackedLog { unit, nonce: nonce(), gap_max });
    }
    of(superblock)
}

/// Whether a mount with these requirements would continue the log of `superblock` in the very
/// format that it has.
pub fn is_written_so(superblock: &JournalSuperblock, wanted: RecordsWanted) -> bool {
    let mut new = superblock.clone();
    new.set_clean(superblock.sequence);
    begin(&mut new, wanted, || superblock.packed.map_or(0, |packed| packed.nonce));
    if superblock.scattered.is_some() {
        new.set_scattered(0);
        new.name_snapshot(superblock.named_snapshot().cloned());
        new.set_moving(superblock.moving());
    }
    let format =
        |of: &JournalSuperblock| (of.compatible, of.incompatible, of.checksum_type, of.packed);
    format(&new) == format(superblock)
}

/// Clears the format: an empty log holds no records that others would not understand.
pub fn clear(superblock: &mut JournalSuperblock, checksums: bool) {
    superblock.set_log_format(checksums, superblock.is_wide(), false);
}
