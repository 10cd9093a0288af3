//! The superblock: 1024 bytes at byte 1024 of the volume.
//!
//! [`VolumeSuperblock::parse`] accepts a volume whose geometry is consistent, or returns what is
//! wrong with it; everything computed from it afterwards stays within bounds. Unknown bytes are
//! kept.

use super::checksum::{crc32c, forge_crc32c};
use super::features::{Features, feature};
use units::{BlockSize, GroupNumber, HomeBlock, InodeNumber};

pub const SUPERBLOCK_SIZE: usize = 1024;
/// Offset of the superblock, in bytes from the start of the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
pub const MAGIC: u16 = 0xef53;
const SNAPSHOT_ID: usize = 0x184;
const CHECKSUM: usize = 0x3fc;

/// Bits of [`VolumeSuperblock::state`].
pub mod state {
    /// Unmounted cleanly.
    pub const VALID: u16 = 1;
    /// Errors were found: e2fsck must look.
    pub const ERROR: u16 = 2;
    /// Orphans are being recovered.
    pub const ORPHANS: u16 = 4;
}

/// Bits of [`VolumeSuperblock::default_mount_options`].
pub mod default_options {
    /// New files get their directory's group.
    pub const BSD_GROUPS: u32 = 0x2;
    /// The `data=` mode, if it is not zero.
    pub const DATA_MODE: u32 = 0x60;
    pub const DATA_JOURNAL: u32 = 0x20;
    pub const DATA_ORDERED: u32 = 0x40;
    pub const DATA_WRITEBACK: u32 = 0x60;
    pub const NO_BARRIER: u32 = 0x100;
}

/// Reason for which 1024 bytes are no usable superblock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    #[error("this is not an ext4 volume: magic {found:#06x} instead of 0xef53")]
    BadMagic { found: u16 },
    #[error("{length} bytes are too few for a superblock")]
    TooShort { length: usize },
    #[error("the superblock's checksum is {stored:#010x}, its content has {computed:#010x}")]
    BadChecksum { stored: u32, computed: u32 },
    #[error("the superblock contradicts itself ({field} is {value}: {why}); run e2fsck")]
    Geometry { field: &'static str, value: u64, why: &'static str },
    #[error("it holds a volume")]
    NoJournal,
    /// A volume whose inodes keep a translator in the place of a version.
    #[error(
        "the volume was made for GNU/Hurd (s_creator_os is 1), whose inodes differ from Linux's: \
         it is not supported"
    )]
    Hurd,
    #[error("the volume uses features that are not supported: {}", names.join(", "))]
    Features { names: Vec<String> },
}

macro_rules! superblock {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $offset:literal,)*) => {
        /// The superblock, parsed. Block and free counts of 64 bits are joined from their halves.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct VolumeSuperblock {
            $($(#[$doc])* pub $field: $type,)*
            pub features: Features,
            pub block_size: BlockSize,
            pub blocks: u64,
            pub reserved_blocks: u64,
            pub free_blocks: u64,
            /// Seed of metadata checksums: stored, or the CRC-32C of the uuid.
            pub checksum_seed: u32,
            raw: Box<[u8; SUPERBLOCK_SIZE]>,
        }
        /// Name, offset and size in bytes of the fields that are stored as they are.
        pub const SUPERBLOCK_FIELDS: &[(&str, usize, usize)] =
            &[$((stringify!($field), $offset, size_of::<$type>()),)*];

        impl VolumeSuperblock {
            fn from_raw(raw: Box<[u8; SUPERBLOCK_SIZE]>) -> VolumeSuperblock {
                VolumeSuperblock {
                    $($field: <$type as Field>::load(&raw[$offset..]),)*
                    features: Features {
                        compatible: u32::load(&raw[0x5c..]),
                        incompatible: u32::load(&raw[0x60..]),
                        read_only_compatible: u32::load(&raw[0x64..]),
                    },
                    block_size: const { BlockSize::new(1024).unwrap() },
                    blocks: 0,
                    reserved_blocks: 0,
                    free_blocks: 0,
                    checksum_seed: 0,
                    raw,
                }
            }
            fn to_raw(&self) -> [u8; SUPERBLOCK_SIZE] {
                let mut raw = *self.raw;
                $(self.$field.store(&mut raw[$offset..]);)*
                self.features.compatible.store(&mut raw[0x5c..]);
                self.features.incompatible.store(&mut raw[0x60..]);
                self.features.read_only_compatible.store(&mut raw[0x64..]);
                raw
            }
        }
    };
}

