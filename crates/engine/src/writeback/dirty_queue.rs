//! The blocks that are newer than home, oldest first; and which of them are written home next.
//!
//! Invariants
//! 1. A block is dirty from when it becomes newer than home until home has its latest version. Each
//!    dirty block has an entry, and says in [`CachedBlock::dirty_since`] which one: others of it
//!    are stale, and skipped when met.
//! 2. Stale entries are never the most by far, so the queue is bounded by the dirty blocks.
//! 3. None of the entries that [`Stuck`] counts is of a block that may be written home, until one
//!    is released.
//! 4. Writing home outside of a commit, and moving the log's tail, need the lock.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Cache;
use runtime::sync::{Event, RwLock, WriteGuard};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Instant, is_within};

/// Delay after a failure before the log's oldest blocks are read again.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Entries of the queue whose block is clean, beyond those of dirty ones.
const STALE_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct DirtyQueue {
    entries: RefCell<VecDeque<(Instant, HomeBlock)>>,
    stuck: Cell<Option<Stuck>>,
    dirty: Cell<usize>,
    requests: Cell<u64>,
    /// Time at which the base of the log's oldest blocks could not be read.
    unreadable_at: Cell<Option<Instant>>,
    work: Event,
    lock: Rc<RwLock>,
}

/// The first entries, none of which could be written home when they were last met. Thousands may
/// wait for a commit, and tasks that wait with them ask again and again.
#[derive(Clone, Copy)]
struct Stuck {
    entries: usize,
    /// Time since which the entries count as dirty, whatever they say.
    since: Instant,
    /// [`Cache::released`] at that time.
    released: u64,
}

