//! The superblock of a block volume: a disk whose blocks are exported to a file system above, with
//! a journal in front of them.
//!
//! A block volume begins with a reserved mebibyte, which holds the superblock at [`SUPERBLOCK_AT`].
//! The journal follows, then the data, then a reserved mebibyte with a copy of the superblock at
//! its start. The exported data begins behind a mebibyte and the journal, and ends before the end
//! of the disk. So no probe of the start or the end of the disk finds a superblock of the exported
//! file system, and the disk is not mounted past the journal by mistake.
//!
//! A flush zone, for `barrier=coerce`, lies between journal and data. Its first 4096 bytes hold its
//! own superblock ([`crate::flush_zone`]), and evictions write to the rest.
//!
//! A journal on a device of its own begins with a superblock of the same format, of
//! [`BlocksRole::Journal`].
//!
//! With scattered logs the data is cut into groups, each with a log at its end. The exported disk
//! leaves these logs out.

use crate::field;
use std::fmt::Write;
use units::BlockSize;

pub const BLOCKS_MAGIC: [u8; 8] = *b"OKEANBLK";
pub const BLOCKS_SUPERBLOCK_SIZE: usize = 512;
/// Byte of the disk at which the superblock begins.
pub const SUPERBLOCK_AT: u64 = 4096;
/// Size of the reserved areas at the start and at the end of the disk, and alignment of all areas.
pub const RESERVED_BYTES: u64 = 1 << 20;
const VERSION: u32 = 1;
/// Shortest journal, in blocks: a quarter of a journal is one transaction, and a handle has three
/// quarters of that.
pub const JOURNAL_BLOCKS_MIN: u32 = 256;
/// Longest journal, in blocks: the numbers of its log blocks and those of scattered logs share 32
/// bits.
pub const JOURNAL_BLOCKS_MAX: u32 = 1 << 30;
/// Bound on scattered logs; more than a disk of 16 TiB has in groups of 100 MiB.
pub const BLOCKS_LOGS_MAX: u32 = 1 << 20;
/// Maximum number of blocks of a disk: home addresses are block numbers.
const DISK_BLOCKS_MAX: u64 = 1 << 48;

/// Use of a disk with such a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlocksRole {
    /// The data, and the journal if that is not on its own device.
    Volume,
    /// The journal of a volume, on a device of its own.
    Journal,
}

/// Scattered logs in the data: one of `log_blocks` at the end of every `group_blocks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockGroups {
    pub group_blocks: u32,
    pub log_blocks: u32,
    /// The number of logs, one for each whole group in the data.
    pub logs: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlocksSuperblock {
    pub role: BlocksRole,
    pub block_size: BlockSize,
    /// The volume's identity. A journal device has its own in `journal_uuid`.
    pub uuid: [u8; 16],
    /// The identity of the journal's device; zeros: the journal is inside the volume.
    pub journal_uuid: [u8; 16],
    /// Seconds since 1970.
    pub created: u64,
    /// The size in bytes of the disk when it was formatted or has grown. The copy of the
    /// superblock lies one reserved area before that end.
    pub disk_bytes: u64,
    /// First block and number of blocks of the journal on this disk; (0, 0): it has none.
    pub journal_at: u64,
    pub journal_blocks: u32,
    /// First block and number of blocks of the data, scattered logs included.
    pub data_at: u64,
    pub data_blocks: u64,
    pub groups: Option<BlockGroups>,
    /// First block and number of blocks of the flush zone on this disk; (0, 0): it has none.
    pub zone_at: u64,
    pub zone_blocks: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlocksFormatError {
    #[error("there is no block volume")]
    NoVolume,
    #[error("its superblock has checksum {stored:#010x} instead of {computed:#010x}")]
    WrongChecksum { stored: u32, computed: u32 },
    #[error("it is a block volume of version {0}, which a newer okeanos has made")]
    UnknownVersion(u32),
    #[error("its superblock has unknown features {0:#x}, which a newer okeanos has made")]
    UnknownFeatures(u32),
    #[error("its superblock contradicts itself: {0}")]
    Impossible(String),
}

/// Places of the fields. Numbers are big-endian.
mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const FEATURES: usize = 12;
    pub const UUID: usize = 16;
    pub const JOURNAL_UUID: usize = 32;
    pub const CREATED: usize = 48;
    pub const DISK_BYTES: usize = 56;
    pub const BLOCK_SIZE: usize = 64;
    pub const ROLE: usize = 68;
    pub const JOURNAL_AT: usize = 72;
    pub const JOURNAL_BLOCKS: usize = 80;
    pub const LOGS: usize = 84;
    pub const DATA_AT: usize = 88;
    pub const DATA_BLOCKS: usize = 96;
    pub const GROUP_BLOCKS: usize = 104;
    pub const LOG_BLOCKS: usize = 108;
    pub const ZONE_AT: usize = 112;
    pub const ZONE_BLOCKS: usize = 120;
    pub const CHECKSUM: usize = 508;
}

