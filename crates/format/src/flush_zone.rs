//! The superblock of a flush zone: the writes that evict everything from the cache of the drive
//! below it.
//!
//! The superblock fills the first 512 bytes of the zone; the file-system block that holds them is
//! not part of what evictions write. Little-endian, as all of ext4. (Idea: Rajimwale et al., DSN
//! 2011, section IV.C; the bytes are ours: `docs/ON_DISK.md`.)

use std::fmt;
use std::ops::Range;

pub const FLUSH_ZONE_MAGIC: [u8; 8] = *b"OKEANFLZ";
pub const FLUSH_ZONE_SUPERBLOCK_SIZE: usize = 512;
const VERSION: u32 = 1;
/// Longest model string, in bytes.
pub const MODEL_SIZE: usize = 64;
const CHECKSUM_AT: usize = FLUSH_ZONE_SUPERBLOCK_SIZE - 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlushZoneSuperblock {
    /// UUID of the volume, or of the journal device, that has the zone.
    pub uuid: [u8; 16],
    /// The inode that owns the zone; 0 on a journal device.
    pub inode: u32,
    /// Whether the writes of an eviction are in the order of their addresses.
    pub sequential: bool,
    pub writes: u32,
    /// Bytes of all writes together.
    pub bytes: u64,
    /// Number of trials in which the workload evicted the cache.
    pub trials: u32,
    /// Bytes of the fingerprinted drive, and its model string; 0 and "" where the user forced a
    /// zone.
    pub drive_size: u64,
    /// Model string of at most [`MODEL_SIZE`] bytes.
    pub model: String,
    /// Bytes of the zone behind the block of this superblock.
    pub length: u64,
}

/// A zone, and the byte ranges of its disk to which evictions may write.
#[derive(Clone, Debug)]
pub struct FoundFlushZone {
    pub superblock: FlushZoneSuperblock,
    pub extents: Vec<Range<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushZoneError {
    /// Not a flush zone: shorter than a superblock, or another magic.
    NoZone,
    WrongChecksum {
        stored: u32,
        computed: u32,
    },
    UnknownVersion(u32),
    BadModel,
}

impl fmt::Display for FlushZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlushZoneError::NoZone => f.write_str("there is no flush zone"),
            FlushZoneError::WrongChecksum { stored, computed } => {
                write!(
                    f,
                    "the flush zone's superblock has checksum {stored:#010x} instead of \
                     {computed:#010x}"
                )
            }
            FlushZoneError::UnknownVersion(version) => {
                write!(f, "flush zone of unknown version {version}")
            }
            FlushZoneError::BadModel => f.write_str("the flush zone's model string is no text"),
        }
    }
}
impl std::error::Error for FlushZoneError {}

/// Name, offset, size and meaning of each field.
const FIELDS: [(&str, usize, usize, &str); 12] = [
    ("magic", 0, 8, "`OKEANFLZ`"),
    ("version", VERSION_AT, 4, "1; others are refused"),
    ("uuid", UUID_AT, 16, "of the volume, or of the journal device"),
    ("inode", INODE_AT, 4, "that owns the zone; 0 on a journal device"),
    ("sequential", SEQUENTIAL_AT, 4, "1: the writes follow one another; 0: random places"),
    ("writes", WRITES_AT, 4, "of one eviction"),
    ("bytes", BYTES_AT, 8, "of all its writes together"),
    ("trials", TRIALS_AT, 4, "of the fingerprint, all of which evicted"),
    (
        "drive size",
        DRIVE_SIZE_AT,
        8,
        "bytes of the drive that was fingerprinted; 0 if the profile was forced",
    ),
    ("length", LENGTH_AT, 8, "bytes of the zone, from the next block on"),
    ("model", MODEL_AT, MODEL_SIZE, "of the drive; zeros behind it"),
    ("checksum", CHECKSUM_AT, 4, "CRC-32C of all bytes before"),
];
const VERSION_AT: usize = 8;
const UUID_AT: usize = 12;
const INODE_AT: usize = 28;
const SEQUENTIAL_AT: usize = 32;
const WRITES_AT: usize = 36;
const BYTES_AT: usize = 40;
const TRIALS_AT: usize = 48;
const DRIVE_SIZE_AT: usize = 56;
const LENGTH_AT: usize = 64;
const MODEL_AT: usize = 72;