superblock! {
    inodes: u32 = 0x00,
    free_inodes: u32 = 0x10,
    /// 1 with blocks of 1 KiB, else 0.
    first_data_block: u32 = 0x14,
    blocks_per_group: u32 = 0x20,
    inodes_per_group: u32 = 0x28,
    /// Low 32 bits of the seconds; the high 8 are in `mount_time_high`.
    mount_time: u32 = 0x2c,
    write_time: u32 = 0x30,
    mount_count: u16 = 0x34,
    mount_count_max: u16 = 0x36,
    state: u16 = 0x3a,
    /// Reaction to errors: 1 continue, 2 read-only, 3 panic.
    errors: u16 = 0x3c,
    last_check: u32 = 0x40,
    creator_os: u32 = 0x48,
    revision: u32 = 0x4c,
    reserved_uid: u16 = 0x50,
    reserved_gid: u16 = 0x52,
    /// The first inode that is not reserved.
    first_inode: u32 = 0x54,
    inode_size: u16 = 0x58,
    uuid: [u8; 16] = 0x68,
    volume_name: [u8; 16] = 0x78,
    last_mounted: [u8; 64] = 0x88,
    /// Descriptor blocks that may be added; each group with a superblock copy reserves space for
    /// them.
    reserved_descriptor_blocks: u16 = 0xce,
    journal_uuid: [u8; 16] = 0xd0,
    journal_inode: u32 = 0xe0,
    journal_device: u32 = 0xe4,
    /// The head of the orphan list.
    last_orphan: u32 = 0xe8,
    hash_seed: [u32; 4] = 0xec,
    default_hash_version: u8 = 0xfc,
    journal_backup_type: u8 = 0xfd,
    descriptor_size_stored: u16 = 0xfe,
    default_mount_options: u32 = 0x100,
    first_meta_group: u32 = 0x104,
    /// A copy of the journal inode's block map and size.
    journal_backup: [u32; 17] = 0x10c,
    extra_inode_size_min: u16 = 0x15c,
    extra_inode_size_wanted: u16 = 0x15e,
    /// Bit 0: directory hashes are of signed bytes, bit 1: of unsigned ones.
    flags: u32 = 0x160,
    /// Interval of increments, in seconds.
    mmp_update_interval: u16 = 0x166,
    mmp_block: u64 = 0x168,
    log_groups_per_flex: u8 = 0x174,
    checksum_type: u8 = 0x175,
    kilobytes_written: u64 = 0x178,
    error_count: u32 = 0x194,
    /// Mount options as behind `-o`, which apply where the mount's own do not contradict.
    mount_options: [u8; 64] = 0x200,
    user_quota_inode: u32 = 0x240,
    group_quota_inode: u32 = 0x244,
    /// Blocks of file-system structures, as mke2fs counted them; 0 unknown.
    overhead_blocks: u32 = 0x248,
    /// The two groups with superblock copies under sparse_super2.
    backup_groups: [u32; 2] = 0x24c,
    project_quota_inode: u32 = 0x26c,
    write_time_high: u8 = 0x274,
    mount_time_high: u8 = 0x275,
    orphan_file_inode: u32 = 0x280,
}

/// `EXT2_OS_HURD`.
const HURD: u32 = 1;

impl VolumeSuperblock {
    /// `bytes` is the superblock (1024 bytes or more). Refuses incompatible features that are not
    /// supported, for the geometry might mean something else. Whether the volume may be written:
    /// [`Features::read_only`].
    pub fn parse(bytes: &[u8]) -> Result<VolumeSuperblock, SuperblockError> {
        let raw: Box<[u8; SUPERBLOCK_SIZE]> = match bytes.get(..SUPERBLOCK_SIZE) {
            Some(bytes) => Box::new(bytes.try_into().expect("1024 bytes")),
            None => return Err(SuperblockError::TooShort { length: bytes.len() }),
        };
        let found = u16::load(&raw[0x38..]);
        if found != MAGIC {
            return Err(SuperblockError::BadMagic { found });
        }
        let mut superblock = VolumeSuperblock::from_raw(raw);
        superblock.check_checksum()?;
        if superblock.creator_os == HURD {
            return Err(SuperblockError::Hurd);
        }
        let names = superblock.features.refused();
        if !names.is_empty() {
            return Err(SuperblockError::Features { names });
        }
        superblock.derive()?;
        superblock.check_geometry()?;
        Ok(superblock)
    }

