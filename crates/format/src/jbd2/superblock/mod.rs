//! The journal superblock and its changes. `bytes` reads and writes it, `check` refuses invalid
//! ones.

mod bytes;
mod check;
#[cfg(test)]
mod tests;

pub(super) use bytes::{SIZE, at};

use super::layout::{LogLayout, TagFormat};
use crate::packed::{PackedLog, UNIT_MIN};
use crate::scattered::{ActiveLogs, NamedSnapshot, ScatteredLogs};
use crate::seed::Seed;
use crate::whole_transaction::TransactionSums;
use bytes::{CRC32C, USERS};
use check::{GAP_SHARE, LENGTH_MAX};
use std::ops::Range;
use units::{BlockSize, LogBlock, TransactionId};

/// The kernel's number of fast-commit blocks where the field is 0, and the shortest log beside
/// them.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
const LOG_BLOCKS_MIN: u32 = 1024;

/// Bits of `s_feature_compat`.
pub struct Compatible;
impl Compatible {
    /// Checksum v1: a CRC over the whole transaction in the commit block.
    pub const CHECKSUM: u32 = 0x1;
}

/// Bits of `s_feature_incompat`.
pub struct Incompatible;
impl Incompatible {
    pub const REVOKE: u32 = 0x1;
    /// 64-bit block numbers.
    pub const WIDE: u32 = 0x2;
    pub const ASYNC_COMMIT: u32 = 0x4;
    pub const CHECKSUM_V2: u32 = 0x8;
    pub const CHECKSUM_V3: u32 = 0x10;
    pub const FAST_COMMIT: u32 = 0x20;
    /// Own feature: the log may hold multiwrite tags. Set only while such records may be live.
    pub const MULTIWRITE: u32 = 0x4000_0000;
    /// Own feature: the log holds packed transactions. Set only while they may be live.
    pub const PACKED: u32 = 0x2000_0000;
    /// Own feature: the log lies in the scattered logs. Set only while they may hold records.
    pub const SCATTERED: u32 = 0x1000_0000;
    /// Own feature: a snapshot of the mapping table is valid. A program that does not know the
    /// feature would invalidate it by writing to the logs.
    pub const SNAPSHOT: u32 = 0x0800_0000;
    /// Own feature: packed transactions may lie apart from each other. A program that does not know
    /// the feature would take a gap for the log's end.
    pub const GAPS: u32 = 0x0400_0000;
    /// Own feature: checksums over whole transactions are XXH64. A program that does not know the
    /// feature would take each transaction for a torn one.
    pub const XXH64: u32 = 0x0200_0000;
    /// Own feature: runs are being copied to another scattered log. A program that does not know it
    /// would take copies for runs before all of them are valid.
    pub const MOVING: u32 = 0x0100_0000;
    /// Our features.
    const OURS: u32 = Self::MULTIWRITE
        | Self::PACKED
        | Self::SCATTERED
        | Self::SNAPSHOT
        | Self::GAPS
        | Self::XXH64
        | Self::MOVING;

    pub const NAMES: [(u32, &'static str); 13] = [
        (Self::REVOKE, "revoke"),
        (Self::WIDE, "64bit"),
        (Self::ASYNC_COMMIT, "async_commit"),
        (Self::CHECKSUM_V2, "checksum_v2"),
        (Self::CHECKSUM_V3, "checksum_v3"),
        (Self::FAST_COMMIT, "fast_commit"),
        (Self::MULTIWRITE, "multiwrite (okeanos)"),
        (Self::PACKED, "packed (okeanos)"),
        (Self::SCATTERED, "scattered (okeanos)"),
        (Self::SNAPSHOT, "snapshot (okeanos)"),
        (Self::GAPS, "gaps (okeanos)"),
        (Self::XXH64, "xxh64 (okeanos)"),
        (Self::MOVING, "moving (okeanos)"),
    ];
    pub const KNOWN: u32 = 0x7f00_003f;
}

/// V1 has no features, UUID or users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockVersion {
    V1,
    V2,
}

