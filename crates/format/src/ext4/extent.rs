//! Extent-tree nodes (kernel: `Documentation/filesystems/ext4/ifork.rst`, "Extent Tree").
//!
//! A node is a header of 12 bytes and entries of 12 bytes in ascending order of file block. Leaves
//! (depth 0) hold extents, nodes above hold indices. The root is the inode's 60 bytes. Every other
//! node is a block, which with `metadata_csum` ends in a checksum right behind the space for
//! entries.

use super::checksum::crc32c;
use smallvec::SmallVec;
use units::{FileBlock, HomeBlock};

/// Bytes of the root node, in the inode.
pub const ROOT_BYTES: usize = 60;
/// Five levels of the smallest nodes hold 2^32 extents; the kernel allows no more.
pub const DEPTH_MAX: u16 = 5;
/// Blocks of the longest written extent; an unwritten one is shorter by one (`EXT_INIT_MAX_LEN`).
pub const WRITTEN_MAX: u32 = 1 << 15;
pub const UNWRITTEN_MAX: u32 = WRITTEN_MAX - 1;

const MAGIC: u16 = 0xf30a;
const HEADER: usize = 12;
const ENTRY: usize = 12;
const CHECKSUM: usize = 4;

/// An extent: `count` blocks of the file from `at` on lie at `home` and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub at: FileBlock,
    pub count: u32,
    pub home: HomeBlock,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// An index entry: the node in block `child` holds the file's blocks from `at` on, to the next
/// index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index {
    pub at: FileBlock,
    pub child: HomeBlock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentEntry {
    Extent(Extent),
    Index(Index),
}

/// Entries of a node: those of a root need no allocation.
pub type ExtentEntries = SmallVec<[ExtentEntry; 4]>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExtentError {
    #[error("extent node has magic {found:#06x} instead of 0xf30a")]
    Magic { found: u16 },
    #[error("extent node claims depth {found}, more than 5")]
    Depth { found: u16 },
    #[error("extent node claims {entries} entries of {capacity}, with space for {fits}")]
    Capacity { entries: u16, capacity: u16, fits: usize },
    #[error("extent entries at {at} are empty, overlap, or are not in ascending order")]
    Order { at: FileBlock },
    #[error("checksum of extent node is {found:#010x} instead of {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
}

/// A node read in place.
#[derive(Clone, Copy)]
pub struct ExtentNode<'a> {
    bytes: &'a [u8],
}

