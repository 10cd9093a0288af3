//! Looking up block pointers. Pointer blocks carry no checksum, so every pointer is checked when it
//! is followed.

use super::{Mapping, MappingState};
use crate::{Error, Inode, Result, Volume};
use engine::Block;
use format::ext4::indirect::{DIRECT, PointerPath, pointer};
use units::{FileBlock, HomeBlock};

/// The path from the inode to a file block's pointer, as far as it exists.
pub(super) struct PointerWalk {
    /// Index of the pointer in each level.
    pub path: PointerPath,
    /// The pointer blocks that exist: below the inode, fewer than the path is long.
    pub blocks: Vec<Block>,
}

impl PointerWalk {
    /// Number of missing pointer blocks on the path.
    pub fn missing(&self) -> usize {
        self.path.indices().len() - 1 - self.blocks.len()
    }

    /// Calls `look` with the bytes of the last pointers that exist, and the index of the one on the
    /// path.
    pub fn with_last<T>(&self, inode: &Inode, look: impl FnOnce(&[u8], u32) -> T) -> T {
        let index = self.path.indices()[self.blocks.len()];
        match self.blocks.last() {
            None => look(&inode.fields.borrow().block, index),
            Some(block) => look(&block.bytes(), index),
        }
    }
}

impl Volume {
    /// A run of blocks or of holes that begins at `at` and ends with its pointer block at the
    /// latest.
    pub(super) async fn map_pointer(&self, inode: &Inode, at: FileBlock) -> Result<Mapping> {
        let Some(walk) = self.walk_pointers(inode, at).await? else {
            let count = u32::MAX - at.get();
            return Ok(Mapping { at, count: count.max(1), state: MappingState::Hole });
        };
        if walk.missing() > 0 {
            // A whole tree of `missing` levels of pointer blocks is absent; `at` is somewhere in
            // it.
            let bits = self.pointer_bits() * walk.missing() as u32;
            let place = walk.path.indices()[walk.blocks.len() + 1..]
                .iter()
                .fold(0u64, |place, index| place << self.pointer_bits() | u64::from(*index));
            let count = ((1u64 << bits) - place).min(u64::from(u32::MAX - at.get()).max(1));
            return Ok(Mapping { at, count: count as u32, state: MappingState::Hole });
        }
        let limit = self.pointers_in(&walk);
        let (home, count) = walk.with_last(inode, |bytes, index| run_of(bytes, index, limit));
        let Some(home) = home else { return Ok(Mapping { at, count, state: MappingState::Hole }) };
        if !self.block_is_usable(home, count.into()) {
            let why = format!("{count} blocks from {at} on map to {home}");
            return Err(Error::corrupt_inode(inode.number, why));
        }
        Ok(Mapping { at, count, state: MappingState::Written(home) })
    }

    /// Walks to the pointer of `at`; `None` beyond the reach of pointers.
    pub(super) async fn walk_pointers(
        &self,
        inode: &Inode,
        at: FileBlock,
    ) -> Result<Option<PointerWalk>> {
        let Some(path) = PointerPath::to(at, self.block_size().shift()) else { return Ok(None) };
        let mut walk = PointerWalk { path, blocks: Vec::new() };
        while walk.missing() > 0 {
            let Some(child) = walk.with_last(inode, pointer) else { break };
            if !self.block_is_usable(child, 1) {
                return Err(Error::corrupt_inode(
                    inode.number,
                    format!("a pointer block is {child}"),
                ));
            }
            let block = self.engine().metadata(child).await?;
            if !block.is_verified() {
                self.note_owned_blocks(child, 1);
                block.set_verified();
            }
            walk.blocks.push(block);
        }
        Ok(Some(walk))
    }

    /// Pointers in the last level of a complete walk: of a block, or the direct ones.
    pub(super) fn pointers_in(&self, walk: &PointerWalk) -> u32 {
        if walk.blocks.is_empty() { DIRECT } else { 1 << self.pointer_bits() }
    }
    pub(super) fn pointer_bits(&self) -> u32 {
        self.block_size().shift() - 2
    }
}

/// The run of consecutive blocks, or of holes, that begins with pointer `index` and ends before
/// `limit`.
pub(super) fn run_of(bytes: &[u8], index: u32, limit: u32) -> (Option<HomeBlock>, u32) {
    let first = pointer(bytes, index);
    let continues = |further: &u32| {
        let expected = first.map(|home| home.plus(u64::from(further - index)));
        pointer(bytes, *further) == expected
    };
    let count = 1 + (index + 1..limit).take_while(continues).count();
    (first, count as u32)
}
