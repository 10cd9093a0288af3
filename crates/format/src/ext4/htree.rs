//! The index of a directory: a tree of hashes over its blocks of entries (kernel:
//! `Documentation/filesystems/ext4/directory.rst`, "Hash Tree Directories").
//!
//! To a program that does not know the index its blocks look like empty directory blocks. The root
//! is the directory's first block: `.`, `..` (whose record hides the rest), 8 bytes about the tree,
//! the table. A node is one unused entry of 8 bytes that hides its table. A table has `limit`
//! entries of 8 bytes (hash, block), of which `count` are used. The first one's hash is not needed
//! (0) and its bytes hold limit and count. With metadata_csum 8 bytes follow the table: 4 reserved,
//! and the checksum of all used bytes.

use super::checksum::crc32c;
use super::directory::{DirectoryError, DirectoryFormat, set_record_length, stored_length};
use super::hash::HashVersion;
use units::{BlockRange, FileBlock, InodeNumber};

const PLACE_LENGTH: usize = 8;
const TAIL_LENGTH: usize = 8;
/// `.` and `..` of 12 bytes each, 8 bytes about the tree.
const ROOT_TABLE: usize = 12 + 12 + 8;
const NODE_TABLE: usize = 8;
const INFO: usize = 24;
/// Blocks of a directory have 28-bit numbers in the index; the other bits are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Tree parameters in the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootInformation {
    pub hash_version: HashVersion,
    /// Nodes between the root and a leaf: 0 to 2.
    pub levels: u8,
}

/// The most levels of nodes between root and leaf without large_dir, and with it.
pub const LEVELS_MAX: u8 = 1;
pub const LEVELS_MAX_LARGE: u8 = 2;
/// The most blocks of a directory that has an index.
pub const BLOCKS_MAX: u64 = 1 << 28;

/// The table of an index block, whose bounds have been checked against the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexTable {
    start: usize,
    limit: usize,
    count: usize,
    seed: Option<u32>,
}

impl IndexTable {
    /// The root's table. Fails for tree parameters that are not supported.
    pub fn of_root(
        format: &DirectoryFormat,
        block: &[u8],
    ) -> Result<(IndexTable, RootInformation), DirectoryError> {
        let wrong = |at, why| DirectoryError { at, why };
        let [dot, dotdot] = format.dots(block)?;
        if (dot.record_length, dotdot.end()) != (12, block.len()) {
            return Err(wrong(dotdot.at, "the entries . and .. do not hide the index"));
        }
        let [version, length, levels, flags] = [4, 5, 6, 7].map(|at| block[INFO + at]);
        let hash_version =
            HashVersion::new(version).ok_or(wrong(INFO + 4, "the hash version is unknown"))?;
        if length != 8 || flags & 1 != 0 {
            return Err(wrong(
                INFO + 5,
                "the description of the tree has another length, or unknown flags",
            ));
        }
        if levels > LEVELS_MAX_LARGE {
            return Err(wrong(INFO + 6, "the tree has too many levels"));
        }
        Ok((
            IndexTable::parse(format, block, ROOT_TABLE)?,
            RootInformation { hash_version, levels },
        ))
    }

    pub fn of_node(format: &DirectoryFormat, block: &[u8]) -> Result<IndexTable, DirectoryError> {
        if block[..4] != [0; 4] || stored_length(block, 0) != block.len() {
            return Err(DirectoryError { at: 0, why: "no entry hides the index" });
        }
        IndexTable::parse(format, block, NODE_TABLE)
    }

    fn parse(
        format: &DirectoryFormat,
        block: &[u8],
        start: usize,
    ) -> Result<IndexTable, DirectoryError> {
        let number = |at| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
        let (limit, count) = (number(start), number(start + 2));
        if limit != IndexTable::limit_for(format, block.len(), start) {
            return Err(DirectoryError {
                at: start,
                why: "the index has another limit than its block allows",
            });
        }
        if count == 0 || count > limit {
            return Err(DirectoryError {
                at: start + 2,
                why: "the index has no entries, or more than fit",
            });
        }
        Ok(IndexTable { start, limit, count, seed: format.seed })
    }