impl<'a> ExtentNode<'a> {
    /// Checks header and entries.
    pub fn parse(bytes: &'a [u8]) -> Result<ExtentNode<'a>, ExtentError> {
        let node = ExtentNode { bytes };
        let fits = capacity_of(bytes.len());
        let (entries, capacity) = (read_u16(bytes, 2), read_u16(bytes, 4));
        match read_u16(bytes, 0) {
            MAGIC => {}
            found => return Err(ExtentError::Magic { found }),
        }
        if node.depth() > DEPTH_MAX {
            return Err(ExtentError::Depth { found: node.depth() });
        }
        // An inner node without entries is damaged; only an empty file's root may be empty, and it
        // is a leaf.
        if entries > capacity || usize::from(capacity) > fits || (entries == 0 && node.depth() > 0)
        {
            return Err(ExtentError::Capacity { entries, capacity, fits });
        }
        node.check_order()?;
        Ok(node)
    }

    fn check_order(&self) -> Result<(), ExtentError> {
        let mut free_from = 0;
        for index in 0..self.len() {
            let entry = self.entry(index);
            let end = entry.end();
            if u64::from(entry.at().get()) < free_from
                || end <= u64::from(entry.at().get())
                || end > 1 << 32
            {
                return Err(ExtentError::Order { at: entry.at() });
            }
            free_from = end;
        }
        Ok(())
    }

    /// Levels below this node; 0 is a leaf.
    pub fn depth(&self) -> u16 {
        read_u16(self.bytes, 6)
    }
    pub fn len(&self) -> usize {
        usize::from(read_u16(self.bytes, 2))
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of entries that fit.
    pub fn capacity(&self) -> usize {
        usize::from(read_u16(self.bytes, 4))
    }

    /// Entry `index`, which is below `len`.
    pub fn entry(&self, index: usize) -> ExtentEntry {
        assert!(index < self.len());
        let bytes = &self.bytes[HEADER + index * ENTRY..][..ENTRY];
        let at = FileBlock(read_u32(bytes, 0));
        if self.depth() > 0 {
            let high = u64::from(read_u16(bytes, 8));
            return ExtentEntry::Index(Index {
                at,
                child: HomeBlock(high << 32 | u64::from(read_u32(bytes, 4))),
            });
        }
        let length = u32::from(read_u16(bytes, 4));
        let unwritten = length > WRITTEN_MAX;
        let count = if unwritten { length - WRITTEN_MAX } else { length };
        let home = HomeBlock(u64::from(read_u16(bytes, 6)) << 32 | u64::from(read_u32(bytes, 8)));
        ExtentEntry::Extent(Extent { at, count, home, unwritten })
    }

    pub fn entries(&self) -> ExtentEntries {
        (0..self.len()).map(|index| self.entry(index)).collect()
    }

    /// The last entry that begins at or before `at`.
    pub fn find(&self, at: FileBlock) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if read_u32(self.bytes, HEADER + middle * ENTRY) <= at.get() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Compares the checksum at the node's end. `seed` is the inode's (number and generation).
    pub fn verify_checksum(&self, seed: u32) -> Result<(), ExtentError> {
        let tail = checksum_offset(self.bytes);
        let Some(found) = self.bytes.get(tail..tail + CHECKSUM).map(|bytes| read_u32(bytes, 0))
        else {
            let (entries, capacity) = (self.len() as u16, self.capacity() as u16);
            return Err(ExtentError::Capacity {
                entries,
                capacity,
                fits: capacity_of(self.bytes.len()),
            });
        };
        let expected = crc32c(seed, &self.bytes[..tail]);
        if found == expected { Ok(()) } else { Err(ExtentError::Checksum { found, expected }) }
    }
}

impl ExtentEntry {
    pub fn at(&self) -> FileBlock {
        match self {
            ExtentEntry::Extent(extent) => extent.at,
            ExtentEntry::Index(index) => index.at,
        }
    }
    /// The first file block behind it, as far as the entry itself shows.
    fn end(&self) -> u64 {
        match self {
            ExtentEntry::Extent(extent) => u64::from(extent.at.get()) + u64::from(extent.count),
            ExtentEntry::Index(index) => u64::from(index.at.get()) + 1,
        }
    }
    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..4].copy_from_slice(&self.at().get().to_le_bytes());
        match self {
            ExtentEntry::Extent(extent) => {
                let limit = if extent.unwritten { UNWRITTEN_MAX } else { WRITTEN_MAX };
                assert!(
                    (1..=limit).contains(&extent.count),
                    "an extent of {} blocks",
                    extent.count
                );
                let length =
                    if extent.unwritten { extent.count + WRITTEN_MAX } else { extent.count };
                bytes[4..6].copy_from_slice(&(length as u16).to_le_bytes());
                bytes[6..8].copy_from_slice(&((extent.home.get() >> 32) as u16).to_le_bytes());
                bytes[8..].copy_from_slice(&(extent.home.get() as u32).to_le_bytes());
            }
            ExtentEntry::Index(index) => {
                bytes[4..8].copy_from_slice(&(index.child.get() as u32).to_le_bytes());
                bytes[8..10].copy_from_slice(&((index.child.get() >> 32) as u16).to_le_bytes());
            }
        }
        bytes
    }
}

/// Number of entries that fit into a node of `length` bytes.
pub fn capacity_of(length: usize) -> usize {
    (length - HEADER) / ENTRY
}

/// Makes `bytes` an empty node.
pub fn initialize(bytes: &mut [u8], depth: u16) {
    bytes[..HEADER].fill(0);
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    let capacity = capacity_of(bytes.len()) as u16;
    bytes[4..6].copy_from_slice(&capacity.to_le_bytes());
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
}

