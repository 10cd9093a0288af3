//! The mapping from file blocks to volume blocks: extent trees and indirect blocks behind one
//! interface.
//!
//! The caller holds the inode's lock (write, where a handle is passed), so that the mapping is
//! fixed across awaits. A change reads and allocates first and then alters all blocks of the tree
//! in one stretch: an error leaves the tree as it was.

mod cache;
mod extent_change;
mod extent_pieces;
mod extent_tree;
mod indirect;
mod indirect_change;

pub use cache::MappingCache;

use crate::{AllocationRequest, Caller, Error, Inode, Purpose, Result, Run, Volume};
use engine::{Contents, Credits, Handle};
use format::ext4::{extent, feature, indirect as pointers, inode::flags};
use units::Refusal;
use units::{FileBlock, HomeBlock};

/// Homes of `count` consecutive blocks of a file, from `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub at: FileBlock,
    /// Blocks, at least 1.
    pub count: u32,
    pub state: MappingState,
}

/// The home is that of the mapping's first block; the others follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingState {
    Hole,
    Written(HomeBlock),
    /// Allocated, reads as zeros.
    Unwritten(HomeBlock),
}

impl Mapping {
    /// The home of the first block, unless it is a hole.
    pub fn home(&self) -> Option<HomeBlock> {
        match self.state {
            MappingState::Hole => None,
            MappingState::Written(home) | MappingState::Unwritten(home) => Some(home),
        }
    }

    /// The part from `at` on, `max` blocks at most; `None` when `at` lies outside.
    pub(crate) fn part(&self, at: FileBlock, max: u32) -> Option<Mapping> {
        let skipped =
            at.get().checked_sub(self.at.get()).filter(|skipped| *skipped < self.count)?;
        let state = match self.state {
            MappingState::Hole => MappingState::Hole,
            MappingState::Written(home) => MappingState::Written(home.plus(skipped.into())),
            MappingState::Unwritten(home) => MappingState::Unwritten(home.plus(skipped.into())),
        };
        Some(Mapping { at, count: (self.count - skipped).min(max), state })
    }
}

/// Use of a hole that [`Volume::map_or_allocate`] fills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// File data that the caller writes in this very handle, with base zero.
    Written,
    /// Space that reads as zeros until it is written (extents only).
    Unwritten,
    /// A directory's block, which the caller creates in this very handle.
    Directory,
}

/// Result of [`Volume::map_or_allocate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    pub mapping: Mapping,
    /// Whether the mapping was a hole before: the old content of its blocks is worthless.
    pub fresh: bool,
}

/// Progress of a step of [`Volume::remove_blocks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalProgress {
    Done,
    /// The transaction is full: store the inode, stop the handle, start another and call again.
    More,
}

impl Volume {
    /// Maps block `at`, with as many of the `max` blocks from there on as continue it. A hole may
    /// be cut short of the next mapped block.
    pub async fn map(&self, inode: &Inode, at: FileBlock, max: u32) -> Result<Mapping> {
        if let Some(mapping) = self.map_from_memory(inode, at, max) {
            return Ok(mapping);
        }
        // Boxed, as it is rare: otherwise every future that maps would be as long as a walk down
        // the tree.
        let whole = match has_extents(inode)? {
            true => Box::pin(self.map_extent(inode, at)).await,
            false => Box::pin(self.map_pointer(inode, at)).await,
        };
        let whole = whole.map_err(|error| self.note_damage(error))?;
        if let Some(home) = whole.home() {
            self.note_owned_blocks(home, whole.count.into());
        }
        inode.mapping_cache.remember(whole);
        Ok(whole.part(at, max).expect("the mapping that was asked for"))
    }

    /// The mapping if it is known without looking at the tree.
    pub(crate) fn map_from_memory(
        &self,
        inode: &Inode,
        at: FileBlock,
        max: u32,
    ) -> Option<Mapping> {
        inode.mapping_cache.find(at, max)
    }

