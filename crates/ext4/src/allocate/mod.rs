//! The block allocator: a run near the goal, and for file data a window behind it. Later requests
//! of the same file are served from that window, so that files that grow alternately do not
//! interleave block by block.

mod block_set;
mod free;
mod search;
mod trim;
mod withheld;

pub(crate) use free::FreesInProgress;
pub(crate) use trim::Trims;
pub(crate) use withheld::Withheld;

use crate::groups::Bits;
use crate::volume::kept_for_trees;
use crate::{Error, Inode, Result, Volume};
use engine::Handle;
use format::ext4::bitmap;
use std::ops::Range;
use units::Refusal;
use units::{FileBlock, GroupNumber, HomeBlock, InodeNumber};

/// Bytes of a file's first window: most small files and logs that are rotated early stay whole.
const WINDOW_MIN: u64 = 64 << 10;
/// Bytes of the longest window: reading it takes a disk far longer than the seek before it.
const WINDOW_MAX: u64 = 8 << 20;
/// Blocks of a further window for each block of the file before it, so that the number of a file's
/// runs grows with the logarithm of its size.
const WINDOW_GROWTH: u64 = 4;
/// Groups with free blocks after which the best run seen is accepted.
const GROUPS_COMPARED: u32 = 16;

/// Use of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// File content: gets a preallocation window that grows with the file.
    Data,
    /// Extended-attribute blocks: near the inode, one at a time.
    Metadata,
    /// Extent-tree and indirect blocks, which alone may take what is kept for them.
    Tree,
    /// Directory blocks.
    Directory,
}

/// A request for `count` blocks for `inode`.
#[derive(Clone, Copy)]
pub struct AllocationRequest<'a> {
    pub inode: &'a Inode,
    /// Best place: after the block before `at` in the file. `None`: the allocator chooses.
    pub goal: Option<HomeBlock>,
    /// Number of blocks, at least 1; fewer may be given.
    pub count: u32,
    /// Position in the file (0 for blocks that are not content).
    pub at: FileBlock,
    pub purpose: Purpose,
    /// May take the blocks reserved for root ([`Volume::may_use_reserve`]).
    pub use_reserve: bool,
}

/// Contiguous blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub start: HomeBlock,
    pub count: u32,
}

/// Free blocks of one group, to be taken before the next await.
struct FreeFound {
    group: GroupNumber,
    bits: Bits,
    run: Range<u32>,
}

impl Volume {
    /// Takes 1 to `request.count` contiguous blocks. The caller accounts for `sectors` of the
    /// inode. `ENOSPC`: the caller undoes or keeps what it has, stops its handle, and asks
    /// [`Volume::retry_allocation`]. Credits: [`Volume::credits_allocate`]`(1)`.
    pub async fn allocate_blocks(
        &self,
        handle: &mut Handle,
        request: AllocationRequest<'_>,
    ) -> Result<Run> {
        assert!(request.count > 0);
        self.release_committed();
        let available = self.available_blocks(request.purpose, request.use_reserve);
        if available == 0 {
            return Err(Refusal::NoSpace.into());
        }
        let count = request.count.min(available.min(u64::from(u32::MAX)) as u32);
        if request.purpose == Purpose::Data {
            if let Some(run) = self.allocate_from_window(handle, &request, count).await? {
                return Ok(run);
            }
        }
        let window = match request.purpose {
            Purpose::Data => self.window_size(request.at),
            _ => 0,
        };
        let wanted = count.max(window);
        let goal = request.goal.unwrap_or_else(|| self.default_goal(request.inode));
        let groups = self.groups_for(request.inode);
        let found = match self.find(goal, wanted, groups).await? {
            Some(found) => found,
            None => {
                // Windows are given up before any request fails with ENOSPC. A commit may have
                // ended while bitmaps were read.
                self.drop_all_windows();
                self.release_committed();
                let found = self.find_beside_trims(goal, wanted, groups).await?;
                found.ok_or_else(|| self.no_space())?
            }
        };
        let start = self.superblock.borrow().group_start(found.group).plus(found.run.start.into());
        let length = found.run.len() as u32;
        let run = Run { start, count: count.min(length) };
        self.check_free_blocks(found.group, start, run.count)?;
        self.take(handle, found, run);
        if window > 0 && length > run.count {
            let rest = start.get() + u64::from(run.count)..start.get() + u64::from(length);
            self.add_window(request.inode, rest);
        }
        Ok(run)
    }

    /// Releases the inode's preallocation: at the end of its use, or on truncate.
    pub fn drop_preallocation(&self, inode: InodeNumber) {
        let range = self.withheld.borrow_mut().remove_window(inode);
        range.into_iter().for_each(|range| self.give_back(range));
    }

