//! The engine: its owners, and how it gives up.
//!
//! Each owner has a file, and its invariants at the head of it. They are [`Pipeline`], [`Cache`],
//! [`DirtyQueue`] with [`HomeClaims`], [`Durability`], [`Checkpoints`], [`UnorderedData`],
//! [`DirectWrites`], [`Sequences`], and [`LogState`] with its tail. The [`Runner`] gives plans to
//! the disks. What needs several of them is in the files that have an `impl Engine`. They are
//! `admit`, `handle`, `read` and `sync`, the tasks `commit` and `home` with `move_tail`, `open`,
//! and `rest`.

use crate::cache::block_cache::Cache;
use crate::cache::direct_writes::DirectWrites;
use crate::commit::durability::Durability;
use crate::commit::executor::Runner;
use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::interface::home::Home;
use crate::interface::options::EngineOptions;
use crate::interface::stats::{CacheUse, Counters, LogUse, Statistics};
use crate::log::log_state::LogState;
use crate::transaction::pipeline::Pipeline;
use crate::transaction::range_check::RangeChecks;
use crate::writeback::bytes_in_flight::BytesInFlight;
use crate::writeback::checkpoints::Checkpoints;
use crate::writeback::claims::HomeClaims;
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::sequences::Sequences;
use crate::writeback::unordered_data::UnorderedData;
use crate::writeback::utilization::Utilization;
use device::World;
use journal::Policy;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{BlockSize, HomeBlock, TransactionId};

pub struct Engine {
    pub(crate) world: Rc<dyn World>,
    pub(crate) home: Rc<dyn Home>,
    pub(crate) block_size: BlockSize,
    pub(crate) options: EngineOptions,
    pub(crate) policy: Box<dyn Policy>,
    /// Of home, for a policy that learns.
    pub(crate) utilization: Option<Rc<Utilization>>,
    pub(crate) pacing: Rc<dyn CommitPacing>,
    pub(crate) counters: Rc<RefCell<Counters>>,

    pub(crate) pipeline: Pipeline,
    pub(crate) cache: RefCell<Cache>,
    pub(crate) queue: DirtyQueue,
    pub(crate) claims: HomeClaims,
    pub(crate) home_bytes: BytesInFlight,
    pub(crate) durability: Rc<Durability>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) unordered: UnorderedData,
    pub(crate) direct_writes: DirectWrites,
    pub(crate) sequences: Sequences,
    pub(crate) range_checks: RangeChecks,
    pub(crate) log: Option<RefCell<LogState>>,
    pub(crate) runner: Runner,

    /// The tasks that write run. They do until the engine is closed or fails.
    pub(crate) begun: Cell<bool>,
    /// Age at which a transaction is committed although nobody asked.
    pub(crate) commit_age: Cell<Duration>,
}

impl Engine {
    pub fn world(&self) -> &Rc<dyn World> {
        &self.world
    }
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }
    /// The latest transaction that is durable. Blocks freed by later ones must not be allocated
    /// again.
    pub fn committed(&self) -> TransactionId {
        if units::fault!("overlap-freed-reused") {
            return self.pipeline.running_id().previous();
        }
        self.pipeline.committed()
    }
    /// The transaction that changes join now. Those between the last durable one and this one are
    /// on their way to the disk.
    pub fn running(&self) -> TransactionId {
        self.pipeline.running_id()
    }
    /// Whether the running transaction is being locked: whoever begins a change now waits, and is
    /// in the next one.
    pub fn is_locking(&self) -> bool {
        self.pipeline.is_locking()
    }

    pub fn statistics(&self) -> Statistics {
        let cache = self.cache.borrow();
        let cache = CacheUse {
            hits: 0,
            misses: 0,
            blocks: cache.len() as u64,
            dirty_blocks: self.queue.dirty() as u64,
            bytes: cache.bytes_of(cache.images()),
            limit_bytes: cache.bytes_of(cache.limit()),
            sequence_bytes: self.sequences.memory() as u64,
        };
        let log = self.log.as_ref().map(|log| LogUse {
            records: self.options.record_format().name(),
            threshold_bytes: self.policy.threshold(),
            threshold_is_learnt: self.policy.learns().is_some(),
            ..log.borrow().usage()
        });
        let last_checkpoint = self.checkpoints.last();
        Statistics {
            last_checkpoint,
            ..self.counters.borrow().snapshot(cache, log.unwrap_or_default())
        }
    }

    /// The error that every sync gets after an abort.
    pub fn check(&self) -> Result<(), EngineError> {
        self.pipeline.check()
    }

    /// Whether the log has records of `block`: a replay changes what was written home past them.
    pub fn would_replay(&self, block: HomeBlock) -> bool {
        self.log.as_ref().is_some_and(|log| log.borrow().live().contains(block))
    }

    /// A write or flush failed: what is durable is unknown, so nothing is written any more, and
    /// everyone who waits or ever will is told. Also for whoever has changed blocks and cannot end
    /// what he began: nothing of the running transaction will ever be committed.
    pub fn abort(&self, cause: &EngineError) {
        if !self.pipeline.has_failed() {
            self.stop_writing(cause);
            self.record_failure();
        }
    }

    /// As [`Engine::abort`], of a journal that is well: what it holds is replayed by the next
    /// mount, and e2fsck need not look.
    pub fn stop_writing(&self, cause: &EngineError) {
        if !self.pipeline.has_failed() {
            self.pipeline.fail(cause);
            // What is under way writes nothing more either.
            let _: Result<(), EngineError> = self.durability.note(Err(cause.clone()));
            self.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.pipeline.wake_tasks();
        self.queue.wake();
        self.pipeline.wake_joiners();
        if let Some(log) = &self.log {
            log.borrow().superblock().wake();
        }
    }

    /// Leaves a note in the journal superblock, if that can still be written, so that e2fsck looks
    /// closely.
    fn record_failure(&self) {
        let Some(log) = &self.log else { return };
        let note = log.borrow().superblock().with_failure(self.options.journal_checksum);
        let Ok(write) = self.runner.write_after_failure(note) else { return };
        // Whether it succeeds changes nothing: the engine has stopped.
        self.world.spawn(Box::pin(async move { drop(write.await) }));
    }
}
