//! The block cache: bounded in memory, evicted in the order of a clock.
//!
//! Invariants
//! 1. A block that is dirty, in a transaction, being read, or held by anyone stays. So "not in the
//!    cache" means "home holds the latest version, or the log does where the mapping table says
//!    so".
//! 2. What counts against the bound are images, not blocks. A block that changes while it is in a
//!    transaction in flight has two. One whose last committed image is not home either has three.
//!    What a commit makes for the log counts, too, and so does the mapping table.

use crate::cache::block::{CachedBlock, ClockState};
use crate::cache::images::Usage;
use device::Buffer;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};
use units::{BlockAreas, BlockMap, BlockSize, HomeBlock};

/// Point at which a block enters the clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temperature {
    /// Stays a round of the clock.
    Warm,
    /// Goes first, unless asked for again: large sequential reads must not empty the cache.
    Cold,
}

pub(crate) struct Cache {
    blocks: BlockMap<Rc<CachedBlock>>,
    areas: BlockAreas,
    /// Next to be looked at first. Entries of blocks that were removed hold no content; they go
    /// when met, or when they are the most.
    clock: VecDeque<Weak<CachedBlock>>,
    /// Maximum number of images to keep, as far as blocks can be evicted.
    limit: usize,
    nothing: Rc<Buffer>,
    usage: Rc<Usage>,
    /// Blocks made for the log by commits in flight.
    made: usize,
    /// Reads in flight that go past the cache.
    watched: Vec<Rc<WatchedRange>>,
    /// Blocks in flight from the log to home, or to another log.
    fetched: usize,
    /// Blocks in flight to home past the cache.
    bypassed: usize,
    /// Bytes that tables take of memory: of the mapping, of update sequences.
    tables: Vec<Rc<Cell<usize>>>,
    image_bytes: usize,
}

/// Bytes that an image takes beyond its content: alignment of the buffer to sectors (512) and its
/// header (32), the shared pointer (64), the block's entry and state (288), its places in table,
/// clock and queue of dirty blocks (64).
const IMAGE_OVERHEAD: usize = 512 + 32 + 64 + 288 + 64;
/// Entries of the clock to look at for each block that is removed, where most are stale.
const STALE_LOOKS: usize = 4;
/// Least number of images, however little memory is wanted.
const LEAST_IMAGES: usize = 16;

