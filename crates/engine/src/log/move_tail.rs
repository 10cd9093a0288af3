//! Moves the log's tail, as [`crate::log::tail`] decides: by itself, or with a commit.

use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::interface::stats::Counters;
use crate::log::log_state::LogState;
use crate::log::log_state::{Announcement, TailMove};
use crate::log::tail::TailRequest;
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::sequences::Sequences;
use commit::Durability;
use commit::Home;
use commit::Pipeline;
use commit::PlanExecutor;
use journal::{CommitPlan, Plan, plan_announcement, plan_tail_update, take_tail_along};
use std::cell::RefCell;
use units::TransactionId;

/// Moves the tail, and writes the superblock in front of it.
#[derive(Clone, Copy)]
pub(crate) struct TailMover<'a> {
    pub home: &'a dyn Home,
    pub log: Option<&'a RefCell<LogState>>,
    pub durability: &'a Durability,
    pub pacing: &'a dyn CommitPacing,
    pub pipeline: &'a Pipeline,
    pub executor: &'a PlanExecutor,
    pub queue: &'a DirtyQueue,
    pub counters: &'a RefCell<Counters>,
    pub sequences: &'a Sequences,
}

impl TailMover<'_> {
    /// Whether the flush of a commit serves a checkpoint, too.
    fn commits_cover_home(&self) -> bool {
        !self.pacing.separates_barriers() && self.durability.commits_cover_home()
    }

    /// Moves the tail as far as it may, or leaves it to a commit. The caller holds the write-back
    /// lock.
    pub(crate) async fn advance_tail(&self, occasion: TailRequest) -> Result<(), EngineError> {
        let Some(log) = self.log else { return Ok(()) };
        let moved = log.borrow_mut().ask_tail(occasion, self.commits_cover_home());
        if let Some(moved) = moved {
            self.executor.run(plan_tail_update(moved.image())).await?;
            self.tail_moved(moved);
        }
        Ok(())
    }

    /// Notes that a commit begins, which will flush: what is home now is durable afterwards.
    pub(crate) fn note_tail(&self) {
        if let Some(log) = self.log.filter(|_| self.commits_cover_home()) {
            log.borrow_mut().commit_begins(self.durability);
        }
    }

    /// Whether the tail would go along with a commit that begins now.
    pub(crate) fn tail_goes_along(&self) -> bool {
        self.log.is_some_and(|log| log.borrow_mut().tail_goes_along(self.durability))
    }

    /// Has the superblock go out with `last`, what a commit writes before its last barrier, if the
    /// tail is to move and may.
    pub(crate) fn take_tail_along(&self, last: &mut Plan) -> Option<TailMove> {
        let moved = self.log?.borrow_mut().take_tail_along(self.durability)?;
        take_tail_along(last, moved.image());
        Some(moved)
    }

    /// Chooses where in the log a transaction will lie. Recovery learns of that place if it would
    /// not look there, and of a transaction that is longer than those before. The superblock must
    /// not be in flight already: whichever of two came last would be believed.
    pub(crate) async fn choose_place(&self, planned: &CommitPlan) -> Result<(), EngineError> {
        if planned.log_blocks == 0 {
            return Ok(());
        }
        self.announce_places(Some(planned.transaction)).await
    }

    /// Announces to recovery all places that the log has chosen, that of `coming` too.
    pub(crate) async fn announce_places(
        &self,
        coming: Option<TransactionId>,
    ) -> Result<(), EngineError> {
        let Some(log) = self.log else { return Ok(()) };
        let announce = || {
            let mut log = log.borrow_mut();
            coming
                .into_iter()
                .for_each(|transaction| log.choose_place(transaction, self.home.head()));
            log.announce()
        };
        loop {
            match announce() {
                Announcement::Needless => return Ok(()),
                Announcement::Begins(change) => {
                    self.executor.run(plan_announcement(change.image())).await?;
                    // A commit, or a swap, may have one more to announce.
                    log.borrow_mut().announced(change);
                    // Write-back may have left the tail in place during the announcement.
                    self.queue.request();
                    return Ok(());
                }
                Announcement::Waits(arrived) => {
                    let over = || self.pipeline.has_failed() || !log.borrow().is_moving();
                    arrived.until(|| over().then_some(())).await;
                    self.pipeline.check()?;
                }
            }
        }
    }

    /// The superblock on disk has the new tail: what lies before it in the log is free.
    pub(crate) fn tail_moved(&self, moved: TailMove) {
        let Some(log) = self.log else { return };
        log.borrow_mut().tail_moved(moved);
        self.counters.borrow_mut().moved_tail();
        self.sequences.tail_moved();
        if self.sequences.want_sweep() {
            self.queue.request();
        }
        self.pipeline.wake_joiners();
    }
}
