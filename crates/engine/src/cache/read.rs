//! Reads from home, or from the log, into the cache. At most one read of a block is in flight;
//! others wait for it.

use crate::cache::block::{Block, CachedBlock};
use crate::cache::block_cache::{RangeWatch, Temperature};
use crate::cache::reader::Reader;
use crate::interface::error::EngineError;
use device::Buffer;
use runtime::sync::Event;
use std::ops::Range;
use std::rc::Rc;
use units::HomeBlock;

/// Reads of file data from this many bytes on are taken for one long stream: they enter the cache
/// cold, or not at all.
const STREAM_BYTES: usize = 64 << 10;

/// Whether a block needs no read: [`CachedBlock::is_whole`] for those who look at its current
/// content, [`CachedBlock::is_whole_in_all_images`] for those who send it home.
type Known = fn(&CachedBlock) -> bool;

impl Reader<'_> {
    /// Looks a metadata block up; [`Reader::load`] makes it known.
    pub fn look_up_metadata(&self, at: HomeBlock) -> Result<Rc<CachedBlock>, EngineError> {
        self.check_range(at, 1)?;
        Ok(self.look_up(at, Temperature::Warm))
    }

    /// Reads `count` metadata blocks from `at` on. Those that are not cached are read together.
    pub async fn metadata_run(&self, at: HomeBlock, count: u32) -> Result<Vec<Block>, EngineError> {
        let blocks = self.whole_blocks(at, count, Temperature::Warm).await?;
        Ok(blocks.into_iter().map(Block).collect())
    }

    /// Reads `count` file-data blocks from `at` on, one buffer a block, as last written by anyone
    /// (committed or not).
    pub async fn read_data(
        &self,
        at: HomeBlock,
        count: u32,
    ) -> Result<Vec<Rc<Buffer>>, EngineError> {
        let stream = (count as usize) << self.block_size.shift() >= STREAM_BYTES;
        let temperature = if stream { Temperature::Cold } else { Temperature::Warm };
        let blocks = self.whole_blocks(at, count, temperature).await?;
        Ok(blocks.iter().map(|block| block.bytes()).collect())
    }

    /// Reads `count` blocks from `at` on, from the cache or home; those that are missing side by
    /// side come with one read.
    async fn whole_blocks(
        &self,
        at: HomeBlock,
        count: u32,
        temperature: Temperature,
    ) -> Result<Vec<Rc<CachedBlock>>, EngineError> {
        self.check_range(at, u64::from(count))?;
        loop {
            let numbers = (0..u64::from(count)).map(|index| at.plus(index));
            let blocks: Vec<_> = numbers.map(|number| self.look_up(number, temperature)).collect();
            self.load_all(&blocks, CachedBlock::is_whole).await?;
            // A block that was freed during the read has left the cache. What was written since is
            // in another, and home may have had a part of it already when this one was filled.
            let is_here = |block: &Rc<CachedBlock>| block.is_cached();
            if blocks.iter().all(is_here) || units::fault!("freed-while-read-is-returned") {
                return Ok(blocks);
            }
        }
    }

    /// Reads as [`Reader::read_data`] does, for a caller that keeps the content: long runs of
    /// blocks that are not in the cache do not enter it. One buffer may hold several blocks.
    pub async fn read_data_past_cache(
        &self,
        at: HomeBlock,
        count: u32,
    ) -> Result<Vec<Rc<Buffer>>, EngineError> {
        self.check_range(at, u64::from(count))?;
        let long = (STREAM_BYTES >> self.block_size.shift()) as u64;
        let end = at.plus(count.into());
        let (mut buffers, mut from) = (Vec::new(), at);
        while from < end {
            let mut run = self.cache.borrow().missing_run(from..end, long);
            let mut known = run.start;
            // A block that memory has evicted because the log holds it is not home either.
            if let Some(copy) = self.first_copy_within(&run) {
                match copy.get() - run.start.get() >= long {
                    true => run.end = copy,
                    false => known = copy.plus(1),
                }
            }
            if from < known {
                buffers.extend(self.read_data(from, (known.get() - from.get()) as u32).await?);
                // Blocks of the run may have come into the cache during the read: it is looked up
                // again.
                from = known;
            } else {
                from = run.end;
                buffers.extend(Box::pin(self.read_missing(run)).await?);
            }
        }
        Ok(buffers)
    }

    /// Blocks that are neither in the cache nor in the mapping table: home has their latest
    /// version. A caller that changes one has it in the cache first, and nothing of it is written
    /// home before. So if none came into the cache while the read was in flight, none was changed,
    /// and what was read is neither old nor torn. Otherwise the cache is asked.
    async fn read_missing(&self, run: Range<HomeBlock>) -> Result<Vec<Rc<Buffer>>, EngineError> {
        let (at, count) = (run.start, (run.end.get() - run.start.get()) as usize);
        let read = RangeWatch::begin(self.cache, run.clone());
        self.counters.borrow_mut().requested_home_read();
        self.direct_writes.until_home_holds(&run).await;
        let content = self.home.read(at, count).await?;
        if read.was_hit() && !units::fault!("past-cache-not-asked") {
            return self.read_data(at, count as u32).await;
        }
        Ok(vec![Rc::new(content)])
    }

    /// The content of a block, if memory holds all of it.
    pub fn cached_data(&self, at: HomeBlock) -> Option<Rc<Buffer>> {
        let cache = self.cache.borrow();
        cache.peek(at).filter(|block| block.is_whole()).map(|block| block.bytes())
    }

    pub(crate) fn check_range(&self, at: HomeBlock, count: u64) -> Result<(), EngineError> {
        if self.home.contains(at, count) {
            return Ok(());
        }
        Err(EngineError::OutOfRange { at, blocks: self.home.end() })
    }

    pub(crate) fn look_up(&self, at: HomeBlock, temperature: Temperature) -> Rc<CachedBlock> {
        let block = self.cache.borrow_mut().get_or_insert(at, temperature);
        self.counters.borrow_mut().looked_up(block.is_whole());
        block
    }

    /// Makes all `blocks` known; neighbours that are missing come with one read. Sorted by number.
    pub(crate) async fn load_all(
        &self,
        blocks: &[Rc<CachedBlock>],
        known: Known,
    ) -> Result<(), EngineError> {
        let missing = |block: &Rc<CachedBlock>| !known(block) && block.reading().is_none();
        let mut from = 0;
        while from < blocks.len() {
            let mut end = from + 1;
            if missing(&blocks[from]) {
                while end < blocks.len()
                    && missing(&blocks[end])
                    && blocks[end].number() == blocks[end - 1].number().plus(1)
                {
                    end += 1;
                }
                Box::pin(self.read_run(&blocks[from..end])).await?;
            } else {
                self.load(&blocks[from], known).await?;
            }
            from = end;
        }
        Ok(())
    }

    /// Makes `block` known. Reads are boxed: they wait for a disk anyway, and the future of each
    /// caller that may have to read would be as long as one.
    pub(crate) async fn load(
        &self,
        block: &Rc<CachedBlock>,
        known: Known,
    ) -> Result<(), EngineError> {
        while !known(block) {
            match block.reading() {
                // If that read fails, its reader has the error, and this one tries for itself;
                // another who waited for it may have begun to already.
                Some(event) => {
                    let has_ended = || !block.reading().is_some_and(|now| Rc::ptr_eq(&now, &event));
                    event.until(|| has_ended().then_some(())).await;
                }
                None => Box::pin(self.read_run(std::slice::from_ref(block))).await?,
            }
        }
        Ok(())
    }

    /// Reads consecutive blocks, none of which is being read, from home or from where the log holds
    /// them.
    async fn read_run(&self, blocks: &[Rc<CachedBlock>]) -> Result<(), EngineError> {
        let _reading = Reading::start(blocks);
        if !self.has_copies() {
            return self.read_home(blocks).await;
        }
        let is_copy = |block: &Rc<CachedBlock>| self.copy_of(block.number()).is_some();
        let mut rest = blocks;
        while let Some(first) = rest.first() {
            let copies = is_copy(first);
            let count = rest.iter().take_while(|block| is_copy(block) == copies).count();
            let (now, later) = rest.split_at(count);
            match copies {
                true => self.read_copies(now).await?,
                false => self.read_home(now).await?,
            }
            rest = later;
        }
        Ok(())
    }

    async fn read_home(&self, blocks: &[Rc<CachedBlock>]) -> Result<(), EngineError> {
        let size = self.block_size.bytes();
        self.counters.borrow_mut().requested_home_read();
        let (at, end) = (blocks[0].number(), blocks[0].number().plus(blocks.len() as u64));
        self.direct_writes.until_home_holds(&(at..end)).await;
        let content = self.home.read(at, blocks.len()).await?;
        if let [block] = blocks {
            block.fill(Rc::new(content), self.block_size);
            return Ok(());
        }
        for (block, bytes) in blocks.iter().zip(content.chunks_exact(size)) {
            block.fill(Rc::new(Buffer::copy_of(bytes)), self.block_size);
        }
        Ok(())
    }
}

/// Marks blocks as being read; whatever becomes of the reader, those who wait are woken.
struct Reading<'a> {
    blocks: &'a [Rc<CachedBlock>],
    event: Rc<Event>,
}

impl Reading<'_> {
    fn start(blocks: &[Rc<CachedBlock>]) -> Reading<'_> {
        let event = Rc::new(Event::default());
        for block in blocks {
            block.begin_reading(&event);
        }
        Reading { blocks, event }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        for block in self.blocks {
            block.end_reading();
        }
        self.event.notify();
    }
}