    /// Blocks that a request may still take: free ones less those freed by uncommitted
    /// transactions, less the reserve, and less what is kept for trees. Windows count as free,
    /// since they are given up when space is short.
    fn available_blocks(&self, purpose: Purpose, use_reserve: bool) -> u64 {
        let superblock = self.superblock.borrow();
        let reserve = if use_reserve { 0 } else { superblock.reserved_blocks };
        let kept = match purpose {
            Purpose::Tree => 0,
            _ if units::fault!("nothing-kept-for-trees") => 0,
            _ => kept_for_trees(&superblock),
        };
        superblock
            .free_blocks
            .saturating_sub(self.withheld.borrow().freed_blocks())
            .saturating_sub(reserve)
            .saturating_sub(kept)
    }

    /// The window's size in blocks for a file whose block `at` is allocated: a multiple of the
    /// file's length, within bounds, and small when all windows together would take more than a
    /// part of the free space.
    fn window_size(&self, at: FileBlock) -> u32 {
        let (shift, windows) =
            (self.block_size().shift(), self.withheld.borrow().window_count() as u64);
        let share = self.superblock.borrow().free_blocks / (4 * (windows + 4));
        let grown = (u64::from(at.get()) * WINDOW_GROWTH).next_power_of_two();
        grown.max(WINDOW_MIN >> shift).min(self.window_max().into()).min(share) as u32
    }

    /// The longest window, in blocks. Groups that are partly used have a run of a quarter more
    /// often than not.
    fn window_max(&self) -> u32 {
        let quarter = self.superblock.borrow().blocks_per_group / 4;
        quarter.min((WINDOW_MAX >> self.block_size().shift()) as u32).max(1)
    }

    /// The default goal: the block that the file asked for, or the first one of the inode's group.
    fn default_goal(&self, inode: &Inode) -> HomeBlock {
        if let Some(goal) = inode.mapping_cache.first_goal.get() {
            return goal;
        }
        let superblock = self.superblock.borrow();
        superblock.group_start(superblock.group_of_inode(inode.number).0)
    }

    /// Serves the request from the inode's window if the goal lies in it. A window elsewhere is
    /// given up: the file continues at another place.
    async fn allocate_from_window(
        &self,
        handle: &mut Handle,
        request: &AllocationRequest<'_>,
        count: u32,
    ) -> Result<Option<Run>> {
        let Some(window) = self.withheld.borrow().window(request.inode.number) else {
            return Ok(None);
        };
        let start = request.goal.map_or(window.start, HomeBlock::get);
        if !window.contains(&start) {
            self.drop_preallocation(request.inode.number);
            return Ok(None);
        }
        let (group, first) = self.superblock.borrow().group_of_block(HomeBlock(start));
        let bits = self.block_bitmap(group).await?;
        // Another task short of space may have taken the window during the await.
        if self.withheld.borrow().window(request.inode.number) != Some(window.clone()) {
            return Ok(None);
        }
        let run = Run { start: HomeBlock(start), count: count.min((window.end - start) as u32) };
        self.drop_preallocation(request.inode.number);
        if self.groups.state(group).damaged {
            return Ok(None);
        }
        self.check_free_blocks(group, run.start, run.count)?;
        let found = FreeFound { group, bits, run: first..first + run.count };
        if !found.bits.all_clear(found.run.clone()) {
            self.groups.mark_damaged(group);
            return Ok(None);
        }
        self.take(handle, found, run);
        for rest in [window.start..start, start + u64::from(run.count)..window.end] {
            // The longer part remains the window: normally there is only the one behind.
            if rest.start < rest.end
                && self.withheld.borrow().window(request.inode.number).is_none()
            {
                self.add_window(request.inode, rest);
            }
        }
        Ok(Some(run))
    }

    /// Number of groups, from the first on, in which the inode can have blocks.
    fn groups_for(&self, inode: &Inode) -> u32 {
        match self.maps_by_extents(inode) {
            true => self.groups.count(),
            false => self.superblock.borrow().groups_for_pointers(),
        }
    }

    /// A run near `goal` in the first `groups`: in its group, else in the groups behind it, around
    /// the volume. Short runs are taken only when no long one is near.
    async fn find(&self, goal: HomeBlock, wanted: u32, groups: u32) -> Result<Option<FreeFound>> {
        let good = wanted.min(self.window_max());
        match self.find_near(goal, wanted, good, groups).await? {
            None if good > 1 => self.find_near(goal, wanted, 1, groups).await,
            found => Ok(found),
        }
    }

