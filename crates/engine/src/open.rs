//! Assembly, opening and closing of an engine.

use crate::cache::block_cache::{Cache, Temperature};
use crate::cache::direct_writes::DirectWrites;
use crate::engine::Engine;
use crate::interface::commit_pacing::NoPacing;
use crate::interface::error::EngineError;
use crate::interface::options::{BarrierKind, EngineOptions, EngineParts};
use crate::log::log_state::LogState;
use crate::recovery::retained_log::RetainedLog;
use crate::transaction::range_check::RangeChecks;
use crate::writeback::bytes_in_flight::BytesInFlight;
use crate::writeback::checkpoints::Checkpoints;
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::sequence_sweep;
use crate::writeback::sequences::Sequences;
use crate::writeback::unordered_data::UnorderedData;
use crate::writeback::utilization::{MeasuredHome, Utilization};
use commit::DiskHome;
use commit::HomeClaims;
use commit::PlanExecutor;
use commit::{CommitDelayPolicy, Pipeline};
use device::{Disk, World};
use journal::{ReplayImage, plan_empty_log, plan_flush_on_open};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{BlockSize, TransactionId};

/// Time for which a commit is held for writers about to return: about what they cost the
/// processors. So a group that comes back at once is not waited for in vain.
const COMMIT_DELAY: CommitDelayPolicy = CommitDelayPolicy::PerWriter {
    once: Duration::from_micros(100),
    each: Duration::from_micros(5),
};

impl Engine {
    /// An engine that journals nothing: for volumes without a journal, and for tests.
    pub fn without_journal(
        world: Rc<dyn World>,
        home: Rc<dyn Disk>,
        block_size: BlockSize,
    ) -> Rc<Engine> {
        let home = Rc::new(DiskHome::whole(home, block_size));
        let (options, pacing) = (EngineOptions::default(), Rc::new(NoPacing));
        let parts = EngineParts { world, home, block_size, log: None, options, pacing };
        Engine::assemble(parts, None, TransactionId(1))
    }

    /// Opens a volume whose journal is clean ([`crate::recover`] it first). The log is empty, and
    /// is written in the format that the options ask for from the first commit on.
    pub async fn open(parts: EngineParts) -> Result<Rc<Engine>, EngineError> {
        Engine::open_with(parts, None).await
    }

    /// Opens as [`Engine::open`] does, or with the log that [`crate::restart`] has retained.
    pub async fn open_with(
        parts: EngineParts,
        kept: Option<RetainedLog>,
    ) -> Result<Rc<Engine>, EngineError> {
        let Some(area) = parts.log.clone() else {
            return Ok(Engine::assemble(parts, None, TransactionId(1)));
        };
        if let Some(mut kept) = kept {
            area.check(&kept.superblock, &*parts.home)?;
            parts.check_log_unit(&area)?;
            let (next, in_part) = (kept.next(), std::mem::take(&mut kept.parts));
            let log = LogState::keeping(kept, &parts, &area).await?;
            let engine = Engine::assemble(parts, Some(log), next);
            engine.restore(in_part);
            return Ok(engine);
        }
        let superblock = parts.read_superblock(&area).await?;
        if !superblock.is_clean() {
            return Err(EngineError::NeedsRecovery);
        }
        if superblock.is_forgotten() {
            return Err(EngineError::LogForgotten);
        }
        area.check(&superblock, &*parts.home)?;
        parts.check_log_unit(&area)?;
        let next = superblock.next_transaction();
        let log = LogState::new(superblock, &parts, &area)?;
        Ok(Engine::assemble(parts, Some(log), next))
    }

    /// Restores blocks that the log holds in part: memory holds them until they are home.
    fn restore(&self, blocks: Vec<(TransactionId, ReplayImage)>) {
        let now = self.world.now();
        for (by, image) in blocks {
            let block = self.cache.borrow_mut().get_or_insert(image.home, Temperature::Warm);
            self.queue.mark_dirty(&block, || now, &self.cache);
            block.restore(by, image, self.block_size);
        }
    }

