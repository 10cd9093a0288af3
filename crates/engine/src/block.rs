//! A block in memory: what readers see, what each transaction in flight froze, and what is committed and not yet home.
//!
//! Invariants
//! 1. Images are in order, each as old as or older than the one before: the current one, one of each transaction in flight
//!    (as of its lock), and that of the latest committed transaction.
//! 2. Of a block that the log holds, only the image of the latest committed transaction may go home.
//! 3. The current image may go home only if no commit waits for it, or if the running transaction sends it home in any case; and
//!    not while an older image is on its way with a transaction in flight, which would then be written over it.
//! 4. What counts against the cache's bound are images, not blocks. They are counted with every change of them.

use crate::image::{Image, Images};
#[cfg(debug_assertions)]
use crate::promise::check_promise;
use crate::state::State;
use crate::update::Contents;
use device::Buffer;
use journal::WholePlace;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, Instant, Owner, TransactionId};

/// A block held in the cache: as long as one of these lives, it stays there.
#[derive(Clone)]
pub struct Block(pub(crate) Rc<CachedBlock>);

impl Block {
    pub fn number(&self) -> HomeBlock {
        self.0.number
    }
    /// The content now. A later [`crate::Handle::change`] does not alter what was returned; drop it before
    /// changing the block, or the change has to copy the block first.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.0.bytes()
    }
    /// Whether the floor above has checked this content (checksum, magic, bounds) since it was read.
    pub fn is_verified(&self) -> bool {
        self.0.verified.get()
    }
    pub fn set_verified(&self) {
        self.0.verified.set(true)
    }
}

/// Where a block stands in the cache's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockState {
    /// Asked for since the hand of the clock passed.
    Used,
    Unused,
    /// No longer in the cache, though someone may hold it.
    Out,
}

/// Which image goes home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsOf {
    Committed(TransactionId),
    /// Data that must be home before the running transaction commits.
    Running,
    /// Data of no transaction.
    Loose,
}

pub(crate) struct CachedBlock {
    pub number: HomeBlock,
    images: RefCell<Images>,
    state: Cell<State>,
    contents: Cell<Contents>,
    verified: Cell<bool>,
    /// Where the log holds the image of the latest committed transaction, if it holds it whole. While there is that image.
    in_log: Cell<Option<WholePlace>>,
    /// Durability is enough for it: it goes home only if there is no other way.
    stays: Cell<bool>,
    /// For the cache alone.
    pub clock: Cell<ClockState>,
    /// When it became newer than home: its entry in the queue of dirty blocks, whose business this is.
    pub dirty_since: Cell<Option<Instant>>,
    /// A read of the base is under way; whoever needs it waits here.
    pub reading: RefCell<Option<Rc<Event>>>,
    usage: Rc<Usage>,
    /// Its part of [`Usage::frozen`].
    counted: Cell<usize>,
}

/// What is in memory, blocks that have left the cache and are still held by someone included.
#[derive(Default)]
pub(crate) struct Usage {
    pub blocks: Cell<usize>,
    /// Images of blocks besides the current one.
    pub frozen: Cell<usize>,
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        let Usage { blocks, frozen } = &*self.usage;
        blocks.set(blocks.get() - 1);
        frozen.set(frozen.get() - self.counted.get());
    }
}

impl CachedBlock {
    /// `nothing`: a buffer for blocks of which nothing is known.
    pub fn new(number: HomeBlock, nothing: Rc<Buffer>, usage: Rc<Usage>) -> CachedBlock {
        usage.blocks.set(usage.blocks.get() + 1);
        CachedBlock {
            number,
            images: RefCell::new(Images::unknown(nothing)),
            state: Cell::new(State::Settled),
            contents: Cell::new(Contents::Data),
            verified: Cell::new(false),
            in_log: Cell::new(None),
            stays: Cell::new(false),
            clock: Cell::new(ClockState::Unused),
            dirty_since: Cell::new(None),
            reading: RefCell::new(None),
            usage,
            counted: Cell::new(0),
        }
    }

