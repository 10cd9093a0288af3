//! Log swapping (`swap_above=`): in idle time the runs of a log that is nearly full move to a cold
//! one far away.
//!
//! Invariants
//! 1. It begins when nothing runs or commits, and gives up when something comes before the headers
//!    are written.
//! 2. During a swap the largest transaction finds room elsewhere: nobody waits for it.
//! 3. What was read and is not written yet counts as memory of the cache, and takes a small part of
//!    it.
//! 4. Copies count for recovery when the superblock on disk says so, of all runs at once. That is
//!    after they are durable with their headers, and before the old log is begun again. A snapshot
//!    of the mapping table records the new places with the same write
//!    ([`crate::log::snapshot_writer`]). So after any crash all runs lie where the snapshot says:
//!    where they were, or where they went.
//! 5. Whatever knows where a run lies learns of its new place in one stretch, once that counts.
//!    These are the log, the mapping table, and blocks in memory.

use crate::interface::error::EngineError;
use crate::interface::stats::Counters;
use crate::log::move_tail::TailMover;
use crate::log::snapshot_writer::SnapshotWriter;
use crate::writeback::checkpoints::Checkpoints;
use commit::Home;
use device::Buffer;
use journal::{LogSwap, SwappedRun, plan_copies, plan_run_headers, plan_table_forgotten};
use std::cell::RefCell;
use std::rc::Rc;
use units::BlockSize;
use units::HomeBlock;

/// Maximum number of bytes that are copied together.
const MOVED_AT_ONCE: usize = 1 << 20;
/// The part of the cache that they may take.
const CACHE_PART: usize = 16;
/// The piece that begins with a run's header is copied to leave that out.
const BUFFERS: usize = 2;

/// Outcome of the copies.
enum Copies {
    Written,
    /// Somebody asked for something.
    Interrupted,
    /// The bytes that were read are not those that were written there.
    Unreadable,
}

/// Moves the runs of one log to another.
#[derive(Clone, Copy)]
pub(crate) struct LogSwapper<'a> {
    pub tail: TailMover<'a>,
    pub snapshots: SnapshotWriter<'a>,
    pub block_size: BlockSize,
    pub checkpoints: &'a Checkpoints,
    pub counters: &'a RefCell<Counters>,
    pub home: &'a dyn Home,
}

impl LogSwapper<'_> {
    /// Counts whatever keeps the disk from being idle.
    pub(crate) fn activity(&self) -> u64 {
        self.counters.borrow().activity()
    }
    /// Whether nothing runs, and `activity` has not grown since.
    fn is_idle_since(&self, activity: u64) -> bool {
        let is_quiet =
            self.tail.pipeline.is_unused() && self.tail.pipeline.last_in_flight().is_none();
        is_quiet && !self.tail.pipeline.has_ended() && self.activity() == activity
    }

    /// Swaps logs one after the other, if nothing was done since the last round. The caller holds
    /// the write-back lock.
    pub(crate) async fn swap_in_idle_time(&self) -> Result<(), EngineError> {
        let now = self.activity();
        let was_idle = self.checkpoints.is_idle_round(now);
        // The copies move the arm; who comes next, works where the last one did.
        let head = self.home.head();
        while was_idle && self.is_idle_since(now) {
            let Some(swap) = self.begin_swap(head) else { break };
            if !self.carry_out_swap(&swap, now).await? {
                break;
            }
        }
        Ok(())
    }

    fn begin_swap(&self, head: HomeBlock) -> Option<LogSwap> {
        self.tail.log?.borrow_mut().begin_swap(self.snapshots.options.swap_above?, head)
    }

    /// Whether the runs have moved.
    async fn carry_out_swap(&self, swap: &LogSwap, activity: u64) -> Result<bool, EngineError> {
        let Some(log) = self.tail.log else { return Ok(false) };
        // Nothing is in flight yet. A sync that comes before the swap has ended waits for no flush
        // of this one, but for its own.
        let pages = log.borrow_mut().forget_table();
        self.tail.executor.run(plan_table_forgotten(pages)).await?;
        if !units::fault!("swap-not-announced") {
            self.tail.announce_places(None).await?;
        }
        let copies = self.copy_runs(swap, activity).await;
        self.snapshots.cache.borrow_mut().note_fetched(0);
        let copies = copies?;
        if !matches!(copies, Copies::Written) {
            log.borrow_mut().give_up_swap(swap, matches!(copies, Copies::Interrupted));
            self.tail.pipeline.wake_joiners();
            return Ok(false);
        }
        let headers = log.borrow().headers_of_swap(swap, self.tail.pipeline.committed());
        self.tail.executor.run(plan_run_headers(headers)).await?;
        self.snapshots.count_copies(swap).await?;
        self.tail.pipeline.check()?;
        self.runs_moved(swap);
        self.counters.borrow_mut().swapped();
        self.tail.pipeline.wake_joiners();
        Ok(true)
    }

    async fn copy_runs(&self, swap: &LogSwap, activity: u64) -> Result<Copies, EngineError> {
        let (unit, block) = (self.tail.executor.log_unit(), self.block_size.bytes());
        let part = self.snapshots.cache.borrow().limit() / CACHE_PART / BUFFERS * block;
        let at_once = (MOVED_AT_ONCE.min(part) / unit).max(1) as u32;
        for run in swap.runs() {
            let mut done = 0;
            // The header is read with what stands behind it, and written later.
            while done <= run.blocks {
                if !self.is_idle_since(activity) {
                    return Ok(Copies::Interrupted);
                }
                let count = at_once.min(run.blocks + 1 - done);
                let buffers = if done == 0 { BUFFERS } else { 1 };
                self.snapshots
                    .cache
                    .borrow_mut()
                    .note_fetched((count as usize * unit * buffers).div_ceil(block));
                let Ok(mut bytes) = self.tail.executor.read_log(run.from.plus(done), count).await
                else {
                    return Ok(Copies::Unreadable);
                };
                let mut to = run.to.plus(done);
                if done == 0 {
                    if !self.is_run(run, &bytes) {
                        return Ok(Copies::Unreadable);
                    }
                    (bytes, to) = (Buffer::copy_of(&bytes[unit..]), to.plus(1));
                }
                done += count;
                if !bytes.is_empty() {
                    self.tail.executor.run(plan_copies(to, Rc::new(bytes))).await?;
                }
            }
        }
        Ok(Copies::Written)
    }

    fn is_run(&self, run: &SwappedRun, bytes: &[u8]) -> bool {
        self.tail.log.is_some_and(|log| log.borrow().is_run_of_swap(run, bytes))
    }

    fn runs_moved(&self, swap: &LogSwap) {
        let Some(log) = self.tail.log else { return };
        let cache = self.snapshots.cache.borrow();
        log.borrow_mut().end_swap(swap, |block, run| {
            if let Some(cached) = cache.peek(block) {
                cached.moved(run);
            }
        });
    }
}