/// Features without which a reader must not touch the volume.
const SCATTERED: u32 = 1;
const OWN_JOURNAL: u32 = 2;
const FLUSH_ZONE: u32 = 4;

/// The byte at which the copy of the superblock lies on a disk of `disk_bytes`; `None` for a disk
/// too short for one.
pub fn blocks_copy_at(disk_bytes: u64) -> Option<u64> {
    let end = disk_bytes / RESERVED_BYTES * RESERVED_BYTES;
    end.checked_sub(RESERVED_BYTES).filter(|at| *at >= RESERVED_BYTES)
}

impl BlocksSuperblock {
    /// Parses at least [`BLOCKS_SUPERBLOCK_SIZE`] bytes. The areas of the result lie apart and
    /// within `disk_bytes`.
    ///
    /// # Errors
    /// [`BlocksFormatError`]: which of the checks failed.
    pub fn parse(bytes: &[u8]) -> Result<BlocksSuperblock, BlocksFormatError> {
        let bytes = bytes.get(..BLOCKS_SUPERBLOCK_SIZE).filter(|it| it[..8] == BLOCKS_MAGIC);
        let Some(bytes) = bytes else { return Err(BlocksFormatError::NoVolume) };
        let (stored, computed) =
            (field::be32(bytes, at::CHECKSUM), crc32c::crc32c(&bytes[..at::CHECKSUM]));
        if stored != computed && !units::fault!("blocks-superblock-unchecked") {
            return Err(BlocksFormatError::WrongChecksum { stored, computed });
        }
        let version = field::be32(bytes, at::VERSION);
        if version != VERSION {
            return Err(BlocksFormatError::UnknownVersion(version));
        }
        let features = field::be32(bytes, at::FEATURES);
        if features & !(SCATTERED | OWN_JOURNAL | FLUSH_ZONE) != 0 {
            return Err(BlocksFormatError::UnknownFeatures(features));
        }
        let superblock = BlocksSuperblock {
            role: role(field::be32(bytes, at::ROLE))?,
            block_size: block_size(field::be32(bytes, at::BLOCK_SIZE))?,
            uuid: field::uuid(bytes, at::UUID),
            journal_uuid: field::uuid(bytes, at::JOURNAL_UUID),
            created: field::be64(bytes, at::CREATED),
            disk_bytes: field::be64(bytes, at::DISK_BYTES),
            journal_at: field::be64(bytes, at::JOURNAL_AT),
            journal_blocks: field::be32(bytes, at::JOURNAL_BLOCKS),
            data_at: field::be64(bytes, at::DATA_AT),
            data_blocks: field::be64(bytes, at::DATA_BLOCKS),
            groups: (features & SCATTERED != 0).then(|| BlockGroups {
                group_blocks: field::be32(bytes, at::GROUP_BLOCKS),
                log_blocks: field::be32(bytes, at::LOG_BLOCKS),
                logs: field::be32(bytes, at::LOGS),
            }),
            zone_at: field::be64(bytes, at::ZONE_AT),
            zone_blocks: field::be64(bytes, at::ZONE_BLOCKS),
        };
        if (superblock.zone_blocks > 0) != (features & FLUSH_ZONE != 0) {
            return Err(impossible("it has a flush zone and says that it has none"));
        }
        let has_own_journal = superblock.journal_uuid != [0; 16];
        if has_own_journal != (features & OWN_JOURNAL != 0) {
            return Err(impossible("it names a journal device and says that it has none"));
        }
        superblock.check()?;
        Ok(superblock)
    }

