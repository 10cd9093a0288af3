//! The block cache: at most one copy of a block, bounded in number, evicted in the order of a clock.
//!
//! Invariants
//! 1. A block that is dirty, in a transaction, being read, or held by anyone stays. So "not in the cache" means
//!    "home holds the latest version".
//! 2. Images are shared and copied on write ([`Rc::make_mut`]): whoever took one keeps what he took.
//! 3. A block has up to three images, each as old as or older than the one before: the current one, that of the
//!    committing transaction (as of its lock), and that of the latest committed transaction, which alone may go home.
//! 4. Bytes outside an image's `valid` ranges were never changed since the block came into the cache: they are
//!    what home holds, and are filled in when someone needs them.

use crate::update::Contents;
use device::Buffer;
use journal::RangeSet;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, InodeNumber, Instant, TransactionId};

/// The content of a block at one moment, perhaps known in part only.
#[derive(Clone)]
pub(crate) struct Image {
    pub bytes: Rc<Buffer>,
    /// The bytes that are known; `None`: all of them.
    pub valid: Option<RangeSet>,
}

impl Image {
    pub fn is_whole(&self) -> bool {
        self.valid.is_none()
    }
    /// `range` has just been written.
    pub fn note_written(&mut self, range: BlockRange, size: BlockSize) {
        if let Some(valid) = &mut self.valid {
            valid.insert(range);
            if valid.covers(size.whole()) {
                self.valid = None;
            }
        }
    }
    /// Puts home's bytes where this image knows nothing.
    fn fill(&mut self, base: &Rc<Buffer>, size: BlockSize) {
        match self.valid.take() {
            None => {}
            Some(valid) if valid.is_empty() => self.bytes = base.clone(),
            Some(valid) => {
                let bytes = Rc::<Buffer>::make_mut(&mut self.bytes);
                for gap in valid.missing(size.whole()).as_slice() {
                    bytes[gap.as_usize()].copy_from_slice(&base[gap.as_usize()]);
                }
            }
        }
    }
}

pub(crate) struct CachedBlock {
    pub number: HomeBlock,
    pub current: RefCell<Image>,
    /// The floor above has checked the content.
    pub verified: Cell<bool>,
    referenced: Cell<bool>,
    cached: Cell<bool>,
    /// A read of the base is under way; whoever needs it waits here.
    pub reading: RefCell<Option<Rc<Event>>>,

    /// In the running transaction.
    pub running: Cell<bool>,
    /// As of the lock of the committing transaction, if it is in that.
    pub committing: RefCell<Option<Image>>,
    /// As of the latest committed transaction, named, and not yet home.
    pub committed: RefCell<Option<(Image, TransactionId)>>,
    /// Data mode `writeback`: newer than home, in no transaction; and the file it belongs to.
    pub lazy: Cell<Option<InodeNumber>>,
    /// Data that must be home before the running transaction commits, and the file it belongs to.
    pub ordered: Cell<Option<InodeNumber>>,
    /// When it became newer than home, for the expiry.
    pub dirty_since: Cell<Option<Instant>>,
    pub contents: Cell<Contents>,
}

impl CachedBlock {
    fn new(number: HomeBlock, nothing: Rc<Buffer>) -> CachedBlock {
        CachedBlock {
            number,
            current: RefCell::new(Image { bytes: nothing, valid: Some(RangeSet::new()) }),
            verified: Cell::new(false),
            referenced: Cell::new(false),
            cached: Cell::new(true),
            reading: RefCell::new(None),
            running: Cell::new(false),
            committing: RefCell::new(None),
            committed: RefCell::new(None),
            lazy: Cell::new(None),
            ordered: Cell::new(None),
            dirty_since: Cell::new(None),
            contents: Cell::new(Contents::Data),
        }
    }

    /// Whether something of it may go home: the latest committed image, or its current one.
    pub fn may_go_home(&self) -> bool {
        self.committed.borrow().is_some() || self.current_may_go_home()
    }
    /// Whether the current image may: data that no commit waits for, or that the running transaction sends home in any case.
    /// Not while an older image of it is on its way with the committing transaction, which would then be written over it.
    pub fn current_may_go_home(&self) -> bool {
        (self.lazy.get().is_some() || self.ordered.get().is_some()) && self.committing.borrow().is_none()
    }

    pub fn is_whole(&self) -> bool {
        self.current.borrow().is_whole()
    }

    /// Whether all images are known as a whole. A write may have covered in the current one what older ones lack.
    pub fn is_whole_in_all_images(&self) -> bool {
        let whole = |image: &Image| image.is_whole();
        self.is_whole()
            && self.committing.borrow().as_ref().is_none_or(whole)
            && self.committed.borrow().as_ref().is_none_or(|(image, _)| whole(image))
    }

    /// Merges what home holds under all images. Images that were one stay one.
    pub fn fill(&self, base: Rc<Buffer>, size: BlockSize) {
        let mut current = self.current.borrow_mut();
        let was = current.clone();
        current.fill(&base, size);
        let filled = current.clone();
        let fill = |image: &mut Image| {
            if Rc::ptr_eq(&image.bytes, &was.bytes) && image.valid == was.valid {
                *image = filled.clone();
            } else {
                image.fill(&base, size);
            }
        };
        self.committing.borrow_mut().iter_mut().for_each(fill);
        self.committed.borrow_mut().iter_mut().for_each(|(image, _)| fill(image));
    }