    fn limit_for(format: &DirectoryFormat, length: usize, start: usize) -> usize {
        let tail = if format.seed.is_some() { TAIL_LENGTH } else { 0 };
        (length - start - tail) / PLACE_LENGTH
    }

    pub fn count(&self) -> usize {
        self.count
    }
    pub fn is_full(&self) -> bool {
        self.count == self.limit
    }
    /// The lowest hash below entry `index` (0 for the first), with bit 0 when names of that hash
    /// are also in the block before.
    pub fn hash(&self, block: &[u8], index: usize) -> u32 {
        if index == 0 { 0 } else { self.word(block, index, 0) }
    }
    pub fn block(&self, block: &[u8], index: usize) -> FileBlock {
        FileBlock(self.word(block, index, 4) & BLOCK_MASK)
    }
    fn word(&self, block: &[u8], index: usize, within: usize) -> u32 {
        assert!(index < self.count);
        let at = self.start + index * PLACE_LENGTH + within;
        u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    }

    /// The entry whose block is the first that may hold names of that hash.
    pub fn find(&self, block: &[u8], hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(block, middle) > hash { high = middle } else { low = middle + 1 }
        }
        low - 1
    }

    /// Inserts (hash, child) behind entry `index`. The table must not be full.
    pub fn insert(&mut self, block: &mut [u8], index: usize, hash: u32, child: FileBlock) {
        assert!(self.count < self.limit && index < self.count);
        let at = self.start + (index + 1) * PLACE_LENGTH;
        let end = self.start + self.count * PLACE_LENGTH;
        block.copy_within(at..end, at + PLACE_LENGTH);
        block[at..at + 4].copy_from_slice(&hash.to_le_bytes());
        block[at + 4..at + 8].copy_from_slice(&child.get().to_le_bytes());
        self.set_count(block, self.count + 1);
    }

    /// Bytes of the table and its checksum.
    pub fn range(&self) -> BlockRange {
        let tail = if self.seed.is_some() { TAIL_LENGTH } else { 0 };
        BlockRange::new(self.start as u32, (self.start + self.limit * PLACE_LENGTH + tail) as u32)
    }

    /// Keeps only the first `count` entries.
    pub fn shorten(&mut self, block: &mut [u8], count: usize) {
        assert!(count > 0 && count <= self.count);
        self.set_count(block, count);
    }

    fn set_count(&mut self, block: &mut [u8], count: usize) {
        self.count = count;
        block[self.start + 2..self.start + 4].copy_from_slice(&(count as u16).to_le_bytes());
    }

    /// Makes an empty block a node that holds the entries `from..` of another index block. They
    /// must fit.
    pub fn copy_to_node(
        &self,
        source: &[u8],
        from: usize,
        format: &DirectoryFormat,
        node: &mut [u8],
    ) -> IndexTable {
        assert!(from < self.count);
        node.fill(0);
        set_record_length(node, 0, node.len());
        let limit = IndexTable::limit_for(format, node.len(), NODE_TABLE);
        let count = self.count - from;
        assert!(count <= limit);
        let bytes =
            &source[self.start + from * PLACE_LENGTH..self.start + self.count * PLACE_LENGTH];
        node[NODE_TABLE..][..bytes.len()].copy_from_slice(bytes);
        node[NODE_TABLE..NODE_TABLE + 2].copy_from_slice(&(limit as u16).to_le_bytes());
        let mut table = IndexTable { start: NODE_TABLE, limit, count, seed: format.seed };
        table.set_count(node, count);
        table
    }

    /// Makes the root, after [`IndexTable::copy_to_node`] of all entries, refer to that node only.
    pub fn grow_root(&mut self, root: &mut [u8], node: FileBlock) {
        root[INFO + 6] += 1;
        self.set_count(root, 1);
        root[self.start + 4..self.start + 8].copy_from_slice(&node.get().to_le_bytes());
    }

    pub fn checksum_is_right(&self, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let at = self.tail();
        block[at + 4..at + 8] == self.checksum(seed, block).to_le_bytes()
    }
    pub fn set_checksum(&self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let at = self.tail();
        let checksum = self.checksum(seed, block);
        block[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
    }
    fn tail(&self) -> usize {
        self.start + self.limit * PLACE_LENGTH
    }
    fn checksum(&self, seed: u32, block: &[u8]) -> u32 {
        let used = crc32c(seed, &block[..self.start + self.count * PLACE_LENGTH]);
        let reserved = crc32c(used, &block[self.tail()..self.tail() + 4]);
        crc32c(reserved, &[0; 4])
    }
}

