//! Places on the disk: the superblock, the table's area, and groups of data with a log at their
//! end.
//!
//! Invariants: a layout exists only of sizes that were checked, so its arithmetic cannot overflow;
//! each block of the logical disk has one home. No home lies in a log or in the table's area.
//! Neighbours within a group are neighbours at home.

use crate::fields::{begin, put, seal, sealed, u32_at, u64_at, u128_at};
use crate::{BLOCK, MAX_ENTRIES};
use std::ops::Range;
use xxhash_rust::xxh64::xxh64;

const MAGIC: [u8; 4] = *b"OKSD";
/// Version 1 has no gaps between records; version 2 has; version 3 has other checksums of data.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=3;
const WITHOUT_GAPS: u32 = 1;
const WITH_CRC: u32 = 2;
/// Bytes of a gap between records at most. They pass below the head in half a millisecond to one
/// and a half (250 to 83 MB/s). A drive takes a tenth or two to begin what it was given, and this
/// much seldom. A restart reads so much of each log.
const GAP: u64 = 128 << 10;
/// The greatest gap is this part of a log.
const GAPS_IN_A_LOG: u32 = 8;
/// Data begins at a multiple of this, in blocks.
const ALIGNMENT: u64 = 256;
/// A log holds at least a header and a few blocks.
const LOG_BLOCKS_MIN: u32 = 16;
const GROUP_BLOCKS_MAX: u32 = 1 << 28;
/// 16 EiB would overflow; 64 PiB are enough for a table entry's address.
const DEVICE_BLOCKS_MAX: u64 = 1 << 44;
/// Bytes of a log, and of an entry, in a snapshot.
pub const SNAPSHOT_ITEM: u64 = 16;

/// *LogSize* in every *GroupSize*, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub log: u64,
    pub group: u64,
}
impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { log: 10 << 20, group: 100 << 20 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("there are no scattered logs on this disk: format it with them first")]
    NoSuperblock,
    #[error("scattered logs of unknown version {0}: a newer okeanos made them")]
    UnknownVersion(u32),
    #[error(
        "a log of {log} bytes in every {group} bytes cannot be: the log needs 64 KiB or more, whole blocks of 4096 bytes, and less than its group"
    )]
    BadSizes { log: u64, group: u64 },
    #[error("a disk of {0} bytes has no space for one group with its log")]
    TooSmall(u64),
    #[error(
        "the disk has {size} bytes, and its scattered logs were made for {wanted}: it was cut, or is another"
    )]
    Shrunk { size: u64, wanted: u64 },
}

/// The checksum that a record has of each of its data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSums {
    /// Used on disks that older programs have formatted. Older content of a log that ends with its
    /// own CRC-32C passes for newer. Nodes of an extent tree are such content.
    Crc32c,
    /// The low half of XXH64.
    Xxh64,
}
impl DataSums {
    pub fn of(self, block: &[u8]) -> u32 {
        match self {
            _ if units::fault!("block-data-sum-crc") => crc32c::crc32c(block),
            DataSums::Crc32c => crc32c::crc32c(block),
            DataSums::Xxh64 => xxh64(block, 0) as u32,
        }
    }
}

/// Contents of the first block; everything else follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Differs with each format: nothing older is ever taken for ours.
    pub nonce: u128,
    pub device_blocks: u64,
    pub log_blocks: u32,
    pub group_blocks: u32,
    /// The table's area lies on another device, on memory that survives power loss.
    pub table_elsewhere: bool,
    /// Blocks that may lie between two records of a log, at most.
    pub gap_blocks: u32,
    pub sums: DataSums,
}

impl Superblock {
    pub fn new(
        size: u64,
        sizes: Sizes,
        nonce: u128,
        table_elsewhere: bool,
    ) -> Result<Superblock, FormatError> {
        let Sizes { log, group } = sizes;
        let bad = FormatError::BadSizes { log, group };
        let block = BLOCK as u64;
        if log % block != 0 || group % block != 0 {
            return Err(bad);
        }
        let (Ok(log_blocks), Ok(group_blocks)) =
            (u32::try_from(log / block), u32::try_from(group / block))
        else {
            return Err(bad);
        };
        let device_blocks = size / block;
        let gap_blocks = ((GAP / block) as u32).min(log_blocks / GAPS_IN_A_LOG);
        let sums = DataSums::Xxh64;
        let superblock = Superblock {
            nonce,
            device_blocks,
            log_blocks,
            group_blocks,
            table_elsewhere,
            gap_blocks,
            sums,
        };
        Layout::new(superblock)?;
        Ok(superblock)
    }