    pub fn serialize(&self) -> [u8; BLOCKS_SUPERBLOCK_SIZE] {
        let mut bytes = [0; BLOCKS_SUPERBLOCK_SIZE];
        bytes[at::MAGIC..at::VERSION].copy_from_slice(&BLOCKS_MAGIC);
        bytes[at::UUID..at::JOURNAL_UUID].copy_from_slice(&self.uuid);
        bytes[at::JOURNAL_UUID..at::CREATED].copy_from_slice(&self.journal_uuid);
        let own_journal = if self.journal_uuid == [0; 16] { 0 } else { OWN_JOURNAL };
        let scattered = if self.groups.is_some() { SCATTERED } else { 0 };
        let zone = if self.zone_blocks > 0 { FLUSH_ZONE } else { 0 };
        let groups = self.groups.unwrap_or(BlockGroups { group_blocks: 0, log_blocks: 0, logs: 0 });
        for (at, word) in [
            (at::VERSION, VERSION),
            (at::FEATURES, scattered | own_journal | zone),
            (at::BLOCK_SIZE, self.block_size.bytes() as u32),
            (at::ROLE, if self.role == BlocksRole::Volume { 0 } else { 1 }),
            (at::JOURNAL_BLOCKS, self.journal_blocks),
            (at::LOGS, groups.logs),
            (at::GROUP_BLOCKS, groups.group_blocks),
            (at::LOG_BLOCKS, groups.log_blocks),
        ] {
            field::put32(&mut bytes, at, word);
        }
        for (at, number) in [
            (at::CREATED, self.created),
            (at::DISK_BYTES, self.disk_bytes),
            (at::JOURNAL_AT, self.journal_at),
            (at::DATA_AT, self.data_at),
            (at::DATA_BLOCKS, self.data_blocks),
            (at::ZONE_AT, self.zone_at),
            (at::ZONE_BLOCKS, self.zone_blocks),
        ] {
            field::put64(&mut bytes, at, number);
        }
        let sum = crc32c::crc32c(&bytes[..at::CHECKSUM]);
        field::put32(&mut bytes, at::CHECKSUM, sum);
        bytes
    }

    /// Returns the first byte of `start`, the disk's first reserved area, that a volume with this
    /// superblock has not written; `None` if this copy may stand in for the superblock there. Bytes
    /// that cannot be read are zeros in `start`.
    ///
    /// A superblock may rot in part, or be erased with what is around it. Anything else is of
    /// another format that the disk was given since, which knows nothing of the copy.
    pub fn overwritten_at(&self, start: &[u8]) -> Option<u64> {
        let (from, own) = (SUPERBLOCK_AT as usize, self.serialize());
        let found = start.get(from..from + own.len())?;
        let written = own.iter().zip(found).filter(|(own, _)| **own != 0);
        let kept = written.clone().filter(|(own, found)| own == found).count();
        let is_own = kept * 2 >= written.count();
        let is_foreign = |(at, byte): (usize, &u8)| {
            let within = at >= from && at < from + own.len();
            (*byte != 0 && !(within && is_own)).then_some(at as u64)
        };
        start.iter().enumerate().find_map(is_foreign)
    }

    /// Checks that areas lie apart, in the order of the format, within the disk.
    ///
    /// # Errors
    /// [`BlocksFormatError::Impossible`], which names the contradiction.
    pub fn check(&self) -> Result<(), BlocksFormatError> {
        let shift = self.block_size.shift();
        let disk_blocks = self.disk_bytes >> shift;
        if disk_blocks > DISK_BLOCKS_MAX {
            return Err(impossible("the disk is longer than 2^48 blocks"));
        }
        let Some(copy_at) = blocks_copy_at(self.disk_bytes) else {
            return Err(impossible("the disk has no space for the copy of the superblock"));
        };
        let reserved = RESERVED_BYTES >> shift;
        let has_journal = self.journal_blocks > 0;
        let journal_end = self.journal_at.saturating_add(self.journal_blocks.into());
        if has_journal
            && (self.journal_at < reserved
                || !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&self.journal_blocks)
                || journal_end > copy_at >> shift)
        {
            return Err(impossible("the journal has no possible place or length"));
        }
        if !has_journal && self.journal_at != 0 {
            return Err(impossible("a journal of no blocks has a place"));
        }
        let is_own = self.journal_uuid != [0; 16];
        if has_journal == (is_own && self.role == BlocksRole::Volume) {
            return Err(impossible("the journal is on two disks, or on none"));
        }
        let after = if has_journal { journal_end } else { reserved };
        let after = self.end_of_zone(after, copy_at >> shift)?;
        if self.role == BlocksRole::Journal {
            return match self.data_blocks == 0 && is_own && self.groups.is_none() {
                true => Ok(()),
                false => Err(impossible("a journal device has data")),
            };
        }
        let data_end = self.data_at.saturating_add(self.data_blocks);
        if self.data_blocks == 0 || self.data_at < after || data_end > copy_at >> shift {
            return Err(impossible("the data has no possible place or length"));
        }
        self.groups.map_or(Ok(()), |groups| groups.check(self.data_blocks))
    }

    /// Returns where the flush zone ends, or `after` if there is none.
    fn end_of_zone(&self, after: u64, end: u64) -> Result<u64, BlocksFormatError> {
        let zone_end = self.zone_at.saturating_add(self.zone_blocks);
        match self.zone_blocks {
            0 if self.zone_at == 0 => Ok(after),
            0 => Err(impossible("a flush zone of no blocks has a place")),
            _ if self.zone_at >= after && zone_end <= end => Ok(zone_end),
            _ => Err(impossible("the flush zone has no possible place or length")),
        }
    }

    /// The number of blocks of the exported disk.
    pub fn exported_blocks(&self) -> u64 {
        let logs =
            self.groups.map_or(0, |groups| u64::from(groups.logs) * u64::from(groups.log_blocks));
        self.data_blocks - logs
    }
}

