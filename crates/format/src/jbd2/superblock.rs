use super::MAGIC;
use super::checksum::Seed;
use super::error::FormatError;
use super::field::{be32, be64, put32, put64, uuid};
use super::header::{BlockHeader, BlockType};
use super::layout::{LogLayout, TagFormat};
use crate::packed::{PackedLog, UNIT_MIN};
use crate::scattered::{ActiveLogs, ScatteredLogs};
use std::ops::Range;
use units::{BlockSize, LogBlock, TransactionId};

/// Where the fields begin. Numbers are 32 bits wide where nothing else is said.
pub(super) mod at {
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
    /// Ours, in the kernel's padding: `s_sequence` inverted, where `s_max_transaction` is ours.
    pub const MAX_TRANSACTION_SINCE: usize = 0x5c;
    /// Ours, likewise: of scattered logs.
    pub const SCATTERED_NONCE: usize = 0x60;
    pub const SCATTERED_ACTIVE: usize = 0x68;
    /// Ours, likewise: of a log of packed transactions.
    pub const PACKED_NONCE: usize = 0xe8;
    pub const PACKED_UNIT: usize = 0xf0;
    /// Ours, likewise: `s_sequence` and `s_start` once more.
    pub const KEPT_SEQUENCE: usize = 0xf4;
    pub const KEPT_START: usize = 0xf8;
    pub const CHECKSUM: usize = 0xfc;
    pub const USERS: usize = 0x100;
}
/// Bytes of the superblock; the rest of its block is zero.
pub(super) const SIZE: usize = 1024;
const USERS: usize = 48;
/// `s_checksum_type` for CRC-32C.
const CRC32C: u8 = 4;
/// The kernel's number of fast-commit blocks where the field is 0, and the least log it leaves beside them.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
const LOG_BLOCKS_MIN: u32 = 1024;
/// Of ours: a longer log would make arithmetic on log blocks overflow, and is longer than any journal.
const LENGTH_MAX: u32 = 1 << 31;

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
    /// Ours: the log may hold multiwrite tags. Set only while such records may be live.
    pub const MULTIWRITE: u32 = 0x4000_0000;
    /// Ours: the log holds packed transactions. Set only while they may be live.
    pub const PACKED: u32 = 0x2000_0000;
    /// Ours: the log lies in the scattered logs. Set only while they may hold records.
    pub const SCATTERED: u32 = 0x1000_0000;
    /// Those that are ours.
    const OURS: u32 = Self::MULTIWRITE | Self::PACKED | Self::SCATTERED;

    pub const NAMES: [(u32, &'static str); 9] = [
        (Self::REVOKE, "revoke"),
        (Self::WIDE, "64bit"),
        (Self::ASYNC_COMMIT, "async_commit"),
        (Self::CHECKSUM_V2, "checksum_v2"),
        (Self::CHECKSUM_V3, "checksum_v3"),
        (Self::FAST_COMMIT, "fast_commit"),
        (Self::MULTIWRITE, "multiwrite (okeanos)"),
        (Self::PACKED, "packed (okeanos)"),
        (Self::SCATTERED, "scattered (okeanos)"),
    ];
    pub const KNOWN: u32 = 0x7000_003f;
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
    /// Where the log begins; block 0 means it is empty (`s_start`). With packed transactions in their units.
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
    /// No transaction of the log takes more log blocks. On disk in the place of `max_transaction`, and only while the log
    /// holds records.
    pub transaction_bound: Option<u32>,
    /// `s_checksum_type`: 4 is CRC-32C, the only one under checksums v2 and v3.
    pub checksum_type: u8,
    /// `s_num_fc_blks`; 0 means 256.
    pub fast_commit_blocks: u32,
    /// Of a log of packed transactions.
    pub packed: Option<PackedLog>,
    /// Of a log that lies in the scattered logs. `start` then says nothing but that it is not empty.
    pub scattered: Option<ScatteredLogs>,
    /// While the log is forgotten: the first transaction and the start that it had.
    pub kept: Option<(TransactionId, LogBlock)>,
    /// UUIDs of the file systems that share an external journal: always 48.
    pub users: Vec<[u8; 16]>,
}

impl JournalSuperblock {
    /// A superblock such as mke2fs makes for an internal journal.
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

