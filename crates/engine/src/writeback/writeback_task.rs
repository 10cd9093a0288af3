//! Write-back and checkpoint: committed blocks are written home, then the log tail moves past their
//! records.
//!
//! Three reasons: age (`writeback=`, `expire=`) or what `checkpoint=` says in its place, a short
//! log (the oldest transactions first), and memory. Data of the running transaction may go early:
//! so memory that runs short asks for no commit. What no commit waits for is flushed a second after
//! it was written home, if nobody else has done it.

use crate::commit::sync::Syncer;
use crate::interface::error::EngineError;
use crate::interface::limits::HOME_BATCH_MAX;
use crate::interface::options::EngineOptions;
use crate::log::log_state::LogState;
use crate::log::move_tail::TailMover;
use crate::log::revokes::Freeing;
use crate::log::snapshot_writer::SnapshotWriter;
use crate::log::swap::LogSwapper;
use crate::log::tail::TailRequest;
use crate::transaction::admit::Admission;
use crate::writeback::checkpoints::CheckpointTimes;
use crate::writeback::coalescing::Neighbours;
use crate::writeback::home_writer::HomeWriter;
use crate::writeback::sequence_sweep::sweep_sequences;
use crate::writeback::sequences::Sequences;
use crate::writeback::writeback_outcome::WritebackOutcome;
use commit::Durability;
use runtime::race;
use std::cell::RefCell;
use std::time::Duration;
use units::{HomeBlock, Instant};

/// Progress of writing dirty blocks home, oldest first.
#[derive(Default)]
struct Pass {
    outcome: WritebackOutcome,
    /// Blocks met, without one that was written, since one last was.
    in_vain: usize,
}

/// Writes committed blocks back, for age, log space and memory.
#[derive(Clone, Copy)]
pub(crate) struct Writeback<'a> {
    pub writer: HomeWriter<'a>,
    pub admission: Admission<'a>,
    pub syncs: Syncer<'a>,
    pub tail: TailMover<'a>,
    pub snapshots: SnapshotWriter<'a>,
    pub swaps: LogSwapper<'a>,
    pub freeing: Freeing<'a>,
    pub options: &'a EngineOptions,
    pub sequences: &'a Sequences,
    pub durability: &'a Durability,
}

