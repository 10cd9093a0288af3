//! What uses the mapping table. Memory lets go of blocks that the log holds whole, reads of them
//! are redirected to the log, and they go home from there.
//!
//! A block that was let go is as clean as any other: it may leave the cache, be read and changed
//! again. Only the place differs from which unknown content is read: the log, and not home.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Cache;
use crate::cache::mapping::{LogCopy, sum};
use crate::engine::Engine;
use crate::interface::error::EngineError;
use crate::interface::limits::{HOME_BATCH_MAX, HOME_REQUESTS_MAX};
use crate::writeback::coalescing::RUN_BLOCKS_MAX;
use crate::writeback::writeback_outcome::{WritebackOutcome, read_those_that_can};
use device::Buffer;
use runtime::join_window;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// The part of the cache that blocks read together on their way home may take.
const BATCH_PART: usize = 16;
/// The part of the cache's memory that the table may take.
const TABLE_PART: u64 = 8;
/// Most blocks that memory lets go of before others have their turn: a millisecond or so.
const LET_GO_MAX: usize = 1024;
/// Bytes of the log that are read with one request.
const READ_MAX: usize = 1 << 20;
/// Log blocks that nobody asked for, between two that are read with one request.
const GAP_MAX: u32 = 1;

/// A block and where the log holds it.
type Copy = (HomeBlock, LogCopy);

/// Log blocks that are read together, and the copies in them.
struct LogRead {
    at: LogBlock,
    end: LogBlock,
    copies: Vec<usize>,
}

/// Most bytes of the mapping table.
pub(crate) fn table_max(cache: &Cache) -> usize {
    (cache.bytes_of(cache.limit()) / TABLE_PART) as usize
}

impl Engine {
    pub(crate) fn has_copies(&self) -> bool {
        self.log.as_ref().is_some_and(|log| !log.borrow().mapping().is_empty())
    }
    pub(crate) fn copy_of(&self, at: HomeBlock) -> Option<LogCopy> {
        self.log.as_ref()?.borrow().mapping().get(at)
    }
    /// The first of `blocks` that the log alone holds.
    pub(crate) fn first_copy_within(&self, blocks: &Range<HomeBlock>) -> Option<HomeBlock> {
        self.log.as_ref()?.borrow().mapping().first_within(blocks)
    }
    /// Blocks that home does not hold yet, in memory or in the log alone.
    pub(crate) fn blocks_until_home(&self) -> usize {
        let mapped = self.log.as_ref().map_or(0, |log| log.borrow().mapping().len());
        self.queue.dirty() + mapped
    }

    /// Memory lets go of some blocks that the log holds whole, those first that have not been home
    /// for longest, until `is_enough`. Whether there may be more.
    pub(crate) fn evict(&self, is_enough: impl Fn() -> bool) -> bool {
        let Some(log) = self.log.as_ref().filter(|log| log.borrow().redirects()) else {
            return false;
        };
        let cache = self.cache.borrow();
        let table_max = table_max(&cache);
        let table = log.borrow().mapping().memory();
        let (mut count, now) = (0, self.world.now());
        self.queue.while_dirty(&cache, |block| {
            if count == LET_GO_MAX || is_enough() || table.get() >= table_max {
                return false;
            }
            if let Some((by, place, bytes)) = block.evict() {
                let copy = LogCopy::new(by, place, sum(&bytes), block.contents(), block.stays());
                log.borrow_mut().evict(block.number(), copy, now);
                self.queue.mark_clean(block);
                count += 1;
            }
            true
        });
        drop(cache);
        if count > 0 {
            self.cache.borrow_mut().shrink();
            self.pipeline.wake_joiners();
        }
        count == LET_GO_MAX
    }

    /// Reads blocks from the log, all of which were there when this was called.
    pub(crate) async fn read_copies(&self, blocks: &[Rc<CachedBlock>]) -> Result<(), EngineError> {
        let copy = |block: &Rc<CachedBlock>| {
            (block.number(), self.copy_of(block.number()).expect("as promised"))
        };
        let copies: Vec<Copy> = blocks.iter().map(copy).collect();
        self.counters.borrow_mut().redirected_reads(copies.len() as u64);
        let found = self.fetch(&copies).await?;
        for ((block, (at, mut copy)), mut found) in blocks.iter().zip(copies).zip(found) {
            let bytes = loop {
                copy = match (found, self.copy_of(at)) {
                    (Some(bytes), _) => break bytes,
                    // It has gone home meanwhile, or is overwritten in memory.
                    (None, None) => break Rc::new(self.home.read(at, 1).await?),
                    (None, Some(now)) if now == copy => {
                        return Err(EngineError::LogCopyDamaged { at });
                    }
                    // Its log was swapped.
                    (None, Some(now)) => now,
                };
                found = self.fetch(&[(at, copy)]).await?.pop().flatten();
            };
            block.fill(bytes, self.block_size);
        }
        Ok(())
    }