/// The journal superblock: 1024 bytes at the start of its block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSuperblock {
    pub version: SuperblockVersion,
    pub block_size: BlockSize,
    /// Blocks of the journal, its superblock included (`s_maxlen`).
    pub length: u32,
    /// First block of the log (`s_first`).
    pub first: LogBlock,
    /// The first transaction expected in the log (`s_sequence`).
    pub sequence: TransactionId,
    /// First block of the log; block 0 means it is empty (`s_start`). With packed transactions in
    /// their units.
    pub start: LogBlock,
    /// A negative errno if the journal was aborted (`s_errno`).
    pub errno: i32,
    pub compatible: u32,
    pub incompatible: u32,
    pub read_only_compatible: u32,
    pub uuid: [u8; 16],
    /// File systems that share an external journal (`s_nr_users`).
    pub user_count: u32,
    pub dynamic_superblock: u32,
    pub max_transaction: u32,
    pub max_transaction_data: u32,
    /// Bound on the log blocks of each transaction in the log. On disk in the place of
    /// `max_transaction`, and only while the log holds records.
    pub transaction_bound: Option<u32>,
    /// `s_checksum_type`: 4 is CRC-32C, the only one under checksums v2 and v3.
    pub checksum_type: u8,
    /// `s_num_fc_blks`; 0 means 256.
    pub fast_commit_blocks: u32,
    /// Parameters of a log of packed transactions.
    pub packed: Option<PackedLog>,
    /// Parameters of a log in the scattered logs. `start` then only shows that the log is not
    /// empty.
    pub scattered: Option<ScatteredLogs>,
    /// First transaction and start of a log that another program marked as empty.
    pub kept: Option<(TransactionId, LogBlock)>,
    /// UUIDs of the file systems that share an external journal: always 48.
    pub users: Vec<[u8; 16]>,
}

impl JournalSuperblock {
    /// A superblock as mke2fs makes it for an internal journal.
    pub fn new(block_size: BlockSize, length: u32, uuid: [u8; 16]) -> JournalSuperblock {
        JournalSuperblock {
            version: SuperblockVersion::V2,
            block_size,
            length,
            first: LogBlock(1),
            sequence: TransactionId(1),
            start: LogBlock(0),
            errno: 0,
            compatible: 0,
            incompatible: 0,
            read_only_compatible: 0,
            uuid,
            user_count: 1,
            dynamic_superblock: 0,
            max_transaction: 0,
            max_transaction_data: 0,
            transaction_bound: None,
            checksum_type: 0,
            fast_commit_blocks: 0,
            packed: None,
            scattered: None,
            kept: None,
            users: vec![[0; 16]; USERS],
        }
    }

    /// Whether there is nothing to recover.
    pub fn is_clean(&self) -> bool {
        self.start.get() == 0
    }
    /// Whether the log may hold multiwrite blocks, but is marked as empty. Okeanos never writes
    /// that: it comes from a program that found this feature too late (`tune2fs`).
    pub fn is_forgotten(&self) -> bool {
        self.is_clean() && self.has_incompatible(Incompatible::OURS)
    }
    /// The superblock before another program marked the log as empty, if this one keeps where its
    /// log began.
    pub fn remembered(&self) -> Option<JournalSuperblock> {
        self.as_kept().filter(|_| self.is_forgotten())
    }
    /// The superblock according to the copy of sequence and start in a log that holds records, if
    /// the copy differs. Okeanos writes both at once with equal values.
    pub fn disputed(&self) -> Option<JournalSuperblock> {
        self.as_kept().filter(|_| !self.is_clean())
    }
    fn as_kept(&self) -> Option<JournalSuperblock> {
        let (sequence, start) = self.kept.filter(|(_, start)| self.log_blocks().contains(start))?;
        Some(JournalSuperblock { sequence, start, kept: None, ..self.clone() })
    }
    pub fn has_incompatible(&self, bits: u32) -> bool {
        self.version == SuperblockVersion::V2 && self.incompatible & bits != 0
    }
    /// Whether commit blocks may carry checksum v1.
    pub fn has_ancient_checksum(&self) -> bool {
        self.version == SuperblockVersion::V2 && self.compatible & Compatible::CHECKSUM != 0
    }
    pub fn tag_format(&self) -> TagFormat {
        if self.has_incompatible(Incompatible::CHECKSUM_V3) {
            TagFormat::ChecksumV3
        } else if self.has_incompatible(Incompatible::CHECKSUM_V2) {
            TagFormat::ChecksumV2
        } else {
            TagFormat::Plain
        }
    }
    pub fn is_wide(&self) -> bool {
        self.has_incompatible(Incompatible::WIDE)
    }
    /// The layout of the log's descriptors, revokes and commit blocks.
    pub fn layout(&self) -> LogLayout {
        LogLayout {
            wide: self.is_wide(),
            multiwrite: self.has_incompatible(Incompatible::MULTIWRITE),
            scattered: self.has_incompatible(Incompatible::SCATTERED),
            sums: self.transaction_sums(),
            ..LogLayout::new(self.block_size, self.tag_format(), self.uuid)
        }
    }