    /// Maps as [`Volume::map`] does, and fills a hole, by one contiguous run of at most `count`
    /// blocks, from the reserve if `caller` may. The caller stores the inode. `ENOSPC`: nothing
    /// changed, see [`Volume::allocate_blocks`]. Credits: [`Volume::credits_map`].
    pub async fn map_or_allocate(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        caller: &Caller<'_>,
        at: FileBlock,
        count: u32,
        how: Allocate,
    ) -> Result<Allocated> {
        let mapping = self.map(inode, at, count).await?;
        if mapping.state != MappingState::Hole {
            return Ok(Allocated { mapping, fresh: false });
        }
        let remaining = self.file_blocks_max(inode).saturating_sub(at.get().into());
        if remaining == 0 {
            return Err(Refusal::FileTooLarge.into());
        }
        let purpose = if how == Allocate::Directory { Purpose::Directory } else { Purpose::Data };
        let use_reserve = self.may_use_reserve(caller);
        let count = u64::from(mapping.count).min(remaining) as u32;
        let request = AllocationRequest { inode, goal: None, count, at, purpose, use_reserve };
        let extents = has_extents(inode)?;
        let before = self.before(handle, inode);
        let run = match extents {
            true => self.insert_extent(handle, request, how == Allocate::Unwritten).await,
            false if how == Allocate::Unwritten => Err(Refusal::Unsupported.into()),
            false => self.insert_pointers(handle, request).await,
        };
        let run = self.whole(handle, before, run).map_err(|error| self.note_damage(error))?;
        inode.last_data_change.set(handle.transaction());
        let state = match how {
            Allocate::Unwritten => MappingState::Unwritten(run.start),
            Allocate::Written | Allocate::Directory => MappingState::Written(run.start),
        };
        Ok(Allocated { mapping: Mapping { at, count: run.count, state }, fresh: true })
    }

    /// Turns unwritten blocks from `at` on into written ones: `count` at most, and within one
    /// extent. The caller writes them in this very handle, with base zero. Returns their number, 0
    /// if the first is not unwritten. Credits: [`Volume::credits_map`].
    pub async fn mark_written(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        at: FileBlock,
        count: u32,
    ) -> Result<u32> {
        let before = self.before(handle, inode);
        let changed = self.set_extent_state(handle, inode, at, count, false).await;
        self.whole(handle, before, changed).map_err(|error| self.note_damage(error))
    }

    /// Turns written blocks into unwritten ones, which read as zeros from now on. Extents only.
    pub async fn mark_unwritten(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        at: FileBlock,
        count: u32,
    ) -> Result<u32> {
        let before = self.before(handle, inode);
        let changed = self.set_extent_state(handle, inode, at, count, true).await;
        self.whole(handle, before, changed).map_err(|error| self.note_damage(error))
    }

    /// Frees the blocks `from .. to` of the file (to its last one for `None`) and tree blocks that
    /// become empty, as far as the handle's transaction allows. The tree is consistent after every
    /// step. The caller stores the inode. Credits: [`Volume::credits_remove`], the handle is
    /// extended as needed.
    pub async fn remove_blocks(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        from: FileBlock,
        to: Option<FileBlock>,
    ) -> Result<RemovalProgress> {
        self.drop_preallocation(inode.number);
        let to = to.map_or(1 << 32, |to| u64::from(to.get()));
        let extents = has_extents(inode)?;
        let (mut from, mut first) = (u64::from(from.get()), true);
        while from < to {
            if !first {
                runtime::yield_now().await;
                if !handle.extend(self.credits_remove(inode)) {
                    return Ok(RemovalProgress::More);
                }
            }
            let before = self.before(handle, inode);
            let next = match extents {
                true => self.remove_extent(handle, inode, FileBlock(from as u32), to).await,
                false => self.remove_pointers(handle, inode, FileBlock(from as u32), to).await,
            };
            let next = self.whole(handle, before, next).map_err(|error| self.note_damage(error))?;
            inode.last_data_change.set(handle.transaction());
            (from, first) = (next, false);
        }
        Ok(RemovalProgress::Done)
    }

    /// Credits of one [`Volume::map_or_allocate`] or of one extent's change of state, the inode's
    /// block included.
    pub fn credits_map(&self, inode: &Inode) -> Credits {
        // The inode + the data's bitmap and descriptor + the blocks of the tree on the way. For
        // every level that has to be split or made: a new block, its bitmap and its descriptor.
        let depth = tree_depth(inode);
        self.credits_inode()
            + self.credits_allocate(1 + depth + 1)
            + Credits(depth)
            + Credits(depth + 1)
    }

