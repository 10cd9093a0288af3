//! fallocate: preallocation, zeroed ranges, holes.

use super::{KillPrivileges, RangeMode, check_changeable, clear_set_id_bits};
use crate::{Allocate, Caller, Error, Inode, MappingState, Result, Volume};
use engine::{Block, Handle};
use std::rc::Rc;
use units::Refusal;
use units::{FileBlock, TransactionId};

/// Arguments of fallocate(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRange {
    pub mode: RangeMode,
    pub keep_size: bool,
    /// Offset in bytes, as is the length.
    pub offset: u64,
    pub length: u64,
}

/// A range of bytes, and the whole blocks in it.
struct Range {
    from: u64,
    to: u64,
    /// First block that lies wholly in the range, and first one behind that does not.
    first: u64,
    end: u64,
}

impl Volume {
    /// Does fallocate(2), without clearing set-id bits; after `ENOSPC` a part may be done.
    pub async fn fallocate(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller<'_>,
        mode: RangeMode,
        keep_size: bool,
        offset: u64,
        length: u64,
    ) -> Result<TransactionId> {
        let range = FileRange { mode, keep_size, offset, length };
        self.fallocate_range(inode, caller, range, KillPrivileges::No).await
    }

    /// Does fallocate(2), and clears capabilities, and set-id bits as `kill_privileges` says, as
    /// ext4 does it: also where it fails for lack of space, or because the file has indirect blocks
    /// and can only be punched (`EOPNOTSUPP`). Errors of the arguments alone (`EINVAL`, `EFBIG`)
    /// change nothing. Where it zeros a range, [`Volume::zeros_settled`] comes before the answer.
    pub async fn fallocate_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller<'_>,
        range: FileRange,
        kill_privileges: KillPrivileges,
    ) -> Result<TransactionId> {
        let FileRange { mode, offset, length, .. } = range;
        let _guard = inode.lock.write().await;
        check_changeable(inode, mode == RangeMode::Allocate)?;
        let to = offset.checked_add(length).filter(|to| *to <= self.range_end_max(inode, mode));
        let Some(to) = to else {
            if units::fault!("refused-range-kills") {
                self.kill_privileges(inode, kill_privileges).await?;
            }
            return Err(Refusal::FileTooLarge.into());
        };
        if length == 0 {
            return Err(Refusal::Invalid.into());
        }
        self.leave_inline(inode, caller).await?;
        self.finish_cut(inode).await?;
        let _table = self.hold(&[inode]).await?;
        self.kill_privileges(inode, kill_privileges).await?;
        if mode != RangeMode::PunchHole && !self.maps_by_extents(inode) {
            return Err(Refusal::Unsupported.into());
        }
        if mode == RangeMode::Allocate {
            return self.change_range(inode, caller, range, to).await;
        }
        self.note_cut(inode, offset);
        self.note_cut(inode, to);
        let changed = self.change_range(inode, caller, range, to).await?;
        match units::fault!("zeroed-pages-kept") {
            true => inode.pages.agreed(offset..to),
            false => inode.pages.zeroed(offset..to, self.kernel_page.get()),
        }
        Ok(changed)
    }

    /// Ends the protection of a range that [`Volume::fallocate_range`] has zeroed from older pages.
    /// Call it right before the answer, which is an error unless it `succeeded`.
    pub async fn zeros_settled(
        &self,
        inode: &Rc<Inode>,
        range: std::ops::Range<u64>,
        succeeded: bool,
    ) {
        if succeeded && !inode.pages.has_edges() {
            return;
        }
        // Pages that were written back while the range was changed come first.
        let _guard = inode.lock.write().await;
        inode.pages.zeros_settled(range, succeeded);
    }

    async fn change_range(
        &self,
        inode: &Inode,
        caller: &Caller<'_>,
        range: FileRange,
        to: u64,
    ) -> Result<TransactionId> {
        let FileRange { mode, keep_size, offset, .. } = range;
        match mode {
            RangeMode::PunchHole if !keep_size => Err(Refusal::Unsupported.into()),
            RangeMode::PunchHole => self.punch(inode, offset, to).await,
            RangeMode::Zero => {
                let range = self.range(offset, to);
                let _edges = self.hold_edges(inode, &range).await?;
                if range.first < range.end {
                    self.fill(inode, caller, range.first, range.end, true).await?;
                }
                self.change_edges(inode, &range).await?;
                self.fill_around(inode, caller, &range).await?;
                self.end_change(inode, to, keep_size).await
            }
            RangeMode::Allocate => {
                let end = to.div_ceil(self.block_size().bytes() as u64);
                self.fill(inode, caller, u64::from(self.block_of(offset).get()), end, false)
                    .await?;
                self.end_change(inode, to, keep_size).await
            }
        }
    }

    /// First byte that a range cannot have. A hole changes nothing behind the end of the file, so
    /// its limit is that of a file with extents, however this one is mapped.
    fn range_end_max(&self, inode: &Inode, mode: RangeMode) -> u64 {
        match mode {
            _ if units::fault!("hole-within-own-maximum") => self.file_size_max(inode),
            RangeMode::PunchHole => self.volume_file_size_max(),
            _ if !self.maps_by_extents(inode) => self.volume_file_size_max(),
            _ => self.file_size_max(inode),
        }
    }

    /// Clears set-id bits and capabilities, in a handle of its own.
    async fn kill_privileges(&self, inode: &Inode, kill: KillPrivileges) -> Result<()> {
        if !self.may_have_privileges(inode) {
            return Ok(());
        }
        let attributes = self.xattr_change(inode).await?;
        let mut handle = self.engine().start(self.credits_inode() + attributes.credits).await?;
        clear_set_id_bits(inode, kill);
        let killed = self.clear_capabilities(&mut handle, inode).await;
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        killed.and(stored)
    }

    async fn punch(&self, inode: &Inode, from: u64, to: u64) -> Result<TransactionId> {
        let size = inode.fields.borrow().size;
        // Space behind the end of the file is kept; the block that has the end is freed if the
        // range reaches the end.
        let to =
            if to < size { to } else { size.next_multiple_of(self.block_size().bytes() as u64) };
        if from < to {
            let range = self.range(from, to);
            let _edges = self.hold_edges(inode, &range).await?;
            // The step that may lack space comes first, for a split of the only extent: an error
            // leaves the file unchanged.
            if range.first < range.end {
                let (first, end) = (FileBlock(range.first as u32), FileBlock(range.end as u32));
                self.free_range(inode, first, Some(end)).await?;
            }
            self.change_edges(inode, &range).await?;
        }
        self.end_change(inode, 0, true).await
    }

    /// The blocks that [`Volume::change_edges`] changes stay in memory as long as the result lives.
    async fn hold_edges(&self, inode: &Inode, range: &Range) -> Result<Vec<Block>> {
        let mut held = Vec::new();
        for edge in [range.from, range.to].into_iter().filter(|edge| self.place_of(*edge) != 0) {
            if let MappingState::Written(home) =
                self.map(inode, self.block_of(edge), 1).await?.state
            {
                held.push(self.engine().metadata(home).await?);
            }
        }
        Ok(held)
    }

    /// Zeros what the range has of blocks that are not wholly in it.
    async fn change_edges(&self, inode: &Inode, range: &Range) -> Result<()> {
        let block = self.block_size().bytes() as u64;
        let mut handle = self.engine().start(self.credits_inode()).await?;
        if range.first > range.end {
            // Within one block.
            self.zero_part(&mut handle, inode, range.from, range.to).await?;
        } else {
            if range.from < range.first * block {
                self.zero_part(&mut handle, inode, range.from, range.first * block).await?;
            }
            if range.end * block < range.to {
                self.zero_part(&mut handle, inode, range.end * block, range.to).await?;
            }
        }
        handle.stop();
        Ok(())
    }

    /// Space for the blocks that the range has only in part, if they are holes.
    async fn fill_around(&self, inode: &Inode, caller: &Caller<'_>, range: &Range) -> Result<()> {
        let block = self.block_size().bytes() as u64;
        let (first, end) = (range.from / block, range.to.div_ceil(block));
        self.fill(inode, caller, first, range.first.min(end), false).await?;
        self.fill(inode, caller, range.end.max(first), end, false).await
    }

    /// Fills holes among the blocks `from .. to` with unwritten ones; `zero` makes written ones
    /// unwritten, too.
    async fn fill(
        &self,
        inode: &Inode,
        caller: &Caller<'_>,
        from: u64,
        to: u64,
        zero: bool,
    ) -> Result<()> {
        let (mut at, mut attempt) = (from, 0);
        while at < to {
            let mut handle = self.engine().start(self.credits_map(inode)).await?;
            let before = at;
            let filled = self.fill_some(&mut handle, inode, caller, &mut at, to, zero).await;
            self.store(&mut handle, inode).await?;
            handle.stop();
            match filled {
                Err(Error::Refused(Refusal::NoSpace)) => {
                    attempt = if at > before { 0 } else { attempt };
                    if !self.retry_allocation(attempt).await? {
                        return Err(Refusal::NoSpace.into());
                    }
                    attempt += 1;
                }
                filled => filled?,
            }
        }
        Ok(())
    }

    /// Fills as many runs as the handle's credits allow; `at` returns how far it came.
    async fn fill_some(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        caller: &Caller<'_>,
        at: &mut u64,
        to: u64,
        zero: bool,
    ) -> Result<()> {
        let mut first = true;
        while *at < to {
            if !first {
                runtime::yield_now().await;
                if !handle.extend(self.credits_map(inode)) {
                    break;
                }
            }
            let (block, count) = (FileBlock(*at as u32), (to - *at).min(u32::MAX.into()) as u32);
            let how = Allocate::Unwritten;
            let found = self.map_or_allocate(handle, inode, caller, block, count, how).await?;
            let mut run = found.mapping.count;
            if zero && matches!(found.mapping.state, MappingState::Written(_)) {
                run = self.mark_unwritten(handle, inode, block, run).await?;
                if run == 0 {
                    // As in a write: only a block that two trees share can have changed.
                    let why = "a block of its mapping belongs to another file as well";
                    return Err(self.note_damage(Error::corrupt_inode(inode.number, why)));
                }
            }
            *at += u64::from(run);
            first = false;
        }
        Ok(())
    }

    /// Times, and the size if the range ends behind it.
    async fn end_change(&self, inode: &Inode, to: u64, keep_size: bool) -> Result<TransactionId> {
        let mut handle = self.engine().start(self.credits_inode()).await?;
        let size = inode.fields.borrow().size;
        if !keep_size && to > size {
            self.zero_behind_end(&mut handle, inode, to).await?;
            inode.fields.borrow_mut().size = to;
        }
        self.note_modification(inode);
        inode.last_data_change.set(handle.transaction());
        self.store(&mut handle, inode).await?;
        Ok(handle.stop())
    }

    fn range(&self, from: u64, to: u64) -> Range {
        let block = self.block_size().bytes() as u64;
        Range { from, to, first: from.div_ceil(block), end: to / block }
    }
}