impl BlockGroups {
    fn check(&self, data_blocks: u64) -> Result<(), BlocksFormatError> {
        let BlockGroups { group_blocks, log_blocks, logs } = *self;
        if log_blocks < crate::scattered::LOG_BLOCKS_MIN || group_blocks / 2 < log_blocks {
            return Err(impossible("scattered logs are too short, or longer than half of a group"));
        }
        let fits = data_blocks / u64::from(group_blocks);
        if logs == 0 || logs > BLOCKS_LOGS_MAX || u64::from(logs) > fits {
            return Err(impossible("there are more scattered logs than groups, or none"));
        }
        // Log blocks of the journal and of all logs are numbered together, in 32 bits.
        match u64::from(logs) * u64::from(log_blocks) <= u64::from(JOURNAL_BLOCKS_MAX) {
            true => Ok(()),
            false => Err(impossible("the scattered logs are too long to be numbered")),
        }
    }
}

fn impossible(why: &str) -> BlocksFormatError {
    BlocksFormatError::Impossible(why.to_owned())
}
fn role(word: u32) -> Result<BlocksRole, BlocksFormatError> {
    match word {
        0 => Ok(BlocksRole::Volume),
        1 => Ok(BlocksRole::Journal),
        _ => Err(impossible("it is neither of a volume nor of a journal")),
    }
}
fn block_size(bytes: u32) -> Result<BlockSize, BlocksFormatError> {
    let found = BlockSize::new(bytes).filter(|size| size.bytes() <= 4096);
    found.ok_or_else(|| impossible("its blocks have neither 1024 nor 2048 nor 4096 bytes"))
}

