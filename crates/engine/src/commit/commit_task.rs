//! Group commit: one transaction runs, one commits, or two ([`crate::transaction::overlap`]). All
//! who ask while a commit is in flight share the next.
//!
//! The order: wait until open handles have stopped, take the images, plan, carry out. Then, and
//! only then, the transaction counts as committed and its waiters are woken, in the order they
//! came.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Cache;
use crate::cache::direct_writes::DirectWrites;
use crate::commit::clocks::{CommitClock, CommitTimes};
use crate::interface::error::EngineError;
use crate::interface::stats::Counters;
use crate::log::move_tail::TailMover;
use crate::log::snapshot_writer::SnapshotWriter;
use crate::transaction::abort::Aborter;
use crate::transaction::admit::Admission;
use crate::transaction::overlap::Overlap;
use crate::writeback::checkpoints::Checkpoints;
use crate::writeback::sequences::Sequences;
use crate::writeback::unordered_data::UnorderedData;
use crate::writeback::utilization::Utilization;
use commit::{Freed, RunningContent};
use journal::Policy;
use journal::{
    CommitCost, CommitPlan, CommitStamp, CommittingTransaction, LockedTransaction, Plan,
    TimedCommit, TimedWrites, WholeBlockLocation, plan_commit_home,
};
use runtime::race;
use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::BlockSize;
use units::HomeBlock;

/// Blocks that are logged, and blocks that are written home in the commit.
type Images = (Vec<Rc<CachedBlock>>, Vec<Rc<CachedBlock>>);

/// Blocks, and runs of them, that leave the cache before other tasks run.
const FREED_LOOKS: usize = 1024;

/// A transaction in flight to the disk, and the blocks that wait for the outcome.
pub(crate) struct Commit {
    transaction: CommittingTransaction,
    freed: Vec<Freed>,
    /// Blocks whose image is in the log: from then on it may be written home.
    logged: Vec<Rc<CachedBlock>>,
    /// Blocks that are written home in the commit itself.
    home: Vec<Rc<CachedBlock>>,
    plan: CommitPlan,
    /// Blocks made for the log.
    made: usize,
    /// Places at which the log will hold blocks whole, sorted.
    places: Vec<(HomeBlock, WholeBlockLocation)>,
    handles: u64,
    /// Whether few enough writers wait for it that staying awake for the disk is worthwhile.
    is_worth_polling: bool,
    /// Number of callers that had asked for it when it was locked.
    waiters: usize,
}

/// Carries transactions from their lock to their end.
#[derive(Clone, Copy)]
pub(crate) struct Committer<'a> {
    pub admission: Admission<'a>,
    pub aborter: Aborter<'a>,
    pub overlap: Overlap<'a>,
    pub tail: TailMover<'a>,
    pub snapshots: SnapshotWriter<'a>,
    pub commit_age: &'a Cell<Duration>,
    pub block_size: BlockSize,
    /// [`crate::EngineOptions::records_at_once`].
    pub records_at_once: usize,
    pub policy: &'a dyn Policy,
    pub utilization: Option<&'a Utilization>,
    pub cache: &'a RefCell<Cache>,
    pub checkpoints: &'a Checkpoints,
    pub unordered: &'a UnorderedData,
    pub direct_writes: &'a DirectWrites,
    pub sequences: &'a Sequences,
    pub counters: &'a RefCell<Counters>,
}

