//! Freeing blocks.

use super::{Purpose, bitmap_bytes};
use crate::{Caller, Error, Inode, Result, Stamped, Volume};
use engine::{Contents, Credits, Handle};
use format::ext4::bitmap;
use runtime::sync::Event;
use std::cell::Cell;
use std::rc::Rc;
use units::Refusal;
use units::{GroupNumber, HomeBlock};

/// Commits at most for one request on a full volume, before it fails with ENOSPC.
const ATTEMPTS: u32 = 3;

/// Inodes that are being freed: what they will give back is not known to be free yet.
#[derive(Default)]
pub(crate) struct FreesInProgress {
    begun: Cell<u64>,
    ended: Cell<u64>,
    event: Event,
}

/// A free in progress, until it is dropped.
pub(crate) struct FreeInProgress<'a>(&'a FreesInProgress);

impl FreesInProgress {
    pub fn begin(&self) -> FreeInProgress<'_> {
        self.begun.set(self.begun.get() + 1);
        FreeInProgress(self)
    }
    /// Waits until one of those in progress ends, and returns whether there was one. No task that
    /// frees an inode may wait here, nor one that has a handle open, for which the free may wait.
    async fn next_end(&self) -> bool {
        let before = self.ended.get();
        if self.begun.get() == before || units::fault!("free-not-awaited") {
            return false;
        }
        self.event.until(|| (self.ended.get() != before).then_some(())).await;
        true
    }
}

impl Drop for FreeInProgress<'_> {
    fn drop(&mut self) {
        self.0.ended.set(self.0.ended.get() + 1);
        self.0.event.notify();
    }
}

impl Volume {
    /// Frees `count` blocks. The engine forgets them (a revoke), and the allocator withholds them
    /// until the handle's transaction is committed. Corrupt if one is free already or not usable.
    pub async fn free_blocks(
        &self,
        handle: &mut Handle,
        start: HomeBlock,
        count: u64,
        contents: Contents,
    ) -> Result<()> {
        if !self.block_is_usable(start, count) {
            let why = format!("a file gives back {count} blocks that no file can own");
            return Err(self.note_damage(Error::corrupt_block("a block map", start, why)));
        }
        // A caller that only frees (`rm -r`) must not accumulate blocks whose commits have long
        // completed.
        self.release_committed();
        let mut at = start;
        let end = start.plus(count);
        while at < end {
            let (group, first) = self.superblock.borrow().group_of_block(at);
            let here = u64::from(self.superblock.borrow().blocks_in_group(group) - first)
                .min(end.get() - at.get());
            self.free_in_group(handle, group, first, here as u32).await?;
            handle.forget(at, here, contents);
            at = at.plus(here);
        }
        Ok(())
    }

    /// Freed blocks that are withheld because their transaction was not committed at the last look.
    pub fn blocks_withheld(&self) -> u64 {
        self.withheld.borrow().freed_blocks()
    }

    /// Credits: bitmap + descriptor block.
    async fn free_in_group(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        first: u32,
        count: u32,
    ) -> Result<()> {
        let bits = self.block_bitmap(group).await?;
        let range = first..first + count;
        let start = self.superblock.borrow().group_start(group).get();
        let all_used = match &bits {
            crate::groups::Bits::Stored(block) => bitmap::all_set(&block.bytes(), range.clone()),
            crate::groups::Bits::Initial(_) => false,
        };
        // Withheld blocks were free at the last look: the bitmap has been changed by something
        // else.
        let freed = start + u64::from(range.start)..start + u64::from(range.end);
        let is_withheld = self.withheld.borrow().ranges(freed.clone()).next().is_some();
        if !all_used || is_withheld {
            self.groups.mark_damaged(group);
            let at = HomeBlock(start + u64::from(first));
            let why = format!("of {count} blocks given back some are free already");
            return Err(self.note_damage(Error::corrupt_block("the block bitmap", at, why)));
        }
        let flipped = bits.flipped(range.clone());
        let block = self.take_block_bitmap(handle, group, bits);
        handle.change(&block, bitmap_bytes(&range), |bits| bitmap::clear(bits, range.clone()));
        let free = self.groups.descriptor(group).free_blocks + count;
        self.block_bitmap_changed(handle, group, &block, flipped, free);
        self.superblock.borrow_mut().free_blocks += u64::from(count);
        self.withheld.borrow_mut().add_freed(handle.transaction(), freed);
        self.groups.withhold(group, count);
        Ok(())
    }