    /// Returns whether the first bytes of a disk call themselves the superblock of scattered logs,
    /// damaged or of a newer version or not.
    pub fn is_begun(start: &[u8]) -> bool {
        start.starts_with(&MAGIC)
    }

    pub fn parse(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let bytes = sealed(bytes, MAGIC, None).ok_or(FormatError::NoSuperblock)?;
        let version = u32_at(bytes, 24);
        if !VERSIONS.contains(&version) {
            return Err(FormatError::UnknownVersion(version));
        }
        Ok(Superblock {
            nonce: u128_at(bytes, 8),
            table_elsewhere: u32_at(bytes, 28) & 1 != 0,
            device_blocks: u64_at(bytes, 32),
            log_blocks: u32_at(bytes, 40),
            group_blocks: u32_at(bytes, 44),
            gap_blocks: if version == WITHOUT_GAPS { 0 } else { u32_at(bytes, 48) },
            sums: if version <= WITH_CRC { DataSums::Crc32c } else { DataSums::Xxh64 },
        })
    }

    pub fn serialize(&self) -> Vec<u8> {
        let mut bytes = begin(MAGIC, self.nonce);
        let version = match self.sums {
            DataSums::Crc32c if self.gap_blocks == 0 => WITHOUT_GAPS,
            DataSums::Crc32c => WITH_CRC,
            DataSums::Xxh64 => *VERSIONS.end(),
        };
        put(&mut bytes, 24, &version.to_le_bytes());
        put(&mut bytes, 28, &u32::from(self.table_elsewhere).to_le_bytes());
        put(&mut bytes, 32, &self.device_blocks.to_le_bytes());
        put(&mut bytes, 40, &self.log_blocks.to_le_bytes());
        put(&mut bytes, 44, &self.group_blocks.to_le_bytes());
        put(&mut bytes, 48, &self.gap_blocks.to_le_bytes());
        seal(bytes)
    }
}

/// Maps addresses in blocks: *homes* count the blocks of the logical disk, *places* those of the
/// disk below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub superblock: Superblock,
    pub logs: u32,
    first_group: u64,
    /// Blocks of one snapshot slot.
    snapshot_blocks: u64,
    /// Blocks after the last whole group: data without a log.
    tail: u64,
}

impl Layout {
    pub fn new(superblock: Superblock) -> Result<Layout, FormatError> {
        let Superblock {
            device_blocks, log_blocks, group_blocks, table_elsewhere, gap_blocks, ..
        } = superblock;
        let sizes = || FormatError::BadSizes {
            log: u64::from(log_blocks) * BLOCK as u64,
            group: u64::from(group_blocks) * BLOCK as u64,
        };
        if log_blocks < LOG_BLOCKS_MIN
            || log_blocks >= group_blocks
            || group_blocks > GROUP_BLOCKS_MAX
        {
            return Err(sizes());
        }
        if gap_blocks >= log_blocks {
            return Err(sizes());
        }
        let too_small = FormatError::TooSmall(device_blocks.saturating_mul(BLOCK as u64));
        if device_blocks > DEVICE_BLOCKS_MAX {
            return Err(sizes());
        }
        let logs_at_most = device_blocks / u64::from(group_blocks);
        let items = |count: u64| (count * SNAPSHOT_ITEM).div_ceil(BLOCK as u64);
        let snapshot_blocks = 1 + items(logs_at_most) + items(logs_at_most * u64::from(log_blocks));
        let area = if table_elsewhere { 1 } else { 3 + 2 * snapshot_blocks };
        let first_group = area.next_multiple_of(ALIGNMENT);
        let rest = device_blocks.checked_sub(first_group).ok_or(too_small)?;
        let logs = u32::try_from(rest / u64::from(group_blocks)).map_err(|_| sizes())?;
        if logs == 0 {
            return Err(too_small);
        }
        let tail = rest % u64::from(group_blocks);
        Ok(Layout { superblock, logs, first_group, snapshot_blocks, tail })
    }

