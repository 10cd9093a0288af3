//! Serialization of the journal superblock.

use super::{Incompatible, JournalSuperblock, SuperblockVersion};
use crate::field::{be32, be64, put32, put64, uuid};
use crate::jbd2::MAGIC;
use crate::jbd2::error::{JournalFormatError, wrong_superblock as wrong};
use crate::jbd2::header::{BlockHeader, BlockType};
use crate::jbd2::layout::TagFormat;
use crate::packed::PackedLog;
use crate::scattered::{ActiveLogs, NamedSnapshot, ScatteredLogs};
use crate::seed::Seed;
use units::{BlockSize, LogBlock, TransactionId};

/// Offsets of the fields. Numbers have 32 bits unless stated otherwise.
pub(in crate::jbd2) mod at {
    pub const BLOCK_SIZE: usize = 0xc;
    pub const LENGTH: usize = 0x10;
    pub const FIRST: usize = 0x14;
    pub const SEQUENCE: usize = 0x18;
    pub const START: usize = 0x1c;
    pub const ERRNO: usize = 0x20;
    pub const COMPATIBLE: usize = 0x24;
    pub const INCOMPATIBLE: usize = 0x28;
    pub const READ_ONLY_COMPATIBLE: usize = 0x2c;
    pub const UUID: usize = 0x30;
    pub const USER_COUNT: usize = 0x40;
    pub const DYNAMIC_SUPERBLOCK: usize = 0x44;
    pub const MAX_TRANSACTION: usize = 0x48;
    pub const MAX_TRANSACTION_DATA: usize = 0x4c;
    pub const CHECKSUM_TYPE: usize = 0x50;
    pub const FAST_COMMIT_BLOCKS: usize = 0x54;
    /// Own field in the kernel's padding: `s_sequence` inverted, where `s_max_transaction` is ours.
    /// The kernel's `s_head` while the journal is plain.
    pub const SCATTERED_TABLE_MARK: usize = 0x58;
    pub const MAX_TRANSACTION_SINCE: usize = 0x5c;
    /// Own field in the padding: the nonce of scattered logs.
    pub const SCATTERED_NONCE: usize = 0x60;
    pub const SCATTERED_ACTIVE: usize = 0x68;
    /// Own field in the nonce's place: the longest gap between transactions, where the logs are not
    /// scattered.
    pub const GAP_MAX: usize = 0x60;
    /// Own field in the padding: the nonce of a log of packed transactions.
    pub const PACKED_NONCE: usize = 0xe8;
    pub const PACKED_UNIT: usize = 0xf0;
    /// Own field in the padding: a second copy of `s_sequence` and `s_start`.
    pub const KEPT_SEQUENCE: usize = 0xf4;
    pub const KEPT_START: usize = 0xf8;
    pub const CHECKSUM: usize = 0xfc;
    pub const USERS: usize = 0x100;
    /// Own field in the place of some users: fields of the snapshot. A journal inside a volume has
    /// no users, and scattered logs need one. Like all that changes while the log is live it lies
    /// in the first sector, with the checksum: a torn write changes nothing.
    pub const SNAPSHOT_FIRST: usize = 0x160;
    pub const SNAPSHOT_FIRST_AT: usize = 0x164;
    pub const SNAPSHOT_LAST: usize = 0x168;
    pub const SNAPSHOT_END: usize = 0x16c;
    pub const SNAPSHOT_READ_FROM: usize = 0x170;
    pub const SNAPSHOT_LONGEST: usize = 0x174;
    /// Field of the feature MOVING, whether or not a snapshot is valid.
    pub const SCATTERED_MOVING: usize = 0x178;
    pub const SNAPSHOT_SINCE: usize = 0x180;
    pub const SNAPSHOT_BEHIND: usize = 0x200;
}
/// Bytes of the superblock; the rest of its block is zero.
pub(in crate::jbd2) const SIZE: usize = 1024;
pub(super) const USERS: usize = 48;
/// `s_checksum_type` for CRC-32C.
pub(super) const CRC32C: u8 = 4;

impl JournalSuperblock {
    /// Parses a journal superblock. `bytes`: the journal's first block, at least its first 1024
    /// bytes. `blocks`: length of the journal's file or device, in blocks of `block_size`.
    pub fn parse(
        bytes: &[u8],
        block_size: BlockSize,
        blocks: u64,
    ) -> Result<JournalSuperblock, JournalFormatError> {
        let Some(bytes) = bytes.get(..SIZE) else {
            return Err(wrong(format!("{} bytes instead of {SIZE}", bytes.len())));
        };
        let version = version(bytes)?;
        let mut superblock = JournalSuperblock {
            version,
            block_size,
            length: be32(bytes, at::LENGTH),
            first: LogBlock(be32(bytes, at::FIRST)),
            sequence: TransactionId(be32(bytes, at::SEQUENCE)),
            start: LogBlock(be32(bytes, at::START)),
            errno: be32(bytes, at::ERRNO) as i32,
            ..JournalSuperblock::new(block_size, 0, [0; 16])
        };
        if version == SuperblockVersion::V2 {
            superblock.parse_version_2(bytes);
            superblock.check_features()?;
            superblock.check_checksum(bytes)?;
        }
        superblock.check_geometry(be32(bytes, at::BLOCK_SIZE), blocks)?;
        Ok(superblock)
    }

