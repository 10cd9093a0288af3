//! Looking into an extent tree. A node's checksum is checked when the node comes from the disk. Its
//! entries and every step down (depth, borders, usable blocks) are checked each time. So no image
//! can make a walk loop.

use super::{Mapping, MappingState};
use crate::{Error, Inode, Result, Volume};
use engine::Block;
use format::ext4::extent::{Extent, ExtentEntry, ExtentError, ExtentNode};
use smallvec::SmallVec;
use units::{FileBlock, HomeBlock};

/// One node on the path down.
pub(super) struct Level {
    /// Block of the node; `None` for the root, which is in the inode.
    pub block: Option<Block>,
    /// The entry that leads on, or in a leaf the last that begins at or before the file block
    /// looked for.
    pub index: Option<usize>,
}

/// The path from the root to the leaf where a file block is or would be.
pub(super) struct Path {
    pub levels: SmallVec<[Level; 1]>,
    /// File block at which the next leaf begins; 2^32 after the last.
    pub end: u64,
}

/// The next step down from a node.
struct Step {
    depth: u16,
    index: Option<usize>,
    child: Option<(FileBlock, HomeBlock)>,
    end: u64,
}

impl Volume {
    /// The whole extent or hole that `at` is in.
    pub(super) async fn map_extent(&self, inode: &Inode, at: FileBlock) -> Result<Mapping> {
        let path = self.extent_path(inode, at).await?;
        let (before, next) = path.neighbours(inode)?;
        if let Some(extent) = before.filter(|extent| end_of(extent) > u64::from(at.get())) {
            self.check_extent(inode, &extent)?;
            let state = match extent.unwritten {
                true => MappingState::Unwritten(extent.home),
                false => MappingState::Written(extent.home),
            };
            return Ok(Mapping { at: extent.at, count: extent.count, state });
        }
        let end = next.map_or(path.end, |extent| extent.at.get().into());
        let count = (end - u64::from(at.get())).min(u32::MAX.into()) as u32;
        Ok(Mapping { at, count, state: MappingState::Hole })
    }

    pub(super) async fn extent_path(&self, inode: &Inode, at: FileBlock) -> Result<Path> {
        let mut path = Path { levels: SmallVec::new(), end: 1 << 32 };
        let (mut block, mut expected, mut begin) = (None, None, 0);
        loop {
            let step =
                with_node(inode, block.as_ref(), |node| step_down(&node, at, begin, path.end))?
                    .map_err(|why| Error::corrupt_inode(inode.number, why))?;
            if expected.is_some_and(|expected| expected != step.depth) {
                return Err(Error::corrupt_inode(
                    inode.number,
                    "an extent node has the wrong depth",
                ));
            }
            path.levels.push(Level { block, index: step.index });
            path.end = step.end;
            let Some((first, child)) = step.child else { return Ok(path) };
            if !self.block_is_usable(child, 1) {
                return Err(Error::corrupt_inode(
                    inode.number,
                    format!("extent index points to {child}"),
                ));
            }
            block = Some(self.extent_block(inode, child).await?);
            (expected, begin) = (Some(step.depth - 1), u64::from(first.get()));
        }
    }

    /// A node other than the root, verified.
    async fn extent_block(&self, inode: &Inode, at: HomeBlock) -> Result<Block> {
        let block = self.engine().metadata(at).await?;
        if !block.is_verified() {
            let bytes = block.bytes();
            let damaged = |error: ExtentError| {
                Error::corrupt_block(
                    &format!("extent tree of {}", inode.number),
                    at,
                    error.to_string(),
                )
            };
            let node = ExtentNode::parse(&bytes).map_err(damaged)?;
            let generation = inode.fields.borrow().generation;
            if let Some(seed) = self.inode_checksum_seed(inode.number, generation) {
                node.verify_checksum(seed).map_err(damaged)?;
            }
            self.note_owned_blocks(at, 1);
            block.set_verified();
        }
        Ok(block)
    }

    /// Checks that the extent's blocks may be a file's.
    pub(super) fn check_extent(&self, inode: &Inode, extent: &Extent) -> Result<()> {
        match self.block_is_usable(extent.home, extent.count.into()) {
            true => Ok(()),
            false => {
                let why =
                    format!("{} blocks from {} on map to {}", extent.count, extent.at, extent.home);
                Err(Error::corrupt_inode(inode.number, why))
            }
        }
    }
}

impl Path {
    pub fn leaf(&self) -> &Level {
        self.levels.last().expect("a path has a root")
    }

    /// The extent that begins at or before the block looked for, and the one after, in this leaf.
    pub fn neighbours(&self, inode: &Inode) -> Result<(Option<Extent>, Option<Extent>)> {
        let leaf = self.leaf();
        with_node(inode, leaf.block.as_ref(), |node| {
            let next = leaf.index.map_or(0, |index| index + 1);
            let extent = |index: usize| match (index < node.len()).then(|| node.entry(index)) {
                Some(ExtentEntry::Extent(extent)) => Some(extent),
                _ => None,
            };
            (leaf.index.and_then(extent), extent(next))
        })
    }
}

/// Calls `look` with the node: the root for `None`.
pub(super) fn with_node<T>(
    inode: &Inode,
    block: Option<&Block>,
    look: impl FnOnce(ExtentNode<'_>) -> T,
) -> Result<T> {
    let damaged = |error: ExtentError| Error::corrupt_inode(inode.number, error.to_string());
    match block {
        None => Ok(look(ExtentNode::parse(&inode.fields.borrow().block).map_err(damaged)?)),
        // Checked each time: on a damaged volume the block may belong to another structure as well,
        // which changes it.
        Some(block) => Ok(look(ExtentNode::parse(&block.bytes()).map_err(damaged)?)),
    }
}

/// First file block behind the extent.
pub(super) fn end_of(extent: &Extent) -> u64 {
    u64::from(extent.at.get()) + u64::from(extent.count)
}

/// The step down from `node`, whose entries must lie in `begin .. end`; or its damage.
fn step_down(
    node: &ExtentNode<'_>,
    at: FileBlock,
    begin: u64,
    end: u64,
) -> std::result::Result<Step, String> {
    if !node.is_empty() {
        let last_end = match node.entry(node.len() - 1) {
            ExtentEntry::Extent(extent) => end_of(&extent),
            ExtentEntry::Index(index) => u64::from(index.at.get()) + 1,
        };
        if u64::from(node.entry(0).at().get()) < begin || last_end > end {
            return Err(format!("an extent node reaches outside {begin} .. {end}"));
        }
    }
    let depth = node.depth();
    if depth == 0 {
        return Ok(Step { depth, index: node.find(at), child: None, end });
    }
    let index = node.find(at).unwrap_or(0);
    let end = if index + 1 < node.len() { node.entry(index + 1).at().get().into() } else { end };
    let ExtentEntry::Index(found) = node.entry(index) else {
        return Err("an inner extent node has extents".into());
    };
    Ok(Step { depth, index: Some(index), child: Some((found.at, found.child)), end })
}
