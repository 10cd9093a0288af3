use super::checksum::Seed;
use super::error::FormatError;
use units::{BlockSize, LogBlock, TransactionId};

pub(super) const MAGIC: u32 = 0xc03b_3998;
const SIZE: usize = 1024;
const USERS_MAX: u32 = 48;
/// The kernel's number of fast-commit blocks when the field is 0, and the least log it leaves beside them.
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
    pub const WIDE: u32 = 0x2;
    pub const ASYNC_COMMIT: u32 = 0x4;
    pub const CHECKSUM_V2: u32 = 0x8;
    pub const CHECKSUM_V3: u32 = 0x10;
    pub const FAST_COMMIT: u32 = 0x20;
    /// Ours: the log may hold multiwrite tags. Set only while such records may be live.
    pub const MULTIWRITE: u32 = 0x4000_0000;

    pub const KNOWN: u32 = Self::REVOKE
        | Self::WIDE
        | Self::ASYNC_COMMIT
        | Self::CHECKSUM_V2
        | Self::CHECKSUM_V3
        | Self::FAST_COMMIT
        | Self::MULTIWRITE;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockVersion {
    V1,
    V2,
}

/// How tags, descriptors and revokes of a journal are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagFormat {
    Plain,
    ChecksumV2,
    ChecksumV3,
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
    /// Where the log begins; block 0 means it is empty (`s_start`).
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
    /// `s_checksum_type`: 4 is CRC-32C.
    pub checksum_type: u8,
    pub fast_commit_blocks: u32,
    /// UUIDs of the file systems that share an external journal: 48 of them.
    pub users: Vec<[u8; 16]>,
}

impl JournalSuperblock {
    /// `bytes`: the journal's first block, at least its first 1024 bytes. `blocks`: how many blocks the
    /// journal's file or device has, `block_size` each.
    pub fn parse(bytes: &[u8], block_size: BlockSize, blocks: u64) -> Result<JournalSuperblock, FormatError> {
        let _ = (bytes, block_size, blocks);
        todo!()
    }
    /// A whole block, the superblock at its start, zeros behind it. Checksum set where the features ask for it.
    pub fn serialize(&self) -> Vec<u8> {
        todo!()
    }
    /// A superblock such as mke2fs makes for an internal journal.
    pub fn new(block_size: BlockSize, length: u32, uuid: [u8; 16]) -> JournalSuperblock {
        let _ = (block_size, length, uuid);
        todo!()
    }
    /// Nothing to recover.
    pub fn is_clean(&self) -> bool {
        self.start.get() == 0
    }
    pub fn has_incompatible(&self, bits: u32) -> bool {
        self.version == SuperblockVersion::V2 && self.incompatible & bits != 0
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
    pub fn seed(&self) -> Seed {
        Seed::of_journal(&self.uuid)
    }
    /// The block after the last one of the log: fast-commit blocks come behind it while that feature is set.
    pub fn log_end(&self) -> LogBlock {
        todo!()
    }
    /// The id of the first transaction after a clean mount. (After recovery: `Scanned::next`.)
    pub fn next_transaction(&self) -> TransactionId {
        self.sequence.next()
    }
    /// The log is empty, and `last` was the latest transaction id used.
    pub fn set_clean(&mut self, last: TransactionId) {
        self.sequence = last;
        self.start = LogBlock(0);
    }
    /// The log begins with transaction `sequence` at `start`.
    pub fn set_tail(&mut self, sequence: TransactionId, start: LogBlock) {
        self.sequence = sequence;
        self.start = start;
    }
    /// Sets the features that the log will be written with: checksums v3 or none, 64-bit block numbers, revoke,
    /// multiwrite. Clears fast commit and the older checksums. Only while the log is clean.
    pub fn set_log_format(&mut self, checksums: bool, wide: bool, extended: bool) {
        let _ =
            (checksums, wide, extended, SIZE, USERS_MAX, FAST_COMMIT_BLOCKS_DEFAULT, LOG_BLOCKS_MIN, MAGIC);
        todo!()
    }
}
