//! Write-back and checkpoint: committed blocks go home, then the log tail moves past their records.
//!
//! Three reasons: age (`writeback=`, `expire=`) or what `checkpoint=` says in its place, a short log (the oldest transactions
//! first), and memory. Only
//! the image of the latest committed transaction goes home, and always whole; and data that the running transaction sends
//! home in any case before it commits: so memory that runs short asks for no commit.

use crate::block::{AsOf, CachedBlock};
use crate::checkpoints::CheckpointTimes;
use crate::clocks::HomeClock;
use crate::durability::HomeWrites;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::home_runs::{Neighbours, Run, runs_of};
use crate::log::LogState;
use crate::mapped::Copied;
use crate::tail::Occasion;
use crate::update::Contents;
use device::Buffer;
use journal::BlockKind;
use runtime::{join_window, race};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Instant};

/// Most home writes under way at once.
const RUNS_IN_FLIGHT_MAX: usize = 16;
/// Most blocks taken on at once: bounds the memory for bases and images.
pub(crate) const BATCH_BLOCKS_MAX: usize = 2048;

type LocalWrite<'a> = Pin<Box<dyn Future<Output = Result<Outcome, EngineError>> + 'a>>;

/// What was written of a block.
struct Sent {
    block: Rc<CachedBlock>,
    bytes: Rc<Buffer>,
    as_of: AsOf,
}

/// What became of blocks that were to go home.
#[derive(Default)]
pub(crate) struct Outcome {
    written: usize,
    unreadable: Option<EngineError>,
}

impl Outcome {
    /// Whether any block went home. That none could for want of its base is an error: the log, or memory, can
    /// then never be freed.
    fn progress(self) -> Result<bool, EngineError> {
        match self.unreadable {
            Some(error) if self.written == 0 => Err(error),
            _ => Ok(self.written > 0),
        }
    }
    /// An error if any block could not go home.
    pub(crate) fn whole(self) -> Result<(), EngineError> {
        self.unreadable.map_or(Ok(()), Err)
    }
}