    /// Waits, with no handle open, for commits that free blocks, as long as fewer than `blocks` are
    /// available. Another task may still take them first.
    pub(crate) async fn await_space(&self, caller: &Caller<'_>, blocks: u32) -> Result<()> {
        let use_reserve = self.may_use_reserve(caller);
        let is_short = || self.available_blocks(Purpose::Data, use_reserve) < u64::from(blocks);
        let mut attempt = 0;
        while is_short() {
            self.release_committed();
            if !is_short() || !self.retry_allocation(attempt).await? {
                break;
            }
            self.release_committed();
            attempt += 1;
        }
        Ok(())
    }

    /// Makes a change in a handle of its own. Where only blocks of a pending commit are missing,
    /// waits for that commit and tries again; the change must have undone its own effects.
    pub(crate) async fn with_space<T>(
        &self,
        credits: impl Fn() -> Credits,
        change: impl AsyncFn(&mut Handle) -> Result<T>,
    ) -> Result<Stamped<T>> {
        self.attempt(credits, change, async || Ok(())).await
    }

    /// Makes a change that creates inodes, as [`Volume::with_space`] does. An inode that a failed
    /// attempt leaves is freed once its handle is stopped.
    pub(crate) async fn with_space_or_abandoned<T>(
        self: &Rc<Self>,
        credits: impl Fn() -> Credits,
        change: impl AsyncFn(&mut Handle, &mut Option<Rc<Inode>>) -> Result<T>,
    ) -> Result<Stamped<T>> {
        let abandoned = Cell::new(None);
        let noting = async |handle: &mut Handle| {
            let mut left = None;
            let changed = change(handle, &mut left).await;
            abandoned.set(left);
            changed
        };
        let freeing = async || match abandoned.take() {
            Some(inode) => self.free_if_unused(&inode).await,
            None => Ok(()),
        };
        self.attempt(credits, noting, freeing).await
    }

    async fn attempt<T>(
        &self,
        credits: impl Fn() -> Credits,
        change: impl AsyncFn(&mut Handle) -> Result<T>,
        stopped: impl AsyncFn() -> Result<()>,
    ) -> Result<Stamped<T>> {
        for attempt in 0.. {
            self.release_committed();
            let releases = self.withheld.borrow().releases();
            let mut handle = self.engine.start(credits()).await?;
            let changed = change(&mut handle).await;
            let transaction = handle.stop();
            stopped().await?;
            match changed {
                Ok(value) => return Ok(Stamped { value, transaction }),
                Err(Error::Refused(Refusal::NoSpace))
                    if self.has_come_free(releases, attempt)
                        || self.retry_allocation(attempt).await? => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("attempts have an end")
    }

    /// Whether blocks were released since there were `releases`: another task may have done that
    /// after this attempt failed, when it found nothing to wait for any more.
    fn has_come_free(&self, releases: u64, attempt: u32) -> bool {
        attempt < ATTEMPTS && self.withheld.borrow().releases() != releases
    }

    /// Returns, after ENOSPC and with no handle open, whether a commit frees blocks, and commits if
    /// so. Where none does, waits for an inode that is being freed. The caller tries again when
    /// true; `attempt` counts from 0, and the third is the last. Freeing an inode waits for no
    /// inode's lock but its own, so the caller may hold any but that.
    pub async fn retry_allocation(&self, attempt: u32) -> Result<bool> {
        if attempt >= ATTEMPTS {
            return Ok(false);
        }
        let last_freed = || self.withheld.borrow().last_freed();
        if last_freed().is_none() && !self.frees.next_end().await {
            return Ok(false);
        }
        if let Some(transaction) = last_freed() {
            self.engine.commit(transaction).await?;
        }
        Ok(true)
    }
}