    /// Kind of the checksum over a whole transaction, where the log has any.
    pub fn transaction_sums(&self) -> TransactionSums {
        match self.has_incompatible(Incompatible::XXH64) {
            true => TransactionSums::Xxh64,
            false => TransactionSums::Crc32c,
        }
    }

    /// The block after the last one of the log. Fast-commit blocks lie behind it while that feature
    /// is set, if a log of 1024 blocks remains.
    pub fn log_end(&self) -> LogBlock {
        let fast = match self.fast_commit_blocks {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            count => count,
        };
        match self.length.checked_sub(fast) {
            Some(rest)
                if rest >= LOG_BLOCKS_MIN && self.has_incompatible(Incompatible::FAST_COMMIT) =>
            {
                LogBlock(rest)
            }
            _ => LogBlock(self.length),
        }
    }
    /// Number of log blocks in a block: units of packed transactions, else one.
    pub fn log_blocks_per_block(&self) -> u32 {
        self.packed.map_or(1, |packed| self.block_size.bytes() as u32 / packed.unit)
    }
    /// Bytes of a log block.
    pub fn log_block_bytes(&self) -> usize {
        self.packed.map_or(self.block_size.bytes(), |packed| packed.unit as usize)
    }
    /// The range of the log, in its own blocks.
    pub fn log_blocks(&self) -> Range<LogBlock> {
        let each = self.log_blocks_per_block();
        LogBlock(self.first.get() * each)..LogBlock(self.log_end().get() * each)
    }
    /// Seed of all checksums of packed transactions.
    pub fn packed_seed(&self) -> Seed {
        let nonce = self.packed.map_or(0, |packed| packed.nonce);
        Seed::of_journal(&self.uuid).with(&nonce.to_be_bytes())
    }
    /// Seed of all checksums of run headers.
    pub fn scattered_seed(&self) -> Seed {
        let nonce = self.scattered.as_ref().map_or(0, |scattered| scattered.nonce);
        Seed::of_journal(&self.uuid).with(&nonce.to_be_bytes())
    }
    /// The shortest unit of packed transactions in which a log of this length can count.
    pub fn shortest_unit(&self) -> u32 {
        let bytes = u64::from(self.length) << self.block_size.shift();
        let needed = bytes.div_ceil(LENGTH_MAX.into()).next_power_of_two();
        UNIT_MIN.max(u32::try_from(needed).unwrap_or(u32::MAX))
    }
    /// Longest gap between the end of a transaction and the start of the next, in log blocks.
    pub fn gap_max(&self) -> u32 {
        self.packed.map_or(0, |packed| packed.gap_max)
    }
    /// Longest valid gap between packed transactions, in units of `unit` bytes.
    pub fn gap_bound(&self, unit: u32) -> u32 {
        let each = self.block_size.bytes() as u32 / unit;
        (self.log_end().get() - self.first.get()) * each / GAP_SHARE
    }
    /// The first fast-commit block, if the feature is set and leaves space for one. (The block at
    /// `log_end` belongs to neither.)
    pub fn fast_commit_start(&self) -> Option<LogBlock> {
        let start = self.log_end().plus(1);
        (start.get() < self.length).then_some(start)
    }