impl Cache {
    /// Creates a cache of `bytes` of memory, including the overhead of each block.
    pub fn new(bytes: u64, size: BlockSize) -> Cache {
        let image_bytes = size.bytes() + IMAGE_OVERHEAD;
        Cache {
            blocks: BlockMap::default(),
            areas: BlockAreas::default(),
            clock: VecDeque::new(),
            limit: usize::try_from(bytes / image_bytes as u64)
                .unwrap_or(usize::MAX)
                .max(LEAST_IMAGES),
            nothing: Rc::new(Buffer::zeroed(size.bytes())),
            usage: Rc::default(),
            made: 0,
            watched: Vec::new(),
            fetched: 0,
            bypassed: 0,
            tables: Vec::new(),
            image_bytes,
        }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Grows whenever a block may be let home that might not before.
    pub fn released(&self) -> u64 {
        self.usage.released()
    }
    /// Images in memory: what [`Cache::limit`] bounds.
    pub fn images(&self) -> usize {
        self.usage.blocks() + self.held()
    }
    /// Counts images that are no block's current one: they stay until they are home, or in the log.
    /// Tables count as the number of images that take the same memory.
    pub fn held(&self) -> usize {
        self.usage.frozen()
            + self.made
            + self.fetched
            + self.bypassed
            + self.tables.iter().map(|bytes| bytes.get().div_ceil(self.image_bytes)).sum::<usize>()
    }
    /// Notes that a commit has made `blocks` for the log besides the images that it writes there.
    pub fn note_log_buffers(&mut self, blocks: usize) {
        self.made += blocks;
        self.shrink();
    }
    /// Drops blocks that [`Cache::note_log_buffers`] has counted.
    pub fn drop_log_buffers(&mut self, blocks: usize) {
        self.made -= blocks;
        self.shrink();
    }
    /// Notes how many blocks are in flight from the log to home, or to another log.
    pub fn note_fetched(&mut self, blocks: usize) {
        self.fetched = blocks;
        self.shrink();
    }
    /// Whether none of `blocks` is here that is not home, is being read, or is held by anyone.
    pub fn can_do_without(&self, blocks: &Range<HomeBlock>) -> bool {
        let is_free = |block: &Rc<CachedBlock>| Rc::strong_count(block) == 1 && !block.is_dirty();
        (blocks.start.get()..blocks.end.get())
            .all(|at| self.blocks.get(&HomeBlock(at)).is_none_or(is_free))
    }
    /// Notes that `blocks`, which are clean or absent, get new content that bypasses the cache.
    /// Reads of them that are in flight past the cache are notified.
    pub fn note_bypass(&mut self, blocks: &Range<HomeBlock>) {
        (blocks.start.get()..blocks.end.get()).for_each(|at| drop(self.remove(HomeBlock(at))));
        let overlaps = |read: &&Rc<WatchedRange>| {
            read.blocks.start < blocks.end && blocks.start < read.blocks.end
        };
        self.watched.iter().filter(overlaps).for_each(|read| read.was_hit.set(true));
        self.bypassed += (blocks.end.get() - blocks.start.get()) as usize;
        self.shrink();
    }
    /// Drops `blocks` that bypassed the cache and are home.
    pub fn drop_bypassed(&mut self, blocks: usize) {
        self.bypassed -= blocks;
    }
    /// Counts a table as memory in use; `bytes` holds its present size.
    pub fn count_table(&mut self, bytes: Rc<Cell<usize>>) {
        self.tables.push(bytes);
    }
    pub fn bytes_of(&self, images: usize) -> u64 {
        images as u64 * self.image_bytes as u64
    }

    /// Returns the block and marks it as used.
    pub fn get(&self, at: HomeBlock) -> Option<&Rc<CachedBlock>> {
        let block = self.blocks.get(&at)?;
        block.set_clock(ClockState::Used);
        Some(block)
    }

    /// Returns the block without marking it as used.
    pub fn peek(&self, at: HomeBlock) -> Option<&Rc<CachedBlock>> {
        self.blocks.get(&at)
    }

    /// The blocks of the range that are here. Visits only areas that have one.
    pub fn within(&self, at: HomeBlock, count: u64) -> impl Iterator<Item = &Rc<CachedBlock>> {
        let parts = self.areas.parts(at, count);
        let numbers = parts.flat_map(|(at, count)| (0..count).map(move |index| at.plus(index)));
        numbers.filter_map(|number| self.blocks.get(&number))
    }
    /// Returns the number of look-ups that [`Cache::within`] makes for the range.
    pub fn visits_within(&self, at: HomeBlock, count: u64) -> u64 {
        self.areas.visits(at, count)
    }

    /// Returns the block, or inserts one of which nothing is known.
    pub fn get_or_insert(&mut self, at: HomeBlock, temperature: Temperature) -> Rc<CachedBlock> {
        if let Some(block) = self.get(at) {
            return block.clone();
        }
        self.make_room();
        let block = Rc::new(CachedBlock::new(at, self.nothing.clone(), self.usage.clone()));
        self.blocks.insert(at, block.clone());
        self.areas.add(at);
        self.watched
            .iter()
            .filter(|read| read.blocks.contains(&at))
            .for_each(|read| read.was_hit.set(true));
        match temperature {
            Temperature::Warm => self.clock.push_back(Rc::downgrade(&block)),
            Temperature::Cold => self.clock.push_front(Rc::downgrade(&block)),
        }
        block
    }

    /// The first run of at least `least` blocks that are not in the cache; where there is none,
    /// what is behind the last block.
    pub fn missing_run(&self, within: Range<HomeBlock>, least: u64) -> Range<HomeBlock> {
        let mut start = within.start;
        while start < within.end {
            let numbers = (start.get()..within.end.get()).map(HomeBlock);
            let end = numbers
                .clone()
                .find(|number| self.blocks.contains_key(number))
                .unwrap_or(within.end);
            if end.get() - start.get() >= least {
                return start..end;
            }
            start = end.plus(1);
        }
        within.end..within.end
    }

    /// Takes a block out whatever its state: its content is worthless.
    pub fn remove(&mut self, at: HomeBlock) -> Option<Rc<CachedBlock>> {
        let block = self.blocks.remove(&at)?;
        self.areas.remove(at);
        block.set_clock(ClockState::Out);
        if self.clock.len() > 2 * self.blocks.len() + LEAST_IMAGES
            && !units::fault!("freed-stays-in-clock")
        {
            self.drop_stale_entries();
        }
        Some(block)
    }

    /// Drops entries of removed blocks once they are more than half of the clock's entries. Looks
    /// at a few, so that removing thousands has no step that looks at all.
    fn drop_stale_entries(&mut self) {
        for _ in 0..STALE_LOOKS {
            let Some(entry) = self.clock.pop_front() else { return };
            if entry.upgrade().is_some_and(|block| block.is_cached()) {
                self.clock.push_back(entry);
            }
        }
    }

    /// Evicts so that one more fits. Looks at a bounded number of blocks, so that a cache full of
    /// dirty blocks costs little; admission of new handles keeps their number down.
    fn make_room(&mut self) {
        self.evict_to(self.limit - 1);
    }

    /// Evicts what came beyond the limit while it could not be evicted. Call it when blocks have
    /// become clean.
    pub fn shrink(&mut self) {
        self.evict_to(self.limit);
    }

    fn evict_to(&mut self, images: usize) {
        let overshoot = self.images().saturating_sub(images);
        let mut looks = if overshoot == 0 { 0 } else { LEAST_IMAGES + 4 * overshoot };
        while looks > 0 && self.images() > images {
            looks -= 1;
            let Some(entry) = self.clock.pop_front() else { return };
            let Some(block) = entry.upgrade().filter(|block| block.is_cached()) else { continue };
            // One owner is the table, the other is `block` itself; any third one holds it.
            let held = Rc::strong_count(&block) > 2;
            if held || block.clock() == ClockState::Used || block.is_dirty() {
                block.set_clock(ClockState::Unused);
                self.clock.push_back(entry);
            } else {
                self.blocks.remove(&block.number());
                self.areas.remove(block.number());
                block.set_clock(ClockState::Out);
            }
        }
    }
}

/// A read from home of blocks that are not in the cache, and shall not be.
struct WatchedRange {
    blocks: Range<HomeBlock>,
    /// Whether one of them has come into the cache since.
    was_hit: Cell<bool>,
}

/// Watch over a range of blocks: as long as it lives, the cache notes whether one of them comes in.
pub(crate) struct RangeWatch<'a> {
    cache: &'a RefCell<Cache>,
    read: Rc<WatchedRange>,
}

