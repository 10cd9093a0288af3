//! Inodes: 128 bytes, and in larger inodes `i_extra_isize` more and extended attributes after those
//! (`Documentation/filesystems/ext4/inodes.rst`).

use super::checksum::{crc32c, inode_seed};
use super::superblock::Field;
use smallvec::{SmallVec, smallvec};
use units::{BlockSize, HomeBlock, InodeNumber, Timestamp};

/// The inode size of ext2 and ext3, and the first part of every larger one.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// Bytes of the known fields behind the first 128: up to and with the project number.
const EXTRA_SIZE: u16 = 32;

/// An inode, parsed. `parse` and `serialize` preserve unknown fields (`os-dependent`, unused
/// bytes).
#[derive(PartialEq, Eq, Debug, Default)]
pub struct RawInode {
    /// File type and permission bits, as `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    pub links: u16,
    pub accessed: Timestamp,
    pub changed: Timestamp,
    pub modified: Timestamp,
    pub created: Timestamp,
    /// Seconds since 1970 when freed; the next inode of the orphan list while it is an orphan.
    pub deletion_time: u32,
    /// Space used, in 512-byte sectors as `st_blocks` (huge_file is resolved by parse and
    /// serialize).
    pub sectors: u64,
    pub flags: u32,
    /// The root of the block map or extent tree, a fast symlink's target, or a device number. 60
    /// bytes.
    pub block: SmallVec<[u8; 64]>,
    pub generation: u32,
    /// The block of extended attributes, 0 for none.
    pub xattr_block: HomeBlock,
    /// Low and high 32 bits of `i_version`.
    pub version: u64,
    pub project: u32,
    /// Number of bytes after the first 128 that hold fields (`i_extra_isize`); 0 in 128-byte
    /// inodes.
    pub extra_size: u16,
    /// In-inode extended attributes: everything after `128 + extra_size`. Empty in 128-byte inodes.
    pub xattr_area: SmallVec<[u8; 96]>,
}

/// Bits of [`RawInode::flags`].
pub mod flags {
    pub const SYNC: u32 = 0x8;
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const NO_DUMP: u32 = 0x40;
    pub const NO_ATIME: u32 = 0x80;
    pub const INDEX: u32 = 0x1000;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const DIRECTORY_SYNC: u32 = 0x1_0000;
    pub const TOP_DIRECTORY: u32 = 0x2_0000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
    pub const PROJECT_INHERIT: u32 = 0x2000_0000;
}

/// Layout parameters of all inodes of a volume.
#[derive(Clone, Copy, Debug)]
pub struct InodeLayout {
    /// Bytes of an inode in the table.
    pub inode_size: u16,
    pub block_size: BlockSize,
    /// Feature huge_file: 48 bits of space used, in blocks if need be.
    pub huge_file: bool,
    /// Feature large_dir: 64 bits for the size of directories, too.
    pub large_dir: bool,
    /// Seed of metadata checksums; `None` without metadata_csum.
    pub checksum_seed: Option<u32>,
}

/// Reason for which bytes are no inode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InodeError {
    #[error("its checksum is {stored:#010x}, its content has {computed:#010x}")]
    BadChecksum { stored: u32, computed: u32 },
    #[error("its extra size of {found} bytes does not fit into an inode of {inode_size}")]
    BadExtraSize { found: u16, inode_size: u16 },
    #[error("{length} bytes instead of {inode_size}")]
    BadLength { length: usize, inode_size: u16 },
}

// Offsets of the fields.
const MODE: usize = 0x00;
const UID: usize = 0x02;
const SIZE: usize = 0x04;
const ACCESSED: usize = 0x08;
const CHANGED: usize = 0x0c;
const MODIFIED: usize = 0x10;
const DELETION_TIME: usize = 0x14;
const GID: usize = 0x18;
const LINKS: usize = 0x1a;
const SECTORS: usize = 0x1c;
const FLAGS: usize = 0x20;
const VERSION: usize = 0x24;
const BLOCK: usize = 0x28;
const GENERATION: usize = 0x64;
const XATTR_BLOCK: usize = 0x68;
const SIZE_HIGH: usize = 0x6c;
const SECTORS_HIGH: usize = 0x74;
const XATTR_BLOCK_HIGH: usize = 0x76;
const UID_HIGH: usize = 0x78;
const GID_HIGH: usize = 0x7a;
const CHECKSUM: usize = 0x7c;
// Within the extra size.
const EXTRA: usize = 0x80;
const CHECKSUM_HIGH: usize = 0x82;
const CHANGED_EXTRA: usize = 0x84;
const MODIFIED_EXTRA: usize = 0x88;
const ACCESSED_EXTRA: usize = 0x8c;
const CREATED: usize = 0x90;
const CREATED_EXTRA: usize = 0x94;
const VERSION_HIGH: usize = 0x98;
const PROJECT: usize = 0x9c;

