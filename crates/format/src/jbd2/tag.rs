use super::error::JournalFormatError;
use super::layout::{LogLayout, TagFormat};
use crate::field::{be16, be32, put16, put32};
use units::{BlockRange, HomeBlock, LogBlock};

/// Bits of `t_flags`.
pub(super) mod flag {
    pub const ESCAPE: u32 = 0x1;
    pub const SAME_UUID: u32 = 0x2;
    pub const DELETED: u32 = 0x4;
    pub const LAST: u32 = 0x8;
    /// Own tag flag: four bytes follow the tag, offset and length of the bytes in their home block.
    pub const MULTIWRITE: u32 = 0x10;
    /// Own tag flag, with MULTIWRITE: all other bytes of the home block become zero.
    pub const BASE_ZERO: u32 = 0x20;
    /// Own tag flag for a whole block in scattered logs: durability is enough for its file.
    pub const DURABLE_ONLY: u32 = 0x40;
    pub const OF_JBD2: u32 = ESCAPE | SAME_UUID | DELETED | LAST;
    pub const OF_PARTS: u32 = MULTIWRITE | BASE_ZERO;
}
/// Bytes of the range that follows a multiwrite tag, and of the UUID that follows a tag without
/// SAME_UUID.
pub(super) const RANGE_BYTES: usize = 4;
pub(super) const UUID_BYTES: usize = 16;

/// One record of a descriptor block: the home of a log block, or of a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockTag {
    pub home: HomeBlock,
    /// The log block had its first four bytes, the journal's magic, zeroed. Among the tags that
    /// share a multiwrite block only the first is flagged.
    pub escaped: bool,
    /// The block was freed by this transaction (never written today).
    pub deleted: bool,
    /// Checksum of the log block as it stands in the log: 32 bits (v3), its low 16 bits (v2), or 0.
    pub checksum: u32,
    /// Durability is enough for the block's file. Set for whole blocks only.
    pub durable_only: bool,
    /// Fragment; `None` if the log block is the whole home block (a regular block).
    pub fragment: Option<Fragment>,
}

/// Bytes of a home block, kept in a multiwrite block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Position in the home block. Not empty, within the block.
    pub range: BlockRange,
    /// Whether all other bytes of the home block are zero, regardless of the disk's content.
    pub base_zero: bool,
}

impl BlockTag {
    /// Length in a descriptor block, in bytes, without a UUID.
    pub fn encoded_length(&self, layout: &LogLayout) -> usize {
        layout.tag_bytes() + if self.fragment.is_some() { RANGE_BYTES } else { 0 }
    }

    /// Whether the tag's checksum is that of a log block whose full checksum is `sum`.
    pub fn matches(&self, sum: u32, layout: &LogLayout) -> bool {
        match layout.tags {
            TagFormat::ChecksumV3 => self.checksum == sum,
            TagFormat::ChecksumV2 => self.checksum & 0xffff == sum & 0xffff,
            TagFormat::Plain => true,
        }
    }

    /// Appends the tag; `position` has the flags SAME_UUID and LAST. A tag without SAME_UUID gets
    /// the UUID.
    pub(super) fn append(&self, layout: &LogLayout, position: u32, bytes: &mut Vec<u8>) {
        let mut flags = position;
        flags |= if self.escaped { flag::ESCAPE } else { 0 }
            | if self.deleted { flag::DELETED } else { 0 };
        if let Some(fragment) = self.fragment {
            assert!(layout.multiwrite, "multiwrite tags only in extended journals");
            flags |= flag::MULTIWRITE | if fragment.base_zero { flag::BASE_ZERO } else { 0 };
        }
        if self.durable_only {
            assert!(
                layout.scattered && self.fragment.is_none(),
                "{} cannot say that it stays",
                self.home
            );
            flags |= flag::DURABLE_ONLY;
        }
        let number = self.home.get();
        assert!(
            layout.wide || number <= u64::from(u32::MAX),
            "{} needs a 64-bit journal",
            self.home
        );
        let at = bytes.len();
        bytes.resize(at + layout.tag_bytes(), 0);
        let tag = &mut bytes[at..];
        put32(tag, 0, number as u32);
        if layout.tags == TagFormat::ChecksumV3 {
            put32(tag, 4, flags);
            put32(tag, 8, (number >> 32) as u32);
            put32(tag, 12, self.checksum);
        } else {
            put16(tag, 4, self.checksum as u16);
            put16(tag, 6, flags as u16);
            if layout.wide {
                put32(tag, 8, (number >> 32) as u32);
            }
        }
        if let Some(Fragment { range, .. }) = self.fragment {
            bytes.extend((range.start as u16).to_be_bytes());
            bytes.extend((range.len() as u16).to_be_bytes());
        }
        if position & flag::SAME_UUID == 0 {
            bytes.extend(layout.uuid);
        }
    }

    /// Parses the tag at byte `from` of a descriptor block. Returns it, the offset behind it, and
    /// whether it is the last.
    pub(super) fn parse(
        block: &[u8],
        from: usize,
        layout: &LogLayout,
        at: LogBlock,
    ) -> Result<(BlockTag, usize, bool), JournalFormatError> {
        let wrong = |why: String| JournalFormatError::Block { at, what: "descriptor block", why };
        let mut next = from + layout.tag_bytes();
        let v3 = layout.tags == TagFormat::ChecksumV3;
        let flags = if v3 { be32(block, from + 4) } else { u32::from(be16(block, from + 6)) };
        let allowed = flag::OF_JBD2
            | if layout.multiwrite { flag::OF_PARTS } else { 0 }
            | if layout.scattered { flag::DURABLE_ONLY } else { 0 };
        if flags & !allowed != 0 {
            return Err(wrong(format!(
                "the tag at byte {from} has unknown flags {:#x}",
                flags & !allowed
            )));
        }
        let checksum = if v3 { be32(block, from + 12) } else { u32::from(be16(block, from + 4)) };
        let high = if layout.wide { be32(block, from + 8) } else { 0 };
        let mut fragment = None;
        if flags & flag::MULTIWRITE != 0 {
            if next + RANGE_BYTES > layout.end() {
                return Err(wrong(format!("the multiwrite tag at byte {from} is cut off")));
            }
            let (start, length) = (u32::from(be16(block, next)), u32::from(be16(block, next + 2)));
            let range = BlockRange::new(start, start + length);
            if range.is_empty() || !layout.block_size.whole().covers(range) {
                return Err(wrong(format!(
                    "the tag at byte {from} is for bytes {start} + {length} of a block"
                )));
            }
            fragment = Some(Fragment { range, base_zero: flags & flag::BASE_ZERO != 0 });
            next += RANGE_BYTES;
        }
        if flags & flag::SAME_UUID == 0 {
            next += UUID_BYTES;
        }
        let tag = BlockTag {
            home: HomeBlock(u64::from(high) << 32 | u64::from(be32(block, from))),
            escaped: flags & flag::ESCAPE != 0,
            deleted: flags & flag::DELETED != 0,
            checksum,
            durable_only: flags & flag::DURABLE_ONLY != 0,
            fragment,
        };
        Ok((tag, next, flags & flag::LAST != 0))
    }
}