    /// The 1024 bytes with every field, and with the checksum where the volume has them.
    ///
    /// The superblock spans two sectors of 512 bytes, and the checksum lies in the second. A write
    /// torn between them would leave a superblock that every program refuses. So the checksum stays
    /// as it was read, and four unused bytes of the first sector (`s_snapshot_id`) make the content
    /// match it. Whichever of the two sectors arrives, the superblock is then the old one or the
    /// new one.
    pub fn serialize(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = self.to_raw();
        (self.free_blocks as u32).store(&mut raw[0x0c..]);
        if self.features.has(feature::SIXTY_FOUR_BIT) {
            ((self.free_blocks >> 32) as u32).store(&mut raw[0x158..]);
        }
        if self.features.has(feature::METADATA_CSUM) {
            raw[SNAPSHOT_ID..SNAPSHOT_ID + 4].fill(0);
            let (found, wanted) = (crc32c(!0, &raw[..CHECKSUM]), u32::load(&raw[CHECKSUM..]));
            let forged = forge_crc32c::<{ CHECKSUM - SNAPSHOT_ID - 4 }>(found, wanted);
            raw[SNAPSHOT_ID..SNAPSHOT_ID + 4].copy_from_slice(&forged);
        }
        raw
    }

    fn check_checksum(&self) -> Result<(), SuperblockError> {
        if !self.features.has(feature::METADATA_CSUM) {
            return Ok(());
        }
        let stored = u32::load(&self.raw[CHECKSUM..]);
        let computed = crc32c(!0, &self.raw[..CHECKSUM]);
        if stored != computed {
            return Err(SuperblockError::BadChecksum { stored, computed });
        }
        check(
            "s_checksum_type",
            self.checksum_type.into(),
            self.checksum_type == 1,
            "1 (crc32c) is the only one",
        )
    }

    /// Computes fields made of several others.
    fn derive(&mut self) -> Result<(), SuperblockError> {
        let log = u32::load(&self.raw[0x18..]);
        self.block_size = (log <= 6)
            .then(|| BlockSize::new(1024 << log))
            .flatten()
            .ok_or_else(|| wrong("s_log_block_size", log.into(), "0 to 6 are possible"))?;
        let wide = self.features.has(feature::SIXTY_FOUR_BIT);
        let join = |low: usize, high: usize| {
            let high = if wide { u64::from(u32::load(&self.raw[high..])) } else { 0 };
            high << 32 | u64::from(u32::load(&self.raw[low..]))
        };
        (self.blocks, self.reserved_blocks, self.free_blocks) =
            (join(0x04, 0x150), join(0x08, 0x154), join(0x0c, 0x158));
        if self.revision == 0 {
            (self.first_inode, self.inode_size) = (11, 128);
        }
        self.checksum_seed = match self.features.has(feature::CSUM_SEED) {
            true => u32::load(&self.raw[0x270..]),
            false => crc32c(!0, &self.uuid),
        };
        Ok(())
    }

