//! Changing an extent tree. All changes are one operation: some entries of a node are replaced by
//! others. A node that overflows is split, one that empties is freed, and either replaces entries
//! of its parent. So does a node whose first file block changed, since an index names it.

use super::extent_pieces::{Pieces, goal, join, split};
use super::extent_tree::{Path, end_of, with_node};
use crate::{AllocationRequest, Error, Inode, Result, Run, Volume};
use engine::{Block, Handle};
use format::ext4::extent::{self, Extent, ExtentEntries, ExtentEntry, Index};
use smallvec::smallvec;
use std::ops::Range;
use units::Refusal;
use units::{FileBlock, HomeBlock};

/// One change of a tree, without an await inside.
struct ExtentChange<'a> {
    inode: &'a Inode,
    handle: &'a mut Handle,
    seed: Option<u32>,
    /// Allocated blocks for new nodes, as many as [`splits`] counted.
    spare: Vec<HomeBlock>,
    /// Blocks of nodes that became empty.
    emptied: Vec<HomeBlock>,
}

impl Volume {
    /// Allocates a run for the hole at `request.at` and enters it.
    pub(super) async fn insert_extent(
        &self,
        handle: &mut Handle,
        mut request: AllocationRequest<'_>,
        unwritten: bool,
    ) -> Result<Run> {
        let (inode, at) = (request.inode, request.at);
        let path = self.extent_path(inode, at).await?;
        let (before, next) = path.neighbours(inode)?;
        request.goal = inode.mapping_cache.next_goal.take().or_else(|| goal(at, before, next));
        request.count =
            request.count.min(if unwritten { extent::UNWRITTEN_MAX } else { extent::WRITTEN_MAX });
        let run = self.allocate_blocks(handle, request).await?;
        let place = path.leaf().index.map_or(0, |index| index + 1);
        let extent = Extent { at, count: run.count, home: run.start, unwritten };
        if let Err(error) =
            self.replace_extents(handle, inode, &path, place..place, smallvec![extent]).await
        {
            self.free_content(handle, inode, run).await?;
            return Err(error);
        }
        self.count_blocks(inode, run.count.into());
        Ok(run)
    }

    /// Makes the blocks from `at` on written or unwritten, `count` at most and within one extent.
    pub(super) async fn set_extent_state(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        at: FileBlock,
        count: u32,
        unwritten: bool,
    ) -> Result<u32> {
        let from = u64::from(at.get());
        let to = from + u64::from(count);
        let Some((path, index, extent)) = self.first_extent(inode, from, to).await? else {
            return Ok(0);
        };
        if extent.at > at || extent.unwritten == unwritten {
            return Ok(0);
        }
        self.check_extent(inode, &extent)?;
        let end = to.min(end_of(&extent));
        let pieces = split(&extent, from, end, Some(unwritten));
        self.replace_extents(handle, inode, &path, index..index + 1, pieces).await?;
        inode.last_data_change.set(handle.transaction());
        Ok((end - from) as u32)
    }

    /// Frees the first extent's part in `from .. to`, or as much of its end as may be freed at
    /// once: no extent is split for that. Returns the file block to continue from, `to` when done.
    pub(super) async fn remove_extent(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        from: FileBlock,
        to: u64,
    ) -> Result<u64> {
        let from = u64::from(from.get());
        let Some((path, index, extent)) = self.first_extent(inode, from, to).await? else {
            return Ok(to);
        };
        self.check_extent(inode, &extent)?;
        let is_last = path.end >= to
            && with_node(inode, path.leaf().block.as_ref(), |node| index + 1 == node.len())?;
        let home = |at: u64| extent.home.plus(at - u64::from(extent.at.get()));
        let first = from.max(u64::from(extent.at.get()));
        let end = to.min(end_of(&extent));
        let begin = end - self.engine().freeable_in_one_handle(home(first), end - first);
        let pieces = split(&extent, begin, end, None);
        let start = home(begin);
        let _bits = self.hold_bitmaps(start, end - begin).await?;
        self.replace_extents(handle, inode, &path, index..index + 1, pieces).await?;
        self.count_blocks(inode, -((end - begin) as i64));
        self.free_content(handle, inode, Run { start, count: (end - begin) as u32 }).await?;
        Ok(match begin > first {
            true => from,
            false if is_last => to,
            false => end,
        })
    }

    /// The first extent with a block in `from .. to`, its place in its leaf and the path to it.
    async fn first_extent(
        &self,
        inode: &Inode,
        from: u64,
        to: u64,
    ) -> Result<Option<(Path, usize, Extent)>> {
        let mut from = from;
        while from < to {
            let path = self.extent_path(inode, FileBlock(from as u32)).await?;
            let (before, next) = path.neighbours(inode)?;
            let place = path.leaf().index;
            if let (Some(index), Some(extent)) =
                (place, before.filter(|extent| end_of(extent) > from))
            {
                return Ok(Some((path, index, extent)));
            }
            if let Some(extent) = next {
                let index = place.map_or(0, |index| index + 1);
                return Ok((u64::from(extent.at.get()) < to).then_some((path, index, extent)));
            }
            // This leaf has nothing more; the next one begins further on.
            from = path.end;
        }
        Ok(None)
    }

