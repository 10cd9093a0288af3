//! How an engine is put together, opened and closed.

use crate::busy::{BusyHome, BusyTime};
use crate::cache::{Cache, Temperature};
use crate::checkpoints::Checkpoints;
use crate::durability::Durability;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::home_claims::HomeClaims;
use crate::home_queue::HomeQueue;
use crate::kept::KeptLog;
use crate::log::LogState;
use crate::log_superblock::read_superblock;
use crate::long_writes::LongWrites;
use crate::loose::Loose;
use crate::options::{EngineOptions, EngineParts};
use crate::pace::NoPace;
use crate::pipeline::Pipeline;
use crate::promise::Promises;
use crate::run_plan::Runner;
use crate::sequence_relief;
use crate::sequences::Sequences;
use crate::stats::Counters;
use crate::whose::DiskHome;
use device::{Disk, World};
use journal::{ReplayImage, plan_empty_log};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{BlockSize, TransactionId};

impl Engine {
    /// An engine that journals nothing: for volumes without a journal, and for tests.
    pub fn without_journal(
        world: Rc<dyn World>,
        home: Rc<dyn Disk>,
        block_size: BlockSize,
    ) -> Rc<Engine> {
        let home = Rc::new(DiskHome::whole(home, block_size));
        let (options, pace) = (EngineOptions::default(), Rc::new(NoPace));
        let parts = EngineParts { world, home, block_size, log: None, options, pace };
        Engine::assemble(parts, None, TransactionId(1))
    }

    /// Opens a volume whose journal is clean ([`crate::recover`] it first). The log is empty, and
    /// is written in the format that the options ask for from the first commit on.
    pub async fn open(parts: EngineParts) -> Result<Rc<Engine>, EngineError> {
        Engine::open_with(parts, None).await
    }

    /// The same, or with the log that [`crate::restart`] has `kept`.
    pub async fn open_with(
        parts: EngineParts,
        kept: Option<KeptLog>,
    ) -> Result<Rc<Engine>, EngineError> {
        let Some(area) = parts.log.clone() else {
            return Ok(Engine::assemble(parts, None, TransactionId(1)));
        };
        if let Some(mut kept) = kept {
            area.check(&kept.superblock, &*parts.home)?;
            parts.check_log_unit(&area)?;
            let (next, in_part) = (kept.next(), std::mem::take(&mut kept.parts));
            let log = LogState::keeping(kept, &parts, &area)?;
            let engine = Engine::assemble(parts, Some(log), next);
            engine.restore(in_part);
            return Ok(engine);
        }
        let superblock = read_superblock(&parts, &area).await?;
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

    /// Memory holds these blocks until they are home: the log holds them in part.
    fn restore(&self, blocks: Vec<(TransactionId, ReplayImage)>) {
        let now = self.world.now();
        for (by, image) in blocks {
            let block = self.cache.borrow_mut().get_or_insert(image.home, Temperature::Warm);
            self.queue.soil(&block, || now, &self.cache);
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
        match plan {
            Some(plan) => self.runner.run(plan).await,
            None => Ok(()),
        }
    }

    fn assemble(mut parts: EngineParts, log: Option<LogState>, next: TransactionId) -> Rc<Engine> {
        let policy = parts.options.policy(log.as_ref().is_some_and(LogState::is_started));
        let busy = policy.learns().map(|_| Rc::new(BusyTime::new(parts.world.clone())));
        if let Some(busy) = busy.clone() {
            parts.home = Rc::new(BusyHome { home: parts.home, busy });
        }
        let counters: Rc<RefCell<Counters>> = Rc::default();
        let (claims, durability) = (HomeClaims::default(), Rc::new(Durability::of(&parts)));
        let runner = Runner::new(&parts, claims.clone(), durability.clone(), counters.clone());
        let mut cache = Cache::new(parts.options.cache_bytes, parts.block_size);
        log.iter().for_each(|log| cache.count_table(log.mapping().memory()));
        let sequences = Sequences::new(sequence_relief::table_max(&cache));
        cache.count_table(sequences.memory_in_use());
        let EngineParts { world, home, block_size, options, pace, .. } = parts;
        log.iter().for_each(|log| runner.count_log_in(log.records().block_bytes()));
        let engine = Rc::new(Engine {
            policy,
            busy,
            pipeline: Pipeline::new(next, world.now(), block_size, options.read_only),
            cache: RefCell::new(cache),
            queue: HomeQueue::default(),
            claims,
            durability,
            checkpoints: Checkpoints::default(),
            loose: Loose::default(),
            long_writes: LongWrites::default(),
            promises: Promises::default(),
            sequences,
            log: log.map(RefCell::new),
            runner,
            counters,
            pace,
            begun: Cell::default(),
            commit_age: Cell::new(options.commit),
            world,
            home,
            block_size,
            options,
        });
        if !engine.pipeline.is_resting() {
            engine.spawn_tasks();
        }
        engine
    }

    pub(crate) fn spawn_tasks(self: &Rc<Self>) {
        if !self.begun.replace(true) {
            self.world.spawn(Box::pin(self.clone().commit_task()));
            self.world.spawn(Box::pin(self.clone().commit_timer_task()));
            self.world.spawn(Box::pin(self.clone().home_task()));
        }
    }

    /// Commits, sends everything home and empties the log: unmount. No handle may be open.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        self.pipeline.check()?;
        if self.pipeline.is_closed() {
            return Ok(());
        }
        let rests = self.pipeline.is_resting();
        if !rests {
            self.sync().await?;
        }
        self.pipeline.close();
        self.wake_all();
        if rests {
            return Ok(());
        }
        let result = self.empty_log().await;
        if let Err(error) = &result {
            self.abort(error);
        }
        result
    }

    pub(crate) async fn empty_log(&self) -> Result<(), EngineError> {
        let _turn = self.queue.turn().await;
        self.pipeline.check()?;
        self.write_everything_home().await?;
        let checksums = self.options.journal_checksum;
        let clean = self
            .log
            .as_ref()
            .and_then(|log| log.borrow().superblock().emptied(self.committed(), checksums));
        self.runner.run(plan_empty_log(clean)).await?;
        self.pipeline.check()?;
        if let Some(log) = &self.log {
            log.borrow_mut().emptied(self.pipeline.committed());
        }
        Ok(())
    }
}