impl Writeback<'_> {
    /// Sends blocks home when there is a reason to.
    pub(crate) async fn home_task(&self) {
        self.admission.world.name_task("write-back");
        let mut seen = 0;
        let pause = self.options.checkpoint.pause(self.options.writeback);
        let mut round_at = self.admission.world.now().plus(pause);
        loop {
            let requested =
                self.admission.queue.until_requested(seen, || self.admission.pipeline.has_ended());
            let is_idle = self.writer.copies.blocks_until_home() == 0;
            let next = match self.durability.flush_of_unordered_at() {
                Some(flush_at) if is_idle => Some(flush_at),
                Some(flush_at) => Some(flush_at.min(round_at)),
                None => (!is_idle).then_some(round_at),
            };
            match next {
                None => requested.await,
                Some(at) => drop(race(requested, self.admission.world.sleep_until(at)).await),
            }
            if is_idle {
                self.swaps.checkpoints.begins_to_wait(self.admission.world.now());
            }
            seen = self.admission.queue.requests();
            if self.admission.pipeline.has_ended() {
                return;
            }
            if let Err(error) = self.home_round(&mut round_at, pause).await {
                self.syncs.aborter.end(&error);
                return;
            }
        }
    }

    async fn home_round(&self, round_at: &mut Instant, pause: Duration) -> Result<(), EngineError> {
        let _lock = self.admission.queue.lock().await;
        if self.admission.pipeline.has_ended() {
            return Ok(());
        }
        if self
            .durability
            .flush_of_unordered_at()
            .is_some_and(|at| at <= self.admission.world.now())
        {
            self.syncs.make_unordered_durable(None).await?;
        }
        self.relieve_log().await?;
        self.relieve_memory().await?;
        self.relieve_sequences().await?;
        self.snapshots.write_snapshot_if_due().await?;
        let now = self.admission.world.now();
        if *round_at <= now {
            *round_at = now.plus(pause);
            self.write_expired().await?;
            match self.checkpoint_is_due() {
                true if self.has_some_to_write_back() => {
                    // What cannot be read there is in nobody's way yet.
                    let _unreadable = self.write_all_committed().await?;
                }
                true => self.swaps.checkpoints.begins_to_wait(now),
                false => {}
            }
            self.tail.advance_tail(TailRequest::Round).await?;
            self.sweep().await;
            self.swaps.swap_in_idle_time().await?;
        }
        Ok(())
    }

    /// Writes home what the oldest transactions need, until half of the log is free. Files of which
    /// durability is enough stay unless it is full, and it keeps all from the oldest of them on.
    /// Where a block cannot be read that the oldest transaction needs, the log goes on until it is
    /// full: in the meantime the disk may recover, or the block be freed or written as a whole.
    async fn relieve_log(&self) -> Result<(), EngineError> {
        if !self.admission.log_is_short() {
            return Ok(());
        }
        let spares = !self.admission.log.is_some_and(|log| log.borrow().is_full());
        if spares && self.admission.queue.waits_to_read(self.admission.world.now()) {
            return self.tail.advance_tail(TailRequest::Space).await;
        }
        let mut batch = self.checkpoint_batch(spares);
        if batch.is_some() {
            self.syncs.counters.borrow_mut().checkpointed();
        }
        let mut unreadable = None;
        while let Some(blocks) = batch {
            let outcome = self.writer.write_home(blocks, Neighbours::GoAlong).await?;
            if outcome.written == 0 {
                unreadable = outcome.unreadable;
                break;
            }
            self.tail.advance_tail(TailRequest::Space).await?;
            // Of a long log this takes minutes.
            if !units::fault!("relief-not-recorded") {
                self.snapshots.write_snapshot_if_due().await?;
            }
            batch = self.checkpoint_batch(spares);
        }
        self.tail.advance_tail(TailRequest::Space).await?;
        let Some(error) = unreadable else { return Ok(()) };
        if self.admission.log.is_some_and(|log| log.borrow().is_full()) {
            // Nobody could change anything until it can be read, and it may never be.
            return Err(error);
        }
        self.admission.queue.note_read_failure(self.admission.world.now());
        Ok(())
    }

    /// The next blocks to write so that half of the log becomes free; `None` when no more need be
    /// written. `spares`: or may be, as the others are to stay.
    fn checkpoint_batch(&self, spares: bool) -> Option<Vec<HomeBlock>> {
        let mut blocks = self.admission.log?.borrow().checkpoint_batch(HOME_BATCH_MAX)?;
        if spares {
            self.leave_out_those_that_stay(&mut blocks);
        }
        (!blocks.is_empty()).then_some(blocks)
    }

    /// Writes the oldest images home when those that cannot be evicted fill half of the cache.
    /// Memory evicts those that the log holds whole, and the others are written home, until a
    /// quarter is left.
    async fn relieve_memory(&self) -> Result<(), EngineError> {
        let limit = self.admission.cache.borrow().limit();
        if self.admission.pinned_images() <= limit / 2 {
            return Ok(());
        }
        while self.writer.copies.evict(|| self.admission.pinned_images() <= limit / 4) {
            runtime::yield_now().await;
        }
        let mut pass = Pass::default();
        while self.admission.pinned_images() > limit / 4 {
            if !self.write_oldest_home(&mut pass).await? {
                // The rest is in transactions that are not committed yet, or is written home past
                // the cache, or cannot be read now. Where nothing is to be committed, a request
                // would wake those who wait for memory, and they this task, without end.
                if !self.admission.pipeline.is_idle() {
                    self.admission.pipeline.request(self.admission.pipeline.running_id());
                } else if self.admission.pipeline.in_flight() == 0 && self.admission.has_no_memory()
                {
                    // Nobody could change anything until it can be read, and it may never be.
                    return pass.outcome.whole();
                }
                break;
            }
            self.relieve_log().await?;
        }
        Ok(())
    }

    /// Writes the oldest dirty blocks home. Whether there may be more that can be: not when each
    /// was tried in vain since one was last written.
    async fn write_oldest_home(&self, pass: &mut Pass) -> Result<bool, EngineError> {
        let blocks = self.dirty_blocks(|_| true);
        let count = blocks.len();
        if blocks.is_empty() {
            return Ok(false);
        }
        let outcome = self.writer.write_home(blocks, Neighbours::GoAlong).await?;
        let has_written = outcome.written > 0;
        pass.in_vain = if has_written { 0 } else { pass.in_vain + count };
        pass.outcome = std::mem::take(&mut pass.outcome).and(outcome);
        Ok(has_written || pass.in_vain < self.admission.queue.dirty())
    }

    /// Ends sequences where the table takes more than its part: committed blocks are written back,
    /// files of which durability is enough included, and the tail moves. The caller holds the
    /// write-back lock.
    async fn relieve_sequences(&self) -> Result<(), EngineError> {
        if self.sequences.want_sweep() {
            self.sweep().await;
        }
        let Some(log) = self.admission.log.filter(|_| self.sequences.exceeds_memory_max()) else {
            return Ok(());
        };
        let began = self.admission.world.now();
        let blocks = self.admission.queue.expired(
            &self.admission.cache.borrow(),
            began,
            usize::MAX,
            |since| since <= began,
        );
        for blocks in blocks.chunks(HOME_BATCH_MAX) {
            // What cannot be read keeps its sequences.
            self.writer.write_home(blocks.to_vec(), Neighbours::GoAlong).await?;
        }
        self.write_copied_home(true).await?;
        log.borrow_mut().is_waited_for();
        self.tail.advance_tail(TailRequest::Space).await?;
        self.sweep().await;
        if self.sequences.exceeds_memory_max() {
            // The rest are of transactions that are not committed yet.
            self.admission.pipeline.request(self.admission.pipeline.running_id());
        }
        Ok(())
    }

    async fn sweep(&self) {
        let reader = &self.writer.reader;
        sweep_sequences(self.sequences, reader.log, reader.cache).await;
    }

    async fn write_expired(&self) -> Result<(), EngineError> {
        let now = self.admission.world.now();
        loop {
            let mut blocks = self.dirty_blocks(|since| since.plus(self.options.expire) <= now);
            if blocks.is_empty() {
                break;
            }
            if self.options.checkpoint != CheckpointTimes::ByAge {
                // What no log holds is written home by its age all the same.
                let cache = self.admission.cache.borrow();
                blocks.retain(|at| cache.peek(*at).is_none_or(|block| !block.is_held_by_log()));
            }
            self.leave_out_those_that_stay(&mut blocks);
            // What could not be read stays dirty and is tried again when it expires again.
            self.writer.write_home(blocks, Neighbours::Stay).await?;
            // Thousands may have expired, and a handle that needs log space does not wait for all
            // of them.
            self.relieve_log().await?;
        }
        let is_old = |log: &RefCell<LogState>| {
            log.borrow().mapping().is_older_than(self.options.expire, now)
        };
        if self.options.checkpoint == CheckpointTimes::ByAge
            && self.admission.log.is_some_and(is_old)
        {
            // What could not be read is tried again, too.
            self.write_copied_home(false).await?;
        }
        Ok(())
    }

    fn checkpoint_is_due(&self) -> bool {
        let wall_clock = self.admission.world.wall_clock().seconds;
        self.swaps.checkpoints.is_due(
            self.options.checkpoint,
            self.admission.world.now(),
            wall_clock,
            self.swaps.activity(),
        )
    }

    /// Whether anything that is committed does not stay in the log.
    fn has_some_to_write_back(&self) -> bool {
        let mut found =
            self.admission.log.is_some_and(|log| log.borrow().mapping().has_some_to_write_back());
        self.admission.queue.while_dirty(&self.admission.cache.borrow(), |block| {
            found |= block.may_be_written_home() && !block.stays_in_log();
            !found
        });
        found
    }

    /// Writes home everything that is committed now, but for files of which durability is enough.
    /// What home or the log cannot be read for stays in the log, and the error is returned. The
    /// caller holds the write-back lock.
    pub(crate) async fn write_all_committed(&self) -> Result<Option<EngineError>, EngineError> {
        let began = self.admission.world.now();
        self.swaps.checkpoints.begin(self.writer.copies.blocks_until_home() as u64);
        // Blocks met count as dirty from now on: those that come later are left to the next one.
        let mut blocks = self.admission.queue.expired(
            &self.admission.cache.borrow(),
            began,
            usize::MAX,
            |since| since <= began,
        );
        self.leave_out_those_that_stay(&mut blocks);
        let mut all = WritebackOutcome::default();
        for blocks in blocks.chunks(HOME_BATCH_MAX) {
            all = all.and(self.writer.write_home(blocks.to_vec(), Neighbours::GoAlong).await?);
            self.relieve_log().await?;
        }
        all = all.and(self.write_copied_home(false).await?);
        self.swaps.checkpoints.end(began, self.admission.world.now());
        Ok(all.unreadable)
    }

    /// Files of which durability is enough stay in the log.
    fn leave_out_those_that_stay(&self, blocks: &mut Vec<HomeBlock>) {
        let cache = self.admission.cache.borrow();
        let copy_stays = |at| {
            self.admission.log.is_some_and(|log| {
                log.borrow().mapping().get(at).is_some_and(|copy| copy.durable_only)
            })
        };
        blocks.retain(|at| match cache.peek(*at) {
            Some(block) if block.is_held_by_log() => !block.stays_in_log(),
            _ => !copy_stays(*at),
        });
    }

    fn dirty_blocks(&self, has_expired: impl Fn(Instant) -> bool) -> Vec<HomeBlock> {
        self.admission.queue.expired(
            &self.admission.cache.borrow(),
            self.admission.world.now(),
            HOME_BATCH_MAX,
            has_expired,
        )
    }

    /// Writes home everything that is committed; no transaction is running.
    pub(crate) async fn write_everything_home(&self) -> Result<(), EngineError> {
        let mut pass = Pass::default();
        while self.admission.queue.dirty() > 0 && self.write_oldest_home(&mut pass).await? {}
        let copied = self.write_copied_home(true).await?;
        if self.admission.queue.dirty() > 0 {
            pass.outcome.whole()?;
        }
        copied.whole()
    }

    /// The blocks of which the log alone holds the newest content, those that are to stay there
    /// left out or not.
    async fn write_copied_home(
        &self,
        with_those_that_stay: bool,
    ) -> Result<WritebackOutcome, EngineError> {
        let blocks = self
            .admission
            .log
            .map_or(Vec::new(), |log| log.borrow().mapping().blocks(with_those_that_stay));
        let mut all = WritebackOutcome::default();
        for blocks in blocks.chunks(HOME_BATCH_MAX) {
            all = all.and(self.writer.copies.copies_home(blocks).await?);
            // Nobody waits for room until all of them are home.
            self.relieve_log().await?;
        }
        Ok(all)
    }
}
