//! The block cache: bounded in memory, evicted in the order of a clock.
//!
//! Invariants
//! 1. A block that is dirty, in a transaction, being read, or held by anyone stays. So "not in the cache" means
//!    "home holds the latest version".
//! 2. Images are shared and copied on write ([`Rc::make_mut`]): whoever took one keeps what he took.
//! 3. A block has up to three images, each as old as or older than the one before: the current one, that of the
//!    committing transaction (as of its lock), and that of the latest committed transaction, which alone may go home.
//! 4. What counts against the bound are images, not blocks: a block that changes while it is in the committing transaction
//!    has two, and one whose last committed image is not home either has three. What a commit makes for the log counts, too.
//! 5. Bytes outside an image's `valid` ranges were never changed since the block came into the cache: they are
//!    what home holds, and are filled in when someone needs them.

use crate::update::Contents;
use device::Buffer;
use journal::RangeSet;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use units::{BlockMap, BlockRange, BlockSize, HomeBlock, InodeNumber, Instant, TransactionId};

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
    usage: Rc<Usage>,
    /// Its part of [`Usage::frozen`].
    frozen: Cell<usize>,
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
    fn new(number: HomeBlock, nothing: Rc<Buffer>, usage: Rc<Usage>) -> CachedBlock {
        usage.blocks.set(usage.blocks.get() + 1);
        CachedBlock {
            number,
            current: RefCell::new(Image { bytes: nothing, valid: Some(RangeSet::new()) }),
            verified: Cell::new(false),
            referenced: Cell::new(false),
            cached: Cell::new(true),
            usage,
            frozen: Cell::new(0),
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
        drop(current);
        self.recount();
    }

    /// Counts its images anew. Call it when one was made, taken over, or dropped.
    pub fn recount(&self) {
        let frozen = self.frozen_images();
        let all = &self.usage.frozen;
        all.set(all.get() + frozen - self.frozen.replace(frozen));
    }

    /// Images of older moments that are not also the current one.
    fn frozen_images(&self) -> usize {
        let (committing, committed) = (self.committing.borrow(), self.committed.borrow());
        if committing.is_none() && committed.is_none() {
            return 0;
        }
        let current = self.current.borrow();
        let differ = |left: &Image, right: &Image| !Rc::ptr_eq(&left.bytes, &right.bytes);
        let own = committing.as_ref().filter(|image| differ(image, &current));
        let older = committed.as_ref().map(|(image, _)| image).filter(|image| {
            differ(image, &current) && committing.as_ref().is_none_or(|newer| differ(image, newer))
        });
        usize::from(own.is_some()) + usize::from(older.is_some())
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

/// What is in memory, blocks that have left the cache and are still held by someone included.
#[derive(Default)]
struct Usage {
    blocks: Cell<usize>,
    /// Images of blocks besides the current one.
    frozen: Cell<usize>,
    /// Blocks made for the log by the commit under way.
    made: Cell<usize>,
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        let Usage { blocks, frozen, .. } = &*self.usage;
        blocks.set(blocks.get() - 1);
        frozen.set(frozen.get() - self.frozen.get());
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
    /// Next to be looked at first. Entries of blocks that were removed hold no content; they go when met, or when they
    /// are the most.
    clock: VecDeque<Weak<CachedBlock>>,
    /// Most images to keep, as far as blocks can be evicted.
    limit: usize,
    nothing: Rc<Buffer>,
    usage: Rc<Usage>,
    image_bytes: usize,
}

/// What an image takes beyond its bytes: alignment of the buffer to sectors and its header (512 + 32), the shared pointer (64),
/// the block's entry and state (288), its places in table, clock and queue of dirty blocks (64).
const IMAGE_OVERHEAD: usize = 512 + 32 + 64 + 288 + 64;
/// However little memory is wanted, so many images are needed.
const LEAST_IMAGES: usize = 16;

impl Cache {
    /// `bytes` of memory, all that goes with a block included.
    pub fn new(bytes: u64, size: BlockSize) -> Cache {
        let image_bytes = size.bytes() + IMAGE_OVERHEAD;
        Cache {
            blocks: BlockMap::default(),
            clock: VecDeque::new(),
            limit: usize::try_from(bytes / image_bytes as u64).unwrap_or(usize::MAX).max(LEAST_IMAGES),
            nothing: Rc::new(Buffer::zeroed(size.bytes())),
            usage: Rc::default(),
            image_bytes,
        }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Images in memory: what [`Cache::limit`] bounds.
    pub fn images(&self) -> usize {
        self.usage.blocks.get() + self.held()
    }
    /// Those of them that are no block's current one: they stay until they are home, or in the log.
    pub fn held(&self) -> usize {
        self.usage.frozen.get() + self.usage.made.get()
    }
    /// The commit under way has made `blocks` for the log besides the images that it writes there.
    pub fn note_made(&mut self, blocks: usize) {
        self.usage.made.set(blocks);
        self.shrink();
    }
    pub fn bytes_of(&self, images: usize) -> u64 {
        images as u64 * self.image_bytes as u64
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
        let block = Rc::new(CachedBlock::new(at, self.nothing.clone(), self.usage.clone()));
        self.blocks.insert(at, block.clone());
        match temperature {
            Temperature::Warm => self.clock.push_back(Rc::downgrade(&block)),
            Temperature::Cold => self.clock.push_front(Rc::downgrade(&block)),
        }
        block
    }

    /// Takes a block out whatever its state: its content is worthless.
    pub fn remove(&mut self, at: HomeBlock) -> Option<Rc<CachedBlock>> {
        let block = self.blocks.remove(&at)?;
        block.cached.set(false);
        if self.clock.len() > 2 * self.blocks.len() + LEAST_IMAGES {
            self.clock.retain(|entry| entry.upgrade().is_some_and(|block| block.is_cached()));
        }
        Some(block)
    }

    /// Evicts so that one more fits. Looks at a bounded number of blocks, so that a cache full of dirty blocks
    /// costs little; admission of new handles keeps their number down.
    fn make_room(&mut self) {
        self.evict_to(self.limit - 1);
    }

    /// Evicts what came beyond the limit while it could not be evicted. Call it when blocks have become clean.
    pub fn shrink(&mut self) {
        self.evict_to(self.limit);
    }

    fn evict_to(&mut self, images: usize) {
        let overshoot = self.images().saturating_sub(images);
        let mut looks = if overshoot == 0 { 0 } else { LEAST_IMAGES + 4 * overshoot };
        while self.images() > images && looks > 0 {
            looks -= 1;
            let Some(entry) = self.clock.pop_front() else { return };
            let Some(block) = entry.upgrade().filter(|block| block.is_cached()) else { continue };
            // One owner is the table, the other is `block` itself; any third one holds it.
            let held = Rc::strong_count(&block) > 2;
            if held || block.referenced.get() || block.dirty_since.get().is_some() {
                block.referenced.set(false);
                self.clock.push_back(entry);
            } else {
                self.blocks.remove(&block.number);
                block.cached.set(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit: usize) -> Cache {
        Cache::new((limit * (1024 + IMAGE_OVERHEAD)) as u64, BlockSize::new(1024).unwrap())
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
    fn what_came_beyond_the_limit_goes_when_it_is_clean_again() {
        let mut cache = cache(32);
        for number in 0..500 {
            cache.get_or_insert(HomeBlock(number), Temperature::Warm).dirty_since.set(Some(Instant(1)));
        }
        assert_eq!(cache.images(), 500);
        (0..500).for_each(|number| cache.peek(HomeBlock(number)).unwrap().dirty_since.set(None));
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