impl Committer<'_> {
    /// Commits whenever someone has asked for it.
    pub(crate) async fn commit_task(&self, beside: &dyn Fn(Commit)) {
        self.admission.world.name_task("commit");
        loop {
            let pipeline = self.admission.pipeline;
            pipeline.until(|| pipeline.is_wanted()).await;
            if self.admission.pipeline.has_ended() {
                return;
            }
            self.delay().await;
            self.overlap.wait_until_startable().await;
            self.admission.pipeline.stop_handles().await;
            self.overlap.wait_until_lockable().await;
            if self.admission.pipeline.has_ended() {
                return;
            }
            // Before anyone learns that they may be used again, and while nobody can join.
            let freed = self.admission.pipeline.freed_without_log();
            self.drop_freed(&freed).await;
            if self.admission.pipeline.skip_empty() {
                continue;
            }
            if let Err(error) = self.commit_running(beside).await {
                self.aborter.abort(&error);
                return;
            }
        }
    }

    /// Waits as long as the pacing says, and for the writers answered by the last commit.
    async fn delay(&self) {
        let next = || {
            self.admission
                .pacing
                .wait_until(self.admission.world.now())
                .filter(|_| !self.admission.pipeline.has_ended())
        };
        while let Some(at) = next() {
            self.admission.world.sleep_until(at).await;
        }
        self.admission.pipeline.delay_commit(self.admission.world, || false).await;
    }

    pub(crate) fn expect_soon(&self, is_worth_polling: bool, soon: bool) {
        if is_worth_polling {
            self.admission.world.expect_soon(soon);
        }
    }

    /// Carries the running transaction from its lock to the reply, or until the next may overlap.
    /// No handle is open.
    async fn commit_running(&self, beside: &dyn Fn(Commit)) -> Result<(), EngineError> {
        let commit = self.lock().await?;
        let is_worth_polling = commit.is_worth_polling;
        self.expect_soon(is_worth_polling, true);
        let result = self.issue_commit(commit, beside).await;
        if self.admission.pipeline.in_flight() == 0 {
            self.expect_soon(is_worth_polling, false);
        }
        result
    }

    async fn issue_commit(
        &self,
        mut commit: Commit,
        beside: &dyn Fn(Commit),
    ) -> Result<(), EngineError> {
        self.tail.choose_place(&commit.plan).await?;
        self.issue(&mut commit);
        if self.overlap.may_be_passed(&commit.plan.plan) {
            beside(commit);
            return Ok(());
        }
        // While its place was announced the tail may have come to go along: then it goes alone.
        if !units::fault!("overlap-home-passes") {
            self.admission.pipeline.until_oldest(commit.plan.transaction).await?;
        }
        self.carry_out(commit).await
    }

    /// Carries a commit out while others may be issued.
    pub(crate) async fn carry_out_beside(&self, commit: Commit) {
        self.admission.world.name_task("commit");
        if let Err(error) = self.write_log(commit).await {
            self.aborter.abort(&error);
        }
        if self.admission.pipeline.in_flight() == 0 {
            // It does not matter which of them it was worth polling for.
            self.expect_soon(true, false);
        }
    }

    /// Carries out a plan that writes the log alone.
    async fn write_log(&self, mut commit: Commit) -> Result<(), EngineError> {
        self.tail.note_tail();
        let plan = std::mem::take(&mut commit.plan.plan);
        let clock = self.begin_clock(&plan);
        self.aborter.executor.run(plan).await?;
        self.admission.pipeline.until_oldest(commit.plan.transaction).await?;
        self.log_is_written(&commit, clock);
        self.finish(commit).await
    }

    /// Takes the running transaction. The images are taken in one stretch without waiting: they are
    /// those of this moment. While the log blocks are made of them other tasks run, and no handle
    /// may join.
    async fn lock(&self) -> Result<Commit, EngineError> {
        let RunningContent { transaction, freed, completion } =
            self.admission.pipeline.lock(self.admission.world.now());
        let made = self.admission.log_buffer_blocks_max(&transaction.holdings());
        self.admission.pacing.locked();
        let locked = transaction.lock();
        let (logged, home) = self.take_images(&locked)?;
        self.cache.borrow_mut().note_log_buffers(made);
        let handles = locked.handles();
        let (plan, transaction) = self.plan(locked).await?;
        self.admission.pipeline.end_lock();
        let (is_worth_polling, waiters) =
            (self.admission.pipeline.is_worth_polling(&completion), completion.waiters());
        Ok(Commit {
            transaction,
            freed,
            logged,
            home,
            plan,
            made,
            places: Vec::new(),
            handles,
            is_worth_polling,
            waiters,
        })
    }

    /// On a volume whose structures share a block, freeing one takes it from the other's
    /// transaction.
    fn take_images(&self, locked: &LockedTransaction) -> Result<Images, EngineError> {
        let cache = self.cache.borrow();
        let take = |at: HomeBlock| {
            let Some(block) = cache.peek(at) else { return Err(EngineError::Shared { at }) };
            block.freeze(locked.id());
            Ok(block.clone())
        };
        let logged = locked.metadata().chain(locked.data().map(|(at, _)| at)).map(take);
        let logged = logged.collect::<Result<Vec<_>, _>>()?;
        let home = locked.home_data().map(take).collect::<Result<Vec<_>, _>>()?;
        Ok(match self.admission.log {
            Some(_) => (logged, home),
            None => (Vec::new(), logged.into_iter().chain(home).collect()),
        })
    }

    async fn plan(
        &self,
        mut locked: LockedTransaction,
    ) -> Result<(CommitPlan, CommittingTransaction), EngineError> {
        let id = locked.id();
        let image = |at: HomeBlock| {
            let frozen = self.cache.borrow().peek(at).and_then(|block| block.frozen(id));
            frozen.expect("a block in a transaction stays in the cache, and its image was taken")
        };
        let Some(log) = self.admission.log else {
            return Ok((plan_commit_home(&locked, &image), locked.start_commit()));
        };
        let mut stamp = CommitStamp {
            time: self.admission.world.wall_clock(),
            durable: self.admission.pipeline.committed(),
        };
        if units::fault!("overlap-floor-too-high") {
            stamp.durable = id.previous();
        }
        let idle = self.admission.world.now().since(self.admission.pipeline.committed_at());
        log.borrow_mut().begin_commit(&mut locked);
        let records = log.borrow().records().clone();
        let mut writer = records.writer(&locked, &stamp);
        while writer.write_some(&image, self.records_at_once) {
            runtime::yield_now().await;
            // Blocks need not stay in the cache behind a failure.
            self.admission.pipeline.check()?;
        }
        let written = writer.finish(&image);
        let mut planned = log.borrow_mut().plan_commit(&locked, written, &image, &stamp, idle)?;
        if self.admission.pacing.separates_barriers() {
            planned.separate_barriers();
        }
        Ok((planned, locked.start_commit()))
    }

    /// Issues the plan: its log blocks get their addresses at the last moment before it is carried
    /// out.
    fn issue(&self, commit: &mut Commit) {
        if let Some(log) = self.admission.log {
            commit.places = log.borrow_mut().issue(&mut commit.plan, self.block_size.bytes());
        }
    }

    async fn carry_out(&self, mut commit: Commit) -> Result<(), EngineError> {
        let mut last = commit.plan.plan.split_off_last_phase();
        let id = commit.plan.transaction;
        let on = !units::fault!("long-write-not-awaited");
        self.direct_writes
            .until_arrived(|write| on && write.before.is_some_and(|with| !with.is_after(id)))
            .await;
        self.tail.note_tail();
        let first = std::mem::take(&mut commit.plan.plan);
        let mut clock = self.begin_clock(&first);
        self.aborter.executor.run(first).await?;
        clock.home_is_done(self.admission.world.now());
        let moved = self.tail.take_tail_along(&mut last);
        self.aborter.executor.run(last).await?;
        self.log_is_written(&commit, clock);
        self.admission.pipeline.check()?;
        if let Some(moved) = moved {
            self.tail.tail_moved(moved);
        }
        self.finish(commit).await
    }

    /// Starts the clock of a commit. A policy that learns nothing counts no writes of `first`, the
    /// plan up to its last barrier but one.
    fn begin_clock(&self, first: &Plan) -> CommitClock {
        let home = self.policy.learns().map(|_| first.home_writes());
        CommitClock::begin(self.admission.world.now(), home.unwrap_or_default())
    }

    /// Notes the time of a commit that is about to count as committed.
    fn log_is_written(&self, commit: &Commit, clock: CommitClock) {
        let Some(log) = self.admission.log else { return };
        let (now, written) = (self.admission.world.now(), commit.plan.log_bytes());
        let CommitTimes { home, idle, log: took } =
            clock.log_is_done(now, self.admission.pipeline.committed_at());
        let (gap, writes) = (commit.plan.gap_bytes(), self.aborter.executor.counts().writes());
        log.borrow_mut().is_written(&TimedCommit { gap, written, idle, took, writes });
        if let Some(auto) = self.policy.learns() {
            let log =
                TimedWrites { writes: 1, bytes: written, nanoseconds: took.as_nanos() as u64 };
            let utilization =
                self.utilization.as_ref().map_or(Duration::ZERO, |utilization| utilization.total());
            let (waited, durable) = (commit.waiters > 0, self.aborter.durability.keeps_barriers());
            auto.committed(now, utilization, &CommitCost { home, log, waited, durable });
        }
    }

    /// Finishes the commit, whose commit block is durable: what was logged may be written home,
    /// what was freed may be used again. Waits only where it freed much.
    async fn finish(&self, mut commit: Commit) -> Result<(), EngineError> {
        let committed = commit.plan.carried_out(commit.transaction);
        let place = |at: HomeBlock| {
            let found = commit.places.binary_search_by_key(&at, |(home, _)| *home).ok()?;
            Some(commit.places[found].1)
        };
        for block in &commit.logged {
            block.commit(committed.id, place(block.number()));
        }
        for block in &commit.home {
            // A block that was changed since is home when the newer image is.
            if block.commit_home(committed.id) {
                self.admission.queue.mark_clean(block);
            }
        }
        if let Some(log) = self.admission.log {
            log.borrow_mut().committed(&committed);
            let written_back = commit.logged.iter().filter(|block| !block.is_durable_only());
            self.checkpoints.logged(written_back.map(|block| block.number()));
        }
        // Before anyone learns that they may be used again.
        if !commit.freed.is_empty() {
            self.drop_freed(&commit.freed).await;
            self.admission.pipeline.check()?;
        }
        self.counters.borrow_mut().committed(commit.handles, commit.plan.payload);
        self.unordered.committed(committed.id);
        self.admission.pipeline.finish(committed.id, self.admission.world.now());
        drop((commit.logged, commit.home, commit.plan));
        self.cache.borrow_mut().drop_log_buffers(commit.made);
        let is_much = self.admission.pinned_images() > self.cache.borrow().limit() / 2;
        let is_much = is_much || self.sequences.exceeds_memory_max();
        if self.admission.log_is_short() || is_much || self.snapshots.snapshot_is_due() {
            self.admission.queue.request();
        }
        Ok(())
    }

    /// The transaction that freed these blocks is committed: nothing of them is written home any
    /// more. Lets others run now and then.
    async fn drop_freed(&self, freed: &[Freed]) {
        let mut looks = 0;
        for (at, count) in freed {
            let numbers: Vec<_> = {
                let cache = self.cache.borrow();
                // On a damaged volume another owner of the block may use it again before this
                // commit, or in the next that is in flight.
                let unused = cache
                    .within(*at, *count)
                    .filter(|block| !block.is_running() && !block.is_in_flight());
                unused.map(|block| block.number()).collect()
            };
            {
                let mut cache = self.cache.borrow_mut();
                for number in &numbers {
                    let Some(block) = cache.remove(*number) else { continue };
                    block.drop_committed();
                    self.admission.queue.drop_block(&block);
                }
            }
            looks += 1 + numbers.len();
            if looks >= FREED_LOOKS {
                looks = 0;
                runtime::yield_now().await;
            }
        }
    }

    /// Asks for the commit of transactions that have become old.
    pub(crate) async fn commit_timer_task(&self) {
        while let Some(begun) = self.admission.pipeline.until_begun().await {
            let (id, since) = begun;
            let due = since.plus(self.commit_age.get());
            let _ = race(
                self.admission.pipeline.until_replaced(begun),
                self.admission.world.sleep_until(due),
            )
            .await;
            if self.admission.pipeline.has_ended() {
                return;
            }
            if !self.admission.pipeline.is_replaced(begun) {
                self.admission.pipeline.request(id);
                self.admission.pipeline.until_replaced(begun).await;
            }
        }
    }
}
