//! Uses of the mapping table. Memory evicts blocks that the log holds whole, reads of them are
//! redirected to the log, and they are written back from there.
//!
//! A block that was evicted is as clean as any other: it may leave the cache, be read and changed
//! again. Only the place differs from which unknown content is read: the log, and not home.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Cache;
use crate::cache::mapping::LogCopy;
use crate::cache::reader::Reader;
use crate::interface::error::EngineError;
use crate::interface::limits::HOME_REQUESTS_MAX;
use device::Buffer;
use runtime::join_window;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// The part of the cache's memory that the table may take.
const TABLE_PART: u64 = 8;
/// Bytes of the log that are read with one request.
const READ_MAX: usize = 1 << 20;
/// Log blocks that nobody asked for, between two that are read with one request.
const GAP_MAX: u32 = 1;

/// A block and where the log holds it.
pub(crate) type Copy = (HomeBlock, LogCopy);

/// Log blocks that are read together, and the copies in them.
struct LogRead {
    at: LogBlock,
    end: LogBlock,
    copies: Vec<usize>,
}

/// Returns the maximum number of bytes of the mapping table.
pub(crate) fn table_max(cache: &Cache) -> usize {
    (cache.bytes_of(cache.limit()) / TABLE_PART) as usize
}

impl Reader<'_> {
    pub(crate) fn has_copies(&self) -> bool {
        self.log.is_some_and(|log| !log.borrow().mapping().is_empty())
    }
    pub(crate) fn copy_of(&self, at: HomeBlock) -> Option<LogCopy> {
        self.log?.borrow().mapping().get(at)
    }
    /// The first of `blocks` that the log alone holds.
    pub(crate) fn first_copy_within(&self, blocks: &Range<HomeBlock>) -> Option<HomeBlock> {
        self.log?.borrow().mapping().first_within(blocks)
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
                    // It was written home in between, or is overwritten in memory.
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

    /// Reads copies from the log; `None` for a place that does not, or no longer, hold the block
    /// that was logged.
    pub(crate) async fn fetch(
        &self,
        copies: &[Copy],
    ) -> Result<Vec<Option<Rc<Buffer>>>, EngineError> {
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
        let bytes = self.executor.read_log(read.at, read.end.get() - read.at.get()).await?;
        let Some(log) = self.log else { return Ok(Vec::new()) };
        let (records, unit) = (log.borrow().records().clone(), self.executor.log_unit());
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
        let Some(log) = self.log else { return Vec::new() };
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
                        && (end.get() - last.at.get()) as usize * self.executor.log_unit()
                            <= READ_MAX
                        && self.executor.are_contiguous(last.at, end) =>
                {
                    last.end = last.end.max(end);
                    last.copies.push(index);
                }
                _ => reads.push(LogRead { at: place.at, end, copies: vec![index] }),
            }
        }
        reads
    }
}