impl Clone for RawInode {
    fn clone(&self) -> RawInode {
        // A list's own `clone` copies byte by byte.
        let block = SmallVec::from_slice(&self.block);
        RawInode { block, xattr_area: SmallVec::from_slice(&self.xattr_area), ..*self }
    }
}

impl RawInode {
    /// Parses `raw`, the inode's slot in the table.
    pub fn parse(
        raw: &[u8],
        number: InodeNumber,
        layout: &InodeLayout,
    ) -> Result<RawInode, InodeError> {
        let inode_size = layout.inode_size;
        if raw.len() != usize::from(inode_size) || raw.len() < GOOD_OLD_INODE_SIZE {
            return Err(InodeError::BadLength { length: raw.len(), inode_size });
        }
        let mut extra_size = stored_extra_size(raw);
        if usize::from(extra_size) + GOOD_OLD_INODE_SIZE > raw.len() || extra_size % 4 != 0 {
            return Err(InodeError::BadExtraSize { found: extra_size, inode_size });
        }
        if let Some(seed) = layout.checksum_seed {
            verify_checksum(raw, number, seed)?;
        }
        let mut xattr_area =
            SmallVec::from_slice(&raw[GOOD_OLD_INODE_SIZE + usize::from(extra_size)..]);
        if extra_size == 0 && raw.len() > GOOD_OLD_INODE_SIZE {
            // Bytes that were never used: from now on they hold the known fields, as in the kernel.
            extra_size = EXTRA_SIZE.min(inode_size - GOOD_OLD_INODE_SIZE as u16);
            xattr_area = smallvec![0; raw.len() - GOOD_OLD_INODE_SIZE - usize::from(extra_size)];
        }
        let end = GOOD_OLD_INODE_SIZE + usize::from(stored_extra_size(raw));
        let extra = |at: usize| if at + 4 <= end { u32::load(&raw[at..]) } else { 0 };
        let join = |low: usize, high: usize| {
            u32::from(u16::load(&raw[low..])) | u32::from(u16::load(&raw[high..])) << 16
        };
        let mode = u16::load(&raw[MODE..]);
        let flags = u32::load(&raw[FLAGS..]);
        // In directories the upper half was once an access-control list, without large_dir.
        let has_high = mode & 0xf000 != 0x4000 || layout.large_dir;
        let size_high = if !has_high { 0 } else { u32::load(&raw[SIZE_HIGH..]) };
        Ok(RawInode {
            mode,
            uid: join(UID, UID_HIGH),
            gid: join(GID, GID_HIGH),
            size: u64::from(u32::load(&raw[SIZE..])) | u64::from(size_high) << 32,
            links: u16::load(&raw[LINKS..]),
            accessed: load_time(raw, ACCESSED, extra(ACCESSED_EXTRA)),
            changed: load_time(raw, CHANGED, extra(CHANGED_EXTRA)),
            modified: load_time(raw, MODIFIED, extra(MODIFIED_EXTRA)),
            created: match CREATED + 4 <= end {
                true => load_time(raw, CREATED, extra(CREATED_EXTRA)),
                false => Timestamp::default(),
            },
            deletion_time: u32::load(&raw[DELETION_TIME..]),
            sectors: load_sectors(raw, flags, layout),
            flags: flags & !flags::HUGE_FILE,
            block: SmallVec::from_slice(&raw[BLOCK..BLOCK + 60]),
            generation: u32::load(&raw[GENERATION..]),
            xattr_block: HomeBlock(
                u64::from(u32::load(&raw[XATTR_BLOCK..]))
                    | u64::from(u16::load(&raw[XATTR_BLOCK_HIGH..])) << 32,
            ),
            version: u64::from(u32::load(&raw[VERSION..])) | u64::from(extra(VERSION_HIGH)) << 32,
            project: extra(PROJECT),
            extra_size,
            xattr_area,
        })
    }

