//! The engine itself: its parts, how it is opened and closed, and how it gives up.

use crate::cache::{Cache, CachedBlock};
use crate::completion::Completion;
use crate::error::EngineError;
use crate::gate::Gate;
use crate::log::{ERRNO_IO, LogState, image_of, read_superblock};
use crate::options::{EngineOptions, EngineParts};
use crate::run_plan::Runner;
use crate::stats::{CacheUse, LogUse, Statistics};
use crate::ticks::Ticks;
use crate::whose::{DiskHome, Home};
use device::{Buffer, Disk, World};
use journal::records;
use journal::{LogSpace, Plan, Policy, RunningTransaction, UpdateSequence, begin_log, plan_empty_log};
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use units::{BlockMap, BlockSize, HomeBlock, InodeNumber, Instant, TransactionId};

/// A block held in the cache: as long as one of these lives, it stays there.
#[derive(Clone)]
pub struct Block(pub(crate) Rc<CachedBlock>);

impl Block {
    pub fn number(&self) -> HomeBlock {
        self.0.number
    }
    /// The content now. A later [`crate::Handle::change`] does not alter what was returned; drop it before
    /// changing the block, or the change has to copy the block first.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.0.current.borrow().bytes.clone()
    }
    /// Whether the floor above has checked this content (checksum, magic, bounds) since it was read.
    pub fn is_verified(&self) -> bool {
        self.0.verified.get()
    }
    pub fn set_verified(&self) {
        self.0.verified.set(true)
    }
}

/// The transaction that handles join now, and what the engine keeps beside it.
pub(crate) struct Running {
    pub transaction: RunningTransaction,
    pub completion: Rc<Completion>,
    /// Blocks freed in it: worthless once it is committed.
    pub freed: Vec<(HomeBlock, u64)>,
    /// When its first handle joined.
    pub since: Option<Instant>,
}

impl Running {
    pub fn new(id: TransactionId, now: Instant, size: BlockSize) -> Running {
        Running {
            transaction: RunningTransaction::new(id, now, size),
            completion: Rc::default(),
            freed: Vec::new(),
            since: None,
        }
    }
}

pub struct Engine {
    pub(crate) world: Rc<dyn World>,
    pub(crate) home: Rc<dyn Home>,
    pub(crate) block_size: BlockSize,
    pub(crate) options: EngineOptions,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) runner: Runner,
    pub(crate) cache: RefCell<Cache>,
    pub(crate) log: Option<RefCell<LogState>>,

    pub(crate) running: RefCell<Running>,
    pub(crate) committing: RefCell<Option<(TransactionId, Rc<Completion>)>>,
    pub(crate) committed: Cell<TransactionId>,
    /// The running transaction waits for its open handles, and no new one may join.
    pub(crate) locking: Cell<bool>,
    /// Commit everything up to this one.
    pub(crate) wanted: Cell<TransactionId>,
    pub(crate) commit_work: Event,
    /// Writers answered by the last commit that have not come back yet, and when they were answered.
    pub(crate) away: Cell<usize>,
    pub(crate) answered: Cell<Instant>,
    /// Blocks of data that open handles may still write without logging them.
    pub(crate) home_credits: Cell<u32>,
    pub(crate) ticks: Ticks,
    pub(crate) gate: Gate,

    /// Blocks newer than home, oldest first; entries whose block has been home since are skipped when met.
    pub(crate) dirty: RefCell<VecDeque<(Instant, HomeBlock)>>,
    pub(crate) dirty_count: Cell<usize>,
    /// Data mode `writeback`: data that no commit waits for.
    pub(crate) lazy: RefCell<BTreeSet<(InodeNumber, HomeBlock)>>,
    /// The last transaction that a sync had such data go home with.
    pub(crate) lazy_ordered: Cell<Option<TransactionId>>,
    /// Selective mode: where each block stands in its update sequence.
    pub(crate) sequences: RefCell<BlockMap<UpdateSequence>>,
    pub(crate) home_kicks: Cell<u64>,
    pub(crate) home_work: Event,
    /// Held by whoever writes home outside a commit, and moves the log tail.
    pub(crate) home_turn: Rc<RwLock>,

    pub(crate) failure: RefCell<Option<String>>,
    pub(crate) closed: Cell<bool>,
}

impl Engine {
    /// An engine that journals nothing: for volumes without a journal, and for tests.
    pub fn without_journal(world: Rc<dyn World>, home: Rc<dyn Disk>, block_size: BlockSize) -> Rc<Engine> {
        let home = Rc::new(DiskHome::whole(home, block_size));
        let parts = EngineParts { world, home, block_size, log: None, options: EngineOptions::default() };
        Engine::assemble(parts, None, TransactionId(1))
    }

    /// Opens a volume whose journal is clean ([`crate::recover`] it first): the log is empty, and is written in
    /// the format that the options ask for from the first commit on.
    pub async fn open(parts: EngineParts) -> Result<Rc<Engine>, EngineError> {
        let Some(area) = parts.log.clone() else {
            return Ok(Engine::assemble(parts, None, TransactionId(1)));
        };
        let superblock = read_superblock(&parts, &area).await?;
        if !superblock.is_clean() {
            return Err(EngineError::NeedsRecovery);
        }
        if superblock.is_forgotten() {
            return Err(EngineError::LogForgotten);
        }
        area.check(&superblock, &*parts.home)?;
        let next = superblock.next_transaction();
        let log = LogState::new(superblock, &parts, &area);
        let begins_now = parts.options.keep_others_out && !parts.options.read_only;
        let engine = Engine::assemble(parts, Some(log), next);
        if begins_now {
            engine.begin_log(next).await?;
        }
        Ok(engine)
    }