    pub fn nonce(&self) -> u128 {
        self.superblock.nonce
    }
    /// Blocks of a log.
    pub fn log_blocks(&self) -> u32 {
        self.superblock.log_blocks
    }
    /// Returns how many blocks may lie between two records of a log, at most.
    pub fn gap(&self) -> u32 {
        self.superblock.gap_blocks
    }
    /// Returns the kind of checksums of records' data.
    pub fn sums(&self) -> DataSums {
        self.superblock.sums
    }
    fn data_blocks(&self) -> u64 {
        u64::from(self.superblock.group_blocks - self.superblock.log_blocks)
    }
    /// Blocks of the logical disk.
    pub fn homes(&self) -> u64 {
        u64::from(self.logs) * self.data_blocks() + self.tail
    }
    /// Blocks that all logs hold together: the table never has more entries.
    pub fn entries_max(&self) -> u64 {
        u64::from(self.logs) * u64::from(self.log_blocks())
    }
    /// Entries of a record: what a header and a log hold.
    pub fn record_entries_max(&self) -> usize {
        MAX_ENTRIES.min(self.log_blocks() as usize - 1)
    }

    /// Returns the place of a home, and how many homes follow one another from there.
    ///
    /// The tail may be longer than the data of a group: all of it follows the last log, as no log
    /// lies in it.
    pub fn place_of(&self, home: u64) -> (u64, u64) {
        let groups = u64::from(self.logs);
        let group_blocks = u64::from(self.superblock.group_blocks);
        let (group, within) = (home / self.data_blocks(), home % self.data_blocks());
        if group < groups || units::fault!("block-tail-in-groups") {
            let place = self.first_group + group * group_blocks + within;
            return (place, (self.data_blocks() - within).min(self.homes() - home));
        }
        let within = home - groups * self.data_blocks();
        (self.first_group + groups * group_blocks + within, self.tail - within)
    }
    pub fn log_begin(&self, log: u32) -> u64 {
        let group = u64::from(self.superblock.group_blocks);
        self.first_group + u64::from(log) * group + self.data_blocks()
    }
    /// The log in which a place lies, and its block there.
    pub fn log_of(&self, place: u64) -> Option<(u32, u32)> {
        let behind = place.checked_sub(self.first_group)?;
        let group = u64::from(self.superblock.group_blocks);
        let (log, within) = (behind / group, behind % group);
        let position = within.checked_sub(self.data_blocks())?;
        (log < u64::from(self.logs)).then_some((log as u32, position as u32))
    }
    /// The group whose data or log is nearest a place.
    pub fn group_near(&self, place: u64) -> u32 {
        let group =
            place.saturating_sub(self.first_group) / u64::from(self.superblock.group_blocks);
        group.min(u64::from(self.logs) - 1) as u32
    }

    /// The two blocks of the open list.
    pub fn list_place(&self, slot: u64) -> u64 {
        1 + slot % 2
    }
    /// The slot of a snapshot: its header, then its payload.
    pub fn snapshot_place(&self, number: u64) -> u64 {
        3 + number % 2 * self.snapshot_blocks
    }
    /// Bytes that the device with the table's area needs.
    pub fn table_area(&self) -> u64 {
        (3 + 2 * self.snapshot_blocks) * BLOCK as u64
    }