    /// Writes all fields and the checksum into the inode's slot, and preserves other bytes. `raw`
    /// is as long as `layout` says, and `extra_size + xattr_area` fill it.
    pub fn serialize(&self, raw: &mut [u8], number: InodeNumber, layout: &InodeLayout) {
        assert_eq!(raw.len(), usize::from(layout.inode_size));
        assert_eq!(self.block.len(), 60);
        let (first, behind) = raw.split_first_chunk_mut().expect("no inode is shorter");
        self.store_first(first, layout);
        if !behind.is_empty() {
            let (fields, area) = behind.split_at_mut(self.extra_size.into());
            area.copy_from_slice(&self.xattr_area);
            match fields.first_chunk_mut() {
                Some(all) => self.store_extra(all),
                None => {
                    // Those that the inode has are the first of all.
                    let mut all = [0; EXTRA_SIZE as usize];
                    all[..fields.len()].copy_from_slice(fields);
                    self.store_extra(&mut all);
                    fields.copy_from_slice(&all[..fields.len()]);
                }
            }
        }
        if let Some(seed) = layout.checksum_seed {
            store_checksum(raw, number, seed);
        }
    }

    fn store_first(&self, raw: &mut [u8; GOOD_OLD_INODE_SIZE], layout: &InodeLayout) {
        let split = |value: u32| (value as u16, (value >> 16) as u16);
        self.mode.store(&mut raw[MODE..]);
        for (value, low, high) in [(self.uid, UID, UID_HIGH), (self.gid, GID, GID_HIGH)] {
            split(value).0.store(&mut raw[low..]);
            split(value).1.store(&mut raw[high..]);
        }
        (self.size as u32).store(&mut raw[SIZE..]);
        ((self.size >> 32) as u32).store(&mut raw[SIZE_HIGH..]);
        self.links.store(&mut raw[LINKS..]);
        self.deletion_time.store(&mut raw[DELETION_TIME..]);
        raw[BLOCK..BLOCK + 60].copy_from_slice(&self.block);
        self.generation.store(&mut raw[GENERATION..]);
        (self.xattr_block.get() as u32).store(&mut raw[XATTR_BLOCK..]);
        ((self.xattr_block.get() >> 32) as u16).store(&mut raw[XATTR_BLOCK_HIGH..]);
        (self.version as u32).store(&mut raw[VERSION..]);
        let flags = self.flags & !flags::HUGE_FILE | self.store_sectors(raw, layout);
        flags.store(&mut raw[FLAGS..]);
        for (time, at, extra_at) in self.times() {
            encode_time(time, self.has_extra(extra_at)).0.store(&mut raw[at..]);
        }
    }

    /// Stores the fields behind the first 128 bytes, those included that the inode has no space
    /// for.
    fn store_extra(&self, raw: &mut [u8; EXTRA_SIZE as usize]) {
        self.extra_size.store(&mut raw[..]);
        for (time, _, extra_at) in self.times() {
            encode_time(time, true).1.store(&mut raw[extra_at - EXTRA..]);
        }
        let created = encode_time(self.created, self.has_extra(CREATED_EXTRA));
        created.0.store(&mut raw[CREATED - EXTRA..]);
        created.1.store(&mut raw[CREATED_EXTRA - EXTRA..]);
        ((self.version >> 32) as u32).store(&mut raw[VERSION_HIGH - EXTRA..]);
        self.project.store(&mut raw[PROJECT - EXTRA..]);
    }

    /// The times that every inode has, with the offsets of their two fields.
    fn times(&self) -> [(Timestamp, usize, usize); 3] {
        [
            (self.accessed, ACCESSED, ACCESSED_EXTRA),
            (self.changed, CHANGED, CHANGED_EXTRA),
            (self.modified, MODIFIED, MODIFIED_EXTRA),
        ]
    }

    /// Whether the inode has the field of four bytes at this offset behind the first 128.
    fn has_extra(&self, at: usize) -> bool {
        at + 4 <= GOOD_OLD_INODE_SIZE + usize::from(self.extra_size)
    }

