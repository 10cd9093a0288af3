//! Changing block pointers: a run within one pointer block at a time.

use super::indirect::{PointerWalk, run_of};
use crate::{AllocationRequest, Inode, Result, Run, Volume};
use engine::{Block, Handle};
use format::ext4::indirect::{blocks_max, pointer, pointer_bytes, set_pointer};
use units::Refusal;
use units::{BlockRange, FileBlock, HomeBlock};

/// One step of removal: a run of data, and the pointer blocks that are empty without it. At a hole
/// these are blocks that were empty before: the kernel leaves such where it punches.
struct RemovalStep {
    run: Option<Run>,
    emptied: Vec<HomeBlock>,
    /// The next file block to look at.
    next: u64,
}

impl Volume {
    /// Allocates a run for the hole at `request.at`, with the pointer blocks that lead there, and
    /// enters it.
    pub(super) async fn insert_pointers(
        &self,
        handle: &mut Handle,
        mut request: AllocationRequest<'_>,
    ) -> Result<Run> {
        let inode = request.inode;
        let Some(walk) = self.walk_pointers(inode, request.at).await? else {
            return Err(Refusal::FileTooLarge.into());
        };
        let index = *walk.path.indices().last().expect("a path has a pointer");
        let most = match walk.missing() {
            0 => walk
                .with_last(inode, |bytes, index| run_of(bytes, index, self.pointers_in(&walk)).1),
            _ => (1 << self.pointer_bits()) - index,
        };
        request.count = request.count.min(most);
        request.goal = walk.with_last(inode, |bytes, index| {
            let before = index.checked_sub(1).and_then(|index| pointer(bytes, index));
            before.or(walk.blocks.last().map(Block::number)).map(|near| near.plus(1))
        });
        let missing = self.allocate_tree_blocks(handle, inode, walk.missing()).await?;
        let run = match self.allocate_blocks(handle, request).await {
            Ok(run) => run,
            Err(error) => {
                self.free_tree_blocks(handle, &missing).await?;
                return Err(error);
            }
        };
        inode.mapping_cache.clear();
        enter(handle, inode, &walk, &missing, run);
        self.count_blocks(inode, i64::from(run.count) + missing.len() as i64);
        Ok(run)
    }

    /// Frees the first run in `from .. to`; returns the file block to continue from, `to` when
    /// done.
    pub(super) async fn remove_pointers(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        from: FileBlock,
        to: u64,
    ) -> Result<u64> {
        let to_mapped = to.min(blocks_max(self.block_size().shift()));
        let mut from = u64::from(from.get());
        while from < to_mapped {
            let removal = self.take_out(handle, inode, FileBlock(from as u32), to_mapped).await?;
            from = removal.next;
            let count = removal.run.map_or(0, |run| i64::from(run.count));
            if count == 0 && removal.emptied.is_empty() {
                continue;
            }
            self.count_blocks(inode, -(count + removal.emptied.len() as i64));
            if let Some(run) = removal.run {
                self.free_content(handle, inode, run).await?;
            }
            self.free_tree_blocks(handle, &removal.emptied).await?;
            return Ok(if from < to_mapped { from } else { to });
        }
        Ok(to)
    }

    async fn take_out(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        from: FileBlock,
        to: u64,
    ) -> Result<RemovalStep> {
        let mapping = self.map_pointer(inode, from).await?;
        let begin = u64::from(from.get());
        let count = u64::from(mapping.count).min(to - begin) as u32;
        let Some(walk) = self.walk_pointers(inode, from).await? else {
            return Ok(RemovalStep { run: None, emptied: Vec::new(), next: to });
        };
        let Some(start) = mapping.home() else {
            let next = begin + u64::from(count);
            let is_empty = walk.blocks.last().is_some_and(is_zeros);
            if !is_empty || units::fault!("empty-pointers-kept") {
                return Ok(RemovalStep { run: None, emptied: Vec::new(), next });
            }
            inode.mapping_cache.clear();
            return Ok(RemovalStep { run: None, emptied: clear(handle, inode, &walk, 0), next });
        };
        let count = self.engine().freeable_in_one_handle(start, count.into()) as u32;
        let next = begin + u64::from(count);
        let _bits = self.hold_bitmaps(start, count.into()).await?;
        inode.mapping_cache.clear();
        let emptied = clear(handle, inode, &walk, count);
        Ok(RemovalStep { run: Some(Run { start, count }), emptied, next })
    }
}

/// Sets the run's pointers, and builds the `missing` pointer blocks from the lowest up.
fn enter(handle: &mut Handle, inode: &Inode, walk: &PointerWalk, missing: &[HomeBlock], run: Run) {
    let mut indices = walk.path.indices().iter().rev();
    let (mut first, mut count) = (run.start, run.count);
    for &at in missing {
        let block = handle.create(at);
        let index = *indices.next().expect("a level for every missing block");
        set_run(handle, inode, Some(&block), index, Some(first), count);
        (first, count) = (at, 1);
    }
    let index = *indices.next().expect("a level for the last block there is");
    set_run(handle, inode, walk.blocks.last(), index, Some(first), count);
}

/// Clears `count` pointers at the end of a walk: of a complete one, or none. Returns the pointer
/// blocks that have none left; no pointer refers to them any more.
fn clear(handle: &mut Handle, inode: &Inode, walk: &PointerWalk, count: u32) -> Vec<HomeBlock> {
    let mut emptied = Vec::new();
    let mut count = count;
    for level in (0..=walk.blocks.len()).rev() {
        let block = level.checked_sub(1).map(|level| &walk.blocks[level]);
        if count > 0 {
            set_run(handle, inode, block, walk.path.indices()[level], None, count);
        }
        match block {
            Some(block) if is_zeros(block) => emptied.push(block.number()),
            _ => break,
        }
        count = 1;
    }
    emptied
}

fn is_zeros(block: &Block) -> bool {
    block.bytes().iter().all(|byte| *byte == 0)
}

/// Points `count` pointers from `index` on to `first` and the blocks after it, or to nothing.
fn set_run(
    handle: &mut Handle,
    inode: &Inode,
    block: Option<&Block>,
    index: u32,
    first: Option<HomeBlock>,
    count: u32,
) {
    let set = |bytes: &mut [u8]| {
        for further in 0..count {
            set_pointer(bytes, index + further, first.map(|home| home.plus(further.into())));
        }
    };
    match block {
        None => set(&mut inode.fields.borrow_mut().block),
        Some(block) => {
            let range = pointer_bytes(index, count);
            handle.change(block, BlockRange::new(range.start as u32, range.end as u32), set);
        }
    }
}