    /// [`Volume::find`] for runs of `least` blocks; only the goal itself is taken however short.
    async fn find_near(
        &self,
        goal: HomeBlock,
        wanted: u32,
        least: u32,
        groups: u32,
    ) -> Result<Option<FreeFound>> {
        let (first, within) = {
            let superblock = self.superblock.borrow();
            let inside =
                goal.get() >= superblock.first_data_block.into() && goal.get() < superblock.blocks;
            let place = inside.then(|| superblock.group_of_block(goal));
            place.filter(|(group, _)| group.get() < groups).unwrap_or((GroupNumber(0), 0))
        };
        let mut best: Option<(GroupNumber, usize)> = None;
        let mut compared = 0;
        for step in 0..groups {
            let group = GroupNumber((first.get() + step) % groups);
            let state = self.groups.state(group);
            let needed = if step == 0 { 1 } else { least };
            if state.damaged || state.descriptor.free_blocks.saturating_sub(state.withheld) < needed
            {
                continue;
            }
            let goal = if step == 0 { within } else { 0 };
            let Some(found) = self.find_in(group, goal, wanted).await? else { continue };
            if found.run.len() >= wanted as usize || step == 0 && found.run.start == within {
                return Ok(Some(found));
            }
            compared += 1;
            let length = found.run.len();
            if length >= least as usize && best.is_none_or(|(_, longest)| length > longest) {
                best = Some((group, length));
            }
            if compared == GROUPS_COMPARED {
                break;
            }
        }
        let Some((group, _)) = best else { return Ok(None) };
        let goal = if group == first { within } else { 0 };
        match self.find_in(group, goal, wanted).await? {
            Some(found) => Ok(Some(found)),
            // Other tasks took the blocks while bitmaps were read. Any free run is accepted now.
            None => self.find_any(groups).await,
        }
    }

    /// The first free blocks of all.
    async fn find_any(&self, groups: u32) -> Result<Option<FreeFound>> {
        for group in (0..groups).map(GroupNumber) {
            let state = self.groups.state(group);
            if !state.damaged && state.descriptor.free_blocks > state.withheld {
                if let Some(found) = self.find_in(group, 0, 1).await? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Searches one group. Nothing is awaited after the bitmap, so the run can be taken. A damaged
    /// group has none.
    async fn find_in(
        &self,
        group: GroupNumber,
        goal: u32,
        wanted: u32,
    ) -> Result<Option<FreeFound>> {
        let bits = match self.block_bitmap(group).await {
            Ok(bits) => bits,
            Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let superblock = self.superblock.borrow();
        let start = superblock.group_start(group).get();
        let count = superblock.blocks_in_group(group);
        let held = self.withheld.borrow();
        let words = held.words(start..start + u64::from(count));
        let withheld = |word| words.get(word);
        let run = bits.look(|bits| search::Free { bits, count, withheld }.find_run(goal, wanted));
        drop(held);
        Ok(run.map(|run| FreeFound { group, bits, run }))
    }

    /// Marks the run used. Credits: bitmap + descriptor block.
    fn take(&self, handle: &mut Handle, found: FreeFound, run: Run) {
        let first = found.run.start;
        let range = first..first + run.count;
        let flipped = found.bits.flipped(range.clone());
        let block = self.take_block_bitmap(handle, found.group, found.bits);
        handle.change(&block, bitmap_bytes(&range), |bits| {
            assert!(bitmap::all_clear(bits, range.clone()));
            bitmap::set(bits, range.clone());
        });
        let free = self.groups.descriptor(found.group).free_blocks - run.count;
        self.block_bitmap_changed(handle, found.group, &block, flipped, free);
        self.superblock.borrow_mut().free_blocks -= u64::from(run.count);
    }

    fn add_window(&self, inode: &Inode, range: Range<u64>) {
        let group = self.superblock.borrow().group_of_block(HomeBlock(range.start)).0;
        self.groups.withhold(group, (range.end - range.start) as u32);
        let mut withheld = self.withheld.borrow_mut();
        // The longer of two that raced would be as good; one is enough.
        let other = withheld.remove_window(inode.number);
        withheld.add_window(inode.number, range);
        drop(withheld);
        other.into_iter().for_each(|range| self.give_back(range));
    }

    fn drop_all_windows(&self) {
        let ranges = self.withheld.borrow_mut().remove_all_windows();
        ranges.into_iter().for_each(|range| self.give_back(range));
    }

    fn give_back(&self, range: Range<u64>) {
        let group = self.superblock.borrow().group_of_block(HomeBlock(range.start)).0;
        self.groups.give_back(group, (range.end - range.start) as u32);
    }

    /// Makes blocks available that were freed by transactions committed by now.
    pub(crate) fn release_committed(&self) {
        let ranges = self.withheld.borrow_mut().take_committed(self.engine.committed());
        ranges.into_iter().for_each(|range| self.give_back(range));
    }
}

/// The bytes of a bitmap that hold the bits.
pub(crate) fn bitmap_bytes(bits: &Range<u32>) -> units::BlockRange {
    if units::fault!("change-beyond-range") {
        return units::BlockRange::new(bits.start / 8, bits.start / 8 + 1);
    }
    units::BlockRange::new(bits.start / 8, bits.end.div_ceil(8))
}
