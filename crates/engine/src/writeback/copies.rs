//! Blocks that the log alone holds: eviction from memory, and write-back from the log.

use crate::cache::mapped::{Copy, table_max};
use crate::cache::mapping::{LogCopy, sum};
use crate::cache::reader::Reader;
use crate::interface::error::EngineError;
use crate::interface::limits::{HOME_BATCH_MAX, HOME_REQUESTS_MAX};
use crate::writeback::checkpoints::Checkpoints;
use crate::writeback::coalescing::RUN_BLOCKS_MAX;
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::writeback_outcome::{WritebackOutcome, read_all_readable};
use commit::HomeClaims;
use commit::Pipeline;
use device::Buffer;
use device::World;
use runtime::join_window;
use std::pin::Pin;
use std::rc::Rc;
use units::HomeBlock;

/// The part of the cache that blocks read together in flight to home may take.
const BATCH_PART: usize = 16;
/// Maximum number of blocks that memory evicts before other tasks run: a millisecond or so.
const EVICTED_MAX: usize = 1024;

/// Evicts and writes back blocks that the log holds whole.
#[derive(Clone, Copy)]
pub(crate) struct CopyWriter<'a> {
    pub reader: Reader<'a>,
    pub world: &'a dyn World,
    pub queue: &'a DirtyQueue,
    pub claims: &'a HomeClaims,
    pub checkpoints: &'a Checkpoints,
    pub pipeline: &'a Pipeline,
}

impl CopyWriter<'_> {
    /// Blocks that home does not hold yet, in memory or in the log alone.
    pub(crate) fn blocks_until_home(&self) -> usize {
        let mapped = self.reader.log.map_or(0, |log| log.borrow().mapping().len());
        self.queue.dirty() + mapped
    }

    /// Evicts some blocks that the log holds whole, those first that have not been home for
    /// longest, until `is_enough`. Whether there may be more.
    pub(crate) fn evict(&self, is_enough: impl Fn() -> bool) -> bool {
        let Some(log) = self.reader.log.filter(|log| log.borrow().redirects()) else {
            return false;
        };
        let cache = self.reader.cache.borrow();
        let table_max = table_max(&cache);
        let table = log.borrow().mapping().memory();
        let (mut count, now) = (0, self.world.now());
        self.queue.while_dirty(&cache, |block| {
            if count == EVICTED_MAX || is_enough() || table.get() >= table_max {
                return false;
            }
            if let Some((by, place, bytes)) = block.evict() {
                let copy =
                    LogCopy::new(by, place, sum(&bytes), block.contents(), block.is_durable_only());
                log.borrow_mut().evict(block.number(), copy, now);
                self.queue.mark_clean(block);
                count += 1;
            }
            true
        });
        drop(cache);
        if count > 0 {
            self.reader.cache.borrow_mut().shrink();
            self.pipeline.wake_joiners();
        }
        count == EVICTED_MAX
    }

    /// Writes those of `numbers` (sorted) home that the table names. No barrier yet. The caller
    /// holds the write-back lock.
    pub(crate) async fn copies_home(
        &self,
        numbers: &[HomeBlock],
    ) -> Result<WritebackOutcome, EngineError> {
        let mut all = WritebackOutcome::default();
        if !self.reader.has_copies() {
            return Ok(all);
        }
        let mapped: Vec<_> =
            numbers.iter().copied().filter(|at| self.reader.copy_of(*at).is_some()).collect();
        let batch = (self.reader.cache.borrow().limit() / BATCH_PART).clamp(1, HOME_BATCH_MAX);
        for numbers in mapped.chunks(batch) {
            self.reader.cache.borrow_mut().note_fetched(numbers.len());
            let copied = self.copy_home(numbers).await;
            self.reader.cache.borrow_mut().note_fetched(0);
            all = all.and(copied?);
        }
        if all.written > 0 {
            self.pipeline.wake_joiners();
        }
        Ok(all)
    }

    async fn copy_home(&self, numbers: &[HomeBlock]) -> Result<WritebackOutcome, EngineError> {
        let copies: Vec<Copy> =
            numbers.iter().filter_map(|at| Some((*at, self.reader.copy_of(*at)?))).collect();
        let (found, mut unreadable) =
            read_all_readable(copies, async |copies| self.reader.fetch(copies).await).await;
        let mut known = Vec::with_capacity(found.len());
        for ((at, copy), content) in found {
            match content {
                Some(content) => known.push((at, copy, content)),
                None if self.reader.copy_of(at) == Some(copy) => {
                    unreadable = unreadable.or(Some(EngineError::LogCopyDamaged { at }));
                }
                None => {}
            }
        }
        let runs = known.chunk_by(|left, right| left.0.plus(1) == right.0);
        let runs = runs.flat_map(|run| run.chunks(RUN_BLOCKS_MAX));
        let writes = runs.map(|run| -> Pin<Box<dyn Future<Output = _> + '_>> {
            Box::pin(async move { self.write_copies(run).await })
        });
        let written: Vec<usize> = join_window(writes, HOME_REQUESTS_MAX).await?;
        Ok(WritebackOutcome { written: written.into_iter().sum(), unreadable })
    }

    /// Writes neighbours home that were read from the log.
    async fn write_copies(
        &self,
        run: &[(HomeBlock, LogCopy, Rc<Buffer>)],
    ) -> Result<usize, EngineError> {
        let Some(log) = self.reader.log else { return Ok(0) };
        let _claim = self.claims.claim(run[0].0, run.len() as u64).await;
        // Only now: while waiting for the claim, another write may have brought a newer image home.
        let is_newest = |(at, copy, _): &&(HomeBlock, LogCopy, Rc<Buffer>)| {
            self.reader.copy_of(*at) == Some(*copy)
        };
        let run: Vec<_> = run.iter().filter(is_newest).collect();
        for part in run.chunk_by(|left, right| left.0.plus(1) == right.0) {
            let kinds: Vec<_> = part.iter().map(|(_, copy, _)| copy.contents.at_home()).collect();
            let blocks = part.iter().map(|(_, _, block)| block.clone()).collect();
            self.reader.executor.write_home(part[0].0, &kinds, blocks).await?;
            part.iter().for_each(|(at, copy, _)| log.borrow_mut().home_written(*at, copy.by));
            self.checkpoints
                .written(part.iter().filter(|(_, copy, _)| !copy.durable_only).count() as u64);
        }
        self.reader.counters.borrow_mut().requested_home_write();
        Ok(run.len())
    }
}
