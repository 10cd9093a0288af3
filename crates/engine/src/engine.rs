//! The engine: its owners, and how it gives up.
//!
//! Each owner has a file, and its invariants at the head of it. They are [`Pipeline`], [`Cache`],
//! [`DirtyQueue`] with [`HomeClaims`], [`Durability`], [`Checkpoints`], [`UnorderedData`],
//! [`DirectWrites`], [`Sequences`], and [`LogState`] with its tail. The [`PlanExecutor`] gives
//! plans to the disks. Work that needs several of them is in parts that borrow those they need
//! ([`Reader`], [`HomeWriter`], [`Committer`] and others); `interface/calls` has the calls of the
//! engine, each carried out by one part.

use crate::cache::block_cache::Cache;
use crate::cache::direct_write::DirectWriter;
use crate::cache::direct_writes::DirectWrites;
use crate::cache::reader::Reader;
use crate::commit::commit_task::Committer;
use crate::commit::file_data::DataUpdates;
use crate::commit::in_place::InPlaceSync;
use crate::commit::sync::Syncer;
use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::interface::options::EngineOptions;
use crate::interface::stats::{CacheUse, Counters, LogUse, Statistics};
use crate::log::log_state::LogState;
use crate::log::move_tail::TailMover;
use crate::log::revokes::Freeing;
use crate::log::snapshot_writer::SnapshotWriter;
use crate::log::swap::LogSwapper;
use crate::transaction::abort::Aborter;
use crate::transaction::admit::Admission;
use crate::transaction::overlap::Overlap;
use crate::transaction::range_check::RangeChecks;
use crate::writeback::bytes_in_flight::BytesInFlight;
use crate::writeback::checkpoints::Checkpoints;
use crate::writeback::copies::CopyWriter;
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::home_writer::HomeWriter;
use crate::writeback::sequences::Sequences;
use crate::writeback::unordered_data::UnorderedData;
use crate::writeback::utilization::Utilization;
use crate::writeback::writeback_task::Writeback;
use commit::Durability;
use commit::Home;
use commit::HomeClaims;
use commit::Pipeline;
use commit::PlanExecutor;
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
    /// Utilization of home, for a policy that learns.
    pub(crate) utilization: Option<Rc<Utilization>>,
    pub(crate) pacing: Rc<dyn CommitPacing>,
    pub(crate) counters: RefCell<Counters>,

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
    pub(crate) executor: PlanExecutor,

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
    /// in flight to the disk.
    pub fn running(&self) -> TransactionId {
        self.pipeline.running_id()
    }
    /// Whether the running transaction is being locked: a caller that begins a change now waits,
    /// and is in the next one.
    pub fn is_locking(&self) -> bool {
        self.pipeline.is_locking()
    }

    /// Returns what the cache holds. Only `statistics` counts its hits and misses.
    pub fn cache_use(&self) -> CacheUse {
        let cache = self.cache.borrow();
        CacheUse {
            hits: 0,
            misses: 0,
            blocks: cache.len() as u64,
            dirty_blocks: self.queue.dirty() as u64,
            bytes: cache.bytes_of(cache.images()),
            limit_bytes: cache.bytes_of(cache.limit()),
            sequence_bytes: self.sequences.memory() as u64,
        }
    }
    pub fn statistics(&self) -> Statistics {
        let log = self.log.as_ref().map(|log| LogUse {
            records: self.options.record_format().name(),
            threshold_bytes: self.policy.threshold(),
            threshold_is_learnt: self.policy.learns().is_some(),
            ..log.borrow().usage()
        });
        let last_checkpoint = self.checkpoints.last();
        Statistics {
            last_checkpoint,
            ..self.counters.borrow().snapshot(
                &self.executor.counts(),
                self.cache_use(),
                log.unwrap_or_default(),
            )
        }
    }

    /// The error that every sync gets after an abort.
    pub fn check(&self) -> Result<(), EngineError> {
        Ok(self.pipeline.check()?)
    }

    /// Whether the log has records of `block`: a replay changes what was written home past them.
    pub fn would_replay(&self, block: HomeBlock) -> bool {
        self.log.as_ref().is_some_and(|log| log.borrow().live().contains(block))
    }
}

