//! Content of a transaction by which record formats bound its log blocks.

/// Content of a transaction, for the bound of its log blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Holdings {
    /// Blocks that may be logged whole: metadata, data, and those that open handles may add.
    pub blocks: u64,
    /// Ranges of other blocks, and their bytes.
    pub fragments: u64,
    pub fragment_bytes: u64,
    pub revokes: u64,
}

impl Holdings {
    /// Adds `blocks` blocks, logged whole or in part.
    pub fn and_blocks(self, blocks: u32) -> Holdings {
        Holdings { blocks: self.blocks + u64::from(blocks), ..self }
    }
}