    /// What readers see.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.images.borrow().current.bytes().clone()
    }
    pub fn contents(&self) -> Contents {
        self.contents.get()
    }
    pub fn is_cached(&self) -> bool {
        self.clock.get() != ClockState::Out
    }
    pub fn is_dirty(&self) -> bool {
        self.dirty_since.get().is_some()
    }
    pub fn is_whole(&self) -> bool {
        self.images.borrow().current.is_whole()
    }
    /// Whether all images are known as a whole. A write may have covered in the current one what older ones lack.
    pub fn is_whole_in_all_images(&self) -> bool {
        let images = self.images.borrow();
        images.current.is_whole() && images.older().all(Image::is_whole)
    }
    pub fn is_running(&self) -> bool {
        self.state.get().is_running()
    }
    /// Home holds, or is about to be told, nothing older than the current image.
    pub fn is_home(&self) -> bool {
        self.state.get() == State::Settled && self.images.borrow().older().next().is_none()
    }
    pub fn is_in_flight(&self) -> bool {
        self.images.borrow().is_in_flight()
    }
    /// Nobody is changing it, and no commit is writing it.
    pub fn rests(&self) -> bool {
        !self.is_running() && !self.images.borrow().is_in_flight() && self.is_whole()
    }

    /// Changes bytes within `ranges`: no others, which debug builds check.
    pub fn change<T>(&self, ranges: &[BlockRange], change: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut images = self.images.borrow_mut();
        let bytes = images.current.bytes_mut();
        #[cfg(debug_assertions)]
        let before = bytes.to_vec();
        let result = change(bytes);
        #[cfg(debug_assertions)]
        check_promise(self.number, ranges, &before, bytes);
        #[cfg(not(debug_assertions))]
        let _ = ranges;
        self.recount(&images);
        result
    }
    pub fn write(&self, range: BlockRange, bytes: &[u8], size: BlockSize) {
        let mut images = self.images.borrow_mut();
        images.current.write(range, bytes, size);
        self.recount(&images);
    }
    /// The whole content, known from now on.
    pub fn replace(&self, bytes: Buffer) {
        let mut images = self.images.borrow_mut();
        images.current = Image::whole(Rc::new(bytes));
        self.recount(&images);
    }
    /// Merges what home holds under all images. Images that were one stay one.
    pub fn fill(&self, base: Rc<Buffer>, size: BlockSize) {
        let mut images = self.images.borrow_mut();
        let was = images.current.clone();
        images.current.fill(&base, size);
        let filled = images.current.clone();
        for image in images.older_mut() {
            if image.is_one_with(&was) {
                *image = filled.clone();
            } else {
                image.fill(&base, size);
            }
        }
        drop(was);
        self.recount(&images);
    }

    /// The running transaction logs it.
    pub fn join(&self, contents: Contents) {
        self.contents.set(contents);
        self.state.set(self.state.get().joined());
    }
    /// The running transaction sends this data home before it commits.
    pub fn order(&self, owner: Owner) {
        self.contents.set(Contents::Data);
        self.state.set(self.state.get().ordered_for(owner));
    }
    /// Data that no commit waits for.
    pub fn loosen(&self, owner: Owner) {
        self.contents.set(Contents::Data);
        self.state.set(self.state.get().loosened_for(owner));
    }
    /// What was loose is ordered from now on.
    pub fn order_loose(&self, owner: Owner) {
        self.state.set(self.state.get().not_loose().ordered_for(owner));
    }
    /// What was loose is so no longer: the log gets it.
    pub fn leave_loose(&self) {
        self.state.set(self.state.get().not_loose());
    }
    pub fn stays(&self) -> bool {
        self.stays.get()
    }
    pub fn set_stays(&self, stays: bool) {
        self.stays.set(stays);
    }
    /// The running transaction frees it: its current content is worthless. Images of committed transactions stay: until
    /// this one commits, the block is not free. Says to whom it was loose.
    pub fn free(&self) -> Option<Owner> {
        self.state.replace(State::Settled).loose()
    }

    /// The running transaction, `by`, is locked: its image is the current one.
    pub fn freeze(&self, by: TransactionId) {
        self.state.set(self.state.get().outside());
        let mut images = self.images.borrow_mut();
        images.freeze(by);
        self.recount(&images);
    }
    /// The image that `by`, which is in flight, froze.
    pub fn frozen(&self, by: TransactionId) -> Option<Rc<Buffer>> {
        self.images.borrow().frozen(by).map(|image| image.bytes().clone())
    }
    /// `by` is committed in the log: its image may go home, in place of any older one. `place`: where the log holds it whole.
    pub fn commit(&self, by: TransactionId, place: Option<WholePlace>) {
        let mut images = self.images.borrow_mut();
        let image = images.thaw(by).expect("one image of each, since the lock");
        images.committed = Some((by, image));
        self.in_log.set(place);
        self.recount(&images);
    }
    /// Nothing in memory waits to go home as of the latest committed transaction any more, because the log holds that image
    /// whole: whose it is, where it lies, and its bytes.
    pub fn let_go(&self) -> Option<(TransactionId, WholePlace, Rc<Buffer>)> {
        let mut images = self.images.borrow_mut();
        let place = self.in_log.get()?;
        let (by, image) = images.committed.take_if(|(_, image)| image.is_whole())?;
        self.recount(&images);
        Some((by, place, image.bytes().clone()))
    }
    /// `by` is committed and took its image home. False if the block has a newer one.
    pub fn commit_home(&self, by: TransactionId) -> bool {
        let mut images = self.images.borrow_mut();
        let written = images.thaw(by);
        let is_latest = written.is_none_or(|image| images.current.is(image.bytes()));
        self.recount(&images);
        is_latest
    }
    /// The transaction that freed it is committed: nothing of it goes home any more.
    pub fn drop_committed(&self) {
        let mut images = self.images.borrow_mut();
        images.committed = None;
        self.recount(&images);
    }

    /// Whether something of it may go home: the latest committed image, or its current one.
    pub fn may_go_home(&self) -> bool {
        let images = self.images.borrow();
        images.committed.is_some() || self.current_may_go_home(&images)
    }
    fn current_may_go_home(&self, images: &Images) -> bool {
        let state = self.state.get();
        (state.loose().is_some() || state.ordered().is_some()) && !images.is_in_flight()
    }
    /// Whether all that is to go home of it is its current image.
    pub fn goes_home_as_it_is(&self) -> bool {
        let images = self.images.borrow();
        images.committed.is_none() && self.current_may_go_home(&images) && images.current.is_whole()
    }
    /// The log holds what of it is not home.
    pub fn is_held_by_log(&self) -> bool {
        self.images.borrow().committed.is_some()
    }
    /// The image that may go home; `None` if home has it already. All images are known.
    pub fn to_send(&self) -> Option<(Rc<Buffer>, AsOf)> {
        let images = self.images.borrow();
        match &images.committed {
            Some((as_of, image)) => {
                assert!(image.is_whole(), "the base of {} was read before", self.number);
                Some((image.bytes().clone(), AsOf::Committed(*as_of)))
            }
            None if !self.current_may_go_home(&images) => None,
            None => {
                let as_of = if self.state.get().loose().is_some() { AsOf::Loose } else { AsOf::Running };
                Some((images.current.bytes().clone(), as_of))
            }
        }
    }
    /// `sent`, of a committed transaction, is home. A newer image may have been committed meanwhile.
    pub fn committed_arrived(&self, sent: &Rc<Buffer>) {
        let mut images = self.images.borrow_mut();
        if images.committed.as_ref().is_some_and(|(_, image)| image.is(sent)) {
            images.committed = None;
        }
        self.recount(&images);
    }
    /// `sent`, which was ordered, is home: says whose it was, unless it was changed, or the transaction locked, meanwhile. Then
    /// it goes home once more.
    pub fn ordered_arrived(&self, sent: &Rc<Buffer>) -> Option<Owner> {
        self.images.borrow().current.is(sent).then(|| self.state.get().ordered()).flatten()
    }
    /// The running transaction needs no more of it at home. `logs`: but in the log.
    pub fn leave_order(&self, logs: bool) {
        self.state.set(self.state.get().without_order(logs));
    }
    /// `sent`, which was loose, is home: says whose it was, unless it was changed meanwhile.
    pub fn loose_arrived(&self, sent: &Rc<Buffer>) -> Option<Owner> {
        if !self.images.borrow().current.is(sent) {
            return None;
        }
        let state = self.state.get();
        self.state.set(state.not_loose());
        state.loose()
    }

    /// Counts its images anew: one was made, taken over, or dropped.
    fn recount(&self, images: &Images) {
        let frozen = images.count_apart();
        let all = &self.usage.frozen;
        all.set(all.get() + frozen - self.counted.replace(frozen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: TransactionId = TransactionId(1);
    const SECOND: TransactionId = TransactionId(2);
    const FILE: Owner = Owner(7);

    fn size() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }
    fn block() -> CachedBlock {
        CachedBlock::new(HomeBlock(1), Rc::new(Buffer::zeroed(1024)), Rc::default())
    }
    fn write(block: &CachedBlock, from: u32, value: u8) {
        block.write(BlockRange::new(from, from + 4), &[value; 4], size());
    }
    fn sent(block: &CachedBlock) -> (Vec<u8>, AsOf) {
        let (bytes, as_of) = block.to_send().unwrap();
        (bytes[7..15].to_vec(), as_of)
    }

    #[test]
    fn a_base_read_late_goes_under_what_was_written_and_into_every_image() {
        let block = block();
        write(&block, 8, 1);
        block.join(Contents::Data);
        block.freeze(FIRST);
        block.commit(FIRST, None);
        write(&block, 10, 2);
        block.join(Contents::Data);
        block.freeze(SECOND);
        let mut base = Buffer::zeroed(1024);
        base.fill(9);
        block.fill(Rc::new(base), size());
        assert_eq!(sent(&block), (vec![9, 1, 1, 1, 1, 9, 9, 9], AsOf::Committed(FIRST)));
        assert_eq!(block.frozen(SECOND).unwrap()[7..15], [9, 1, 1, 2, 2, 2, 2, 9]);
        assert!(Rc::ptr_eq(&block.frozen(SECOND).unwrap(), &block.bytes()));
        assert!(block.is_whole() && block.is_whole_in_all_images());
    }

    #[test]
    fn each_image_apart_is_counted_once_and_until_it_is_gone() {
        let block = block();
        let count = || block.usage.frozen.get();
        block.replace(Buffer::zeroed(1024));
        block.join(Contents::Metadata);
        block.freeze(FIRST);
        assert_eq!(count(), 0);
        write(&block, 0, 1);
        assert_eq!(count(), 1);
        block.commit(FIRST, None);
        block.join(Contents::Metadata);
        block.freeze(SECOND);
        write(&block, 0, 2);
        assert_eq!(count(), 2);
        let (bytes, _) = block.to_send().unwrap();
        block.committed_arrived(&bytes);
        assert_eq!(count(), 1);
        block.commit(SECOND, None);
        block.drop_committed();
        assert_eq!(count(), 0);
        let usage = block.usage.clone();
        drop(block);
        assert_eq!((usage.blocks.get(), usage.frozen.get()), (0, 0));
    }

    #[test]
    fn each_transaction_in_flight_has_its_own_image() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        for (by, value) in [(FIRST, 1), (SECOND, 2)] {
            write(&block, 8, value);
            block.join(Contents::Metadata);
            block.freeze(by);
        }
        write(&block, 8, 3);
        assert_eq!([FIRST, SECOND].map(|by| block.frozen(by).unwrap()[8]), [1, 2]);
        assert_eq!((block.usage.frozen.get(), block.may_go_home()), (2, false));
        for (by, value) in [(FIRST, 1), (SECOND, 2)] {
            block.commit(by, None);
            assert_eq!(
                block.to_send().map(|(bytes, as_of)| (bytes[8], as_of)),
                Some((value, AsOf::Committed(by)))
            );
        }
        assert_eq!((block.usage.frozen.get(), block.is_in_flight()), (1, false));
    }

    #[test]
    fn only_what_the_log_holds_whole_is_let_go() {
        let place = journal::WholePlace { at: units::LogBlock(5), offset: 0 };
        for at in [None, Some(place)] {
            let block = block();
            block.replace(Buffer::zeroed(1024));
            block.join(Contents::Data);
            block.freeze(FIRST);
            assert_eq!(block.let_go().map(|(by, ..)| by), None);
            block.commit(FIRST, at);
            write(&block, 0, 1);
            assert_eq!(block.let_go().map(|(by, at, _)| (by, at)), at.map(|at| (FIRST, at)));
            assert_eq!(
                (block.usage.frozen.get(), block.is_home()),
                (usize::from(at.is_none()), at.is_some())
            );
            assert_eq!(block.let_go().map(|(by, ..)| by), None);
        }
    }

    #[test]
    fn what_is_logged_goes_home_only_as_of_its_commit() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.join(Contents::Metadata);
        assert!(!block.may_go_home() && !block.is_home());
        block.freeze(FIRST);
        assert!(!block.may_go_home());
        write(&block, 8, 1);
        block.commit(FIRST, None);
        assert_eq!(sent(&block), (vec![0; 8], AsOf::Committed(FIRST)));
    }

    #[test]
    fn ordered_data_may_go_early_but_not_past_an_older_image_in_flight() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.order(FILE);
        assert_eq!(block.to_send().unwrap().1, AsOf::Running);
        block.freeze(FIRST);
        write(&block, 8, 1);
        block.order(FILE);
        assert!(!block.may_go_home());
        assert!(!block.commit_home(FIRST), "a newer image is still to come");
        let (bytes, _) = block.to_send().unwrap();
        assert_eq!(block.ordered_arrived(&bytes), Some(FILE));
        block.leave_order(false);
        assert!(block.is_home());
    }

    #[test]
    fn loose_data_that_changed_on_its_way_home_stays_loose() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.loosen(FILE);
        let (bytes, as_of) = block.to_send().unwrap();
        write(&block, 8, 1);
        assert_eq!((as_of, block.loose_arrived(&bytes)), (AsOf::Loose, None));
        // A sync takes it along; written again meanwhile, it is loose besides.
        block.order_loose(FILE);
        block.loosen(FILE);
        block.freeze(FIRST);
        assert!(block.commit_home(FIRST) && !block.is_home());
        let (bytes, _) = block.to_send().unwrap();
        assert_eq!(block.loose_arrived(&bytes), Some(FILE));
        assert!(block.is_home());
    }

    #[test]
    fn a_freed_block_waits_for_nothing_but_what_was_committed_before() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.join(Contents::Metadata);
        block.freeze(FIRST);
        block.commit(FIRST, None);
        block.loosen(FILE);
        assert_eq!(block.free(), Some(FILE));
        assert!(block.may_go_home() && !block.is_home());
        block.drop_committed();
        assert!(block.is_home());
    }
}
