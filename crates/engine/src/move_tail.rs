//! Moves the log's tail, as [`crate::tail`] decides: by itself, or with a commit.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::log::LogState;
use crate::tail::{Occasion, TailDecision};
use format::jbd2::JournalSuperblock;
use journal::{CommitPlan, Plan, plan_announcement, plan_tail_update, take_tail_along};
use units::TransactionId;

/// A new tail on its way to the disk.
pub(crate) struct TailMove {
    tail: TransactionId,
    superblock: JournalSuperblock,
}

impl TailMove {
    fn begin(log: &mut LogState, tail: TransactionId) -> TailMove {
        log.tail.move_begins();
        let mut superblock = log.superblock.clone();
        let at = log.space.start_of(tail).expect("the tail is in the log, or the next transaction");
        superblock.set_tail(tail, at);
        log.space.announce(&mut superblock, Some(tail));
        TailMove { tail, superblock }
    }
}

impl Engine {
    /// Whether the flush of a commit serves a checkpoint, too.
    fn commits_cover_home(&self) -> bool {
        !self.pace.separates_barriers() && self.runner.durability.commits_cover_home()
    }

    /// Moves the tail as far as it may, or leaves it to a commit. Whoever does so holds the turn of the home writer.
    pub(crate) async fn advance_tail(&self, occasion: Occasion) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        let (moved, plan) = {
            let mut log = log.borrow_mut();
            let covered = self.commits_cover_home();
            let tail = log.checkpoint.tail();
            let possible = log.started.then_some(tail);
            if log.tail.ask(occasion, covered, possible) != TailDecision::Move {
                return Ok(());
            }
            let moved = TailMove::begin(&mut log, tail);
            let plan = plan_tail_update(log.image_of(&moved.superblock));
            (moved, plan)
        };
        self.runner.run(plan).await?;
        self.tail_moved(moved);
        Ok(())
    }

    /// A commit begins, which will flush: what is home now is durable afterwards.
    pub(crate) fn note_tail(&self) {
        let durability = &self.runner.durability;
        let Some(log) = self.log.as_ref().filter(|_| self.commits_cover_home()) else { return };
        let mut log = log.borrow_mut();
        log.tail.promote(|writes| durability.is_durable(writes));
        let tail = log.checkpoint.tail();
        log.tail.commit_begins(tail, durability.home_written());
    }

    /// Whether the tail would go along with a commit that begins now.
    pub(crate) fn tail_goes_along(&self) -> bool {
        self.log.as_ref().is_some_and(|log| {
            let mut log = log.borrow_mut();
            log.tail.promote(|writes| self.runner.durability.is_durable(writes));
            log.tail.ask_by_commit().is_some()
        })
    }

    /// Has the superblock go out with `last`, what a commit writes before its last barrier, if the tail is to move and may.
    pub(crate) fn take_tail_along(&self, last: &mut Plan) -> Option<TailMove> {
        let mut log = self.log.as_ref()?.borrow_mut();
        log.tail.promote(|writes| self.runner.durability.is_durable(writes));
        let tail = log.tail.ask_by_commit()?;
        let moved = TailMove::begin(&mut log, tail);
        take_tail_along(last, log.image_of(&moved.superblock));
        Some(moved)
    }

    /// The log chooses where a transaction will lie. Recovery learns of that place if it would not look
    /// there, and of a transaction that is longer than those before. The superblock must not be on its way
    /// already: whichever of two came last would be believed.
    pub(crate) async fn choose_place(&self, planned: &CommitPlan) -> Result<(), EngineError> {
        if planned.log_blocks == 0 {
            return Ok(());
        }
        self.announce_places(|log| log.space.choose(planned.transaction, self.home.head())).await
    }

    /// Recovery learns of what the log says after `choose`.
    pub(crate) async fn announce_places(&self, choose: impl Fn(&mut LogState)) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        loop {
            let (announcement, arrived) = {
                let mut log = log.borrow_mut();
                choose(&mut log);
                if !log.started {
                    return Ok(());
                }
                let is_free = !log.tail.is_moving();
                // One on its way with a new tail may leave out which scattered logs were announced before; it never leaves
                // out a length.
                let may_shrink = log.superblock.scattered.is_some();
                let mut superblock = log.superblock.clone();
                let is_more = log.space.announce(&mut superblock, None);
                if !is_more && (is_free || !may_shrink) {
                    return Ok(());
                }
                if is_free {
                    log.tail.move_begins();
                }
                let plan = plan_announcement(log.image_of(&superblock));
                (is_free.then_some((superblock, plan)), log.superblock_arrived.clone())
            };
            if let Some((superblock, plan)) = announcement {
                return self.announce(superblock, plan).await;
            }
            let over = || self.pipeline.has_failed() || !log.borrow().tail.is_moving();
            arrived.until(|| over().then_some(())).await;
            self.pipeline.check()?;
        }
    }

    async fn announce(&self, superblock: JournalSuperblock, plan: Plan) -> Result<(), EngineError> {
        self.runner.run(plan).await?;
        if let Some(log) = &self.log {
            let mut log = log.borrow_mut();
            log.superblock = superblock;
            log.tail.move_ends();
            // A commit, or a swap, may have one more to announce.
            log.superblock_arrived.notify();
        }
        // Whoever would have moved the tail meanwhile has left it.
        self.queue.kick();
        Ok(())
    }

    /// The superblock on disk has the new tail: what lies before it in the log is free.
    pub(crate) fn tail_moved(&self, moved: TailMove) {
        let Some(log) = &self.log else { return };
        let mut log = log.borrow_mut();
        log.superblock = moved.superblock;
        log.tail.moved(moved.tail);
        log.space.release_before(moved.tail);
        log.live.release_before(moved.tail);
        log.superblock_arrived.notify();
        drop(log);
        self.counters.borrow_mut().tail_updates += 1;
        let cache = self.cache.borrow();
        self.sequences.end(moved.tail, |at| cache.peek(at).is_none_or(|block| !block.is_dirty()));
        drop(cache);
        self.pipeline.wake_joiners();
    }
}