    /// `bytes`: the journal's first block, at least its first 1024 bytes. `blocks`: how many blocks the
    /// journal's file or device has, `block_size` each.
    pub fn parse(bytes: &[u8], block_size: BlockSize, blocks: u64) -> Result<JournalSuperblock, FormatError> {
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
        // Others that replay the log, or write to it, move `s_sequence` on and leave the rest.
        let is_ours = !self.is_clean() && be32(bytes, at::MAX_TRANSACTION_SINCE) == !self.sequence.0;
        if is_ours && self.max_transaction > 0 {
            self.transaction_bound = Some(std::mem::take(&mut self.max_transaction));
        }
        self.checksum_type = bytes[at::CHECKSUM_TYPE];
        self.fast_commit_blocks = be32(bytes, at::FAST_COMMIT_BLOCKS);
        self.packed = self
            .has_incompatible(Incompatible::PACKED)
            .then(|| PackedLog { unit: be32(bytes, at::PACKED_UNIT), nonce: be64(bytes, at::PACKED_NONCE) });
        self.scattered = self.has_incompatible(Incompatible::SCATTERED).then(|| ScatteredLogs {
            nonce: be64(bytes, at::SCATTERED_NONCE),
            active: ActiveLogs::parse(&bytes[at::SCATTERED_ACTIVE..][..ActiveLogs::BYTES]),
        });
        let kept = (TransactionId(be32(bytes, at::KEPT_SEQUENCE)), LogBlock(be32(bytes, at::KEPT_START)));
        let says_otherwise = self.is_clean() || kept != (self.sequence, self.start);
        let keeps = self.has_incompatible(Incompatible::OURS);
        self.kept = (keeps && says_otherwise).then_some(kept);
        self.users = (0..USERS).map(|user| uuid(bytes, at::USERS + 16 * user)).collect();
    }

    fn check_features(&self) -> Result<(), FormatError> {
        let mut unknown = Vec::new();
        let known = [Compatible::CHECKSUM, Incompatible::KNOWN, 0];
        let found = [self.compatible, self.incompatible, self.read_only_compatible];
        // As the kernel does: a compatible feature that one does not know may be ignored, others may not.
        for (set, which) in [("incompatible", 1), ("read-only compatible", 2)] {
            let bits = (0..32).map(|bit| 1u32 << bit).filter(|bit| found[which] & !known[which] & bit != 0);
            unknown.extend(bits.map(|bit| format!("{set} {bit:#x}")));
        }
        if !unknown.is_empty() {
            return Err(FormatError::UnknownFeatures(unknown.join(", ")));
        }
        let checksums = [
            self.compatible & Compatible::CHECKSUM != 0,
            self.has_incompatible(Incompatible::CHECKSUM_V2),
            self.has_incompatible(Incompatible::CHECKSUM_V3),
        ];
        if checksums.into_iter().filter(|set| *set).count() > 1 {
            return Err(wrong("more than one of the checksum features v1, v2, v3 is set".to_owned()));
        }
        Ok(())
    }

    fn check_checksum(&self, bytes: &[u8]) -> Result<(), FormatError> {
        if self.tag_format() == TagFormat::Plain {
            return Ok(());
        }
        if self.checksum_type != CRC32C {
            return Err(wrong(format!("checksum type {} is not CRC-32C", self.checksum_type)));
        }
        let (found, right) = (be32(bytes, at::CHECKSUM), checksum(bytes));
        if found != right {
            return Err(wrong(format!("its checksum is {found:#010x}, its content gives {right:#010x}")));
        }
        Ok(())
    }

    fn check_geometry(&self, block_size: u32, blocks: u64) -> Result<(), FormatError> {
        if block_size as usize != self.block_size.bytes() {
            let volume = self.block_size.bytes();
            return Err(wrong(format!("its blocks have {block_size} bytes, the volume's {volume}")));
        }
        if u64::from(self.length) > blocks || self.length > LENGTH_MAX {
            return Err(wrong(format!("it claims {} blocks, there are {blocks}", self.length)));
        }
        let (first, end, start) = (self.first, self.log_end(), self.start);
        if first.get() == 0 || u64::from(first.get()) + 2 > u64::from(end.get()) {
            return Err(wrong(format!("the log would lie in blocks {}..{}", first.get(), end.get())));
        }
        self.check_unit()?;
        let log = self.log_blocks();
        if !self.is_clean() && !log.contains(&start) {
            return Err(wrong(format!("the log's start, {start}, is outside its blocks {log:?}")));
        }
        Ok(())
    }