    fn check_geometry(&self) -> Result<(), SuperblockError> {
        let block_bits = 8 * self.block_size.bytes() as u32;
        let first = u32::from(self.block_size.bytes() == 1024);
        let is = |field, value, good, why| check(field, u64::from(value), good, why);
        is("s_rev_level", self.revision, self.revision <= 1, "0 and 1 are known")?;
        is(
            "s_first_data_block",
            self.first_data_block,
            self.first_data_block == first,
            "1 for blocks of 1 KiB, else 0",
        )?;
        is(
            "s_blocks_per_group",
            self.blocks_per_group,
            self.blocks_per_group >= 8
                && self.blocks_per_group <= block_bits
                && self.blocks_per_group % 8 == 0,
            "a multiple of 8 that one bitmap block can count",
        )?;
        let size = u32::from(self.inode_size);
        is(
            "s_inode_size",
            size,
            size.is_power_of_two() && size >= 128 && size as usize <= self.block_size.bytes(),
            "a power of two from 128 to the block size",
        )?;
        let inodes_per_block = self.block_size.bytes() as u32 / size;
        is(
            "s_inodes_per_group",
            self.inodes_per_group,
            self.inodes_per_group >= inodes_per_block
                && self.inodes_per_group % inodes_per_block == 0
                && self.inodes_per_group <= block_bits,
            "whole blocks of inodes that one bitmap block can count",
        )?;
        let descriptor = u32::from(self.descriptor_size_stored);
        is(
            "s_desc_size",
            descriptor,
            !self.features.has(feature::SIXTY_FOUR_BIT)
                || descriptor.is_power_of_two() && (64..=1024).contains(&descriptor),
            "with 64bit a power of two from 64 to 1024",
        )?;
        check(
            "s_blocks_count",
            self.blocks,
            self.blocks > u64::from(first) + 1,
            "no space for a group",
        )?;
        let addressable =
            if self.features.has(feature::SIXTY_FOUR_BIT) { 1 << 48 } else { 1 << 32 };
        check(
            "s_blocks_count",
            self.blocks,
            self.blocks <= addressable,
            "beyond what block numbers can address",
        )?;
        check(
            "s_r_blocks_count",
            self.reserved_blocks,
            self.reserved_blocks <= self.blocks,
            "more than all blocks",
        )?;
        let groups = (self.blocks - u64::from(first)).div_ceil(u64::from(self.blocks_per_group));
        let inodes = groups.saturating_mul(self.inodes_per_group.into());
        check(
            "s_inodes_count",
            self.inodes.into(),
            u64::from(self.inodes) == inodes,
            "not the number of groups times the inodes of a group",
        )?;
        is(
            "s_first_ino",
            self.first_inode,
            self.first_inode >= 11 && self.first_inode <= self.inodes,
            "between 11 and the last inode",
        )?;
        is(
            "s_log_groups_per_flex",
            self.log_groups_per_flex.into(),
            self.log_groups_per_flex < 32,
            "below 32",
        )?;
        let table =
            (groups * u64::from(self.descriptor_size())).div_ceil(self.block_size.bytes() as u64);
        let reserved = u64::from(self.reserved_descriptor_blocks);
        // Under meta_bg the descriptors do not lie together, so their sum may exceed a group.
        let together = !self.features.has(feature::META_BG);
        let fits =
            !together || table + reserved + 1 < u64::from(self.blocks_per_group) || groups == 1;
        check(
            "s_reserved_gdt_blocks",
            reserved,
            fits,
            "the group descriptors do not fit into a group",
        )
    }

    /// Bytes of a group descriptor: 32, or with 64bit the size in the superblock.
    pub fn descriptor_size(&self) -> u16 {
        if self.features.has(feature::SIXTY_FOUR_BIT) { self.descriptor_size_stored } else { 32 }
    }
    pub fn groups(&self) -> u32 {
        (self.blocks - u64::from(self.first_data_block)).div_ceil(u64::from(self.blocks_per_group))
            as u32
    }
    /// The first block of a group.
    pub fn group_start(&self, group: GroupNumber) -> HomeBlock {
        let within = u64::from(group.get()) * u64::from(self.blocks_per_group);
        HomeBlock(u64::from(self.first_data_block) + within)
    }
    /// Number of groups, from the first on, to whose blocks pointers of 32 bits reach (Linux:
    /// `s_blockfile_groups`).
    pub fn groups_for_pointers(&self) -> u32 {
        if self.blocks <= 1 << 32 {
            return self.groups();
        }
        (((1 << 32) - u64::from(self.first_data_block)) / u64::from(self.blocks_per_group)) as u32
    }
    /// Blocks in a group; the last one may have fewer than the others.
    pub fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        let left = self.blocks - self.group_start(group).get();
        left.min(self.blocks_per_group.into()) as u32
    }
    /// The group of a block and its place there. The block is not before the first group.
    pub fn group_of_block(&self, block: HomeBlock) -> (GroupNumber, u32) {
        let within = block.get() - u64::from(self.first_data_block);
        let size = u64::from(self.blocks_per_group);
        (GroupNumber((within / size) as u32), (within % size) as u32)
    }
    /// The group of an inode (counted from 1) and its place there.
    pub fn group_of_inode(&self, inode: InodeNumber) -> (GroupNumber, u32) {
        let index = inode.get() - 1;
        (GroupNumber(index / self.inodes_per_group), index % self.inodes_per_group)
    }
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size.bytes() as u32 / u32::from(self.inode_size)
    }
    /// Blocks of each group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group / self.inodes_per_block()
    }
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size.bytes() as u32 / u32::from(self.descriptor_size())
    }
    pub fn descriptor_blocks(&self) -> u32 {
        self.groups().div_ceil(self.descriptors_per_block())
    }

    /// Whether a group holds a copy of the superblock.
    pub fn has_superblock(&self, group: GroupNumber) -> bool {
        let group = group.get();
        if self.features.has(feature::SPARSE_SUPER2) {
            return group == 0 || self.backup_groups.contains(&group);
        }
        group <= 1
            || !self.features.has(feature::SPARSE_SUPER)
            || [3, 5, 7].into_iter().any(|base| is_power(group, base))
    }

    /// Home of the `index`th block of group descriptors (copies elsewhere are left to e2fsck).
    pub fn descriptor_block(&self, index: u32) -> HomeBlock {
        let superblock = HomeBlock(u64::from(self.first_data_block));
        if !self.features.has(feature::META_BG) || index < self.first_meta_group {
            return superblock.plus(1 + u64::from(index));
        }
        let group = GroupNumber(index * self.descriptors_per_block());
        self.group_start(group).plus(u64::from(self.has_superblock(group)))
    }

    /// Blocks at the start of a group that hold its superblock copy and descriptors, reserved ones
    /// included.
    pub fn superblock_and_descriptors(&self, group: GroupNumber) -> u32 {
        let copy = self.has_superblock(group);
        let meta = self.features.has(feature::META_BG);
        let index = group.get() / self.descriptors_per_block();
        let descriptors = if meta && index >= self.first_meta_group {
            let first = index * self.descriptors_per_block();
            let last = first + self.descriptors_per_block() - 1;
            u32::from([first, first + 1, last].contains(&group.get()))
        } else if !copy {
            0
        } else if meta {
            self.first_meta_group.min(self.descriptor_blocks())
        } else {
            self.descriptor_blocks() + u32::from(self.reserved_descriptor_blocks)
        };
        u32::from(copy) + descriptors
    }
}

