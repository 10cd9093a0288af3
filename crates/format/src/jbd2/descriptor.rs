use super::error::JournalFormatError;
use super::header::{BlockHeader, BlockType};
use super::layout::LogLayout;
use super::tag::{BlockTag, UUID_BYTES, flag};
use units::{LogBlock, TransactionId};

/// The tags of the log blocks that follow it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescriptorBlock {
    pub transaction: TransactionId,
    /// Tags in log order. [`super::Packing`] assigns them their log blocks.
    pub tags: Vec<BlockTag>,
}

impl DescriptorBlock {
    /// Space for tags in bytes ([`BlockTag::encoded_length`]) of one block.
    pub fn capacity(layout: &LogLayout) -> usize {
        layout.end() - BlockHeader::SIZE - UUID_BYTES
    }

    /// Serializes the block as it stands in the log. At least one tag; all must fit.
    pub fn serialize(&self, layout: &LogLayout, block: &mut [u8]) {
        let (last, needed) =
            (self.tags.len() - 1, self.tags.iter().map(|tag| tag.encoded_length(layout)).sum());
        assert!(Self::capacity(layout) >= needed, "{} tags do not fit", self.tags.len());
        let mut bytes = Vec::with_capacity(UUID_BYTES + needed);
        for (index, tag) in self.tags.iter().enumerate() {
            let same = if index == 0 { 0 } else { flag::SAME_UUID };
            tag.append(layout, same | if index == last { flag::LAST } else { 0 }, &mut bytes);
        }
        block.fill(0);
        BlockHeader::put(BlockType::Descriptor, self.transaction, block);
        block[BlockHeader::SIZE..][..bytes.len()].copy_from_slice(&bytes);
        layout.seal(block);
    }

    /// Parses `block`, a whole log block whose header says descriptor; [`LogLayout::is_intact`]
    /// checks its checksum. As in the kernel, tags without a LAST flag end at the end of the block.
    pub fn parse(
        block: &[u8],
        layout: &LogLayout,
        at: LogBlock,
    ) -> Result<DescriptorBlock, JournalFormatError> {
        layout.check_size(block, "descriptor block", at)?;
        let header =
            BlockHeader::parse(block).filter(|header| header.kind == Some(BlockType::Descriptor));
        let Some(BlockHeader { transaction, .. }) = header else {
            return Err(JournalFormatError::Block {
                at,
                what: "descriptor block",
                why: "its header is gone".to_owned(),
            });
        };
        let (mut tags, mut from, mut last) = (Vec::new(), BlockHeader::SIZE, false);
        while !last && from + layout.tag_bytes() <= layout.end() {
            let tag;
            (tag, from, last) = BlockTag::parse(block, from, layout, at)?;
            tags.push(tag);
        }
        Ok(DescriptorBlock { transaction, tags })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fragment, Seed, TagFormat};
    use super::*;
    use units::{BlockRange, BlockSize, HomeBlock};

    const AT: LogBlock = LogBlock(5);

    fn layouts() -> Vec<LogLayout> {
        let mut all = Vec::new();
        for size in [1024, 2048, 4096] {
            for tags in [TagFormat::Plain, TagFormat::ChecksumV2, TagFormat::ChecksumV3] {
                for bits in 0..8 {
                    let [wide, multiwrite, scattered] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let layout =
                        LogLayout::new(BlockSize::new(size).unwrap(), tags, *b"0123456789abcdef");
                    all.push(LogLayout { wide, multiwrite, scattered, ..layout });
                }
            }
        }
        all
    }

    fn tag(index: u32, layout: &LogLayout) -> BlockTag {
        let wide = if layout.wide { 7 << 32 } else { 0 };
        let range = BlockRange::new(index % 500, index % 500 + 8);
        let checksum = match layout.tags {
            TagFormat::Plain => 0,
            TagFormat::ChecksumV2 => index & 0xffff,
            TagFormat::ChecksumV3 => index.wrapping_mul(77_777_777),
        };
        let fragment = (layout.multiwrite && index % 2 == 0)
            .then_some(Fragment { range, base_zero: index % 4 == 0 });
        BlockTag {
            home: HomeBlock(u64::from(index) | wide),
            escaped: index % 3 == 0,
            deleted: index % 5 == 0,
            checksum,
            durable_only: layout.scattered && fragment.is_none() && index % 7 == 0,
            fragment,
        }
    }

    fn full(layout: &LogLayout) -> DescriptorBlock {
        let mut space = DescriptorBlock::capacity(layout);
        let fits = |tag: &BlockTag| {
            let length = tag.encoded_length(layout);
            space >= length && {
                space -= length;
                true
            }
        };
        let tags = (0..).map(|index| tag(index, layout)).take_while(fits).collect();
        DescriptorBlock { transaction: TransactionId(42), tags }
    }

    #[test]
    fn every_tag_format_comes_back_as_written_from_full_and_short_blocks() {
        for layout in layouts() {
            let mut block = vec![0xee; layout.block_size.bytes()];
            let mut descriptor = full(&layout);
            while !descriptor.tags.is_empty() {
                descriptor.serialize(&layout, &mut block);
                assert!(layout.is_intact(&block));
                assert_eq!(DescriptorBlock::parse(&block, &layout, AT).unwrap(), descriptor);
                descriptor.tags.truncate(descriptor.tags.len() / 2);
            }
        }
    }

    #[test]
    fn any_changed_bit_breaks_the_checksum() {
        let layout = LogLayout::new(BlockSize::new(1024).unwrap(), TagFormat::ChecksumV3, [9; 16]);
        let mut block = vec![0; 1024];
        full(&layout).serialize(&layout, &mut block);
        for at in 0..block.len() {
            block[at] ^= 0x40;
            assert!(!layout.is_intact(&block), "byte {at}");
            block[at] ^= 0x40;
        }
        assert!(!LogLayout { seed: Seed::of_journal(&[8; 16]), ..layout }.is_intact(&block));
    }

    #[test]
    fn no_bytes_make_the_parser_panic_or_invent_tags_without_end() {
        let random = units::SplitMix::new(1);
        for layout in layouts() {
            for _ in 0..200 {
                let mut block = vec![0; layout.block_size.bytes()];
                for byte in &mut block {
                    let value = random.next();
                    // Mostly zeros, so that flags stay plausible and parsing gets far.
                    *byte = if value >> 62 == 0 { (value >> 40) as u8 & 0x3f } else { 0 };
                }
                BlockHeader::put(BlockType::Descriptor, TransactionId(1), &mut block);
                if let Ok(found) = DescriptorBlock::parse(&block, &layout, AT) {
                    assert!(found.tags.len() <= block.len() / layout.tag_bytes());
                }
            }
        }
    }
}