    /// Home holds, or is about to be told, nothing older than the current image.
    pub fn is_home(&self) -> bool {
        !self.running.get()
            && self.lazy.get().is_none()
            && self.committing.borrow().is_none()
            && self.committed.borrow().is_none()
    }

    pub fn is_cached(&self) -> bool {
        self.cached.get()
    }
}

/// Where a block enters the clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temperature {
    /// Stays a round of the clock.
    Warm,
    /// Goes first, unless asked for again: large sequential reads must not empty the cache.
    Cold,
}

pub(crate) struct Cache {
    blocks: BlockMap<Rc<CachedBlock>>,
    /// Next to be looked at first. May hold blocks that were removed; they go when met.
    clock: VecDeque<Rc<CachedBlock>>,
    /// Most blocks to keep, as far as they can be evicted.
    limit: usize,
    nothing: Rc<Buffer>,
}

impl Cache {
    pub fn new(limit: usize, size: BlockSize) -> Cache {
        Cache {
            blocks: HashMap::default(),
            clock: VecDeque::new(),
            limit: limit.max(16),
            nothing: Rc::new(Buffer::zeroed(size.bytes())),
        }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The block, and marks it as in use.
    pub fn get(&self, at: HomeBlock) -> Option<&Rc<CachedBlock>> {
        let block = self.blocks.get(&at)?;
        block.referenced.set(true);
        Some(block)
    }

    /// The block, without saying that anyone uses it.
    pub fn peek(&self, at: HomeBlock) -> Option<&Rc<CachedBlock>> {
        self.blocks.get(&at)
    }

    /// The block; if missing, one of which nothing is known.
    pub fn get_or_insert(&mut self, at: HomeBlock, temperature: Temperature) -> Rc<CachedBlock> {
        if let Some(block) = self.get(at) {
            return block.clone();
        }
        self.make_room();
        let block = Rc::new(CachedBlock::new(at, self.nothing.clone()));
        self.blocks.insert(at, block.clone());
        match temperature {
            Temperature::Warm => self.clock.push_back(block.clone()),
            Temperature::Cold => self.clock.push_front(block.clone()),
        }
        block
    }

    /// Takes a block out whatever its state: its content is worthless.
    pub fn remove(&mut self, at: HomeBlock) -> Option<Rc<CachedBlock>> {
        let block = self.blocks.remove(&at)?;
        block.cached.set(false);
        Some(block)
    }

    /// Evicts so that one more fits. Looks at a bounded number of blocks, so that a cache full of dirty blocks
    /// costs little; admission of new handles keeps their number down.
    fn make_room(&mut self) {
        let mut looks = 16 + 2 * self.blocks.len().saturating_sub(self.limit).min(64);
        while self.blocks.len() >= self.limit && looks > 0 {
            looks -= 1;
            let Some(block) = self.clock.pop_front() else { return };
            if !block.cached.get() {
                continue;
            }
            // One owner is the table, the other is `block` itself; any third one holds it.
            let held = Rc::strong_count(&block) > 2;
            if held || block.referenced.get() || block.dirty_since.get().is_some() {
                block.referenced.set(false);
                self.clock.push_back(block);
            } else {
                self.remove(block.number);
            }
        }
    }
}

/// A table by block number, for lookups alone: nothing may depend on its order.
pub(crate) type BlockMap<T> = HashMap<HomeBlock, T, BuildHasherDefault<BlockHasher>>;

/// Block numbers are well spread by one multiplication (Fibonacci hashing).
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit: usize) -> Cache {
        Cache::new(limit, BlockSize::new(1024).unwrap())
    }

    #[test]
    fn clean_blocks_make_room_and_held_or_dirty_ones_stay() {
        let mut cache = cache(32);
        let held = cache.get_or_insert(HomeBlock(1000), Temperature::Warm);
        cache.get_or_insert(HomeBlock(1001), Temperature::Warm).dirty_since.set(Some(Instant(1)));
        for number in 0..500 {
            cache.get_or_insert(HomeBlock(number), Temperature::Warm);
            assert!(cache.len() <= 32);
        }
        assert!(held.is_cached() && cache.peek(HomeBlock(1001)).is_some());
        assert!(cache.peek(HomeBlock(0)).is_none());
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

    #[test]
    fn a_base_read_late_goes_under_what_was_written_and_into_every_image() {
        let size = BlockSize::new(1024).unwrap();
        let block = cache(16).get_or_insert(HomeBlock(1), Temperature::Warm);
        let write = |from: u32, value: u8| {
            let mut current = block.current.borrow_mut();
            Rc::<Buffer>::make_mut(&mut current.bytes)[from as usize..from as usize + 4].fill(value);
            current.note_written(BlockRange::new(from, from + 4), size);
        };
        write(8, 1);
        *block.committed.borrow_mut() = Some((block.current.borrow().clone(), TransactionId(1)));
        write(10, 2);
        *block.committing.borrow_mut() = Some(block.current.borrow().clone());
        let mut base = Buffer::zeroed(1024);
        base.fill(9);
        block.fill(Rc::new(base), size);
        let bytes = |image: &Image| image.bytes[7..15].to_vec();
        assert_eq!(bytes(&block.committed.borrow().as_ref().unwrap().0), [9, 1, 1, 1, 1, 9, 9, 9]);
        assert_eq!(bytes(block.committing.borrow().as_ref().unwrap()), [9, 1, 1, 2, 2, 2, 2, 9]);
        assert!(Rc::ptr_eq(
            &block.committing.borrow().as_ref().unwrap().bytes,
            &block.current.borrow().bytes
        ));
        assert!(block.is_whole());
    }
}