    /// Replaces extents `range` of the path's leaf by `pieces`, which are merged with each other
    /// and with the neighbours.
    async fn replace_extents(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        path: &Path,
        range: Range<usize>,
        pieces: Pieces,
    ) -> Result<()> {
        let entries = with_node(inode, path.leaf().block.as_ref(), |node| node.entries())?;
        let (range, pieces) = join(inode, &entries, range, pieces)?;
        let spare_count = splits(inode, path, range.len(), pieces.len())?;
        let spare = self.allocate_tree_blocks(handle, inode, spare_count).await?;
        inode.mapping_cache.clear();
        let seed = self.inode_checksum_seed(inode.number, inode.fields.borrow().generation);
        let mut change = ExtentChange { inode, handle, seed, spare, emptied: Vec::new() };
        change.replace(
            path,
            path.levels.len() - 1,
            range,
            pieces.into_iter().map(ExtentEntry::Extent).collect(),
        )?;
        let emptied = change.emptied;
        self.count_blocks(inode, spare_count as i64 - emptied.len() as i64);
        self.free_tree_blocks(handle, &emptied).await
    }
}

impl ExtentChange<'_> {
    /// Replaces entries `range` of the path's node at `level` (0 is the root) by `new`.
    fn replace(
        &mut self,
        path: &Path,
        level: usize,
        range: Range<usize>,
        new: ExtentEntries,
    ) -> Result<()> {
        let block = path.levels[level].block.as_ref();
        let (depth, capacity, mut entries) =
            with_node(self.inode, block, |node| (node.depth(), node.capacity(), node.entries()))?;
        if range.end > entries.len() {
            return Err(self.changed_behind());
        }
        let appended = range.end == entries.len();
        entries.drain(range.clone());
        entries.insert_many(range.start, new);
        let Some(block) = block else { return self.replace_root(depth, capacity, &entries) };
        let mut parent = ExtentEntries::new();
        if entries.is_empty() {
            self.emptied.push(block.number());
        } else if entries.len() <= capacity {
            self.write(block, range.start, &entries);
            parent.push(index_of(&entries, block.number()));
        } else {
            // A file that grows at its end leaves full nodes behind.
            let kept = if appended { capacity } else { entries.len().div_ceil(2) };
            let right = self.write_new(depth, &entries[kept..])?;
            self.write(block, range.start.min(kept), &entries[..kept]);
            parent.extend([index_of(&entries, block.number()), index_of(&entries[kept..], right)]);
        }
        self.replace_in_parent(path, level - 1, parent)
    }

    fn replace_in_parent(&mut self, path: &Path, level: usize, new: ExtentEntries) -> Result<()> {
        let parent = &path.levels[level];
        let index = parent.index.expect("an inner level leads on");
        let same = with_node(self.inode, parent.block.as_ref(), |node| {
            new.len() == 1 && index < node.len() && node.entry(index) == new[0]
        })?;
        if same { Ok(()) } else { self.replace(path, level, index..index + 1, new) }
    }

    /// Makes `entries` the root's, or if they are too many those of a new node to which the root
    /// refers.
    fn replace_root(&mut self, depth: u16, capacity: usize, entries: &[ExtentEntry]) -> Result<()> {
        let moved = match entries.len() > capacity {
            true => Some(index_of(entries, self.write_new(depth, entries)?)),
            false => None,
        };
        let mut fields = self.inode.fields.borrow_mut();
        let root = &mut fields.block[..extent::ROOT_BYTES];
        match moved {
            Some(index) => {
                extent::initialize(root, depth + 1);
                extent::replace_tail(root, 0, &[index]);
            }
            None => {
                extent::initialize(root, if entries.is_empty() { 0 } else { depth });
                extent::replace_tail(root, 0, entries);
            }
        }
        Ok(())
    }

    fn write_new(&mut self, depth: u16, entries: &[ExtentEntry]) -> Result<HomeBlock> {
        let Some(at) = self.spare.pop() else { return Err(self.changed_behind()) };
        let block = self.handle.create(at);
        let whole = self.handle.engine().block_size().whole();
        self.handle.change_within(&block, whole, |bytes| {
            extent::initialize(bytes, depth);
            extent::replace_tail(bytes, 0, entries);
            if let Some(seed) = self.seed {
                extent::write_checksum(bytes, seed);
            }
        });
        Ok(at)
    }

    /// Writes `entries` to the node, which has those before `first` already.
    fn write(&mut self, block: &Block, first: usize, entries: &[ExtentEntry]) {
        let whole = self.handle.engine().block_size().whole();
        // The count in the header, entries that moved on or were replaced, the checksum.
        self.handle.change_within(block, whole, |bytes| {
            extent::replace_tail(bytes, first, &entries[first..]);
            if let Some(seed) = self.seed {
                extent::write_checksum(bytes, seed);
            }
        });
    }

    /// The error of a changed tree: the lock on the inode keeps it fixed; only a block that two
    /// trees share can change during an await.
    fn changed_behind(&self) -> Error {
        Error::corrupt_inode(self.inode.number, "an extent node belongs to another tree as well")
    }
}

/// Number of new nodes needed to replace `removed` entries of the leaf by `added` ones.
fn splits(inode: &Inode, path: &Path, removed: usize, added: usize) -> Result<usize> {
    let mut needed = 0;
    let (mut removed, mut added) = (removed, added);
    for level in path.levels.iter().rev() {
        let (len, capacity) =
            with_node(inode, level.block.as_ref(), |node| (node.len(), node.capacity()))?;
        if len + added <= capacity + removed {
            return Ok(needed);
        }
        needed += 1;
        (removed, added) = (1, 2);
    }
    // The root overflows: the tree grows by a level.
    if path.levels.len() > usize::from(extent::DEPTH_MAX) {
        return Err(Refusal::FileTooLarge.into());
    }
    Ok(needed)
}

fn index_of(entries: &[ExtentEntry], child: HomeBlock) -> ExtentEntry {
    ExtentEntry::Index(Index { at: entries[0].at(), child })
}