    /// Says in the superblock that the log has begun, although nothing is in it yet.
    async fn begin_log(&self, next: TransactionId) -> Result<(), EngineError> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut plan = Plan::default();
        {
            let mut log = log.borrow_mut();
            log.start(next);
            begin_log(&mut plan, log.image_of(&log.superblock));
        }
        self.runner.run(plan).await
    }

    fn assemble(parts: EngineParts, log: Option<LogState>, next: TransactionId) -> Rc<Engine> {
        let EngineParts { world, home, block_size, log: area, options } = parts;
        let runner = Runner::new(home.clone(), area, options.barrier, block_size);
        log.iter().for_each(|log| runner.count_log_in(log.records.block_bytes()));
        let engine = Rc::new(Engine {
            policy: options.data.policy(options.threshold),
            runner,
            cache: RefCell::new(Cache::new(options.cache_bytes, block_size)),
            log: log.map(RefCell::new),
            running: RefCell::new(Running::new(next, world.now(), block_size)),
            committing: RefCell::default(),
            committed: Cell::new(next.previous()),
            locking: Cell::default(),
            wanted: Cell::new(next.previous()),
            commit_work: Event::default(),
            away: Cell::default(),
            answered: Cell::default(),
            home_credits: Cell::default(),
            ticks: Ticks::new(options.tick, options.commit),
            gate: Gate::default(),
            dirty: RefCell::default(),
            dirty_count: Cell::default(),
            lazy: RefCell::default(),
            lazy_ordered: Cell::default(),
            sequences: RefCell::default(),
            home_kicks: Cell::default(),
            home_work: Event::default(),
            home_turn: Rc::default(),
            failure: RefCell::default(),
            closed: Cell::new(options.read_only),
            world,
            home,
            block_size,
            options,
        });
        if !engine.closed.get() {
            engine.world.spawn(Box::pin(engine.clone().commit_task()));
            engine.world.spawn(Box::pin(engine.clone().commit_timer_task()));
            engine.world.spawn(Box::pin(engine.clone().home_task()));
        }
        engine
    }

    pub fn world(&self) -> &Rc<dyn World> {
        &self.world
    }
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }
    /// The latest transaction that is durable. Blocks freed by later ones must not be allocated again.
    pub fn committed(&self) -> TransactionId {
        self.committed.get()
    }

    pub fn statistics(&self) -> Statistics {
        let cache = self.cache.borrow();
        let cache = CacheUse {
            hits: 0,
            misses: 0,
            blocks: cache.len() as u64,
            dirty_blocks: self.dirty_count.get() as u64,
            bytes: cache.bytes_of(cache.images()),
            limit_bytes: cache.bytes_of(cache.limit()),
        };
        let log = self.log.as_ref().map(|log| {
            let space = &log.borrow().space;
            LogUse { blocks: space.capacity().into(), free_blocks: space.free().into() }
        });
        self.runner.counters.borrow().snapshot(cache, log.unwrap_or_default())
    }

    /// The error that every sync gets after an abort.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match &*self.failure.borrow() {
            Some(cause) => Err(EngineError::Aborted { cause: cause.clone() }),
            None => Ok(()),
        }
    }
    pub(crate) fn is_over(&self) -> bool {
        self.closed.get() || self.failure.borrow().is_some()
    }

    /// A write or flush failed: what is durable is unknown, so nothing is written any more, and everyone who
    /// waits or ever will is told. Also for whoever has changed blocks and cannot end what he began: nothing of the
    /// running transaction will ever be committed.
    pub fn abort(&self, cause: &EngineError) {
        if self.failure.borrow().is_none() {
            self.stop_writing(cause);
            self.record_failure();
        }
    }

    /// As [`Engine::abort`], of a journal that is well: what it holds is replayed by the next mount, and e2fsck need not look.
    pub fn stop_writing(&self, cause: &EngineError) {
        if self.failure.borrow().is_some() {
            return;
        }
        *self.failure.borrow_mut() = Some(cause.to_string());
        let error = self.check();
        let committing = self.committing.borrow_mut().take();
        if let Some((_, completion)) = committing {
            completion.complete(error.clone());
        }
        let completion = self.running.borrow().completion.clone();
        completion.complete(error);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.commit_work.notify();
        self.home_work.notify();
        self.gate.wake_first();
    }

    /// Leaves a note in the journal superblock, if that can still be written, so that e2fsck looks closely.
    fn record_failure(&self) {
        let Some(log) = &self.log else { return };
        let log = log.borrow();
        let mut superblock = log.superblock.clone();
        superblock.errno = ERRNO_IO;
        if !log.started {
            // The log is empty, and not yet of any format.
            records::clear(&mut superblock, self.options.journal_checksum);
        }
        let Ok(write) = self.runner.write_after_failure(log.superblock_at, image_of(&superblock)) else {
            return;
        };
        // Whether it succeeds changes nothing: the engine has stopped.
        self.world.spawn(Box::pin(async move { drop(write.await) }));
    }

    /// Commits, sends everything home and empties the log: unmount. No handle may be open.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        self.check()?;
        if self.closed.get() {
            return Ok(());
        }
        self.sync().await?;
        self.closed.set(true);
        self.wake_all();
        let result = self.empty_log().await;
        if let Err(error) = &result {
            self.abort(error);
        }
        result
    }

    async fn empty_log(&self) -> Result<(), EngineError> {
        let _turn = self.home_turn.write().await;
        self.check()?;
        self.write_everything_home().await?;
        let clean = self.log.as_ref().and_then(|log| {
            let log = log.borrow();
            let mut superblock = log.superblock.clone();
            superblock.set_clean(self.committed.get());
            records::clear(&mut superblock, self.options.journal_checksum);
            log.started.then(|| log.image_of(&superblock))
        });
        self.runner.run(plan_empty_log(clean)).await
    }
}