impl Engine {
    pub(crate) fn log_is_short(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.borrow().is_short())
    }

    /// Sends blocks home when there is a reason to.
    pub(crate) async fn home_task(self: Rc<Self>) {
        let mut seen = 0;
        let pause = self.options.checkpoint.pause(self.options.writeback);
        let mut round_at = self.world.now().plus(pause);
        loop {
            let kicked = || (self.pipeline.is_over() || self.queue.kicks() != seen).then_some(());
            if self.blocks_until_home() == 0 {
                self.queue.work.until(kicked).await;
                self.checkpoints.begins_to_wait(self.world.now());
            } else {
                let _ = race(self.queue.work.until(kicked), self.world.sleep_until(round_at)).await;
            }
            seen = self.queue.kicks();
            if self.pipeline.is_over() {
                return;
            }
            if let Err(error) = self.home_round(&mut round_at, pause).await {
                self.abort(&error);
                return;
            }
        }
    }

    async fn home_round(&self, round_at: &mut Instant, pause: Duration) -> Result<(), EngineError> {
        let _turn = self.queue.turn().await;
        if self.pipeline.is_over() {
            return Ok(());
        }
        self.relieve_log().await?;
        self.relieve_memory().await?;
        let now = self.world.now();
        if *round_at <= now {
            *round_at = now.plus(pause);
            self.write_expired().await?;
            if self.checkpoint_is_due() {
                // What cannot be read there is in nobody's way yet.
                let _unreadable = self.write_all_committed().await?;
            }
            self.advance_tail(Occasion::Round).await?;
            self.swap_in_idle_time().await?;
        }
        Ok(())
    }

    /// Writes home what the oldest transactions need, until half of the log is free.
    async fn relieve_log(&self) -> Result<(), EngineError> {
        if !self.log_is_short() {
            return Ok(());
        }
        let mut batch = self.checkpoint_batch();
        self.counters.borrow_mut().checkpoints += u64::from(batch.is_some());
        while let Some(blocks) = batch {
            if !self.write_home(blocks, Neighbours::GoAlong).await?.progress()? {
                break;
            }
            self.advance_tail(Occasion::Space).await?;
            batch = self.checkpoint_batch();
        }
        self.advance_tail(Occasion::Space).await
    }

    /// The next blocks to write so that half of the log becomes free; `None` when no more need be written.
    fn checkpoint_batch(&self) -> Option<Vec<HomeBlock>> {
        let log = self.log.as_ref()?.borrow();
        // Blocks of transactions that replay needs no longer are as good as free: the tail moves past them.
        let needed = log.checkpoint.blocks_needed();
        // What is left holds the largest transaction, and a revoke for each live record.
        let excess = log.space.to_free(needed, log.largest());
        let blocks = log.checkpoint.blocks_to_write(excess, BATCH_BLOCKS_MAX);
        (excess > 0 && !blocks.is_empty()).then_some(blocks)
    }

    /// When images that cannot be evicted fill half of the cache: of the oldest memory lets go what the log holds whole, and the
    /// others go home, until a quarter is left.
    async fn relieve_memory(&self) -> Result<(), EngineError> {
        let limit = self.cache.borrow().limit();
        if self.pinned_images() <= limit / 2 {
            return Ok(());
        }
        while self.let_go(|| self.pinned_images() <= limit / 4) {
            runtime::yield_now().await;
        }
        while self.pinned_images() > limit / 4 {
            let blocks = self.dirty_blocks(|_| true);
            if blocks.is_empty() || !self.write_home(blocks, Neighbours::GoAlong).await?.progress()? {
                // The rest is in transactions that are not committed yet.
                self.pipeline.request(self.pipeline.running_id());
                break;
            }
            self.relieve_log().await?;
        }
        Ok(())
    }

    async fn write_expired(&self) -> Result<(), EngineError> {
        let now = self.world.now();
        loop {
            let mut blocks = self.dirty_blocks(|since| since.plus(self.options.expire) <= now);
            if blocks.is_empty() {
                break;
            }
            if self.options.checkpoint != CheckpointTimes::ByAge {
                // What no log holds goes home by its age all the same.
                let cache = self.cache.borrow();
                blocks.retain(|at| cache.peek(*at).is_none_or(|block| !block.is_held_by_log()));
            }
            self.leave_out_those_that_stay(&mut blocks);
            // What could not be read stays dirty and is tried again when it is due again.
            self.write_home(blocks, Neighbours::Stay).await?;
            // Thousands may be due, and whoever needs log space meanwhile does not wait for all of them.
            self.relieve_log().await?;
        }
        let is_old = |log: &RefCell<LogState>| log.borrow().mapping.is_older_than(self.options.expire, now);
        if self.options.checkpoint == CheckpointTimes::ByAge && self.log.as_ref().is_some_and(is_old) {
            // What could not be read is tried again, too.
            self.write_copied_home(false).await?;
        }
        Ok(())
    }

    fn checkpoint_is_due(&self) -> bool {
        let wall_clock = self.world.wall_clock().seconds;
        self.checkpoints.is_due(self.options.checkpoint, self.world.now(), wall_clock, self.activity())
    }

    /// Everything that is committed now, but for files of which durability is enough. What the log cannot be read for stays
    /// there, and is told. Whoever asks holds the turn.
    pub(crate) async fn write_all_committed(&self) -> Result<Option<EngineError>, EngineError> {
        let began = self.world.now();
        self.checkpoints.begin(self.blocks_until_home() as u64);
        // What is met counts as dirty from now on: what comes meanwhile is left to the next one.
        let mut blocks = self.queue.due(&self.cache.borrow(), began, usize::MAX, |since| since <= began);
        self.leave_out_those_that_stay(&mut blocks);
        for blocks in blocks.chunks(BATCH_BLOCKS_MAX) {
            if !self.write_home(blocks.to_vec(), Neighbours::GoAlong).await?.progress()? {
                break;
            }
            self.relieve_log().await?;
        }
        let unreadable = self.write_copied_home(false).await?.unreadable;
        self.checkpoints.end(began, self.world.now());
        Ok(unreadable)
    }

    /// Files of which durability is enough stay in the log.
    fn leave_out_those_that_stay(&self, blocks: &mut Vec<HomeBlock>) {
        let cache = self.cache.borrow();
        blocks.retain(|at| cache.peek(*at).is_none_or(|block| !(block.stays() && block.is_held_by_log())));
    }

    fn dirty_blocks(&self, is_due: impl Fn(Instant) -> bool) -> Vec<HomeBlock> {
        self.queue.due(&self.cache.borrow(), self.world.now(), BATCH_BLOCKS_MAX, is_due)
    }

    /// Everything that is committed and not home; no transaction is running.
    pub(crate) async fn write_everything_home(&self) -> Result<(), EngineError> {
        while self.queue.dirty() > 0 {
            let blocks = self.dirty_blocks(|_| true);
            if !self.write_home(blocks, Neighbours::GoAlong).await?.progress()? {
                break;
            }
        }
        self.write_copied_home(true).await?.whole()
    }

    /// The blocks of which the log alone holds the newest content, those that are to stay there left out or not.
    async fn write_copied_home(&self, with_those_that_stay: bool) -> Result<Outcome, EngineError> {
        let blocks =
            self.log.as_ref().map_or(Vec::new(), |log| log.borrow().mapping.blocks(with_those_that_stay));
        let mut all = Outcome::default();
        for blocks in blocks.chunks(BATCH_BLOCKS_MAX) {
            let Copied { written, unreadable } = self.copies_home(blocks).await?;
            all = Outcome { written: all.written + written, unreadable: all.unreadable.or(unreadable) };
            // Nobody waits for room until all of them are home.
            self.relieve_log().await?;
        }
        Ok(all)
    }

    /// Writes the committed images of `numbers` (sorted) home, except those whose base cannot be read, and what may
    /// go along. No barrier yet.
    pub(crate) async fn write_home(
        &self,
        numbers: Vec<HomeBlock>,
        neighbours: Neighbours,
    ) -> Result<Outcome, EngineError> {
        let runs = runs_of(&self.cache.borrow(), &numbers, neighbours);
        let clock = self.policy.learns().map(|auto| HomeClock::begin(auto, &*self.world, runs.len()));
        let writes = runs.into_iter().map(|run| -> LocalWrite<'_> { Box::pin(self.write_run(run)) });
        let outcomes = join_window(writes, RUNS_IN_FLIGHT_MAX).await?;
        self.cache.borrow_mut().shrink();
        self.pipeline.wake_joiners();
        let all = outcomes.into_iter().fold(Outcome::default(), |sum, one| Outcome {
            written: sum.written + one.written,
            unreadable: sum.unreadable.or(one.unreadable),
        });
        clock.into_iter().for_each(|clock| clock.end(all.written * self.block_size.bytes()));
        let Copied { written, unreadable } = self.copies_home(&numbers).await?;
        Ok(Outcome { written: all.written + written, unreadable: all.unreadable.or(unreadable) })
    }

    /// Writes neighbours home with one request, or several if some need no writing any more.
    async fn write_run(&self, mut run: Run) -> Result<Outcome, EngineError> {
        let known = CachedBlock::is_whole_in_all_images;
        let mut unreadable = None;
        if self.load_all(&run, known).await.is_err() {
            for block in &run {
                unreadable = self.load(block, known).await.err().or(unreadable);
            }
            run.retain(|block| block.is_whole_in_all_images());
        }
        let Some(first) = run.first() else { return Ok(Outcome { written: 0, unreadable }) };
        let count = run[run.len() - 1].number.get() + 1 - first.number.get();
        let _claim = self.runner.claims.claim(first.number, count).await;
        // Only now: while waiting for the claim, another write may have brought a newer image home.
        let sent: Vec<Sent> = run.into_iter().filter_map(Sent::of).collect();
        let mut written = 0;
        for sent in sent.chunk_by(|left, right| left.block.number.plus(1) == right.block.number) {
            let kinds: Vec<_> = sent.iter().map(Sent::kind).collect();
            let parts = sent.iter().map(|sent| sent.bytes.clone()).collect();
            let writes = self.runner.write_home(sent[0].block.number, &kinds, parts).await?;
            sent.iter().for_each(|sent| self.arrived(sent, writes));
            let is_logged = |sent: &&Sent| matches!(sent.as_of, AsOf::Committed(_));
            self.checkpoints.written(sent.iter().filter(is_logged).count() as u64);
            written += sent.len();
        }
        self.counters.borrow_mut().home_writes += 1;
        Ok(Outcome { written, unreadable })
    }

    /// What was sent is home, though perhaps in the disk's cache only: `writes` is the last write of it.
    fn arrived(&self, sent: &Sent, writes: HomeWrites) {
        let Sent { block, bytes, as_of } = sent;
        match as_of {
            AsOf::Committed(as_of) => {
                if let Some(log) = &self.log {
                    log.borrow_mut().home_written(block.number, *as_of);
                }
                block.committed_arrived(bytes);
            }
            AsOf::Running => {
                if let Some(owner) = block.ordered_arrived(bytes) {
                    self.runner.durability.note_early(writes);
                    let mut transaction = self.pipeline.transaction();
                    transaction.home_data_written(owner, block.number);
                    block.leave_order(transaction.logs(block.number));
                }
            }
            AsOf::Loose => {
                self.runner.durability.note_loose(writes);
                if let Some(owner) = block.loose_arrived(bytes) {
                    self.loose.remove(owner, block.number);
                }
            }
        }
        self.queue.wash(block);
    }
}

impl Sent {
    /// The image that may go home; `None` if home has it already.
    fn of(block: Rc<CachedBlock>) -> Option<Sent> {
        let (bytes, as_of) = block.to_send()?;
        Some(Sent { block, bytes, as_of })
    }
    fn kind(&self) -> BlockKind {
        match self.block.contents() {
            Contents::Metadata => BlockKind::HomeMetadata,
            Contents::Data => BlockKind::HomeData,
        }
    }
}