    fn check_unit(&self) -> Result<(), FormatError> {
        let Some(PackedLog { unit, .. }) = self.packed else { return Ok(()) };
        if self.has_incompatible(Incompatible::MULTIWRITE) {
            return Err(wrong("its log has multiwrite blocks and packed transactions".to_owned()));
        }
        let block = self.block_size.bytes() as u64;
        if !unit.is_power_of_two() || unit < UNIT_MIN || u64::from(unit) > block {
            return Err(wrong(format!("packed transactions in units of {unit} bytes")));
        }
        if u64::from(self.length) * (block / u64::from(unit)) > u64::from(LENGTH_MAX) {
            return Err(wrong(format!("{} blocks are too many for units of {unit} bytes", self.length)));
        }
        Ok(())
    }

    /// A whole block, the superblock at its start, zeros behind it. Checksum set where the features ask for it.
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
        }
        if let Some(scattered) = &self.scattered {
            put64(bytes, at::SCATTERED_NONCE, scattered.nonce);
            bytes[at::SCATTERED_ACTIVE..][..ActiveLogs::BYTES].copy_from_slice(scattered.active.bytes());
        }
        put32(bytes, at::FAST_COMMIT_BLOCKS, self.fast_commit_blocks);
        if !self.is_clean() && self.has_incompatible(Incompatible::OURS) {
            put32(bytes, at::KEPT_SEQUENCE, self.sequence.0);
            put32(bytes, at::KEPT_START, self.start.get());
        }
        for (user, uuid) in self.users.iter().take(USERS).enumerate() {
            bytes[at::USERS + 16 * user..][..16].copy_from_slice(uuid);
        }
        if self.tag_format() != TagFormat::Plain {
            let sum = checksum(bytes);
            put32(bytes, at::CHECKSUM, sum);
        }
    }

    /// Nothing to recover.
    pub fn is_clean(&self) -> bool {
        self.start.get() == 0
    }
    /// The log may hold multiwrite blocks, but is said to be empty. Okeanos never writes that: it comes from a program
    /// that found this feature too late (`tune2fs`).
    pub fn is_forgotten(&self) -> bool {
        self.is_clean() && self.has_incompatible(Incompatible::OURS)
    }
    /// Of a forgotten log: the superblock as it was, if it was one that keeps where its log began.
    pub fn remembered(&self) -> Option<JournalSuperblock> {
        let (sequence, start) = self.kept.filter(|_| self.is_forgotten())?;
        let inside = self.log_blocks().contains(&start);
        inside.then(|| JournalSuperblock { sequence, start, kept: None, ..self.clone() })
    }
    /// Of a log that holds records: the superblock as its copy tells it, if that says that the log begins elsewhere. Okeanos
    /// writes both at once, and the same.
    pub fn disputed(&self) -> Option<JournalSuperblock> {
        let (sequence, start) = self.kept.filter(|_| !self.is_clean())?;
        let inside = self.log_blocks().contains(&start);
        inside.then(|| JournalSuperblock { sequence, start, kept: None, ..self.clone() })
    }
    pub fn has_incompatible(&self, bits: u32) -> bool {
        self.version == SuperblockVersion::V2 && self.incompatible & bits != 0
    }
    /// Commit blocks may carry checksum v1.
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
    /// How the log's descriptors, revokes and commit blocks are laid out.
    pub fn layout(&self) -> LogLayout {
        LogLayout {
            wide: self.is_wide(),
            multiwrite: self.has_incompatible(Incompatible::MULTIWRITE),
            ..LogLayout::new(self.block_size, self.tag_format(), self.uuid)
        }
    }

    /// The block after the last one of the log. Fast-commit blocks lie behind it while that feature is set,
    /// if a log of 1024 blocks remains.
    pub fn log_end(&self) -> LogBlock {
        let fast = match self.fast_commit_blocks {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            count => count,
        };
        match self.length.checked_sub(fast) {
            Some(rest) if rest >= LOG_BLOCKS_MIN && self.has_incompatible(Incompatible::FAST_COMMIT) => {
                LogBlock(rest)
            }
            _ => LogBlock(self.length),
        }
    }
    /// How many log blocks lie in a block: units of packed transactions, else one.
    pub fn log_blocks_per_block(&self) -> u32 {
        self.packed.map_or(1, |packed| self.block_size.bytes() as u32 / packed.unit)
    }
    /// The log, in its own blocks.
    pub fn log_blocks(&self) -> Range<LogBlock> {
        let each = self.log_blocks_per_block();
        LogBlock(self.first.get() * each)..LogBlock(self.log_end().get() * each)
    }
    /// What all checksums of packed transactions begin with.
    pub fn packed_seed(&self) -> Seed {
        let nonce = self.packed.map_or(0, |packed| packed.nonce);
        Seed::of_journal(&self.uuid).with(&nonce.to_be_bytes())
    }
    /// What all checksums of run headers begin with.
    pub fn scattered_seed(&self) -> Seed {
        let nonce = self.scattered.as_ref().map_or(0, |scattered| scattered.nonce);
        Seed::of_journal(&self.uuid).with(&nonce.to_be_bytes())
    }
    /// The shortest unit of packed transactions that a log of this length can count in.
    pub fn shortest_unit(&self) -> u32 {
        let bytes = u64::from(self.length) << self.block_size.shift();
        let needed = bytes.div_ceil(LENGTH_MAX.into()).next_power_of_two();
        UNIT_MIN.max(u32::try_from(needed).unwrap_or(u32::MAX))
    }
    /// The first fast-commit block, if the feature is set and leaves room for one. (The block at `log_end`
    /// belongs to neither.)
    pub fn fast_commit_start(&self) -> Option<LogBlock> {
        let start = self.log_end().plus(1);
        (start.get() < self.length).then_some(start)
    }

    /// The id of the first transaction after a clean mount. (After recovery: what the scan says.)
    pub fn next_transaction(&self) -> TransactionId {
        // The kernel and e2fsck skip one as well: s_sequence itself may have been used.
        self.sequence.next()
    }
    /// The log is empty, and `last` was the latest transaction id used. Multiwrite records are live no more.
    pub fn set_clean(&mut self, last: TransactionId) {
        self.sequence = last;
        self.start = LogBlock(0);
        self.incompatible &= !Incompatible::OURS;
        (self.packed, self.scattered, self.transaction_bound) = (None, None, None);
    }
    /// The log begins with transaction `sequence` at `start`.
    pub fn set_tail(&mut self, sequence: TransactionId, start: LogBlock) {
        self.sequence = sequence;
        self.start = start;
    }
    /// Sets the features that the log will be written with: checksums v3 or none, 64-bit block numbers, revoke,
    /// multiwrite. Clears fast commit (its area becomes part of the log) and the older checksums. Only while
    /// the log is clean.
    pub fn set_log_format(&mut self, checksums: bool, wide: bool, extended: bool) {
        assert!(self.is_clean(), "the format of a log that holds records cannot change");
        self.version = SuperblockVersion::V2;
        self.compatible &= !Compatible::CHECKSUM;
        self.incompatible = Incompatible::REVOKE
            | if checksums { Incompatible::CHECKSUM_V3 } else { 0 }
            | if wide { Incompatible::WIDE } else { 0 }
            | if extended { Incompatible::MULTIWRITE } else { 0 };
        self.checksum_type = if checksums { CRC32C } else { 0 };
        (self.packed, self.scattered) = (None, None);
    }
    /// The log will be written in packed transactions. Behind [`JournalSuperblock::set_log_format`].
    pub fn set_packed(&mut self, packed: PackedLog) {
        assert!(self.is_clean(), "the format of a log that holds records cannot change");
        self.incompatible = self.incompatible & !Incompatible::OURS | Incompatible::PACKED;
        self.packed = Some(packed);
        assert!(self.check_unit().is_ok(), "{packed:?} in a journal of {} blocks", self.length);
    }
    /// The log will lie in the scattered logs, none of which is in use yet. Behind the record format.
    pub fn set_scattered(&mut self, nonce: u64) {
        assert!(self.is_clean(), "the place of a log that holds records cannot change");
        self.incompatible |= Incompatible::SCATTERED;
        self.scattered = Some(ScatteredLogs { nonce, active: ActiveLogs::none() });
    }
}