    /// Splits a range of sectors of the logical disk into pieces that lie together below: (bytes
    /// there, bytes of the range).
    pub fn pieces(&self, at: u64, length: u64) -> Vec<(u64, Range<u64>)> {
        let (block, end) = (BLOCK as u64, at + length);
        let mut pieces = Vec::new();
        let mut from = at;
        while from < end {
            let (place, together) = self.place_of(from / block);
            let until = end.min((from / block + together) * block);
            pieces.push((place * block + from % block, from - at..until - at));
            from = until;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: u64, sizes: Sizes) -> Layout {
        Layout::new(Superblock::new(size, sizes, 7, false).expect("good sizes")).expect("a layout")
    }

    #[test]
    fn every_home_has_its_own_place_outside_logs_and_table() {
        let layout = layout((40 << 20) + 12288, Sizes { log: 64 << 10, group: 1 << 20 });
        let mut taken = std::collections::BTreeSet::new();
        for home in 0..layout.homes() {
            let (place, together) = layout.place_of(home);
            assert!(
                place >= layout.table_area() / BLOCK as u64
                    && place < layout.superblock.device_blocks
            );
            assert_eq!(layout.log_of(place), None, "home {home}");
            assert!(taken.insert(place) && together > 0);
            if together > 1 {
                assert_eq!(layout.place_of(home + 1).0, place + 1);
            }
        }
        for log in 0..layout.logs {
            for position in 0..layout.log_blocks() {
                let place = layout.log_begin(log) + u64::from(position);
                assert_eq!(layout.log_of(place), Some((log, position)));
                assert!(taken.insert(place));
            }
        }
    }
    /// Checks the homes on both sides of each seam, and that runs of neighbours cover the disk.
    fn check_seams(layout: &Layout) {
        let (groups, data) = (u64::from(layout.logs), layout.data_blocks());
        let seams = [0, 1, groups / 2, groups - 1, groups, groups + 1].map(|group| group * data);
        let end = layout.homes();
        for home in seams.into_iter().chain([end]).flat_map(|seam| seam.saturating_sub(2)..seam + 2)
        {
            if home >= end {
                continue;
            }
            let (place, together) = layout.place_of(home);
            assert!(together > 0 && home + together <= end, "{home} of {layout:?}");
            for place in [place, place + together - 1] {
                assert!(place >= layout.first_group, "{home} of {layout:?}");
                assert!(place < layout.superblock.device_blocks, "{home} of {layout:?}");
                assert_eq!(layout.log_of(place), None, "{home} of {layout:?}");
            }
            if home + together < end {
                assert!(layout.place_of(home + together).0 >= place + together, "{layout:?}");
            }
        }
        let last = layout.superblock.device_blocks - 1;
        let is_data = layout.log_of(last).is_none();
        assert_eq!(is_data, layout.place_of(end - 1).0 == last, "{layout:?}");
    }

    #[test]
    fn every_home_is_on_the_disk_for_every_size() {
        let block = BLOCK as u64;
        // Tails of every length, after one group and more.
        for log in LOG_BLOCKS_MIN..LOG_BLOCKS_MIN + 4 {
            for group in log + 1..log + 40 {
                let sizes = Sizes { log: u64::from(log) * block, group: u64::from(group) * block };
                for blocks in (ALIGNMENT..ALIGNMENT + 3 * u64::from(group)).map(|it| it * block) {
                    if let Ok(superblock) = Superblock::new(blocks, sizes, 7, false) {
                        check_seams(&Layout::new(superblock).expect("a layout"));
                    }
                }
            }
        }
        let random = units::SplitMix::new(7);
        for _ in 0..100_000 {
            let log = 16 + random.below(1 << random.below(14));
            let group = log + 1 + random.below(1 << random.below(18));
            let size = ((1 + random.below(1 << random.below(12))) * group + random.below(group))
                * block
                + random.below(block);
            let sizes = Sizes { log: log * block, group: group * block };
            if let Ok(superblock) = Superblock::new(size, sizes, 7, random.below(2) == 0) {
                check_seams(&Layout::new(superblock).expect("a layout"));
            }
        }
        for gibibytes in 1..2048 {
            check_seams(&layout(gibibytes << 30, Sizes::default()));
        }
    }
    #[test]
    fn logs_cost_a_tenth_of_a_terabyte_and_the_table_a_thousandth() {
        let layout = layout(1 << 40, Sizes::default());
        let share = layout.homes() as f64 * BLOCK as f64 / (1u64 << 40) as f64;
        assert!((0.899..0.9).contains(&share), "{share}");
    }
    #[test]
    fn a_superblock_comes_back_and_absurd_ones_are_refused() {
        let superblock = Superblock::new(1 << 30, Sizes::default(), 99, true).expect("good sizes");
        assert_eq!(Superblock::parse(&superblock.serialize()), Ok(superblock));
        let with_crc = Superblock { sums: DataSums::Crc32c, ..superblock };
        let without_gaps = Superblock { gap_blocks: 0, ..with_crc };
        for older in [with_crc, without_gaps] {
            assert_eq!(Superblock::parse(&older.serialize()), Ok(older));
        }
        let versions = [superblock, with_crc, without_gaps]
            .map(|superblock| u32_at(&superblock.serialize(), 24));
        assert_eq!((superblock.gap_blocks, versions), (32, [3, 2, 1]));
        assert!(
            Layout::new(Superblock { gap_blocks: superblock.log_blocks, ..superblock }).is_err()
        );
        let mut bytes = superblock.serialize();
        bytes[40] ^= 1;
        assert_eq!(Superblock::parse(&bytes), Err(FormatError::NoSuperblock));
        for (device_blocks, log_blocks, group_blocks) in [
            (u64::MAX, 2560, 25600),
            (1 << 20, 0, 100),
            (1 << 20, 100, 100),
            (10, 16, 17),
            (1 << 44, 16, 17),
            (0, 16, u32::MAX),
        ] {
            let wrong = Superblock { device_blocks, log_blocks, group_blocks, ..superblock };
            assert!(Layout::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
