//! Freed blocks that the log has records of: a replay must not bring these back, so each is
//! revoked.
//!
//! A revoke takes a few bytes of the log. A transaction is one piece of it, while the log may have
//! records of millions of blocks. So nobody revokes without a reservation:
//!
//! 1. Who frees a run reserves [`crate::Engine::credits_revokes`], and frees no more at once than
//!    [`crate::Engine::freeable_in_one_handle`] says.
//! 2. Beside it a handle frees at most [`FREED_BESIDE_RUN_MAX`] blocks: nodes of a tree, a block of
//!    attributes. Room for these is kept for every open handle, as long as the log has that
//!    many records ([`LogState::revoke_reserve`]).
//! 3. The log gets no records of a transaction before that is locked, and they count from then on.
//!    So what fits when a handle starts fits for good.

use crate::cache::block_cache::Cache;
use crate::interface::update::Credits;
use crate::log::log_state::LogState;
use crate::writeback::sequences::Sequences;
use std::cell::RefCell;
use units::HomeBlock;

/// Maximum number of blocks that a handle frees beside a run.
pub(crate) const FREED_BESIDE_RUN_MAX: u64 = 8;
/// Blocks of home that revokes of one run may take of the log.
const CREDITS: u32 = 2;
/// Maximum number of blocks of a run that are revoked at once, however long log blocks are.
const AT_ONCE_MAX: u64 = 1024;
/// Maximum number of look-ups that freeing a run at once may take in each table: a fraction of a
/// millisecond. What memory has nothing of is freed without one.
const VISITS_MAX: u64 = 4096;
/// Open handles of which none need wait until another stops. Each may free [`FREED_BESIDE_RUN_MAX`]
/// blocks.
const HANDLES_USUAL: u64 = 256;

/// Bounds what may be freed in one step.
#[derive(Clone, Copy)]
pub(crate) struct Freeing<'a> {
    pub log: Option<&'a RefCell<LogState>>,
    pub cache: &'a RefCell<Cache>,
    pub sequences: &'a Sequences,
}

impl Freeing<'_> {
    /// Returns the credits for the revokes of a run that is freed as
    /// [`crate::Engine::freeable_in_one_handle`] says.
    pub fn credits_revokes(&self) -> Credits {
        if self.log.is_some() { Credits(CREDITS) } else { Credits(0) }
    }

    /// Returns the maximum number of blocks that a handle may revoke before it reserves more log
    /// space.
    pub(crate) fn revokes_of_handle(&self) -> u64 {
        self.log.map_or(0, |log| log.borrow().revokes_at_once() + FREED_BESIDE_RUN_MAX)
    }

    /// Returns how many of the `count` blocks from `start` on may be freed with
    /// [`crate::Engine::credits_revokes`], and without a step that lasts: as many from either end.
    pub fn freeable_in_one_handle(&self, start: HomeBlock, count: u64) -> u64 {
        if units::fault!("freed-in-one-step") {
            return count;
        }
        let some = self.visited_at_once(start, count);
        let Some(log) = self.log else { return some };
        let log = log.borrow();
        let most = log.revokes_at_once();
        let live = log.live();
        // Counted over the whole range: the caller frees its part from either end.
        let is_more = || live.in_run(start, count).nth(most as usize).is_some();
        if live.len() as u64 > most && is_more() { some.min(most) } else { some }
    }

    /// Returns how many of `count` blocks [`crate::Handle::forget`] and the commit may visit at
    /// once.
    fn visited_at_once(&self, start: HomeBlock, count: u64) -> u64 {
        let live = self.log.map_or(0, |log| log.borrow().live().visits(start, count));
        let visits = self.cache.borrow().visits_within(start, count).max(live);
        let is_much = visits.max(self.sequences.count_within(start, count)) > VISITS_MAX;
        if is_much { count.min(VISITS_MAX) } else { count }
    }
}

impl LogState {
    /// Log blocks to keep free for what `handles` open handles may free beside runs.
    pub fn revoke_reserve(&self, handles: u64) -> u32 {
        // Revokes take less than the records that they replace, but may begin a block.
        self.records()
            .revoke_blocks_bound((handles * FREED_BESIDE_RUN_MAX).min(self.live().len() as u64))
            + 1
    }
    /// Returns the reserve for the usual maximum of open handles.
    pub fn usual_revoke_reserve(&self) -> u32 {
        self.revoke_reserve(HANDLES_USUAL)
    }
    /// Returns the maximum number of revokes that fit into [`CREDITS`].
    pub fn revokes_at_once(&self) -> u64 {
        let fits =
            |count: &u64| self.home_blocks(self.records().revoke_blocks_bound(*count)) <= CREDITS;
        let halves = std::iter::successors(Some(AT_ONCE_MAX), |count| Some(count / 2));
        halves.take_while(|count| *count > 0).find(fits).unwrap_or(1)
    }
}
