use super::tag::BlockTag;
use units::BlockSize;

/// Assigns a log block, and a range of its bytes, to each tag of one descriptor block. Writer and
/// reader both use it, so they cannot disagree.
///
/// A regular tag takes the next log block. Fragments lie back to back in multiwrite blocks. A
/// fragment that does not fit in the rest of the current multiwrite block begins the next log
/// block, and a regular tag closes it.
#[derive(Clone, Debug)]
pub struct Packing {
    block_size: BlockSize,
    blocks: u32,
    /// Bytes used in the open multiwrite block.
    used: Option<usize>,
}

/// Location of a tag's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagBytes {
    /// Counted from the log block behind the descriptor.
    pub block: u32,
    /// Bytes from the start of that block.
    pub offset: usize,
    pub length: usize,
}

impl TagBytes {
    /// Whether the tag is the first of its log block.
    pub fn begins_block(&self) -> bool {
        self.offset == 0
    }
}

impl Packing {
    pub fn new(block_size: BlockSize) -> Packing {
        Packing { block_size, blocks: 0, used: None }
    }

    /// The place of the next tag.
    pub fn place(&mut self, tag: &BlockTag) -> TagBytes {
        let Some(fragment) = tag.fragment else {
            self.used = None;
            self.blocks += 1;
            return TagBytes { block: self.blocks - 1, offset: 0, length: self.block_size.bytes() };
        };
        let length = fragment.range.len();
        let offset = self.used.filter(|used| used + length <= self.block_size.bytes()).unwrap_or(0);
        if offset == 0 {
            self.blocks += 1;
        }
        self.used = Some(offset + length);
        TagBytes { block: self.blocks - 1, offset, length }
    }

    /// Log blocks that the tags so far take.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fragment;
    use super::*;
    use units::{BlockRange, HomeBlock};

    fn tag(length: Option<u32>) -> BlockTag {
        let fragment = length
            .map(|length| Fragment { range: BlockRange::new(1, 1 + length), base_zero: false });
        BlockTag {
            home: HomeBlock(1),
            escaped: false,
            deleted: false,
            durable_only: false,
            checksum: 0,
            fragment,
        }
    }

    #[test]
    fn fragments_fill_blocks_and_a_regular_tag_closes_them() {
        let mut packing = Packing::new(BlockSize::new(1024).unwrap());
        let lengths =
            [Some(1000), Some(24), Some(1), Some(1023), None, Some(5), None, Some(7), Some(9)];
        let places: Vec<(u32, usize)> = lengths
            .into_iter()
            .map(|length| packing.place(&tag(length)))
            .map(|place| (place.block, place.offset))
            .collect();
        assert_eq!(
            places,
            [(0, 0), (0, 1000), (1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0), (5, 7)]
        );
        assert_eq!(packing.blocks(), 6);
    }
}