/// The superblock of an external journal (feature journal_dev), as far as a volume's journal needs
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalDevice {
    pub uuid: [u8; 16],
    pub block_size: BlockSize,
    pub blocks: u64,
}

impl JournalDevice {
    /// Parses the bytes at offset 1024 of the device.
    pub fn parse(bytes: &[u8]) -> Result<JournalDevice, SuperblockError> {
        let Some(raw) = bytes.get(..SUPERBLOCK_SIZE) else {
            return Err(SuperblockError::TooShort { length: bytes.len() });
        };
        let raw: Box<[u8; SUPERBLOCK_SIZE]> = Box::new(raw.try_into().expect("1024 bytes"));
        let found = u16::load(&raw[0x38..]);
        if found != MAGIC {
            return Err(SuperblockError::BadMagic { found });
        }
        let mut superblock = VolumeSuperblock::from_raw(raw);
        superblock.check_checksum()?;
        if !superblock.features.has(feature::JOURNAL_DEV) {
            return Err(SuperblockError::NoJournal);
        }
        superblock.derive()?;
        let VolumeSuperblock { uuid, block_size, blocks, .. } = superblock;
        check(
            "s_blocks_count",
            blocks,
            (3..1 << 32).contains(&blocks),
            "a journal has 3 to 2^32 - 1 blocks",
        )?;
        Ok(JournalDevice { uuid, block_size, blocks })
    }
}

fn is_power(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

fn wrong(field: &'static str, value: u64, why: &'static str) -> SuperblockError {
    SuperblockError::Geometry { field, value, why }
}
fn check(
    field: &'static str,
    value: u64,
    good: bool,
    why: &'static str,
) -> Result<(), SuperblockError> {
    if good { Ok(()) } else { Err(wrong(field, value, why)) }
}

/// A little-endian field of an on-disk structure.
pub(super) trait Field: Sized {
    fn load(bytes: &[u8]) -> Self;
    fn store(&self, bytes: &mut [u8]);
}
macro_rules! integer_field {
    ($($type:ty)*) => { $(impl Field for $type {
        fn load(bytes: &[u8]) -> $type {
            <$type>::from_le_bytes(bytes[..size_of::<$type>()].try_into().expect("its size"))
        }
        fn store(&self, bytes: &mut [u8]) {
            bytes[..size_of::<$type>()].copy_from_slice(&self.to_le_bytes());
        }
    })* };
}
integer_field!(u8 u16 u32 u64);
impl<T: Field, const N: usize> Field for [T; N] {
    fn load(bytes: &[u8]) -> [T; N] {
        std::array::from_fn(|index| T::load(&bytes[index * size_of::<T>()..]))
    }
    fn store(&self, bytes: &mut [u8]) {
        for (index, item) in self.iter().enumerate() {
            item.store(&mut bytes[index * size_of::<T>()..]);
        }
    }
}