impl RangeWatch<'_> {
    pub fn begin(cache: &RefCell<Cache>, blocks: Range<HomeBlock>) -> RangeWatch<'_> {
        let read = Rc::new(WatchedRange { blocks, was_hit: Cell::new(false) });
        cache.borrow_mut().watched.push(read.clone());
        RangeWatch { cache, read }
    }
    pub fn was_hit(&self) -> bool {
        self.read.was_hit.get()
    }
}

impl Drop for RangeWatch<'_> {
    fn drop(&mut self) {
        self.cache.borrow_mut().watched.retain(|read| !Rc::ptr_eq(read, &self.read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Instant;

    fn cache(limit: usize) -> Cache {
        Cache::new((limit * (1024 + IMAGE_OVERHEAD)) as u64, BlockSize::new(1024).unwrap())
    }

    #[test]
    fn clean_blocks_make_room_and_held_or_dirty_ones_stay() {
        let mut cache = cache(32);
        let held = cache.get_or_insert(HomeBlock(1000), Temperature::Warm);
        cache.get_or_insert(HomeBlock(1001), Temperature::Warm).mark_dirty(Instant(1));
        for number in 0..500 {
            cache.get_or_insert(HomeBlock(number), Temperature::Warm);
            assert!(cache.len() <= 32);
        }
        assert!(held.is_cached() && cache.peek(HomeBlock(1001)).is_some());
        assert!(cache.peek(HomeBlock(0)).is_none());
    }

    #[test]
    fn what_came_beyond_the_limit_goes_when_it_is_clean_again() {
        let mut cache = cache(32);
        for number in 0..500 {
            cache.get_or_insert(HomeBlock(number), Temperature::Warm).mark_dirty(Instant(1));
        }
        assert_eq!(cache.images(), 500);
        (0..500).for_each(|number| assert!(cache.peek(HomeBlock(number)).unwrap().mark_clean()));
        cache.shrink();
        assert_eq!((cache.images(), cache.len()), (32, 32));
    }

    #[test]
    fn removed_blocks_leave_nothing_behind_but_what_someone_holds() {
        let mut cache = cache(32);
        let held = cache.get_or_insert(HomeBlock(0), Temperature::Warm);
        for round in 0..1000 {
            let block = cache.get_or_insert(HomeBlock(round % 8), Temperature::Warm);
            drop(block);
            cache.remove(HomeBlock(round % 8));
            assert!(cache.images() <= 1 && cache.clock.len() <= LEAST_IMAGES + 1);
        }
        drop(held);
        assert_eq!(cache.images(), 0);
    }

    #[test]
    fn a_change_past_the_cache_evicts_and_marks_readers_in_flight() {
        let cache = RefCell::new(cache(64));
        let blocks = HomeBlock(8)..HomeBlock(16);
        let held = cache.borrow_mut().get_or_insert(HomeBlock(9), Temperature::Warm);
        assert!(!cache.borrow().can_do_without(&blocks));
        drop(held);
        cache.borrow().peek(HomeBlock(9)).unwrap().mark_dirty(Instant(1));
        assert!(!cache.borrow().can_do_without(&blocks));
        cache.borrow().peek(HomeBlock(9)).unwrap().mark_clean();
        assert!(cache.borrow().can_do_without(&blocks));
        let [beside, overlapping] = [0..8, 15..17]
            .map(|read| RangeWatch::begin(&cache, HomeBlock(read.start)..HomeBlock(read.end)));
        cache.borrow_mut().note_bypass(&blocks);
        assert_eq!((beside.was_hit(), overlapping.was_hit()), (false, true));
        assert!(cache.borrow().peek(HomeBlock(9)).is_none());
        assert_eq!(cache.borrow().images(), 8);
        cache.borrow_mut().drop_bypassed(8);
        assert_eq!(cache.borrow().images(), 0);
    }

    #[test]
    fn a_cold_stream_leaves_the_warm_blocks_alone() {
        let mut cache = cache(64);
        for number in 0..60 {
            cache.get_or_insert(HomeBlock(number), Temperature::Warm);
        }
        for number in 1000..3000 {
            cache.get_or_insert(HomeBlock(number), Temperature::Cold);
        }
        assert!((0..60).all(|number| cache.peek(HomeBlock(number)).is_some()));
    }
}
