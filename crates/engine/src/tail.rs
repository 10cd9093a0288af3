//! How the log's tail moves past transactions that replay needs no longer.
//!
//! What they brought home must be durable before the journal superblock says so, and that must be durable before their log
//! blocks are written again: two barriers. Or none: where a commit's flush makes all durable anyway
//! ([`crate::run_plan::Runner::commits_cover_home`]), blocks that were home before one flush are durable after it, and the superblock goes
//! out in front of the next. Only if someone waits for log space, or no commit comes, the tail moves by itself.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::log::LogState;
use format::jbd2::JournalSuperblock;
use journal::{LogSpace, Plan, UpdateSequence, plan_tail_update, take_tail_along};
use units::TransactionId;

#[derive(Default)]
pub(crate) struct TailState {
    pub wish: Wish,
    /// A round of write-back has ended since the tail moved.
    after_round: bool,
    /// The superblock is being written: nobody else may, or an older tail could overtake a newer one.
    is_moving: bool,
    /// Where the tail could be when the last commit began, and where it may be already.
    noted: Option<Noted>,
    durable: Option<Noted>,
}

/// How soon the tail is to move.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    #[default]
    None,
    /// The log is short, or a round of write-back is over: with a commit, if that costs nothing.
    Soon,
    /// Someone waits for log space.
    Now,
}

#[derive(Clone, Copy)]
struct Noted {
    tail: TransactionId,
    /// So many home writes must be durable.
    home_written: u64,
}

/// A new tail on its way to the disk.
pub(crate) struct TailMove {
    tail: TransactionId,
    superblock: JournalSuperblock,
}

impl TailMove {
    fn begin(log: &mut LogState, tail: TransactionId) -> TailMove {
        log.tail.is_moving = true;
        let mut superblock = log.superblock.clone();
        let at = log.space.start_of(tail).expect("the tail is in the log, or the next transaction");
        superblock.set_tail(tail, at);
        TailMove { tail, superblock }
    }
}

impl Engine {
    /// Moves the tail, or leaves it to a commit.
    pub(crate) async fn advance_tail_soon(&self) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        if self.runner.commits_cover_home() {
            let tail = &mut log.borrow_mut().tail;
            tail.wish = tail.wish.max(Wish::Soon);
            if tail.wish == Wish::Soon {
                return Ok(());
            }
        }
        self.advance_tail().await
    }

    /// The same after a round of write-back: by then a commit may have come.
    pub(crate) async fn advance_tail_of_round(&self) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        let seen = std::mem::replace(&mut log.borrow_mut().tail.after_round, true);
        if seen { self.advance_tail().await } else { self.advance_tail_soon().await }
    }

    /// Moves the tail as far as it may, now. Whoever does so holds `home_turn`.
    async fn advance_tail(&self) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        let (moved, plan) = {
            let mut log = log.borrow_mut();
            let tail = log.checkpoint.tail();
            // A commit that takes it along wakes whoever waits.
            if !log.started || tail == log.disk_tail || log.tail.is_moving {
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
        let Some(log) = self.log.as_ref().filter(|_| self.runner.commits_cover_home()) else { return };
        let mut log = log.borrow_mut();
        self.promote(&mut log);
        let tail = log.checkpoint.tail();
        log.tail.noted = Some(Noted { tail, home_written: self.runner.home_written() });
    }

    fn promote(&self, log: &mut LogState) {
        let is_durable = |noted: &mut Noted| self.runner.is_home_durable(noted.home_written);
        if let Some(noted) = log.tail.noted.take_if(is_durable) {
            log.tail.durable = Some(noted);
        }
    }

    /// Has the superblock go out with `last`, what a commit writes before its last barrier, if the tail is to move and may.
    pub(crate) fn take_tail_along(&self, last: &mut Plan) -> Option<TailMove> {
        let mut log = self.log.as_ref()?.borrow_mut();
        self.promote(&mut log);
        if log.tail.wish == Wish::None || log.tail.is_moving {
            return None;
        }
        let durable = log.tail.durable.take().filter(|durable| durable.tail.is_after(log.disk_tail))?;
        let moved = TailMove::begin(&mut log, durable.tail);
        take_tail_along(last, log.image_of(&moved.superblock));
        Some(moved)
    }

    /// The superblock on disk has the new tail: what lies before it in the log is free.
    pub(crate) fn tail_moved(&self, moved: TailMove) {
        let Some(log) = &self.log else { return };
        let mut log = log.borrow_mut();
        log.superblock = moved.superblock;
        log.disk_tail = moved.tail;
        log.tail.is_moving = false;
        (log.tail.wish, log.tail.after_round) = (Wish::None, false);
        log.space.release_before(moved.tail);
        log.live.release_before(moved.tail);
        drop(log);
        self.runner.counters.borrow_mut().tail_updates += 1;
        self.end_sequences();
        self.gate.wake_first();
    }

    /// Selective mode: forgets where blocks stood whose update sequence has ended.
    fn end_sequences(&self) {
        let Some(log) = &self.log else { return };
        let (tail, cache) = (log.borrow().disk_tail, self.cache.borrow());
        let is_clean = |at| cache.peek(at).is_none_or(|block| block.dirty_since.get().is_none());
        let ended = UpdateSequence::None;
        self.sequences.borrow_mut().retain(|at, state| state.current(is_clean(*at), tail) != ended);
    }
}