/// The parts of the engine, each with the owners that it needs.
impl Engine {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            home: &*self.home,
            block_size: self.block_size,
            cache: &self.cache,
            counters: &self.counters,
            direct_writes: &self.direct_writes,
            log: self.log.as_ref(),
            executor: &self.executor,
        }
    }
    pub(crate) fn copies(&self) -> CopyWriter<'_> {
        CopyWriter {
            reader: self.reader(),
            world: &*self.world,
            queue: &self.queue,
            claims: &self.claims,
            checkpoints: &self.checkpoints,
            pipeline: &self.pipeline,
        }
    }
    pub(crate) fn home_writer(&self) -> HomeWriter<'_> {
        HomeWriter {
            reader: self.reader(),
            copies: self.copies(),
            policy: &*self.policy,
            durability: &self.durability,
            unordered: &self.unordered,
            home_bytes: &self.home_bytes,
        }
    }
    pub(crate) fn tail_mover(&self) -> TailMover<'_> {
        TailMover {
            home: &*self.home,
            log: self.log.as_ref(),
            durability: &self.durability,
            pacing: &*self.pacing,
            pipeline: &self.pipeline,
            executor: &self.executor,
            queue: &self.queue,
            counters: &self.counters,
            sequences: &self.sequences,
        }
    }
    pub(crate) fn snapshot_writer(&self) -> SnapshotWriter<'_> {
        SnapshotWriter {
            log: self.log.as_ref(),
            pipeline: &self.pipeline,
            options: &self.options,
            executor: &self.executor,
            cache: &self.cache,
            queue: &self.queue,
        }
    }
    pub(crate) fn log_swapper(&self) -> LogSwapper<'_> {
        LogSwapper {
            tail: self.tail_mover(),
            snapshots: self.snapshot_writer(),
            block_size: self.block_size,
            checkpoints: &self.checkpoints,
            counters: &self.counters,
            home: &*self.home,
        }
    }
    pub(crate) fn freeing(&self) -> Freeing<'_> {
        Freeing { log: self.log.as_ref(), cache: &self.cache, sequences: &self.sequences }
    }
    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            world: &*self.world,
            log: self.log.as_ref(),
            policy: &*self.policy,
            pipeline: &self.pipeline,
            queue: &self.queue,
            cache: &self.cache,
            pacing: &*self.pacing,
        }
    }
    pub(crate) fn aborter(&self) -> Aborter<'_> {
        Aborter {
            world: &*self.world,
            options: &self.options,
            log: self.log.as_ref(),
            pipeline: &self.pipeline,
            durability: &self.durability,
            queue: &self.queue,
            executor: &self.executor,
        }
    }
    pub(crate) fn syncer(&self) -> Syncer<'_> {
        Syncer {
            admission: self.admission(),
            aborter: self.aborter(),
            counters: &self.counters,
            unordered: &self.unordered,
            direct_writes: &self.direct_writes,
        }
    }
    pub(crate) fn in_place_sync(&self) -> InPlaceSync<'_> {
        InPlaceSync { syncs: self.syncer(), writer: self.home_writer(), policy: &*self.policy }
    }
    pub(crate) fn data_updates(&self) -> DataUpdates<'_> {
        DataUpdates {
            reader: self.reader(),
            world: &*self.world,
            policy: &*self.policy,
            pipeline: &self.pipeline,
            queue: &self.queue,
            unordered: &self.unordered,
            sequences: &self.sequences,
        }
    }
    pub(crate) fn direct_writer(&self) -> DirectWriter<'_> {
        DirectWriter {
            updates: self.data_updates(),
            writer: self.home_writer(),
            aborter: self.aborter(),
        }
    }
    pub(crate) fn overlap(&self) -> Overlap<'_> {
        Overlap { tail: self.tail_mover(), options: &self.options, pipeline: &self.pipeline }
    }
    pub(crate) fn committer(&self) -> Committer<'_> {
        Committer {
            admission: self.admission(),
            aborter: self.aborter(),
            overlap: self.overlap(),
            tail: self.tail_mover(),
            snapshots: self.snapshot_writer(),
            commit_age: &self.commit_age,
            block_size: self.block_size,
            records_at_once: self.options.records_at_once,
            policy: &*self.policy,
            utilization: self.utilization.as_deref(),
            cache: &self.cache,
            checkpoints: &self.checkpoints,
            unordered: &self.unordered,
            direct_writes: &self.direct_writes,
            sequences: &self.sequences,
            counters: &self.counters,
        }
    }
    pub(crate) fn writeback(&self) -> Writeback<'_> {
        Writeback {
            writer: self.home_writer(),
            admission: self.admission(),
            syncs: self.syncer(),
            tail: self.tail_mover(),
            snapshots: self.snapshot_writer(),
            swaps: self.log_swapper(),
            freeing: self.freeing(),
            options: &self.options,
            sequences: &self.sequences,
            durability: &self.durability,
        }
    }
}