fn wrong(why: String) -> FormatError {
    FormatError::Superblock(why)
}

fn version(bytes: &[u8]) -> Result<SuperblockVersion, FormatError> {
    match BlockHeader::parse(bytes) {
        Some(BlockHeader { kind: Some(BlockType::SuperblockV1), .. }) => Ok(SuperblockVersion::V1),
        Some(BlockHeader { kind: Some(BlockType::SuperblockV2), .. }) => Ok(SuperblockVersion::V2),
        Some(_) => Err(wrong(format!("block type {} is no superblock", be32(bytes, 4)))),
        None => Err(wrong(format!("magic {:#010x} instead of {MAGIC:#010x}", be32(bytes, 0)))),
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    Seed(!0).with(&bytes[..at::CHECKSUM]).with(&[0; 4]).with(&bytes[at::CHECKSUM + 4..SIZE]).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> JournalSuperblock {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 2048, [5; 16]);
        superblock.set_log_format(true, true, true);
        superblock.set_tail(TransactionId(7), LogBlock(9));
        superblock.users[47] = [1; 16];
        superblock
    }
    fn parse(superblock: &JournalSuperblock) -> Result<JournalSuperblock, FormatError> {
        JournalSuperblock::parse(&superblock.serialize(), superblock.block_size, 2048)
    }

    #[test]
    fn both_versions_come_back_as_written() {
        assert_eq!(parse(&superblock()), Ok(superblock()));
        let mut old = JournalSuperblock::new(BlockSize::new(4096).unwrap(), 2048, [0; 16]);
        old.version = SuperblockVersion::V1;
        assert_eq!(parse(&old), Ok(old));
    }

    fn packed(unit: u32) -> JournalSuperblock {
        let mut superblock = superblock();
        superblock.set_clean(TransactionId(3));
        superblock.set_log_format(true, true, false);
        superblock.set_packed(PackedLog { unit, nonce: 0x0123_4567_89ab_cdef });
        superblock
    }

    #[test]
    fn a_log_of_packed_transactions_counts_in_its_units() {
        let mut live = packed(512);
        live.set_tail(TransactionId(7), LogBlock(4095));
        assert_eq!(live.log_blocks(), LogBlock(2)..LogBlock(4096));
        assert_eq!(parse(&live), Ok(live.clone()));
        live.set_tail(TransactionId(7), LogBlock(1));
        assert!(parse(&live).is_err(), "before the log");
        let clean = JournalSuperblock { start: LogBlock(0), ..live };
        assert!(parse(&clean).unwrap().is_forgotten());
    }

    #[test]
    fn scattered_logs_are_named_while_they_hold_records() {
        for mut live in [superblock(), packed(512)] {
            live.start = LogBlock(0);
            live.set_scattered(0xfedc_ba98_7654_3210);
            live.scattered.as_mut().unwrap().active.set(1023);
            live.transaction_bound = Some(4096);
            live.set_tail(TransactionId(7), live.log_blocks().start);
            assert_eq!(parse(&live), Ok(live.clone()));
            let forgotten = JournalSuperblock { start: LogBlock(0), ..live.clone() };
            assert!(parse(&forgotten).unwrap().is_forgotten());
            live.set_clean(TransactionId(8));
            assert_eq!((live.scattered.clone(), parse(&live)), (None, Ok(live)));
        }
    }

    #[test]
    fn a_bound_of_transactions_counts_until_somebody_else_moves_the_log_on() {
        for mut live in [superblock(), packed(512)] {
            live.set_tail(TransactionId(u32::MAX), live.log_blocks().start);
            live.transaction_bound = Some(128);
            assert_eq!(parse(&live), Ok(live.clone()));
            let mut block = live.serialize();
            put32(&mut block, at::SEQUENCE, 5);
            let sum = checksum(&block);
            put32(&mut block, at::CHECKSUM, sum);
            let moved = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
            assert_eq!(moved.transaction_bound, None);
            live.set_clean(TransactionId(8));
            let clean = live.serialize();
            assert_eq!((be32(&clean, at::MAX_TRANSACTION), be32(&clean, at::MAX_TRANSACTION_SINCE)), (0, 0));
        }
    }

    #[test]
    fn units_that_are_no_sectors_of_a_block_are_refused() {
        for unit in [0, 1, 256, 513, 2048, 1 << 31] {
            let mut changed = packed(1024);
            changed.packed = Some(PackedLog { unit, nonce: 1 });
            assert!(parse(&changed).is_err(), "{unit}");
        }
        let mut long = JournalSuperblock { length: 1 << 31, ..packed(1024) };
        assert_eq!(long.shortest_unit(), 1024);
        assert!(long.check_unit().is_ok());
        long.packed = Some(PackedLog { unit: 512, nonce: 1 });
        assert!(long.check_unit().is_err());
    }

    #[test]
    fn unknown_features_are_refused_by_name() {
        let mut unknown = superblock();
        unknown.incompatible |= 0x100;
        unknown.read_only_compatible |= 0x2;
        let text = parse(&unknown).unwrap_err().to_string();
        assert!(text.contains("incompatible 0x100") && text.contains("read-only compatible 0x2"), "{text}");
        assert_eq!(Incompatible::NAMES.iter().fold(0, |all, (bit, _)| all | bit), Incompatible::KNOWN);
    }

    #[test]
    fn no_changed_byte_of_a_checksummed_superblock_is_accepted() {
        let block = superblock().serialize();
        for at in 0..SIZE {
            let mut damaged = block.clone();
            damaged[at] ^= 0x20;
            let parsed = JournalSuperblock::parse(&damaged, superblock().block_size, 2048);
            assert!(parsed.is_err(), "byte {at}");
        }
    }

    #[test]
    fn logs_outside_the_journal_are_refused() {
        let cases: [fn(&mut JournalSuperblock); 6] = [
            |it| it.length = 2049,
            |it| it.first = LogBlock(0),
            |it| it.first = LogBlock(2047),
            |it| it.start = LogBlock(2048),
            |it| (it.first, it.start) = (LogBlock(5), LogBlock(4)),
            |it| it.length = 2,
        ];
        for (number, change) in cases.into_iter().enumerate() {
            let mut changed = superblock();
            change(&mut changed);
            assert!(parse(&changed).is_err(), "case {number}");
        }
    }

    #[test]
    fn fast_commit_blocks_are_no_part_of_the_log() {
        let mut fast = superblock();
        assert_eq!((fast.log_end(), fast.fast_commit_start()), (LogBlock(2048), None));
        fast.incompatible |= Incompatible::FAST_COMMIT;
        assert_eq!((fast.log_end(), fast.fast_commit_start()), (LogBlock(1792), Some(LogBlock(1793))));
        fast.fast_commit_blocks = 1025;
        assert_eq!(fast.log_end(), LogBlock(2048));
    }

    #[test]
    fn a_live_multiwrite_log_that_is_called_empty_remembers_where_it_began() {
        let live = superblock();
        let mut block = live.serialize();
        put32(&mut block, at::SEQUENCE, 0);
        put32(&mut block, at::START, 0);
        let sum = checksum(&block);
        put32(&mut block, at::CHECKSUM, sum);
        let forgotten = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
        assert!(forgotten.is_forgotten() && !live.is_forgotten());
        assert_eq!(forgotten.remembered(), Some(live.clone()));
        // Written by a version that did not keep it, or nonsense.
        for kept in [0, 2048] {
            let nowhere =
                JournalSuperblock { kept: Some((live.sequence, LogBlock(kept))), ..forgotten.clone() };
            assert_eq!(nowhere.remembered(), None);
        }
        let mut clean = live;
        clean.set_clean(TransactionId(9));
        assert_eq!(clean.serialize()[at::KEPT_SEQUENCE..at::CHECKSUM], [0; 8]);
    }

    #[test]
    fn a_superblock_and_its_copy_that_differ_are_found_out() {
        let live = superblock();
        let mut block = live.serialize();
        let same = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
        assert_eq!(same.disputed(), None);
        put32(&mut block, at::SEQUENCE, live.sequence.0.wrapping_add(1000));
        let sum = checksum(&block);
        put32(&mut block, at::CHECKSUM, sum);
        let forged = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
        assert_eq!(forged.disputed(), Some(live));
    }

    #[test]
    fn a_clean_log_has_no_live_multiwrite_records() {
        let mut superblock = superblock();
        superblock.set_clean(TransactionId(u32::MAX));
        assert!(superblock.is_clean() && !superblock.has_incompatible(Incompatible::MULTIWRITE));
        assert_eq!(superblock.next_transaction(), TransactionId(0));
    }
}