    /// Whether the superblock on disk says that the log may hold something. It does from the first
    /// commit on, or from the beginning where a restart has kept a log.
    pub fn has_begun_log(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.borrow().is_started())
    }

    /// Says in the journal superblock that the log has begun, although nothing is in it yet, where
    /// that is to keep others off ([`EngineOptions::keep_others_out`]). The volume must say before
    /// that its journal is to be replayed.
    pub async fn keep_others_out(&self) -> Result<(), EngineError> {
        let Some(log) = self.log.as_ref().filter(|_| self.options.keep_others_out) else {
            return Ok(());
        };
        let plan = log.borrow_mut().plan_start(self.running());
        let Some(plan) = plan else { return Ok(()) };
        // A transaction that is being planned would come before the first one.
        debug_assert_eq!(self.running(), self.committed().next());
        Ok(self.executor.run(plan).await?)
    }

    fn assemble(mut parts: EngineParts, log: Option<LogState>, next: TransactionId) -> Rc<Engine> {
        let policy = parts.options.policy(log.as_ref().is_some_and(LogState::is_started));
        let utilization = policy.learns().map(|_| Rc::new(Utilization::new(parts.world.clone())));
        if let Some(utilization) = utilization.clone() {
            parts.home = Rc::new(MeasuredHome { home: parts.home, utilization });
        }
        let (claims, durability) = (HomeClaims::default(), Rc::new(parts.durability()));
        let executor = PlanExecutor::new(parts.disks(), claims.clone(), durability.clone());
        let mut cache = Cache::new(parts.options.cache_bytes, parts.block_size);
        log.iter().for_each(|log| cache.count_table(log.mapping().memory()));
        let sequences = Sequences::new(sequence_sweep::table_max(&cache));
        cache.count_table(sequences.memory_in_use());
        let EngineParts { world, home, block_size, options, pacing, .. } = parts;
        log.iter().for_each(|log| executor.count_log_in(log.records().block_bytes()));
        let engine = Rc::new(Engine {
            policy,
            utilization,
            pipeline: Pipeline::new(next, world.now(), block_size, COMMIT_DELAY, options.read_only),
            cache: RefCell::new(cache),
            queue: DirtyQueue::default(),
            claims,
            home_bytes: BytesInFlight::default(),
            durability,
            checkpoints: Checkpoints::default(),
            unordered: UnorderedData::default(),
            direct_writes: DirectWrites::default(),
            range_checks: RangeChecks::default(),
            sequences,
            log: log.map(RefCell::new),
            executor,
            counters: RefCell::default(),
            pacing,
            begun: Cell::default(),
            commit_age: Cell::new(options.commit),
            world,
            home,
            block_size,
            options,
        });
        if !engine.pipeline.is_quiesced() {
            engine.spawn_tasks();
        }
        engine
    }

    fn spawn_tasks(self: &Rc<Self>) {
        if !self.begun.replace(true) {
            let engine = self.clone();
            self.world.spawn(Box::pin(async move {
                let beside = |commit| {
                    let engine = engine.clone();
                    engine.world.clone().spawn(Box::pin(async move {
                        engine.committer().carry_out_beside(commit).await;
                    }));
                };
                engine.committer().commit_task(&beside).await;
            }));
            let engine = self.clone();
            self.world.spawn(Box::pin(async move { engine.committer().commit_timer_task().await }));
            let engine = self.clone();
            self.world.spawn(Box::pin(async move { engine.writeback().home_task().await }));
        }
    }

    /// Commits, sends everything home and empties the log: unmount. No handle may be open.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        self.pipeline.check()?;
        if self.pipeline.is_closed() {
            return Ok(());
        }
        let is_stable = self.pipeline.is_quiesced();
        if !is_stable {
            self.sync().await?;
        }
        let _emptying = self.pipeline.begin_emptying().await;
        self.pipeline.close();
        self.aborter().wake_writeback();
        if is_stable {
            return Ok(());
        }
        let result = self.empty_log().await;
        result.inspect_err(|error| self.aborter().end(error))
    }

    async fn empty_log(&self) -> Result<(), EngineError> {
        let _lock = self.queue.lock().await;
        self.pipeline.check()?;
        self.writeback().write_everything_home().await?;
        let checksums = self.options.journal_checksum;
        let clean = self
            .log
            .as_ref()
            .and_then(|log| log.borrow().superblock_emptied(self.committed(), checksums));
        self.executor.run(plan_empty_log(clean)).await?;
        self.pipeline.check()?;
        if let Some(log) = &self.log {
            log.borrow_mut().emptied(self.pipeline.committed());
        }
        Ok(())
    }

    /// Allows changes to an engine that was opened to be read, or has quiesced. What it found is
    /// durable first, as with [`crate::flush_found`].
    pub async fn begin_writing(self: &Rc<Self>) -> Result<(), EngineError> {
        self.check()?;
        if !units::fault!("mount-finds-no-cache") {
            self.durability.assume_unflushed();
            let flushed = self.executor.run(plan_flush_on_open()).await.map_err(EngineError::from);
            flushed.inspect_err(|error| self.aborter().stop_writing(error))?;
        }
        self.pipeline.set_quiesced(false);
        self.spawn_tasks();
        Ok(())
    }

    /// Commits, sends everything home and empties the log, as [`Engine::shutdown`] does; then
    /// nothing may be changed until [`Engine::begin_writing`]. No handle may be open, and nobody
    /// about to start one.
    pub async fn quiesce(&self) -> Result<(), EngineError> {
        self.sync().await?;
        let _emptying = self.pipeline.begin_emptying().await;
        self.pipeline.set_quiesced(true);
        // What has come in between.
        let rested = match self.commit(self.running()).await {
            Ok(()) => self.empty_log().await,
            Err(error) => Err(error),
        };
        rested.inspect_err(|error| self.aborter().end(error))
    }

    /// Sets the commit age, from the next transaction on.
    pub fn set_commit_age(&self, age: Duration) {
        self.commit_age.set(age);
    }
    /// Sets the barrier kind between commits, so that no commit has it in part. What was written
    /// without barriers is flushed when they begin to be kept, on each disk, and the tail moves
    /// past nothing of it before: a sync that finds its transaction committed makes no barrier.
    pub async fn set_barrier(&self, barrier: BarrierKind) -> Result<(), EngineError> {
        let _lock = self.queue.lock().await;
        while self.pipeline.in_flight() > 0 {
            self.wait_for_commits_in_flight().await?;
        }
        if self.durability.keep_barriers(barrier == BarrierKind::Flush) {
            if let Some(log) = &self.log {
                log.borrow_mut().forget_notes();
            }
            if !units::fault!("barriers-begin-unflushed") {
                let flushed =
                    self.executor.run(plan_flush_on_open()).await.map_err(EngineError::from);
                flushed.inspect_err(|error| self.abort(error))?;
            }
        }
        Ok(())
    }
}
