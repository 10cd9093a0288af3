//! Images of a block: the current one, those of transactions in flight, and the latest
//! committed one.
//!
//! Invariants
//! 1. Images are in order, each as old as or older than the one before. The current one comes
//!    first, then one of each transaction in flight (as of its lock), then that of the latest
//!    committed transaction.
//! 2. What counts against the cache's bound are images, not blocks. They are counted with every
//!    change of them.

use crate::cache::image::Image;
use commit::IN_FLIGHT_MAX;
use device::Buffer;
use journal::{SwappedRun, WholeBlockLocation};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{BlockRange, BlockSize, TransactionId};

/// Images in memory, those of blocks included that have left the cache and are still held.
#[derive(Default)]
pub(crate) struct Usage {
    blocks: Cell<usize>,
    /// Images of blocks besides the current one.
    frozen: Cell<usize>,
    /// Counts whatever may let a block be written home that might not before.
    released: Cell<u64>,
}

impl Usage {
    pub fn blocks(&self) -> usize {
        self.blocks.get()
    }
    pub fn frozen(&self) -> usize {
        self.frozen.get()
    }
    pub fn released(&self) -> u64 {
        self.released.get()
    }
}

pub(crate) struct Images {
    kept: RefCell<Kept>,
    usage: Rc<Usage>,
    /// Share of [`Usage::frozen`].
    counted: Cell<usize>,
    /// Number of times that the images were altered.
    version: Cell<u64>,
}

struct Kept {
    current: Image,
    /// Images of transactions in flight, as of their lock, the latest first.
    frozen: [Option<(TransactionId, Image)>; IN_FLIGHT_MAX],
    /// Latest committed image that is not yet home.
    committed: Option<Committed>,
}

/// Image of the latest committed transaction.
struct Committed {
    by: TransactionId,
    image: Image,
    /// Place at which the log holds the image, if it holds it whole.
    in_log: Option<WholeBlockLocation>,
}

impl Committed {
    fn place(&self) -> Option<WholeBlockLocation> {
        self.in_log.filter(|_| self.image.is_whole())
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let Usage { blocks, frozen, .. } = &*self.usage;
        blocks.set(blocks.get() - 1);
        frozen.set(frozen.get() - self.counted.get());
    }
}

impl Images {
    /// Creates the images of a block of which nothing is known; `nothing` is the buffer that such
    /// blocks share.
    pub fn unknown(nothing: Rc<Buffer>, usage: Rc<Usage>) -> Images {
        usage.blocks.set(usage.blocks.get() + 1);
        let current = Image::unknown(nothing);
        let kept = RefCell::new(Kept { current, frozen: Default::default(), committed: None });
        Images { kept, usage, counted: Cell::new(0), version: Cell::new(0) }
    }

    /// Returns the image that readers see.
    pub fn current(&self) -> Rc<Buffer> {
        self.kept.borrow().current.bytes().clone()
    }
    /// A number that the current image has alone: no later one has it.
    pub fn version(&self) -> u64 {
        self.version.get()
    }
    pub fn is_current(&self, bytes: &Rc<Buffer>) -> bool {
        self.kept.borrow().current.is(bytes)
    }
    pub fn is_whole(&self) -> bool {
        self.kept.borrow().current.is_whole()
    }
    /// Whether all images are known as a whole. A write may have filled in the current one what
    /// older ones lack.
    pub fn are_whole(&self) -> bool {
        let kept = self.kept.borrow();
        kept.current.is_whole() && kept.older().all(Image::is_whole)
    }
    pub fn is_in_flight(&self) -> bool {
        self.kept.borrow().frozen.iter().any(Option::is_some)
    }
    pub fn has_older(&self) -> bool {
        self.kept.borrow().older().next().is_some()
    }
    /// The image that `by`, which is in flight, froze.
    pub fn frozen(&self, by: TransactionId) -> Option<Rc<Buffer>> {
        let kept = self.kept.borrow();
        let mut found = kept.frozen.iter().flatten();
        found.find(|(of, _)| *of == by).map(|(_, image)| image.bytes().clone())
    }
    pub fn is_committed(&self) -> bool {
        self.kept.borrow().committed.is_some()
    }
    /// Returns the latest committed image and its transaction, if home does not have it.
    pub fn committed(&self) -> Option<(TransactionId, Image)> {
        self.kept
            .borrow()
            .committed
            .as_ref()
            .map(|committed| (committed.by, committed.image.clone()))
    }