    /// What the log holds; `None` where it is not, or no longer, what was logged.
    async fn fetch(&self, copies: &[Copy]) -> Result<Vec<Option<Rc<Buffer>>>, EngineError> {
        let reads = self.log_reads(copies);
        let reads = reads.into_iter().map(|read| -> Pin<Box<dyn Future<Output = _> + '_>> {
            // What was read is dropped before others are: the bytes of the log and their copies are
            // not held at the same time.
            Box::pin(async move { self.take_copies(read, copies).await })
        });
        let mut found = vec![None; copies.len()];
        for (index, block) in join_window(reads, HOME_REQUESTS_MAX).await?.into_iter().flatten() {
            found[index] = block;
        }
        Ok(found)
    }

    /// The blocks of one read, each with its index in `copies`.
    async fn take_copies(
        &self,
        read: LogRead,
        copies: &[Copy],
    ) -> Result<Vec<(usize, Option<Rc<Buffer>>)>, EngineError> {
        let bytes = self.runner.read_log(read.at, read.end.get() - read.at.get()).await?;
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let (records, unit) = (log.borrow().records().clone(), self.runner.log_unit());
        let take = |index: usize| {
            let copy = copies[index].1;
            let place = copy.place();
            let begin = (place.at.get() - read.at.get()) as usize * unit;
            let count =
                records.blocks_of_whole(place.offset.into(), self.block_size.bytes()) as usize;
            let log = &bytes[begin..begin + count * unit];
            (index, copy.read_from(&*records, log, self.block_size.bytes()).map(Rc::new))
        };
        Ok(read.copies.iter().map(|index| take(*index)).collect())
    }

    /// Copies that lie near each other in the log are read together.
    fn log_reads(&self, copies: &[Copy]) -> Vec<LogRead> {
        let Some(log) = &self.log else { return Vec::new() };
        let records = log.borrow().records().clone();
        let mut order: Vec<usize> = (0..copies.len()).collect();
        order.sort_unstable_by_key(|index| copies[*index].1.place().at);
        let mut reads: Vec<LogRead> = Vec::new();
        for index in order {
            let place = copies[index].1.place();
            let count = records.blocks_of_whole(place.offset.into(), self.block_size.bytes());
            let end = place.at.plus(count);
            match reads.last_mut() {
                Some(last)
                    if place.at <= last.end.plus(GAP_MAX)
                        && (end.get() - last.at.get()) as usize * self.runner.log_unit()
                            <= READ_MAX
                        && self.runner.lie_together(last.at, end) =>
                {
                    last.end = last.end.max(end);
                    last.copies.push(index);
                }
                _ => reads.push(LogRead { at: place.at, end, copies: vec![index] }),
            }
        }
        reads
    }

    /// Writes those of `numbers` (sorted) home that the table names. No barrier yet. Whoever asks
    /// holds the turn.
    pub(crate) async fn copies_home(
        &self,
        numbers: &[HomeBlock],
    ) -> Result<WritebackOutcome, EngineError> {
        let mut all = WritebackOutcome::default();
        if !self.has_copies() {
            return Ok(all);
        }
        let mapped: Vec<_> =
            numbers.iter().copied().filter(|at| self.copy_of(*at).is_some()).collect();
        let batch = (self.cache.borrow().limit() / BATCH_PART).clamp(1, HOME_BATCH_MAX);
        for numbers in mapped.chunks(batch) {
            self.cache.borrow_mut().note_fetched(numbers.len());
            let copied = self.copy_home(numbers).await;
            self.cache.borrow_mut().note_fetched(0);
            all = all.and(copied?);
        }
        if all.written > 0 {
            self.pipeline.wake_joiners();
        }
        Ok(all)
    }

    async fn copy_home(&self, numbers: &[HomeBlock]) -> Result<WritebackOutcome, EngineError> {
        let copies: Vec<Copy> =
            numbers.iter().filter_map(|at| Some((*at, self.copy_of(*at)?))).collect();
        let (found, mut unreadable) =
            read_those_that_can(copies, async |copies| self.fetch(copies).await).await;
        let mut known = Vec::with_capacity(found.len());
        for ((at, copy), content) in found {
            match content {
                Some(content) => known.push((at, copy, content)),
                None if self.copy_of(at) == Some(copy) => {
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
        let Some(log) = &self.log else { return Ok(0) };
        let _claim = self.claims.claim(run[0].0, run.len() as u64).await;
        // Only now: while waiting for the claim, another write may have brought a newer image home.
        let is_newest =
            |(at, copy, _): &&(HomeBlock, LogCopy, Rc<Buffer>)| self.copy_of(*at) == Some(*copy);
        let run: Vec<_> = run.iter().filter(is_newest).collect();
        for part in run.chunk_by(|left, right| left.0.plus(1) == right.0) {
            let kinds: Vec<_> = part.iter().map(|(_, copy, _)| copy.contents.at_home()).collect();
            let blocks = part.iter().map(|(_, _, block)| block.clone()).collect();
            self.runner.write_home(part[0].0, &kinds, blocks).await?;
            part.iter().for_each(|(at, copy, _)| log.borrow_mut().home_written(*at, copy.by));
            self.checkpoints.written(part.iter().filter(|(_, copy, _)| !copy.stays).count() as u64);
        }
        self.counters.borrow_mut().requested_home_write();
        Ok(run.len())
    }
}
