//! A block in memory: its images, what its current one waits for, and which of them may be written
//! home.
//!
//! Invariants
//! 1. Of a block that the log holds, only the image of the latest committed transaction may be
//!    written home.
//! 2. The current image may be written home only if no commit waits for it, or if the running
//!    transaction sends it home in any case. It may not while an older image is in flight with a
//!    transaction in flight, which would overwrite it.

use crate::cache::images::{Images, Usage};
use crate::cache::state::BlockState;
use crate::interface::update::Contents;
use device::Buffer;
use journal::{RangeSet, ReplayImage, SwappedRun, WholeBlockLocation};
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use units::{BlockRange, BlockSize, HomeBlock, Instant, Owner, TransactionId};

/// A block held in the cache: as long as one of these lives, it stays there.
#[derive(Clone)]
pub struct Block(pub(crate) Rc<CachedBlock>);

impl Block {
    pub fn number(&self) -> HomeBlock {
        self.0.number
    }
    /// Returns the current content. A later [`crate::Handle::change`] does not alter what was
    /// returned; drop it before changing the block, or the change has to copy the block first.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.0.bytes()
    }
    /// Returns a number that changes with the content: where it is the same, so is the content.
    pub fn version(&self) -> u64 {
        self.0.images.version()
    }
    pub fn known(&self) -> KnownBlock {
        KnownBlock(Rc::downgrade(&self.0))
    }
    /// Whether the layer above has checked this content (checksum, magic, bounds) since it was
    /// read.
    pub fn is_verified(&self) -> bool {
        self.0.verified.get()
    }
    pub fn set_verified(&self) {
        self.0.verified.set(true)
    }
}

/// A block that was looked up once, and is found again without a search while it is in the cache.
#[derive(Clone, Default)]
pub struct KnownBlock(Weak<CachedBlock>);

impl KnownBlock {
    /// Returns the block if it is in the cache, and all of it is known.
    pub fn get(&self) -> Option<Block> {
        let block = self.0.upgrade().filter(|block| block.is_cached() && block.is_whole())?;
        block.set_clock(ClockState::Used);
        Some(Block(block))
    }
}

/// Position of a block in the cache's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockState {
    /// Asked for since the hand of the clock passed.
    Used,
    Unused,
    /// Evicted: no longer in the cache, though someone may hold it.
    Out,
}

/// Image that is written home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsOf {
    Committed(TransactionId),
    /// Data that must be home before the running transaction commits.
    Running,
    /// Data of no transaction.
    Unordered,
}

pub(crate) struct CachedBlock {
    number: HomeBlock,
    images: Images,
    state: Cell<BlockState>,
    contents: Cell<Contents>,
    verified: Cell<bool>,
    /// Durability is enough for it: it is written home only if there is no other way.
    durable_only: Cell<bool>,
    clock: Cell<ClockState>,
    /// Time at which it became newer than home: its entry in the queue of dirty blocks.
    dirty_since: Cell<Option<Instant>>,
    /// A read of the base is in flight; readers that need it wait here.
    reading: RefCell<Option<Rc<Event>>>,
}

impl CachedBlock {
    /// Creates a block of which nothing is known; `nothing` is the buffer that such blocks share.
    pub fn new(number: HomeBlock, nothing: Rc<Buffer>, usage: Rc<Usage>) -> CachedBlock {
        CachedBlock {
            number,
            images: Images::unknown(nothing, usage),
            state: Cell::new(BlockState::Settled),
            contents: Cell::new(Contents::Data),
            verified: Cell::new(false),
            durable_only: Cell::new(false),
            clock: Cell::new(ClockState::Unused),
            dirty_since: Cell::new(None),
            reading: RefCell::new(None),
        }
    }

