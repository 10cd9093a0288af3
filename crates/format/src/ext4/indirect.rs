//! Blocks mapped by pointers (kernel: `Documentation/filesystems/ext4/ifork.rst`, "Direct/Indirect
//! Block Addressing"). The inode has 12 direct pointers, then one each to a tree of one, two and
//! three levels. A pointer has 32 bits; 0 is a hole.

use units::{FileBlock, HomeBlock};

/// Bytes of the inode that hold the 15 pointers.
pub const ROOT_BYTES: usize = 60;
pub const DIRECT: u32 = 12;
const POINTER: usize = 4;

/// The path to one file block: the pointer to follow in the inode, and then in each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointerPath {
    indices: [u32; 4],
    len: usize,
}

impl PointerPath {
    /// The path to `at` where blocks hold `2^shift` bytes. `None` beyond the triple-indirect tree.
    pub fn to(at: FileBlock, shift: u32) -> Option<PointerPath> {
        let bits = shift - 2;
        let mut rest = u64::from(at.get());
        if rest < u64::from(DIRECT) {
            return Some(PointerPath { indices: [at.get(), 0, 0, 0], len: 1 });
        }
        rest -= u64::from(DIRECT);
        for levels in 1..=3 {
            if rest < 1 << (bits * levels) {
                let mut indices = [DIRECT + levels - 1, 0, 0, 0];
                for level in 1..=levels {
                    indices[level as usize] =
                        (rest >> (bits * (levels - level)) & ((1 << bits) - 1)) as u32;
                }
                return Some(PointerPath { indices, len: levels as usize + 1 });
            }
            rest -= 1 << (bits * levels);
        }
        None
    }

    /// The pointers to follow: the first in the inode, each other in the block the one before
    /// points to.
    pub fn indices(&self) -> &[u32] {
        &self.indices[..self.len]
    }
}

/// Number of blocks of a file that can be mapped where blocks hold `2^shift` bytes. From blocks of
/// 8 KiB on there are pointers for more than can be numbered in 32 bits.
pub fn blocks_max(shift: u32) -> u64 {
    let pointers = 1u64 << (shift - 2);
    (u64::from(DIRECT) + pointers + pointers.pow(2) + pointers.pow(3)).min((1 << 32) - 1)
}

/// Pointer `index` of a block or of the inode's 60 bytes; `None` for a hole.
pub fn pointer(bytes: &[u8], index: u32) -> Option<HomeBlock> {
    let bytes = &bytes[pointer_bytes(index, 1)];
    let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (value != 0).then_some(HomeBlock(u64::from(value)))
}

/// Sets pointer `index`. Homes beyond 2^32 cannot be stored: the allocating caller avoids them.
pub fn set_pointer(bytes: &mut [u8], index: u32, home: Option<HomeBlock>) {
    let value = home.map_or(0, HomeBlock::get);
    assert!(value <= u64::from(u32::MAX), "pointer to block {value}");
    bytes[pointer_bytes(index, 1)].copy_from_slice(&(value as u32).to_le_bytes());
}

/// The bytes that `count` pointers from `index` on take.
pub fn pointer_bytes(index: u32, count: u32) -> std::ops::Range<usize> {
    index as usize * POINTER..(index + count) as usize * POINTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_of_a_file_has_a_number_of_more_than_32_bits() {
        assert!((10..=16).all(|shift| blocks_max(shift) < 1 << 32));
    }

    #[test]
    fn paths_cover_every_level_and_their_borders() {
        let path = |at| PointerPath::to(FileBlock(at), 10).map(|path| path.indices().to_vec());
        assert_eq!(path(11), Some(vec![11]));
        assert_eq!(path(12), Some(vec![12, 0]));
        assert_eq!(path(12 + 255), Some(vec![12, 255]));
        assert_eq!(path(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(path(12 + 256 + 65535), Some(vec![13, 255, 255]));
        assert_eq!(path(12 + 256 + 65536), Some(vec![14, 0, 0, 0]));
        assert_eq!(path(blocks_max(10) as u32 - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(path(blocks_max(10) as u32), None);
    }

    #[test]
    fn pointers_come_back_as_set() {
        let mut bytes = [0; 60];
        set_pointer(&mut bytes, 14, Some(HomeBlock(0xfedc_ba98)));
        assert_eq!(pointer(&bytes, 14), Some(HomeBlock(0xfedc_ba98)));
        assert_eq!(pointer(&bytes, 13), None);
    }
}