    /// Credits of one step of [`Volume::remove_blocks`], the inode's block included.
    pub fn credits_remove(&self, inode: &Inode) -> Credits {
        // As credits_map, since a hole punched into an extent may split nodes. Instead of
        // allocating data it counts bitmaps and descriptors of one freed run (as long as the
        // longest extent) and of every emptied node.
        let depth = tree_depth(inode);
        self.credits_map(inode)
            + self.credits_free(1 + depth, u64::from(extent::WRITTEN_MAX))
            + self.engine().credits_revokes()
    }

    /// Number of blocks that the file's kind of mapping can address.
    pub(crate) fn file_blocks_max(&self, inode: &Inode) -> u64 {
        match self.maps_by_extents(inode) {
            true => (1 << 32) - 1,
            false => pointers::blocks_max(self.block_size().shift()),
        }
    }

    /// Whether the inode has an extent tree, or will have one when its content no longer fits into
    /// it.
    pub(crate) fn maps_by_extents(&self, inode: &Inode) -> bool {
        inode.has_flag(flags::EXTENTS) || self.is_inline(inode) && self.has(feature::EXTENTS)
    }

    /// Allocates blocks for the tree itself: all `count` of them or none. They come out of the
    /// reserve if need be, since without them the file's own space can neither be freed nor written
    /// to.
    async fn allocate_tree_blocks(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        count: usize,
    ) -> Result<Vec<HomeBlock>> {
        let mut blocks = Vec::with_capacity(count);
        while blocks.len() < count {
            let wanted = (count - blocks.len()) as u32;
            let (at, purpose) = (FileBlock(0), Purpose::Tree);
            let request = AllocationRequest {
                inode,
                goal: None,
                count: wanted,
                at,
                purpose,
                use_reserve: true,
            };
            match self.allocate_blocks(handle, request).await {
                Ok(run) => {
                    blocks.extend((0..u64::from(run.count)).map(|index| run.start.plus(index)))
                }
                Err(error) => {
                    self.free_tree_blocks(handle, &blocks).await?;
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }

    async fn free_tree_blocks(&self, handle: &mut Handle, blocks: &[HomeBlock]) -> Result<()> {
        for &block in blocks {
            self.free_blocks(handle, block, 1, Contents::Metadata).await?;
        }
        Ok(())
    }

    /// Frees content (not the tree's blocks) of the inode.
    async fn free_content(&self, handle: &mut Handle, inode: &Inode, run: Run) -> Result<()> {
        let contents = if inode.is_regular() { Contents::Data } else { Contents::Metadata };
        self.free_blocks(handle, run.start, run.count.into(), contents).await
    }

    /// Accounts for blocks that the inode gained (or lost, negative).
    fn count_blocks(&self, inode: &Inode, blocks: i64) {
        let sectors = blocks << (self.block_size().shift() - 9);
        let mut fields = inode.fields.borrow_mut();
        // A damaged count must not panic; e2fsck corrects it.
        fields.sectors = fields.sectors.saturating_add_signed(sectors);
    }
}

/// Whether the inode has an extent tree; an error if it has neither tree nor pointers.
pub(crate) fn has_extents(inode: &Inode) -> Result<bool> {
    let fields = inode.fields.borrow();
    if fields.flags & flags::INLINE_DATA != 0 {
        return Err(Refusal::Unsupported.into());
    }
    if fields.block.len() < extent::ROOT_BYTES {
        return Err(Error::corrupt_inode(inode.number, "it has no block map"));
    }
    Ok(fields.flags & flags::EXTENTS != 0)
}

/// Blocks between the inode and the data, as deep as one insertion can make it now.
pub(crate) fn tree_depth(inode: &Inode) -> u32 {
    if !inode.has_flag(flags::EXTENTS) {
        return 3;
    }
    let fields = inode.fields.borrow();
    let depth = extent::ExtentNode::parse(&fields.block).map_or(0, |root| root.depth());
    u32::from(depth)
}
