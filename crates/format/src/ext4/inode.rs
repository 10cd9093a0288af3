use units::{HomeBlock, Timestamp};

/// An inode, parsed. `parse` and `serialize` keep what they do not know (`os-dependent`, unused bytes).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inode {
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
    /// Space used, in 512-byte sectors as `st_blocks` (huge_file is resolved by parse and serialize).
    pub sectors: u64,
    pub flags: u32,
    /// The root of the block map or extent tree, a fast symlink's target, or a device number. 60 bytes.
    pub block: Vec<u8>,
    pub generation: u32,
    /// The block of extended attributes, 0 for none.
    pub xattr_block: HomeBlock,
    /// Low and high 32 bits of `i_version`.
    pub version: u64,
    pub project: u32,
    /// How many bytes after the first 128 hold fields (`i_extra_isize`); 0 in 128-byte inodes.
    pub extra_size: u16,
    /// Everything after `128 + extra_size`: in-inode extended attributes. Empty in 128-byte inodes.
    pub xattr_area: Vec<u8>,
}

/// Bits of [`Inode::flags`].
pub mod flags {
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const INDEX: u32 = 0x1000;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const TOP_DIRECTORY: u32 = 0x2_0000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

impl Inode {
    /// An empty extent root in `block`, and the flag that says so.
    pub fn make_extent_root(&mut self) {
        self.flags |= flags::EXTENTS;
        // Magic, no entries, room for (60 - 12) / 12 = 4, depth 0, generation 0.
        self.block = vec![0; 60];
        self.block[..6].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4, 0]);
    }
}