    /// Stores the space used; returns the flag for its unit.
    fn store_sectors(&self, raw: &mut [u8; GOOD_OLD_INODE_SIZE], layout: &InodeLayout) -> u32 {
        let in_blocks = layout.huge_file && self.sectors >> 48 != 0;
        let value =
            if in_blocks { self.sectors >> (layout.block_size.shift() - 9) } else { self.sectors };
        (value as u32).store(&mut raw[SECTORS..]);
        if layout.huge_file {
            ((value >> 32) as u16).store(&mut raw[SECTORS_HIGH..]);
        }
        if in_blocks { flags::HUGE_FILE } else { 0 }
    }

    /// Whether the inode has a field for the number of the project.
    pub fn holds_project(&self) -> bool {
        self.has_extra(PROJECT)
    }

    /// Makes an empty extent root in `block`, and sets its flag.
    pub fn make_extent_root(&mut self) {
        self.flags |= flags::EXTENTS;
        // Magic, no entries, capacity (60 - 12) / 12 = 4, depth 0, generation 0.
        self.block = smallvec![0; 60];
        self.block[..6].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4, 0]);
    }
}

/// Whether a slot of the table holds an inode in use, as e2fsck decides: one with links. Its
/// checksum may be wrong.
pub fn is_in_use(raw: &[u8]) -> bool {
    u16::load(&raw[LINKS..]) != 0
}

/// Changes the deletion time (the orphan list's link) of an inode in its slot, and nothing else.
pub fn patch_deletion_time(
    raw: &mut [u8],
    value: u32,
    number: InodeNumber,
    checksum_seed: Option<u32>,
) {
    value.store(&mut raw[DELETION_TIME..]);
    if let Some(seed) = checksum_seed {
        store_checksum(raw, number, seed);
    }
}

fn stored_extra_size(raw: &[u8]) -> u16 {
    if raw.len() > GOOD_OLD_INODE_SIZE { u16::load(&raw[EXTRA..]) } else { 0 }
}

fn load_sectors(raw: &[u8], flags: u32, layout: &InodeLayout) -> u64 {
    let low = u64::from(u32::load(&raw[SECTORS..]));
    if !layout.huge_file {
        return low;
    }
    let value = low | u64::from(u16::load(&raw[SECTORS_HIGH..])) << 32;
    if flags & flags::HUGE_FILE != 0 { value << (layout.block_size.shift() - 9) } else { value }
}

/// Decodes a time: the low two bits of `extra` are bits 32 and 33 of the seconds, the others
/// nanoseconds.
fn load_time(raw: &[u8], at: usize, extra: u32) -> Timestamp {
    let low = i64::from(u32::load(&raw[at..]) as i32);
    Timestamp {
        seconds: low + (i64::from(extra & 3) << 32),
        // A damaged field must not become an impossible time.
        nanoseconds: (extra >> 2).min(999_999_999),
    }
}

/// Encodes the nearest time that can be stored: 1901 to 2446, or 2038 without the extra field.
fn encode_time(time: Timestamp, has_extra: bool) -> (u32, u32) {
    let last = if has_extra { (3 << 32) + i64::from(i32::MAX) } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(i64::from(i32::MIN), last);
    let epoch = (seconds - i64::from(seconds as i32)) >> 32;
    (seconds as u32, (epoch as u32 & 3) | time.nanoseconds << 2)
}

/// Whether the inode has a field for the upper half of its checksum.
fn has_checksum_high(raw: &[u8]) -> bool {
    stored_extra_size(raw) >= 4
}

/// Computes the checksum over the whole slot, its own fields taken as zero.
fn compute_checksum(raw: &[u8], number: InodeNumber, volume_seed: u32) -> u32 {
    let seed = inode_seed(volume_seed, number, u32::load(&raw[GENERATION..]));
    let mut checksum = crc32c(seed, &raw[..CHECKSUM]);
    checksum = crc32c(checksum, &[0, 0]);
    if !has_checksum_high(raw) {
        return crc32c(checksum, &raw[CHECKSUM + 2..]) & 0xffff;
    }
    checksum = crc32c(checksum, &raw[CHECKSUM + 2..CHECKSUM_HIGH]);
    checksum = crc32c(checksum, &[0, 0]);
    crc32c(checksum, &raw[CHECKSUM_HIGH + 2..])
}

fn verify_checksum(raw: &[u8], number: InodeNumber, seed: u32) -> Result<(), InodeError> {
    let high = if has_checksum_high(raw) { u16::load(&raw[CHECKSUM_HIGH..]) } else { 0 };
    let stored = u32::from(u16::load(&raw[CHECKSUM..])) | u32::from(high) << 16;
    let computed = compute_checksum(raw, number, seed);
    if stored == computed { Ok(()) } else { Err(InodeError::BadChecksum { stored, computed }) }
}