    pub fn number(&self) -> HomeBlock {
        self.number
    }
    /// Returns the content that readers see.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.images.current()
    }
    pub fn contents(&self) -> Contents {
        self.contents.get()
    }
    pub fn is_cached(&self) -> bool {
        self.clock.get() != ClockState::Out
    }
    /// Returns the block's state in the cache's clock.
    pub fn clock(&self) -> ClockState {
        self.clock.get()
    }
    pub fn set_clock(&self, state: ClockState) {
        self.clock.set(state);
    }
    pub fn is_dirty(&self) -> bool {
        self.dirty_since().is_some()
    }
    /// Returns the time at which the block became newer than home, for the queue of dirty blocks.
    pub fn dirty_since(&self) -> Option<Instant> {
        self.dirty_since.get()
    }
    pub fn mark_dirty(&self, since: Instant) {
        self.dirty_since.set(Some(since));
    }
    /// Notes that home has the current content. Whether it was dirty.
    pub fn mark_clean(&self) -> bool {
        self.dirty_since.take().is_some()
    }
    /// Notes that a read of its base begins; `over` is notified when it ends.
    pub fn begin_reading(&self, over: &Rc<Event>) {
        *self.reading.borrow_mut() = Some(over.clone());
    }
    pub fn end_reading(&self) {
        *self.reading.borrow_mut() = None;
    }
    /// The read of its base that is in flight.
    pub fn reading(&self) -> Option<Rc<Event>> {
        self.reading.borrow().clone()
    }
    pub fn is_whole(&self) -> bool {
        self.images.is_whole()
    }
    /// Whether all images are known as a whole. A write may have filled in the current one what
    /// older ones lack.
    pub fn is_whole_in_all_images(&self) -> bool {
        self.images.are_whole()
    }
    pub fn is_running(&self) -> bool {
        self.state.get().is_running()
    }
    /// Whether home has the current image: nothing of the block waits to go there.
    pub fn is_home(&self) -> bool {
        self.state.get() == BlockState::Settled && !self.images.has_older()
    }
    pub fn is_in_flight(&self) -> bool {
        self.images.is_in_flight()
    }
    /// Returns whether nobody changes the block, no commit writes it, and all of it is known.
    pub fn is_stable(&self) -> bool {
        !self.is_running() && !self.images.is_in_flight() && self.is_whole()
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut [u8]) -> T) -> T {
        self.images.change(change)
    }
    pub fn write(&self, range: BlockRange, bytes: &[u8], size: BlockSize) {
        self.images.write(range, bytes, size);
    }
    /// Sets the whole content, known from now on.
    pub fn replace(&self, bytes: Buffer) {
        self.images.replace(bytes);
    }
    /// Merges what home holds under all images. Images that were one stay one.
    pub fn fill(&self, base: Rc<Buffer>, size: BlockSize) {
        self.images.fill(base, size);
    }

    /// Enters a state in which it may be written home.
    fn set_released(&self, state: BlockState) {
        self.state.set(state);
        self.images.note_release();
    }

    /// Adds it to the running transaction, which logs it.
    pub fn join(&self, contents: Contents) {
        self.contents.set(contents);
        self.state.set(self.state.get().joined());
    }
    /// Orders this data: the running transaction writes it home before it commits.
    pub fn order(&self, owner: Owner) {
        self.contents.set(Contents::Data);
        self.set_released(self.state.get().ordered_for(owner));
    }
    /// The running transaction waits for it.
    pub fn is_ordered(&self) -> bool {
        self.state.get().ordered().is_some()
    }
    /// Marks data that no commit waits for.
    pub fn mark_unordered(&self, owner: Owner) {
        self.contents.set(Contents::Data);
        self.set_released(self.state.get().unordered_for(owner));
    }
    /// Orders data that was unordered: the running transaction writes it home before it commits.
    pub fn order_unordered(&self, owner: Owner) {
        self.set_released(self.state.get().without_unordered().ordered_for(owner));
    }
    /// Ends the unordered state of data that the log gets.
    pub fn clear_unordered(&self) {
        self.state.set(self.state.get().without_unordered());
    }
    pub fn is_durable_only(&self) -> bool {
        self.durable_only.get()
    }
    /// The log holds what of it is not home, and that is enough.
    pub fn stays_in_log(&self) -> bool {
        self.is_durable_only() && self.is_held_by_log()
    }
    pub fn set_durable_only(&self, durable_only: bool) {
        self.durable_only.set(durable_only);
    }
    /// Notes that the running transaction frees it: its current content is worthless. Images of
    /// committed transactions stay: until this one commits, the block is not free. Says to whom it
    /// was unordered.
    pub fn free(&self) -> Option<Owner> {
        self.state.replace(BlockState::Settled).unordered()
    }

    /// Freezes the image of `by`, the transaction being locked: it is the current one.
    pub fn freeze(&self, by: TransactionId) {
        self.state.set(self.state.get().outside());
        self.images.freeze(by);
    }
    /// The image that `by`, which is in flight, froze.
    pub fn frozen(&self, by: TransactionId) -> Option<Rc<Buffer>> {
        self.images.frozen(by)
    }
    /// Notes that `by` is committed in the log: its image may be written home, in place of any
    /// older one. `place`: where the log holds it whole.
    pub fn commit(&self, by: TransactionId, place: Option<WholeBlockLocation>) {
        self.images.commit(by, place);
        self.images.note_release();
    }
    /// Restores a block of which only this part is known, which the log holds as of `by`.
    pub fn restore(&self, by: TransactionId, image: ReplayImage, size: BlockSize) {
        let mut known = RangeSet::of(size.whole());
        image.missing.iter().for_each(|range| known.remove(*range));
        match image.missing.is_empty() {
            true => self.replace(image.content),
            false => known.as_slice().iter().for_each(|range| {
                self.write(*range, &image.content[range.as_usize()], size);
            }),
        }
        self.freeze(by);
        self.commit(by, None);
    }
    /// Notes that the log has moved `run`, which may hold the image of the latest committed
    /// transaction.
    pub fn moved(&self, run: &SwappedRun) {
        self.images.moved(run);
    }
    /// Returns the place and the bytes of the image that `by` logged, if it is the latest committed
    /// one and not home. The place is `None` if the log does not hold the image whole.
    pub fn committed_by(
        &self,
        by: TransactionId,
    ) -> Option<(Option<WholeBlockLocation>, Rc<Buffer>)> {
        self.images.committed_by(by)
    }
    /// The latest committed transaction that has it, if that is not home.
    pub fn latest_by(&self) -> Option<TransactionId> {
        self.images.latest_by()
    }
    /// Whether the log holds whole what of it is not home.
    pub fn is_whole_in_log(&self) -> bool {
        self.images.is_whole_in_log()
    }
    /// Evicts the image of the latest committed transaction, which the log holds whole and memory
    /// need not write home. This says whose it is, where it lies, and its bytes.
    pub fn evict(&self) -> Option<(TransactionId, WholeBlockLocation, Rc<Buffer>)> {
        self.images.evict()
    }
    /// Notes that `by` is committed and wrote its image home. False if the block has a newer one.
    pub fn commit_home(&self, by: TransactionId) -> bool {
        self.images.note_release();
        self.images.commit_home(by)
    }
    /// The transaction that freed it is committed: nothing of it is written home any more.
    pub fn drop_committed(&self) {
        self.images.drop_committed();
    }

    /// Whether something of it may be written home: the latest committed image, or its current one.
    pub fn may_be_written_home(&self) -> bool {
        self.images.is_committed() || self.current_may_be_written_home()
    }
    fn current_may_be_written_home(&self) -> bool {
        let state = self.state.get();
        if state.unordered().is_some() && units::fault!("older-over-newer") {
            return true;
        }
        if state.ordered().is_some() && units::fault!("ordered-over-newer") {
            return true;
        }
        (state.unordered().is_some() || state.ordered().is_some()) && !self.images.is_in_flight()
    }
    /// Whether all that is to be written home of it is its current image.
    pub fn is_only_current_image(&self) -> bool {
        !self.images.is_committed() && self.current_may_be_written_home() && self.images.is_whole()
    }
    /// The log holds what of it is not home.
    pub fn is_held_by_log(&self) -> bool {
        self.images.is_committed()
    }
    /// The image that may be written home; `None` if home has it already. All images are known.
    pub fn to_send(&self) -> Option<(Rc<Buffer>, AsOf)> {
        match self.images.committed() {
            Some((as_of, _)) if units::fault!("home-uncommitted") => {
                Some((self.images.current(), AsOf::Committed(as_of)))
            }
            Some((as_of, image)) => {
                assert!(image.is_whole(), "the base of {} was read before", self.number);
                Some((image.bytes().clone(), AsOf::Committed(as_of)))
            }
            None if !self.current_may_be_written_home() => None,
            None => {
                let as_of = if self.state.get().unordered().is_some() {
                    AsOf::Unordered
                } else {
                    AsOf::Running
                };
                Some((self.images.current(), as_of))
            }
        }
    }
    /// Records that `sent`, of a committed transaction, is home. A newer image may have been
    /// committed since it was sent.
    pub fn committed_arrived(&self, sent: &Rc<Buffer>) {
        self.images.committed_arrived(sent);
    }
    /// Records that `sent`, which was ordered, is home, and returns its owner. `None` if the block
    /// was changed or its transaction locked since: then it is written home once more.
    pub fn ordered_arrived(&self, sent: &Rc<Buffer>) -> Option<Owner> {
        self.images.is_current(sent).then(|| self.state.get().ordered()).flatten()
    }
    /// Ends the order: the running transaction no longer waits for it to be written home. `logs`:
    /// it logs the block all the same.
    pub fn leave_order(&self, logs: bool) {
        self.state.set(self.state.get().without_order(logs));
    }
    /// Returns the owner of the unordered data that it holds.
    pub fn unordered_owner(&self) -> Option<Owner> {
        self.state.get().unordered()
    }
    /// Records that `sent`, which was unordered, is home. Returns false if the block was changed
    /// since: then it is unordered still.
    pub fn unordered_arrived(&self, sent: &Rc<Buffer>) -> bool {
        let arrived = self.images.is_current(sent);
        if arrived {
            self.state.set(self.state.get().without_unordered());
        }
        arrived
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
    fn images_frozen_by_two_transactions_are_written_home_in_order() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        for (by, value) in [(FIRST, 1), (SECOND, 2)] {
            write(&block, 8, value);
            block.join(Contents::Metadata);
            block.freeze(by);
        }
        write(&block, 8, 3);
        assert_eq!([FIRST, SECOND].map(|by| block.frozen(by).unwrap()[8]), [1, 2]);
        assert!(!block.may_be_written_home());
        for (by, value) in [(FIRST, 1), (SECOND, 2)] {
            block.commit(by, None);
            let sent = block.to_send().map(|(bytes, as_of)| (bytes[8], as_of));
            assert_eq!(sent, Some((value, AsOf::Committed(by))));
        }
        assert!(!block.is_in_flight());
    }

    #[test]
    fn what_is_logged_is_written_home_only_as_of_its_commit() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.join(Contents::Metadata);
        assert!(!block.may_be_written_home() && !block.is_home());
        block.freeze(FIRST);
        assert!(!block.may_be_written_home());
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
        assert!(!block.may_be_written_home());
        assert!(!block.commit_home(FIRST), "a newer image is still to come");
        let (bytes, _) = block.to_send().unwrap();
        assert_eq!(block.ordered_arrived(&bytes), Some(FILE));
        block.leave_order(false);
        assert!(block.is_home());
    }

    #[test]
    fn unordered_data_that_changed_on_its_way_home_stays_unordered() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.mark_unordered(FILE);
        let (bytes, as_of) = block.to_send().unwrap();
        write(&block, 8, 1);
        assert_eq!((as_of, block.unordered_arrived(&bytes)), (AsOf::Unordered, false));
        // A sync takes it along; written again before that, it is unordered besides.
        block.order_unordered(FILE);
        block.mark_unordered(FILE);
        block.freeze(FIRST);
        assert!(block.commit_home(FIRST) && !block.is_home());
        let (bytes, _) = block.to_send().unwrap();
        assert!(block.unordered_arrived(&bytes));
        assert!(block.is_home());
    }

    #[test]
    fn a_freed_block_waits_for_nothing_but_what_was_committed_before() {
        let block = block();
        block.replace(Buffer::zeroed(1024));
        block.join(Contents::Metadata);
        block.freeze(FIRST);
        block.commit(FIRST, None);
        block.mark_unordered(FILE);
        assert_eq!(block.free(), Some(FILE));
        assert!(block.may_be_written_home() && !block.is_home());
        block.drop_committed();
        assert!(block.is_home());
    }
}
