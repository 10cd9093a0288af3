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
    /// Where nobody says: as others can read them, if they can; else the format that takes the
    /// fewest bytes. `bytes`: parts of blocks are logged, which others cannot read.
    pub fn by_default(bytes: bool) -> RecordFormat {
        if bytes { RecordFormat::Packed } else { RecordFormat::Blocks }
    }
    /// Whether a transaction may set out while another is on its way: it says which ones were
    /// durable then. Of JBD2's blocks any later transaction proves that those before it were.
    pub fn may_overlap(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether its transactions are found behind a gap.
    pub fn may_have_gaps(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether its log blocks may be shorter than blocks of home: [`RecordsWanted::unit`].
    pub fn has_short_units(self) -> bool {
        self == RecordFormat::Packed
    }
    /// Whether its log has a checksum of the superblock in any case, and a nonce that tells its
    /// transactions from those of logs before it. Without the one a flipped bit of the other would
    /// make each transaction a stranger's.
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

/// What a mount wants of the records of its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordsWanted {
    pub format: RecordFormat,
    /// A log block should have so many bytes, if the format has short ones.
    pub unit: u32,
    /// Parts of blocks are logged ([`crate::Policy::logs_bytes`]).
    pub bytes: bool,
    /// `journal_checksum`.
    pub checksums: bool,
    /// A checksum over each transaction, also where no bytes are logged. Only with `checksums`.
    pub transaction_checksum: bool,
    /// Home addresses beyond 32 bits.
    pub wide: bool,
    /// So many bytes may lie free between two transactions, if the format can tell.
    pub gap_bytes: u32,
}

/// The record format of the log that `superblock` describes.
pub fn of(superblock: &JournalSuperblock) -> Rc<dyn Records> {
    match superblock.packed {
        Some(packed) => Rc::new(PackedRecords::of(superblock, packed)),
        None => Rc::new(BlockRecords::of(superblock)),
    }
}

/// Says in the superblock in which format its log, which is empty, will be written. `nonce`: asked
/// if the format has one.
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

/// Whether a mount that wants this would go on with the log of `superblock` in the very format that
/// it has.
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

/// An empty log holds no records that others would not understand.
pub fn clear(superblock: &mut JournalSuperblock, checksums: bool) {
    superblock.set_log_format(checksums, superblock.is_wide(), false);
}
