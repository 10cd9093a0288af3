//! Admission to the running transaction: there must be room in the log and in memory, or it is
//! made.
//!
//! A handle reserves log space before it starts and never waits for any while open, so a full log
//! cannot deadlock. The transaction it is in can always commit, and a committed one can always be
//! checkpointed.

use crate::cache::block_cache::Cache;
use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::interface::update::Credits;
use crate::log::log_state::LogState;
use crate::writeback::dirty_queue::DirtyQueue;
use commit::Pipeline;
use device::World;
use journal::Holdings;
use journal::Policy;
use std::cell::RefCell;

/// Admits handles to the running transaction.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'a> {
    pub world: &'a dyn World,
    pub log: Option<&'a RefCell<LogState>>,
    pub policy: &'a dyn Policy,
    pub pipeline: &'a Pipeline,
    pub queue: &'a DirtyQueue,
    pub cache: &'a RefCell<Cache>,
    pub pacing: &'a dyn CommitPacing,
}

impl Admission<'_> {
    /// Whether one handle may reserve so much.
    pub fn fits_handle(&self, credits: Credits, blocks: u32) -> bool {
        let data_credits = if self.logs_data() { blocks } else { 0 };
        self.handle_limit().is_none_or(|limit| credits.0.saturating_add(data_credits) <= limit)
    }

    /// Whether updates of file data may take log blocks.
    pub(crate) fn logs_data(&self) -> bool {
        self.log.is_some() && self.policy.logs_data()
    }

    /// Returns three quarters of a transaction: the rest is for descriptors, revokes and the commit
    /// block.
    pub(crate) fn handle_limit(&self) -> Option<u32> {
        let log = self.log?.borrow();
        Some(log.home_blocks(log.transaction_limit()) / 4 * 3)
    }

    /// Whether the oldest transactions are to be written back for log space.
    pub(crate) fn log_is_short(&self) -> bool {
        self.log.is_some_and(|log| log.borrow().is_short())
    }

    /// Joins the running transaction if that may be done now; otherwise starts what must happen
    /// first. `home` is what it needs of memory alone.
    pub(crate) fn admit(&self, needed: u32, home: u32) -> Result<Option<()>, EngineError> {
        self.pipeline.check()?;
        if self.pipeline.is_closed() || self.pipeline.is_quiesced() {
            return Err(EngineError::ReadOnly);
        }
        if self.pipeline.is_locking() {
            return Ok(None);
        }
        let mut made_at_most = 0;
        if let Some(log) = self.log {
            let coming = self.pipeline.holdings().and_blocks(needed);
            let bound = log.borrow().bound(&coming);
            made_at_most = log.borrow().log_buffer_blocks(bound, &coming);
            if !self.has_log_space(log, bound) {
                return Ok(None);
            }
        }
        if !self.has_memory(needed + home, made_at_most) {
            return Ok(None);
        }
        let now = self.world.now();
        self.pacing.joined(now);
        self.pipeline.join(needed, home, now);
        Ok(Some(()))
    }

    /// Whether the log has space; `bound` is the maximum of the running transaction's log blocks
    /// with the joining handle.
    fn has_log_space(&self, log: &RefCell<LogState>, bound: u32) -> bool {
        let mut log = log.borrow_mut();
        // A commit of nothing would be skipped and wake this caller, who would ask for it again.
        let used = self.pipeline.has_something_to_commit();
        if bound > log.transaction_limit() && used {
            // Mostly reservations: they come back when the open handles stop. Otherwise it is full.
            if self.pipeline.transaction().credits() <= log.home_blocks(bound) / 2 {
                self.pipeline.request(self.pipeline.running_id());
            }
            return false;
        }
        // Credits, descriptors and commit block (`bound`) + what this handle and the open ones may
        // revoke without credits.
        let handles = u64::from(self.pipeline.transaction().open_handles()) + 1;
        if log.has_free(bound, handles) {
            return true;
        }
        // The oldest transactions must be written home; if there are none, this one has to become
        // one.
        if log.is_all_home() && used {
            self.pipeline.request(self.pipeline.running_id());
        }
        log.is_waited_for();
        self.queue.request();
        false
    }

    /// Images that cannot be evicted: those of dirty blocks, and what commits make of them.
    pub(crate) fn pinned_images(&self) -> usize {
        self.images_until_home() + self.log_buffer_blocks_max(&self.pipeline.holdings())
    }

    /// Whether pinned images alone keep everybody out.
    pub(crate) fn has_no_memory(&self) -> bool {
        self.pinned_images() > Self::pinned_max(self.cache.borrow().limit())
    }
    fn pinned_max(limit: usize) -> usize {
        limit / 4 * 3
    }

    fn images_until_home(&self) -> usize {
        let held =
            if units::fault!("old-images-uncounted") { 0 } else { self.cache.borrow().held() };
        self.queue.dirty() + held
    }

    /// Returns the most blocks made for the log when a transaction with `holdings` commits.
    pub(crate) fn log_buffer_blocks_max(&self, holdings: &Holdings) -> usize {
        let Some(log) = self.log else { return 0 };
        let log = log.borrow();
        log.log_buffer_blocks(log.bound(holdings), holdings)
    }

    /// Whether an open handle may make images for `credits` more.
    pub(crate) fn has_memory_for(&self, credits: Credits) -> bool {
        let made = self.log_buffer_blocks_max(&self.pipeline.holdings().and_blocks(credits.0));
        self.has_memory(credits.0, made)
    }

    /// Whether memory suffices: beyond half of the cache, pinned images are written home early.
    /// Beyond three quarters nobody may make more of them, where `needed` credits and those of the
    /// open handles count as one image each. A handle that is alone may, whatever it needs.
    /// `made_at_most`: blocks made for the log, with what the handle will add.
    fn has_memory(&self, needed: u32, made_at_most: usize) -> bool {
        let limit = self.cache.borrow().limit();
        let coming = self.pipeline.images_to_come().map_or(0, |open| open + needed as usize);
        let fits = |pinned: usize| pinned + coming <= Self::pinned_max(limit);
        // `made_at_most` includes what is still to come, so this is no less than what is pinned
        // now.
        let at_most = self.images_until_home() + made_at_most;
        if at_most <= limit / 2 && fits(at_most) {
            return true;
        }
        let pinned = self.pinned_images();
        if pinned > limit / 2 {
            self.queue.request();
        }
        fits(pinned)
    }
}