/// Overwrites the entries from `first` on with `entries`, which become the last, and the header's
/// count. The entries must fit.
pub fn replace_tail(bytes: &mut [u8], first: usize, entries: &[ExtentEntry]) {
    for (index, entry) in entries.iter().enumerate() {
        bytes[HEADER + (first + index) * ENTRY..][..ENTRY].copy_from_slice(&entry.to_bytes());
    }
    bytes[2..4].copy_from_slice(&((first + entries.len()) as u16).to_le_bytes());
}

/// Bytes of the checksum of a node that is a block.
pub fn checksum_bytes(bytes: &[u8]) -> std::ops::Range<usize> {
    let tail = checksum_offset(bytes);
    tail..tail + CHECKSUM
}

/// Computes the checksum of a node that is a block. `seed` is the inode's (number and generation).
pub fn write_checksum(bytes: &mut [u8], seed: u32) {
    let tail = checksum_offset(bytes);
    let checksum = crc32c(seed, &bytes[..tail]);
    bytes[tail..tail + CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum_offset(bytes: &[u8]) -> usize {
    HEADER + usize::from(read_u16(bytes, 4)) * ENTRY
}
fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(extents: &[(u32, u32, u64, bool)]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        initialize(&mut bytes, 0);
        let entry = |&(at, count, home, unwritten)| {
            ExtentEntry::Extent(Extent {
                at: FileBlock(at),
                count,
                home: HomeBlock(home),
                unwritten,
            })
        };
        replace_tail(&mut bytes, 0, &extents.iter().map(entry).collect::<Vec<_>>());
        bytes
    }

    #[test]
    fn entries_come_back_as_written() {
        let bytes = leaf(&[
            (0, 32768, 0xffff_1234_5678, false),
            (40000, 32767, 77, true),
            (u32::MAX, 1, 9, false),
        ]);
        let node = ExtentNode::parse(&bytes).unwrap();
        assert_eq!((node.len(), node.capacity(), node.depth()), (3, 84, 0));
        let expect =
            Extent { at: FileBlock(40000), count: 32767, home: HomeBlock(77), unwritten: true };
        assert_eq!(node.entry(1), ExtentEntry::Extent(expect));
        let ExtentEntry::Extent(first) = node.entry(0) else { panic!() };
        assert_eq!(
            (first.count, first.home.get(), first.unwritten),
            (32768, 0xffff_1234_5678, false)
        );
    }

    #[test]
    fn find_gives_the_last_entry_at_or_before() {
        let bytes = leaf(&[(10, 5, 100, false), (20, 5, 200, false), (30, 5, 300, false)]);
        let node = ExtentNode::parse(&bytes).unwrap();
        let found: Vec<_> =
            [9, 10, 19, 20, 31, 99].iter().map(|&at| node.find(FileBlock(at))).collect();
        assert_eq!(found, [None, Some(0), Some(0), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn overlap_disorder_and_the_end_of_the_file_are_refused() {
        for extents in
            [[(10, 5, 1, false), (14, 1, 9, false)], [(10, 5, 1, false), (2, 1, 9, false)]]
        {
            assert!(matches!(ExtentNode::parse(&leaf(&extents)), Err(ExtentError::Order { .. })));
        }
        assert!(ExtentNode::parse(&leaf(&[(u32::MAX, 2, 1, false)])).is_err());
    }

    #[test]
    fn no_bytes_make_parsing_panic() {
        let good = leaf(&[(10, 5, 100, false), (20, 5, 200, true)]);
        for at in 0..40 {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                if let Ok(node) = ExtentNode::parse(&bytes) {
                    assert!(node.entries().len() <= 84);
                    let _ = node.verify_checksum(1);
                }
            }
        }
    }

    #[test]
    fn checksum_covers_header_and_entries() {
        let mut bytes = leaf(&[(10, 5, 100, false)]);
        write_checksum(&mut bytes, 7);
        assert_eq!(checksum_bytes(&bytes), 1020..1024);
        ExtentNode::parse(&bytes).unwrap().verify_checksum(7).unwrap();
        assert!(ExtentNode::parse(&bytes).unwrap().verify_checksum(8).is_err());
        bytes[500] ^= 1;
        assert!(ExtentNode::parse(&bytes).unwrap().verify_checksum(7).is_err());
    }
}