    fn parse_version_2(&mut self, bytes: &[u8]) {
        self.compatible = be32(bytes, at::COMPATIBLE);
        self.incompatible = be32(bytes, at::INCOMPATIBLE);
        self.read_only_compatible = be32(bytes, at::READ_ONLY_COMPATIBLE);
        self.uuid = uuid(bytes, at::UUID);
        self.user_count = be32(bytes, at::USER_COUNT);
        self.dynamic_superblock = be32(bytes, at::DYNAMIC_SUPERBLOCK);
        self.max_transaction = be32(bytes, at::MAX_TRANSACTION);
        self.max_transaction_data = be32(bytes, at::MAX_TRANSACTION_DATA);
        // Other programs that replay the log, or write to it, advance `s_sequence` and leave our
        // copy.
        let is_ours =
            !self.is_clean() && be32(bytes, at::MAX_TRANSACTION_SINCE) == !self.sequence.0;
        if is_ours && self.max_transaction > 0 {
            self.transaction_bound = Some(std::mem::take(&mut self.max_transaction));
        }
        self.checksum_type = bytes[at::CHECKSUM_TYPE];
        self.fast_commit_blocks = be32(bytes, at::FAST_COMMIT_BLOCKS);
        self.packed = self.has_incompatible(Incompatible::PACKED).then(|| PackedLog {
            unit: be32(bytes, at::PACKED_UNIT),
            nonce: be64(bytes, at::PACKED_NONCE),
            gap_max: if self.has_incompatible(Incompatible::GAPS) {
                be32(bytes, at::GAP_MAX)
            } else {
                0
            },
        });
        self.scattered = self.has_incompatible(Incompatible::SCATTERED).then(|| ScatteredLogs {
            nonce: be64(bytes, at::SCATTERED_NONCE),
            table_mark: be32(bytes, at::SCATTERED_TABLE_MARK),
            active: ActiveLogs::parse(&bytes[at::SCATTERED_ACTIVE..][..ActiveLogs::BYTES]),
            snapshot: self.has_incompatible(Incompatible::SNAPSHOT).then(|| named_snapshot(bytes)),
            moving: self
                .has_incompatible(Incompatible::MOVING)
                .then(|| LogBlock(be32(bytes, at::SCATTERED_MOVING))),
        });
        let kept =
            (TransactionId(be32(bytes, at::KEPT_SEQUENCE)), LogBlock(be32(bytes, at::KEPT_START)));
        let says_otherwise = self.is_clean() || kept != (self.sequence, self.start);
        let keeps = self.has_incompatible(Incompatible::OURS);
        self.kept = (keeps && says_otherwise).then_some(kept);
        let is_user = |at: usize| {
            !self.has_incompatible(Incompatible::SNAPSHOT | Incompatible::MOVING)
                || !(at::SNAPSHOT_FIRST..at::SNAPSHOT_BEHIND).contains(&at)
        };
        let users = (0..USERS).map(|user| at::USERS + 16 * user);
        let users = users.map(|at| if is_user(at) { uuid(bytes, at) } else { [0; 16] });
        self.users = users.collect();
    }

    /// Returns a whole block: the superblock, and zeros behind it. Checksum set where the features
    /// ask for it.
    pub fn serialize(&self) -> Vec<u8> {
        let mut block = vec![0; self.block_size.bytes()];
        let bytes = &mut block[..SIZE];
        let kind = match self.version {
            SuperblockVersion::V1 => BlockType::SuperblockV1,
            SuperblockVersion::V2 => BlockType::SuperblockV2,
        };
        BlockHeader::put(kind, TransactionId(0), bytes);
        put32(bytes, at::BLOCK_SIZE, self.block_size.bytes() as u32);
        put32(bytes, at::LENGTH, self.length);
        put32(bytes, at::FIRST, self.first.get());
        put32(bytes, at::SEQUENCE, self.sequence.0);
        put32(bytes, at::START, self.start.get());
        put32(bytes, at::ERRNO, self.errno as u32);
        if self.version == SuperblockVersion::V2 {
            self.put_version_2(bytes);
        }
        block
    }