    /// The id of the first transaction after a clean mount. (After recovery: the result of the
    /// scan.)
    pub fn next_transaction(&self) -> TransactionId {
        // The kernel and e2fsck skip one as well: s_sequence itself may have been used.
        self.sequence.next()
    }
    /// Marks the log as empty; `last` was the latest transaction id used. Multiwrite records are no
    /// longer live.
    pub fn set_clean(&mut self, last: TransactionId) {
        self.sequence = last;
        self.start = LogBlock(0);
        self.incompatible &= !Incompatible::OURS;
        (self.packed, self.scattered, self.transaction_bound) = (None, None, None);
    }
    /// Makes the log begin with transaction `sequence` at `start`.
    pub fn set_tail(&mut self, sequence: TransactionId, start: LogBlock) {
        self.sequence = sequence;
        self.start = start;
    }
    /// Sets the features of the log to be written: checksums v3 or none, 64-bit block numbers,
    /// revoke, multiwrite. Clears fast commit (its area becomes part of the log) and the older
    /// checksums. The log must be clean.
    pub fn set_log_format(&mut self, checksums: bool, wide: bool, extended: bool) {
        assert!(self.is_clean(), "the format of a log that holds records cannot change");
        self.version = SuperblockVersion::V2;
        self.compatible &= !Compatible::CHECKSUM;
        self.incompatible = Incompatible::REVOKE
            | if checksums { Incompatible::CHECKSUM_V3 } else { 0 }
            | if wide { Incompatible::WIDE } else { 0 }
            | if extended { Incompatible::MULTIWRITE } else { 0 }
            | if extended && checksums { Incompatible::XXH64 } else { 0 };
        self.checksum_type = if checksums { CRC32C } else { 0 };
        (self.packed, self.scattered) = (None, None);
    }
    /// Sets the packed record format, after [`JournalSuperblock::set_log_format`].
    pub fn set_packed(&mut self, packed: PackedLog) {
        assert!(self.is_clean(), "the format of a log that holds records cannot change");
        let gaps = if packed.gap_max > 0 { Incompatible::GAPS } else { 0 };
        let ours = Incompatible::PACKED | Incompatible::XXH64 | gaps;
        self.incompatible = self.incompatible & !Incompatible::OURS | ours;
        self.packed = Some(packed);
        assert!(self.check_unit().is_ok(), "{packed:?} in a journal of {} blocks", self.length);
    }
    /// Sets that the log lies in the scattered logs, none of which is in use yet. Follows the
    /// setting of the record format.
    pub fn set_scattered(&mut self, nonce: u64) {
        assert!(self.is_clean(), "the place of a log that holds records cannot change");
        self.incompatible |= Incompatible::SCATTERED;
        self.scattered = Some(ScatteredLogs {
            nonce,
            table_mark: 0,
            active: ActiveLogs::none(),
            snapshot: None,
            moving: None,
        });
    }
    /// Sets or clears the first block of copies that are not valid yet. Without scattered logs
    /// there are none.
    pub fn set_moving(&mut self, moving: Option<LogBlock>) {
        self.incompatible &= !Incompatible::MOVING;
        if let Some(scattered) = &mut self.scattered {
            if moving.is_some() {
                self.incompatible |= Incompatible::MOVING;
            }
            scattered.moving = moving;
        }
    }
    /// Returns the first block of copies that are not valid yet.
    pub fn moving(&self) -> Option<LogBlock> {
        self.scattered.as_ref()?.moving
    }
    /// Sets the valid snapshot. Without scattered logs there is none.
    pub fn name_snapshot(&mut self, snapshot: Option<NamedSnapshot>) {
        self.incompatible &= !Incompatible::SNAPSHOT;
        if let Some(scattered) = &mut self.scattered {
            if snapshot.is_some() {
                self.incompatible |= Incompatible::SNAPSHOT;
            }
            scattered.snapshot = snapshot;
        }
    }
    /// The valid snapshot.
    pub fn named_snapshot(&self) -> Option<&NamedSnapshot> {
        self.scattered.as_ref()?.snapshot.as_ref()
    }
}
