use crate::HomeBlock;

/// The size of a file-system block: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize {
    shift: u32,
}

impl BlockSize {
    /// Returns the size; `None` unless `bytes` is a power of two from 1024 to 65536.
    pub const fn new(bytes: u32) -> Option<BlockSize> {
        if bytes.is_power_of_two() && bytes >= 1024 && bytes <= 65536 {
            Some(BlockSize { shift: bytes.trailing_zeros() })
        } else {
            None
        }
    }
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }
    pub const fn shift(self) -> u32 {
        self.shift
    }
    /// The whole block as a range of bytes.
    pub const fn whole(self) -> BlockRange {
        BlockRange { start: 0, end: 1 << self.shift }
    }
}

/// Bytes `start..end` within one block. Never empty in an update.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockRange {
    pub start: u32,
    pub end: u32,
}

impl BlockRange {
    pub const fn new(start: u32, end: u32) -> BlockRange {
        assert!(start <= end);
        BlockRange { start, end }
    }
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
    pub const fn as_usize(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
    /// Whether the two share a byte or touch, so that they can be joined.
    pub const fn touches(self, other: BlockRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }
    pub const fn covers(self, other: BlockRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// Whether a block is one of `runs`: first block and count, in order and apart.
pub fn is_within(runs: &[(HomeBlock, u64)], at: HomeBlock) -> bool {
    let before = runs.partition_point(|(start, _)| *start <= at);
    before > 0 && at.get() - runs[before - 1].0.get() < runs[before - 1].1
}