/// Makes a directory's first block the root of an index with one leaf. `..` keeps its inode.
pub fn make_root(
    format: &DirectoryFormat,
    block: &mut [u8],
    parent: InodeNumber,
    parent_type: u8,
    version: HashVersion,
    leaf: FileBlock,
) -> IndexTable {
    let length = block.len();
    block[12..].fill(0);
    set_record_length(block, 0, 12);
    format.write(block, 12, length - 12, parent, parent_type, b"..");
    block[INFO + 4] = version as u8;
    block[INFO + 5] = 8;
    let limit = IndexTable::limit_for(format, length, ROOT_TABLE);
    block[ROOT_TABLE..ROOT_TABLE + 2].copy_from_slice(&(limit as u16).to_le_bytes());
    block[ROOT_TABLE + 4..ROOT_TABLE + 8].copy_from_slice(&leaf.get().to_le_bytes());
    let mut table = IndexTable { start: ROOT_TABLE, limit, count: 1, seed: format.seed };
    table.set_count(block, 1);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: DirectoryFormat =
        DirectoryFormat { file_types: true, seed: Some(7), inodes: 100 };

    fn root() -> (Vec<u8>, IndexTable) {
        let mut block = vec![0; 1024];
        FORMAT.fill(
            &mut block,
            [(InodeNumber(12), 2, &b"."[..]), (InodeNumber(2), 2, b"..")].into_iter(),
        );
        let table =
            make_root(&FORMAT, &mut block, InodeNumber(2), 2, HashVersion::HalfMd4, FileBlock(1));
        (block, table)
    }

    #[test]
    fn an_index_finds_the_block_of_every_hash() {
        let (mut block, mut table) = root();
        while !table.is_full() {
            let last = table.count() - 1;
            let hash = (last as u32 + 1) * 10;
            table.insert(&mut block, last, hash, FileBlock(hash));
        }
        table.set_checksum(&mut block);
        assert!(table.checksum_is_right(&block));
        let (parsed, information) = IndexTable::of_root(&FORMAT, &block).unwrap();
        assert_eq!(
            (parsed, information.levels, information.hash_version),
            (table, 0, HashVersion::HalfMd4)
        );
        assert_eq!(table.count(), (1024 - 32 - 8) / 8);
        for hash in 0..2000 {
            let index = table.find(&block, hash);
            assert!(table.hash(&block, index) <= hash);
            assert!(index + 1 == table.count() || table.hash(&block, index + 1) > hash);
        }

        let mut node = vec![0xff; 1024];
        let copy = table.copy_to_node(&block, 0, &FORMAT, &mut node);
        table.grow_root(&mut block, FileBlock(9));
        assert_eq!(IndexTable::of_node(&FORMAT, &node), Ok(copy));
        let (grown, information) = IndexTable::of_root(&FORMAT, &block).unwrap();
        assert_eq!(
            (grown.count(), information.levels, grown.block(&block, 0)),
            (1, 1, FileBlock(9))
        );
        assert_eq!(copy.block(&node, copy.find(&node, 57)), FileBlock(50));
    }

    #[test]
    fn an_index_with_any_byte_changed_is_read_without_harm() {
        let (mut block, mut table) = root();
        table.insert(&mut block, 0, 40, FileBlock(2));
        table.set_checksum(&mut block);
        for at in 0..block.len() {
            for value in [1, 2, 0x7f, 0xff] {
                let mut damaged = block.clone();
                damaged[at] = value;
                if let Ok((table, _)) = IndexTable::of_root(&FORMAT, &damaged) {
                    let _ = (table.find(&damaged, 45), table.checksum_is_right(&damaged));
                    // Bytes between the last used entry and the tail are not covered.
                    let covered = !(32 + 16..1024 - 8).contains(&at);
                    assert_eq!(
                        table.checksum_is_right(&damaged),
                        damaged == block || !covered,
                        "byte {at}"
                    );
                }
                let _ = IndexTable::of_node(&FORMAT, &damaged);
            }
        }
    }
}