/// Returns the table for `docs/ON_DISK.md`.
pub fn table() -> String {
    let mut text = "| field | at | size | meaning |\n|---|---|---|---|\n".to_string();
    for (name, at, size, meaning) in FIELDS {
        text += &format!("| {name} | {at} | {size} | {meaning} |\n");
    }
    text
}

impl FlushZoneSuperblock {
    pub fn parse(bytes: &[u8]) -> Result<FlushZoneSuperblock, FlushZoneError> {
        let Some(bytes) = bytes.get(..FLUSH_ZONE_SUPERBLOCK_SIZE) else {
            return Err(FlushZoneError::NoZone);
        };
        if bytes[..8] != FLUSH_ZONE_MAGIC {
            return Err(FlushZoneError::NoZone);
        }
        let u32_at =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (stored, computed) = (u32_at(CHECKSUM_AT), crc32c::crc32c(&bytes[..CHECKSUM_AT]));
        if stored != computed {
            return Err(FlushZoneError::WrongChecksum { stored, computed });
        }
        if u32_at(VERSION_AT) != VERSION {
            return Err(FlushZoneError::UnknownVersion(u32_at(VERSION_AT)));
        }
        let model = &bytes[MODEL_AT..MODEL_AT + MODEL_SIZE];
        let end = model.iter().position(|byte| *byte == 0).unwrap_or(MODEL_SIZE);
        let model = std::str::from_utf8(&model[..end]).map_err(|_| FlushZoneError::BadModel)?;
        Ok(FlushZoneSuperblock {
            uuid: bytes[UUID_AT..UUID_AT + 16].try_into().expect("sixteen bytes"),
            inode: u32_at(INODE_AT),
            sequential: u32_at(SEQUENTIAL_AT) != 0,
            writes: u32_at(WRITES_AT),
            bytes: u64_at(BYTES_AT),
            trials: u32_at(TRIALS_AT),
            drive_size: u64_at(DRIVE_SIZE_AT),
            length: u64_at(LENGTH_AT),
            model: model.to_owned(),
        })
    }

    /// Serializes; a model string that is too long is cut.
    pub fn serialize(&self) -> [u8; FLUSH_ZONE_SUPERBLOCK_SIZE] {
        let mut bytes = [0; FLUSH_ZONE_SUPERBLOCK_SIZE];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &FLUSH_ZONE_MAGIC);
        put(VERSION_AT, &VERSION.to_le_bytes());
        put(UUID_AT, &self.uuid);
        put(INODE_AT, &self.inode.to_le_bytes());
        put(SEQUENTIAL_AT, &u32::from(self.sequential).to_le_bytes());
        put(WRITES_AT, &self.writes.to_le_bytes());
        put(BYTES_AT, &self.bytes.to_le_bytes());
        put(TRIALS_AT, &self.trials.to_le_bytes());
        put(DRIVE_SIZE_AT, &self.drive_size.to_le_bytes());
        put(LENGTH_AT, &self.length.to_le_bytes());
        let mut end = self.model.len().min(MODEL_SIZE);
        while !self.model.is_char_boundary(end) {
            end -= 1;
        }
        put(MODEL_AT, &self.model.as_bytes()[..end]);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> FlushZoneSuperblock {
        FlushZoneSuperblock {
            uuid: [7; 16],
            inode: 13,
            sequential: true,
            writes: 128,
            bytes: 17_000_000,
            trials: 50,
            drive_size: 1 << 40,
            model: "HDS7280SASUN80G".into(),
            length: 68_000_000,
        }
    }

    #[test]
    fn a_superblock_reads_back_as_it_was_written() {
        assert_eq!(FlushZoneSuperblock::parse(&superblock().serialize()), Ok(superblock()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        for at in 0..FLUSH_ZONE_SUPERBLOCK_SIZE {
            let mut bytes = superblock().serialize();
            bytes[at] ^= 1;
            assert!(FlushZoneSuperblock::parse(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(FlushZoneSuperblock::parse(&[0; 100]), Err(FlushZoneError::NoZone));
    }

    #[test]
    fn a_long_model_string_is_cut_between_characters() {
        let long = FlushZoneSuperblock { model: "ä".repeat(60), ..superblock() };
        assert_eq!(FlushZoneSuperblock::parse(&long.serialize()).unwrap().model, "ä".repeat(32));
    }
}