/// Returns the Markdown tables for `docs/ON_DISK.md`.
pub fn tables() -> String {
    let mut text = String::from(
        "\n#### Superblock of a block volume\n\n| byte | bytes | field |\n|---|---|---|\n",
    );
    for (at, bytes, name) in [
        (at::MAGIC, 8, "magic `OKEANBLK`"),
        (at::VERSION, 4, "version: 1; others are refused"),
        (
            at::FEATURES,
            4,
            "features: 1 scattered logs, 2 journal on its own device, 4 flush zone; others are \
             refused",
        ),
        (at::UUID, 16, "UUID of the volume"),
        (at::JOURNAL_UUID, 16, "UUID of the journal's device; zeros: the journal is inside"),
        (at::CREATED, 8, "seconds since 1970 at which it was made"),
        (at::DISK_BYTES, 8, "bytes of the disk when it was made or has grown"),
        (at::BLOCK_SIZE, 4, "bytes of a block: 1024, 2048 or 4096"),
        (at::ROLE, 4, "0: a volume; 1: the journal of one"),
        (at::JOURNAL_AT, 8, "first block of the journal"),
        (at::JOURNAL_BLOCKS, 4, "blocks of the journal; 0: none on this disk"),
        (at::LOGS, 4, "scattered logs"),
        (at::DATA_AT, 8, "first block of the data"),
        (at::DATA_BLOCKS, 8, "blocks of the data, scattered logs included"),
        (at::GROUP_BLOCKS, 4, "blocks of a group, its log included"),
        (at::LOG_BLOCKS, 4, "blocks of a scattered log, the last ones of its group"),
        (at::ZONE_AT, 8, "first block of the flush zone"),
        (at::ZONE_BLOCKS, 8, "blocks of the flush zone; 0: none on this disk"),
        (at::CHECKSUM, 4, "CRC-32C of all bytes before"),
    ] {
        writeln!(text, "| {at} | {bytes} | {name} |").expect("strings take all writes");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> BlocksSuperblock {
        BlocksSuperblock {
            role: BlocksRole::Volume,
            block_size: BlockSize::new(4096).unwrap(),
            uuid: [7; 16],
            journal_uuid: [0; 16],
            created: 1_700_000_000,
            disk_bytes: 64 << 20,
            journal_at: 256,
            journal_blocks: 1024,
            data_at: 1280,
            data_blocks: (61 << 20 >> 12) - 1024,
            groups: Some(BlockGroups { group_blocks: 4096, log_blocks: 256, logs: 3 }),
            zone_at: 0,
            zone_blocks: 0,
        }
    }

    #[test]
    fn every_changed_byte_of_a_superblock_is_noticed() {
        let superblock = volume();
        superblock.check().unwrap();
        let bytes = superblock.serialize();
        assert_eq!(BlocksSuperblock::parse(&bytes), Ok(superblock));
        for at in 0..BLOCKS_SUPERBLOCK_SIZE {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(BlocksSuperblock::parse(&changed).is_err(), "byte {at}");
        }
        assert_eq!(BlocksSuperblock::parse(&bytes[..511]), Err(BlocksFormatError::NoVolume));
    }

    #[test]
    fn a_copy_stands_in_for_damage_alone() {
        let (superblock, own) = (volume(), SUPERBLOCK_AT as usize);
        let erased = vec![0; RESERVED_BYTES as usize];
        assert_eq!(superblock.overwritten_at(&erased), None);
        let mut rotten = erased.clone();
        rotten[own..own + BLOCKS_SUPERBLOCK_SIZE].copy_from_slice(&superblock.serialize());
        rotten[own..own + 20].fill(0xa5);
        assert_eq!(superblock.overwritten_at(&rotten), None);
        for at in [0, own - 1, own + BLOCKS_SUPERBLOCK_SIZE, erased.len() - 1] {
            let mut foreign = rotten.clone();
            foreign[at] = 1;
            assert_eq!(superblock.overwritten_at(&foreign), Some(at as u64));
        }
        // The superblock of md, version 1.2, begins where ours does.
        let mut foreign = erased;
        foreign[own..own + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        assert_eq!(superblock.overwritten_at(&foreign), Some(SUPERBLOCK_AT));
    }

    #[test]
    fn a_flush_zone_lies_between_journal_and_data() {
        let zoned = BlocksSuperblock {
            zone_at: 1280,
            zone_blocks: 256,
            data_at: 1536,
            data_blocks: volume().data_blocks - 256,
            ..volume()
        };
        assert_eq!(BlocksSuperblock::parse(&zoned.serialize()), Ok(zoned.clone()));
        for (zone_at, zone_blocks) in [(1279, 256), (1281, 256), (1280, u64::MAX), (1280, 0)] {
            let wrong = BlocksSuperblock { zone_at, zone_blocks, ..zoned.clone() };
            let parsed = BlocksSuperblock::parse(&wrong.serialize());
            assert!(matches!(parsed, Err(BlocksFormatError::Impossible(_))), "{wrong:?}");
        }
    }

    #[test]
    fn superblocks_that_cannot_be_are_refused() {
        let wrong: [fn(&mut BlocksSuperblock); 12] = [
            |it| it.disk_bytes = 0,
            |it| it.disk_bytes = u64::MAX,
            |it| it.journal_at = 0,
            |it| it.journal_at = u64::MAX,
            |it| it.journal_blocks = 8,
            |it| it.journal_blocks = 0,
            |it| it.data_at = 300,
            |it| it.data_blocks = u64::MAX,
            |it| it.data_blocks = 0,
            |it| it.role = BlocksRole::Journal,
            |it| it.journal_uuid = [1; 16],
            |it| it.groups = Some(BlockGroups { group_blocks: 4096, log_blocks: 256, logs: 99 }),
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let mut superblock = volume();
            change(&mut superblock);
            let parsed = BlocksSuperblock::parse(&superblock.serialize());
            assert!(
                matches!(parsed, Err(BlocksFormatError::Impossible(_))),
                "{number}: {parsed:?}"
            );
        }
    }
}