    /// Returns the place and the bytes of the latest committed image, if it is of `by` and not
    /// home. The place is `None` if the log does not hold the image whole.
    pub fn committed_by(
        &self,
        by: TransactionId,
    ) -> Option<(Option<WholeBlockLocation>, Rc<Buffer>)> {
        let kept = self.kept.borrow();
        let committed = kept.committed.as_ref().filter(|committed| committed.by == by)?;
        Some((committed.place(), committed.image.bytes().clone()))
    }
    /// Returns the transaction of the latest committed image, if it is not home.
    pub fn latest_by(&self) -> Option<TransactionId> {
        self.kept.borrow().committed.as_ref().map(|committed| committed.by)
    }
    /// Whether the log holds the latest committed image whole.
    pub fn is_whole_in_log(&self) -> bool {
        self.kept.borrow().committed.as_ref().is_some_and(|committed| committed.place().is_some())
    }

    /// Changes what is known of the current image.
    pub fn change<T>(&self, change: impl FnOnce(&mut [u8]) -> T) -> T {
        self.alter(|kept| change(kept.current.bytes_mut()))
    }
    pub fn write(&self, range: BlockRange, bytes: &[u8], size: BlockSize) {
        self.alter(|kept| kept.current.write(range, bytes, size))
    }
    /// Sets the whole content, known from now on.
    pub fn replace(&self, bytes: Buffer) {
        self.alter(|kept| kept.current = Image::whole(Rc::new(bytes)))
    }
    /// Merges what home holds under all images. Images that were one stay one.
    pub fn fill(&self, base: Rc<Buffer>, size: BlockSize) {
        self.alter(|kept| {
            let was = kept.current.clone();
            kept.current.fill(&base, size);
            let filled = kept.current.clone();
            for image in kept.older_mut() {
                if image.is_same_image(&was) {
                    *image = filled.clone();
                } else {
                    image.fill(&base, size);
                }
            }
        })
    }

    /// Notes that the block may be written home now, if nothing else is in its way.
    pub fn note_release(&self) {
        let Usage { released, .. } = &*self.usage;
        released.set(released.get() + 1);
    }

    /// Freezes the image of `by`, the transaction being locked: it is the current one.
    pub fn freeze(&self, by: TransactionId) {
        self.alter(|kept| kept.freeze(by))
    }
    /// Notes that `by` is committed in the log: its image may be written home, in place of any
    /// older one. `in_log`: where the log holds it whole.
    pub fn commit(&self, by: TransactionId, in_log: Option<WholeBlockLocation>) {
        self.alter(|kept| {
            let mut image = kept.thaw(by).expect("one image of each, since the lock");
            if units::fault!("frozen-copy") {
                image = kept.current.clone();
            }
            kept.committed = Some(Committed { by, image, in_log });
        })
    }
    /// Notes that `by` is committed and wrote its image home. False if there is a newer one.
    pub fn commit_home(&self, by: TransactionId) -> bool {
        self.alter(|kept| {
            let written = kept.thaw(by);
            written.is_none_or(|image| kept.current.is(image.bytes()))
        })
    }
    /// Records that `sent` is home. A newer image may have been committed since it was sent.
    pub fn committed_arrived(&self, sent: &Rc<Buffer>) {
        let all = units::fault!("newer-image-dropped");
        self.alter(|kept| kept.committed.take_if(|committed| all || committed.image.is(sent)));
    }
    /// Drops the latest committed image, which is no longer written home.
    pub fn drop_committed(&self) {
        self.alter(|kept| kept.committed = None)
    }
    /// Notes that the log has moved `run`, which may hold the latest committed image.
    pub fn moved(&self, run: &SwappedRun) {
        let mut kept = self.kept.borrow_mut();
        let held = kept.committed.as_mut().filter(|committed| committed.by == run.transaction);
        if let Some(place) = held.and_then(|committed| committed.in_log.as_mut()) {
            place.at = run.moved(place.at);
        }
    }
    /// Drops the latest committed image if the log holds it whole: whose it is, where it lies, and
    /// its bytes.
    pub fn evict(&self) -> Option<(TransactionId, WholeBlockLocation, Rc<Buffer>)> {
        self.alter(|kept| {
            let place = kept.committed.as_ref()?.in_log?;
            let Committed { by, image, .. } = kept.committed.take_if(|it| it.image.is_whole())?;
            Some((by, place, image.bytes().clone()))
        })
    }

    /// Counts the images anew: one may be made, taken over, or dropped.
    fn alter<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let mut kept = self.kept.borrow_mut();
        let result = change(&mut kept);
        self.version.set(self.version.get() + 1);
        let frozen = kept.count_apart();
        let all = &self.usage.frozen;
        all.set(all.get() + frozen - self.counted.replace(frozen));
        result
    }
}