    fn put_version_2(&self, bytes: &mut [u8]) {
        put32(bytes, at::COMPATIBLE, self.compatible);
        put32(bytes, at::INCOMPATIBLE, self.incompatible);
        put32(bytes, at::READ_ONLY_COMPATIBLE, self.read_only_compatible);
        bytes[at::UUID..][..16].copy_from_slice(&self.uuid);
        put32(bytes, at::USER_COUNT, self.user_count);
        put32(bytes, at::DYNAMIC_SUPERBLOCK, self.dynamic_superblock);
        put32(bytes, at::MAX_TRANSACTION, self.max_transaction);
        put32(bytes, at::MAX_TRANSACTION_DATA, self.max_transaction_data);
        if let Some(bound) = self.transaction_bound.filter(|_| !self.is_clean()) {
            put32(bytes, at::MAX_TRANSACTION, bound);
            put32(bytes, at::MAX_TRANSACTION_SINCE, !self.sequence.0);
        }
        bytes[at::CHECKSUM_TYPE] = self.checksum_type;
        if let Some(packed) = self.packed {
            put64(bytes, at::PACKED_NONCE, packed.nonce);
            put32(bytes, at::PACKED_UNIT, packed.unit);
            if packed.gap_max > 0 {
                put32(bytes, at::GAP_MAX, packed.gap_max);
            }
        }
        if let Some(scattered) = &self.scattered {
            put64(bytes, at::SCATTERED_NONCE, scattered.nonce);
            put32(bytes, at::SCATTERED_TABLE_MARK, scattered.table_mark);
            bytes[at::SCATTERED_ACTIVE..][..ActiveLogs::BYTES]
                .copy_from_slice(scattered.active.bytes());
        }
        put32(bytes, at::FAST_COMMIT_BLOCKS, self.fast_commit_blocks);
        if !self.is_clean() && self.has_incompatible(Incompatible::OURS) {
            put32(bytes, at::KEPT_SEQUENCE, self.sequence.0);
            put32(bytes, at::KEPT_START, self.start.get());
        }
        for (user, uuid) in self.users.iter().take(USERS).enumerate() {
            bytes[at::USERS + 16 * user..][..16].copy_from_slice(uuid);
        }
        if let Some(snapshot) = self.named_snapshot() {
            put_named_snapshot(snapshot, bytes);
        }
        if let Some(moving) = self.moving() {
            if self.named_snapshot().is_none() {
                bytes[at::SNAPSHOT_FIRST..at::SNAPSHOT_BEHIND].fill(0);
            }
            put32(bytes, at::SCATTERED_MOVING, moving.get());
        }
        if self.tag_format() != TagFormat::Plain {
            let sum = checksum(bytes);
            put32(bytes, at::CHECKSUM, sum);
        }
    }
}

fn named_snapshot(bytes: &[u8]) -> NamedSnapshot {
    NamedSnapshot {
        first: be32(bytes, at::SNAPSHOT_FIRST),
        first_at: LogBlock(be32(bytes, at::SNAPSHOT_FIRST_AT)),
        last: be32(bytes, at::SNAPSHOT_LAST),
        end: TransactionId(be32(bytes, at::SNAPSHOT_END)),
        read_from: TransactionId(be32(bytes, at::SNAPSHOT_READ_FROM)),
        longest: be32(bytes, at::SNAPSHOT_LONGEST),
        since: ActiveLogs::parse(&bytes[at::SNAPSHOT_SINCE..][..ActiveLogs::BYTES]),
    }
}
fn put_named_snapshot(snapshot: &NamedSnapshot, bytes: &mut [u8]) {
    bytes[at::SNAPSHOT_FIRST..at::SNAPSHOT_BEHIND].fill(0);
    bytes[at::SNAPSHOT_SINCE..][..ActiveLogs::BYTES].copy_from_slice(snapshot.since.bytes());
    for (at, word) in [
        (at::SNAPSHOT_FIRST, snapshot.first),
        (at::SNAPSHOT_FIRST_AT, snapshot.first_at.get()),
        (at::SNAPSHOT_LAST, snapshot.last),
        (at::SNAPSHOT_END, snapshot.end.0),
        (at::SNAPSHOT_READ_FROM, snapshot.read_from.0),
        (at::SNAPSHOT_LONGEST, snapshot.longest),
    ] {
        put32(bytes, at, word);
    }
}

fn version(bytes: &[u8]) -> Result<SuperblockVersion, JournalFormatError> {
    match BlockHeader::parse(bytes) {
        Some(BlockHeader { kind: Some(BlockType::SuperblockV1), .. }) => Ok(SuperblockVersion::V1),
        Some(BlockHeader { kind: Some(BlockType::SuperblockV2), .. }) => Ok(SuperblockVersion::V2),
        Some(_) => Err(wrong(format!("block type {} is no superblock", be32(bytes, 4)))),
        None => Err(wrong(format!("magic {:#010x} instead of {MAGIC:#010x}", be32(bytes, 0)))),
    }
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    Seed(!0).with(&bytes[..at::CHECKSUM]).with(&[0; 4]).with(&bytes[at::CHECKSUM + 4..SIZE]).0
}