/// Stores the value of [`compute_checksum`] in one pass: called for each inode that is stored.
fn store_checksum(raw: &mut [u8], number: InodeNumber, volume_seed: u32) {
    let has_high = has_checksum_high(raw);
    0u16.store(&mut raw[CHECKSUM..]);
    if has_high {
        0u16.store(&mut raw[CHECKSUM_HIGH..]);
    }
    let seed = inode_seed(volume_seed, number, u32::load(&raw[GENERATION..]));
    let checksum = crc32c(seed, raw);
    (checksum as u16).store(&mut raw[CHECKSUM..]);
    if has_high {
        ((checksum >> 16) as u16).store(&mut raw[CHECKSUM_HIGH..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(inode_size: u16) -> InodeLayout {
        let block_size = BlockSize::new(4096).unwrap();
        InodeLayout {
            inode_size,
            block_size,
            huge_file: true,
            large_dir: false,
            checksum_seed: Some(7),
        }
    }

    fn example(inode_size: u16) -> RawInode {
        let extra_size = if inode_size > 128 { 32 } else { 0 };
        let time = |seconds| Timestamp {
            seconds,
            nanoseconds: if inode_size > 128 { 999_999_999 } else { 0 },
        };
        RawInode {
            mode: 0o100_644,
            uid: 0x12_3456,
            gid: 0x65_4321,
            size: 5 << 33,
            links: 3,
            accessed: time(-1),
            changed: time(if inode_size > 128 { 1 << 32 } else { 1 << 30 }),
            modified: time(0),
            created: if inode_size > 128 { time((3 << 32) + 5) } else { Timestamp::default() },
            deletion_time: 9,
            sectors: 3 << 47,
            flags: flags::EXTENTS,
            block: (0..60).collect(),
            generation: 77,
            xattr_block: HomeBlock(0x1234_5678_9abc),
            version: if inode_size > 128 { 1 << 40 } else { 1 << 20 },
            project: if inode_size > 128 { 4 } else { 0 },
            extra_size,
            xattr_area: smallvec![5; usize::from(inode_size - 128 - extra_size)],
        }
    }

    #[test]
    fn an_inode_comes_back_as_it_was_stored() {
        for inode_size in [128, 256, 1024] {
            let mut raw = vec![0; usize::from(inode_size)];
            example(inode_size).serialize(&mut raw, InodeNumber(12), &layout(inode_size));
            let parsed = RawInode::parse(&raw, InodeNumber(12), &layout(inode_size));
            assert_eq!(parsed, Ok(example(inode_size)));
        }
    }

    #[test]
    fn an_inode_with_fewer_fields_keeps_its_bytes() {
        for extra_size in (4..=40).step_by(4) {
            let mut raw: Vec<u8> = (0..=255).map(|at: u8| at & 0x3f).collect();
            0x8000u16.store(&mut raw[MODE..]);
            0u32.store(&mut raw[FLAGS..]);
            (extra_size as u16).store(&mut raw[EXTRA..]);
            store_checksum(&mut raw, InodeNumber(12), 7);
            let parsed = RawInode::parse(&raw, InodeNumber(12), &layout(256)).unwrap();
            let mut again = raw.clone();
            parsed.serialize(&mut again, InodeNumber(12), &layout(256));
            assert!(again == raw, "{extra_size} bytes of fields");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut raw = vec![0; 256];
        example(256).serialize(&mut raw, InodeNumber(12), &layout(256));
        for bit in 0..256 * 8 {
            raw[bit / 8] ^= 1 << (bit % 8);
            assert!(RawInode::parse(&raw, InodeNumber(12), &layout(256)).is_err(), "bit {bit}");
            raw[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn times_out_of_range_are_stored_as_the_nearest() {
        let (seconds, extra) = encode_time(Timestamp { seconds: i64::MAX, nanoseconds: 0 }, true);
        assert_eq!((seconds, extra & 3), (i32::MAX as u32, 3));
        let (seconds, _) = encode_time(Timestamp { seconds: i64::MIN, nanoseconds: 0 }, false);
        assert_eq!(seconds as i32, i32::MIN);
    }
}