impl Kept {
    fn older(&self) -> impl Iterator<Item = &Image> {
        let frozen = self.frozen.iter().flatten().map(|(_, image)| image);
        frozen.chain(self.committed.iter().map(|committed| &committed.image))
    }
    fn older_mut(&mut self) -> impl Iterator<Item = &mut Image> {
        let frozen = self.frozen.iter_mut().flatten().map(|(_, image)| image);
        frozen.chain(self.committed.iter_mut().map(|committed| &mut committed.image))
    }
    /// Freezes the image of `by`, which is locked: it is the current one.
    fn freeze(&mut self, by: TransactionId) {
        let image = self.current.clone();
        let is_for =
            |slot: &Option<(TransactionId, Image)>| slot.as_ref().is_none_or(|(of, _)| *of == by);
        let at = self
            .frozen
            .iter()
            .position(is_for)
            .expect("no more transactions in flight than may be");
        self.frozen[..=at].rotate_right(1);
        self.frozen[0] = Some((by, image));
    }
    /// The image that `by` froze is no longer its own.
    fn thaw(&mut self, by: TransactionId) -> Option<Image> {
        let slot =
            self.frozen.iter_mut().find(|slot| slot.as_ref().is_some_and(|(of, _)| *of == by))?;
        slot.take().map(|(_, image)| image)
    }
    /// Older images that are neither the current one nor one another.
    fn count_apart(&self) -> usize {
        if self.committed.is_none() && self.frozen.iter().all(Option::is_none) {
            return 0;
        }
        let differs = |(index, image): (usize, &Image)| {
            !self.current.is(image.bytes())
                && !self.older().take(index).any(|newer| newer.is(image.bytes()))
        };
        self.older().enumerate().filter(|(index, image)| differs((*index, image))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: TransactionId = TransactionId(1);
    const SECOND: TransactionId = TransactionId(2);

    fn size() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }
    fn images() -> Images {
        Images::unknown(Rc::new(Buffer::zeroed(1024)), Rc::default())
    }
    fn write(images: &Images, from: u32, value: u8) {
        images.write(BlockRange::new(from, from + 4), &[value; 4], size());
    }

    #[test]
    fn a_base_read_late_goes_under_what_was_written_and_into_every_image() {
        let images = images();
        write(&images, 8, 1);
        images.freeze(FIRST);
        images.commit(FIRST, None);
        write(&images, 10, 2);
        images.freeze(SECOND);
        let mut base = Buffer::zeroed(1024);
        base.fill(9);
        images.fill(Rc::new(base), size());
        let (by, image) = images.committed().unwrap();
        assert_eq!((by, &image.bytes()[7..15]), (FIRST, &[9, 1, 1, 1, 1, 9, 9, 9][..]));
        assert_eq!(images.frozen(SECOND).unwrap()[7..15], [9, 1, 1, 2, 2, 2, 2, 9]);
        assert!(Rc::ptr_eq(&images.frozen(SECOND).unwrap(), &images.current()));
        assert!(images.is_whole() && images.are_whole());
    }

    #[test]
    fn each_image_apart_is_counted_once_and_until_it_is_gone() {
        let images = images();
        let count = || images.usage.frozen.get();
        images.replace(Buffer::zeroed(1024));
        images.freeze(FIRST);
        assert_eq!(count(), 0);
        write(&images, 0, 1);
        assert_eq!(count(), 1);
        images.commit(FIRST, None);
        images.freeze(SECOND);
        write(&images, 0, 2);
        assert_eq!(count(), 2);
        let (_, image) = images.committed().unwrap();
        images.committed_arrived(image.bytes());
        assert_eq!(count(), 1);
        images.commit(SECOND, None);
        images.drop_committed();
        assert_eq!(count(), 0);
        let usage = images.usage.clone();
        drop(images);
        assert_eq!((usage.blocks.get(), usage.frozen.get()), (0, 0));
    }

    #[test]
    fn only_what_the_log_holds_whole_is_let_go() {
        let place = journal::WholeBlockLocation { at: units::LogBlock(5), offset: 0 };
        for at in [None, Some(place)] {
            let images = images();
            images.replace(Buffer::zeroed(1024));
            images.freeze(FIRST);
            assert_eq!(images.evict().map(|(by, ..)| by), None);
            images.commit(FIRST, at);
            write(&images, 0, 1);
            assert_eq!(images.evict().map(|(by, at, _)| (by, at)), at.map(|at| (FIRST, at)));
            assert_eq!(
                (images.usage.frozen.get(), !images.is_committed()),
                (usize::from(at.is_none()), at.is_some())
            );
            assert_eq!(images.evict().map(|(by, ..)| by), None);
        }
    }
}