impl DirtyQueue {
    /// Returns the number of blocks newer than home.
    pub fn dirty(&self) -> usize {
        self.dirty.get()
    }
    /// Returns the number of calls of [`DirtyQueue::request`].
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }
    /// Requests a round of write-back: a handle waits for it, or there are dirty blocks now.
    pub fn request(&self) {
        self.requests.set(self.requests.get() + 1);
        self.work.notify();
    }
    /// Waits until [`DirtyQueue::request`] was called more often than `seen`, or `has_ended` when
    /// [`DirtyQueue::wake`] was called.
    pub async fn until_requested(&self, seen: u64, has_ended: impl Fn() -> bool) {
        self.work.until(|| (has_ended() || self.requests() != seen).then_some(())).await
    }
    /// Wakes tasks that wait for a request, so that they look whether the engine has ended.
    pub fn wake(&self) {
        self.work.notify();
    }
    pub async fn lock(&self) -> WriteGuard {
        self.lock.write().await
    }

    /// Notes that what the log's oldest transaction needs could not be read `now`.
    pub fn note_read_failure(&self, now: Instant) {
        self.unreadable_at.set(Some(now));
    }
    /// Whether to wait before it is read again: a disk may take long over a bad sector, and each
    /// commit asks for log space.
    pub fn waits_to_read(&self, now: Instant) -> bool {
        self.unreadable_at.get().is_some_and(|at| now.since(at) < READ_AGAIN_AFTER)
    }

    /// Marks `block`, which is about to become newer than home.
    pub fn mark_dirty(
        &self,
        block: &CachedBlock,
        now: impl FnOnce() -> Instant,
        cache: &RefCell<Cache>,
    ) {
        if block.is_dirty() {
            return;
        }
        let now = now();
        block.mark_dirty(now);
        let mut entries = self.entries.borrow_mut();
        // Most are of blocks that have been home since: some block is changed and is written home
        // again and again.
        if entries.len() > 2 * self.dirty.get() + STALE_MAX {
            let cache = cache.borrow();
            self.write_down(&mut entries, &cache);
            entries.retain(|entry| find(&cache, *entry).is_some());
        }
        entries.push_back((now, block.number()));
        drop(entries);
        self.dirty.set(self.dirty.get() + 1);
        if self.dirty.get() == 1 {
            self.request();
        }
    }
    /// Notes that `block` is home, if it is.
    pub fn mark_clean(&self, block: &CachedBlock) {
        if block.is_home() {
            self.drop_block(block);
        }
    }
    /// Drops `block`: nothing of it is to be written home.
    pub fn drop_block(&self, block: &CachedBlock) {
        if block.mark_clean() {
            self.dirty.set(self.dirty.get() - 1);
        }
    }

    /// Shows `look` the dirty blocks, oldest first, until it says that it has seen enough.
    pub fn while_dirty(&self, cache: &Cache, mut look: impl FnMut(&CachedBlock) -> bool) {
        let entries = self.entries.borrow();
        let blocks = entries.iter().filter_map(|entry| find(cache, *entry));
        for block in blocks {
            if !look(block) {
                return;
            }
        }
    }

    /// The oldest blocks that may be written home, sorted, `max` at most, as long as `has_expired`
    /// says so of the time when they became dirty. All that are met, also those that may not be
    /// written home because the log has to have them first, count as dirty from now on.
    pub fn expired(
        &self,
        cache: &Cache,
        now: Instant,
        max: usize,
        has_expired: impl Fn(Instant) -> bool,
    ) -> Vec<HomeBlock> {
        let mut entries = self.entries.borrow_mut();
        let released = cache.released();
        if self.is_stuck(&entries, cache, &has_expired) {
            self.stuck.set(Some(Stuck { entries: entries.len(), since: now, released }));
            return Vec::new();
        }
        self.write_down(&mut entries, cache);
        let (mut found, all, mut met) = (Vec::new(), entries.len(), 0);
        while met < all {
            let Some(entry) = entries.front().copied().filter(|(since, _)| has_expired(*since))
            else {
                break;
            };
            entries.pop_front();
            met += 1;
            let Some(block) = find(cache, entry) else { continue };
            block.mark_dirty(now);
            entries.push_back((now, block.number()));
            if block.may_be_written_home() {
                found.push(block.number());
                if found.len() == max {
                    break;
                }
            }
        }
        if found.is_empty() && met == all {
            self.stuck.set(Some(Stuck { entries: entries.len(), since: now, released }));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether all entries have expired and none may be written home, without a look at those that
    /// are known.
    fn is_stuck(
        &self,
        entries: &VecDeque<(Instant, HomeBlock)>,
        cache: &Cache,
        has_expired: impl Fn(Instant) -> bool,
    ) -> bool {
        let Some(stuck) = self.stuck.get().filter(|stuck| stuck.released == cache.released())
        else {
            return false;
        };
        let may_be_written_home = |entry: &(Instant, HomeBlock)| {
            find(cache, *entry).is_some_and(|block| block.may_be_written_home())
        };
        debug_assert!(
            !entries.range(..stuck.entries).any(may_be_written_home),
            "one was released, and nobody noted it"
        );
        let newest = entries.back().map_or(stuck.since, |(since, _)| stuck.since.max(*since));
        has_expired(newest) && !entries.range(stuck.entries..).any(may_be_written_home)
    }

    /// Enters the blocks that were stuck, by the time since when they are dirty.
    fn write_down(&self, entries: &mut VecDeque<(Instant, HomeBlock)>, cache: &Cache) {
        let Some(Stuck { entries: count, since, .. }) = self.stuck.take() else { return };
        for entry in entries.range_mut(..count) {
            if let Some(block) = find(cache, *entry) {
                block.mark_dirty(since);
                entry.0 = since;
            }
        }
    }

    /// The dirty blocks within `runs` (first block and count, in order and apart), sorted.
    pub fn dirty_within(&self, cache: &Cache, runs: &[(HomeBlock, u64)]) -> Vec<HomeBlock> {
        let is_dirty = |at: HomeBlock| cache.peek(at).is_some_and(|block| block.is_dirty());
        let entries = self.entries.borrow();
        let numbers = entries.iter().map(|(_, number)| *number);
        let mut found: Vec<_> =
            numbers.filter(|number| is_within(runs, *number) && is_dirty(*number)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The block of an entry that is not stale.
fn find(cache: &Cache, (since, number): (Instant, HomeBlock)) -> Option<&Rc<CachedBlock>> {
    cache.peek(number).filter(|block| block.dirty_since() == Some(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::block_cache::Temperature;
    use units::{BlockSize, Owner};

    struct Rig {
        queue: DirtyQueue,
        cache: RefCell<Cache>,
    }
    impl Rig {
        fn new() -> Rig {
            let cache = Cache::new(1 << 20, BlockSize::new(1024).unwrap());
            Rig { queue: DirtyQueue::default(), cache: RefCell::new(cache) }
        }
        fn mark_dirty(&self, at: u64, now: u64) -> Rc<CachedBlock> {
            let block = self.cache.borrow_mut().get_or_insert(HomeBlock(at), Temperature::Warm);
            self.queue.mark_dirty(&block, || Instant(now), &self.cache);
            block.mark_unordered(Owner(1));
            block
        }
        fn mark_clean(&self, block: &CachedBlock) {
            block.unordered_arrived(&block.bytes());
            self.queue.mark_clean(block);
        }
        fn expired(&self, now: u64, age: u64, max: usize) -> Vec<u64> {
            let cache = self.cache.borrow();
            let expired =
                self.queue.expired(&cache, Instant(now), max, |since| since.0 + age <= now);
            expired.into_iter().map(HomeBlock::get).collect()
        }
    }

    #[test]
    fn the_oldest_come_first_and_a_block_changed_twice_is_due_once() {
        let rig = Rig::new();
        for (at, now) in [(9, 1), (3, 2), (9, 3), (5, 4)] {
            rig.mark_dirty(at, now);
        }
        assert_eq!((rig.queue.dirty(), rig.expired(10, 7, 10)), (3, vec![3, 9]));
        assert_eq!(rig.expired(10, 6, 10), [5]);
        assert!(rig.expired(10, 1, 10).is_empty());
        assert_eq!(rig.expired(20, 10, 2), [3, 9]);
    }

    #[test]
    fn an_entry_of_a_block_that_has_been_home_since_is_skipped() {
        let rig = Rig::new();
        let block = rig.mark_dirty(9, 1);
        rig.mark_clean(&block);
        assert_eq!(rig.queue.dirty(), 0);
        rig.mark_dirty(9, 5);
        assert!(rig.expired(7, 3, 10).is_empty());
        assert_eq!(rig.expired(8, 3, 10), [9]);
    }

    #[test]
    fn a_block_written_back_repeatedly_does_not_fill_the_queue() {
        let rig = Rig::new();
        for now in 0..3 * STALE_MAX as u64 {
            let block = rig.mark_dirty(9, now);
            rig.mark_clean(&block);
        }
        assert!(rig.queue.entries.borrow().len() <= STALE_MAX + 2);
    }

    #[test]
    fn what_may_not_be_written_home_yet_is_asked_again_later() {
        let rig = Rig::new();
        let block = rig.mark_dirty(9, 1);
        block.order_unordered(Owner(1));
        block.freeze(units::TransactionId(1));
        assert!(rig.expired(5, 1, 10).is_empty());
        assert_eq!((rig.queue.dirty(), block.dirty_since()), (1, Some(Instant(5))));
    }

    #[test]
    fn what_is_released_behind_thousands_that_are_stuck_is_due_at_once() {
        let rig = Rig::new();
        let stuck = |at, now| {
            let block = rig.mark_dirty(at, now);
            block.order_unordered(Owner(1));
            block.freeze(units::TransactionId(1));
            block
        };
        let blocks: Vec<_> = (0..10).map(|at| stuck(at, at)).collect();
        assert!(rig.expired(20, 1, 10).is_empty());
        stuck(10, 20);
        assert!(rig.expired(22, 1, 10).is_empty());
        // They count as dirty since the latest look at them.
        assert!(rig.expired(31, 10, 10).is_empty());
        blocks[4].commit(units::TransactionId(1), None);
        assert!(rig.expired(31, 10, 10).is_empty());
        assert_eq!(rig.expired(32, 10, 10), [4]);
        assert_eq!(blocks[3].dirty_since(), Some(Instant(32)));
        rig.mark_dirty(11, 33);
        assert_eq!(rig.expired(50, 1, 10), [4, 11]);
    }

    #[test]
    fn only_dirty_blocks_within_the_runs_are_found() {
        let rig = Rig::new();
        (0..20).for_each(|at| drop(rig.mark_dirty(at, at)));
        rig.mark_clean(&rig.cache.borrow().peek(HomeBlock(4)).unwrap().clone());
        let within =
            rig.queue.dirty_within(&rig.cache.borrow(), &[(HomeBlock(3), 3), (HomeBlock(15), 1)]);
        assert_eq!(within, [3, 5, 15].map(HomeBlock));
    }

    #[test]
    fn the_first_dirty_block_wakes_the_writer() {
        let rig = Rig::new();
        let block = rig.mark_dirty(1, 1);
        rig.mark_dirty(2, 1);
        assert_eq!(rig.queue.requests(), 1);
        drop(block);
    }
}
