//! The content of a block at one moment, perhaps known in part only; and all such images of a block.
//!
//! Invariants
//! 1. Bytes are shared and copied on write ([`Rc::make_mut`]): whoever took an image keeps what he took.
//! 2. Bytes outside the known ranges were never changed since the block came into the cache: they are what home holds, and
//!    are filled in when someone needs them.

use crate::limits::IN_FLIGHT_MAX;
use device::Buffer;
use journal::RangeSet;
use std::rc::Rc;
use units::{BlockRange, BlockSize, TransactionId};

#[derive(Clone)]
pub(crate) struct Image {
    bytes: Rc<Buffer>,
    /// The bytes that are known; `None`: all of them.
    known: Option<RangeSet>,
}

impl Image {
    /// Of which nothing is known. `bytes` are no part of it.
    pub fn unknown(bytes: Rc<Buffer>) -> Image {
        Image { bytes, known: Some(RangeSet::new()) }
    }
    pub fn whole(bytes: Rc<Buffer>) -> Image {
        Image { bytes, known: None }
    }
    pub fn bytes(&self) -> &Rc<Buffer> {
        &self.bytes
    }
    pub fn is_whole(&self) -> bool {
        self.known.is_none()
    }
    /// Whether both share their bytes.
    pub fn is(&self, bytes: &Rc<Buffer>) -> bool {
        Rc::ptr_eq(&self.bytes, bytes)
    }
    /// To change; copied first if anyone shares it. What is known stays as it is.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Rc::<Buffer>::make_mut(&mut self.bytes)
    }

    pub fn write(&mut self, range: BlockRange, bytes: &[u8], size: BlockSize) {
        self.bytes_mut()[range.as_usize()].copy_from_slice(bytes);
        if let Some(known) = &mut self.known {
            known.insert(range);
            if known.covers(size.whole()) {
                self.known = None;
            }
        }
    }

    /// Puts home's bytes where this image knows nothing.
    pub fn fill(&mut self, base: &Rc<Buffer>, size: BlockSize) {
        match self.known.take() {
            None => {}
            Some(known) if known.is_empty() => self.bytes = base.clone(),
            Some(known) => {
                let bytes = Rc::<Buffer>::make_mut(&mut self.bytes);
                for gap in known.missing(size.whole()).as_slice() {
                    bytes[gap.as_usize()].copy_from_slice(&base[gap.as_usize()]);
                }
            }
        }
    }

    /// Whether the two are one image: what is filled into one may be taken over by the other.
    pub fn is_one_with(&self, other: &Image) -> bool {
        self.is(&other.bytes) && self.known == other.known
    }
}

/// All images of a block, in order: each is as old as or older than the one before.
pub(crate) struct Images {
    pub current: Image,
    /// Those of transactions in flight, as of their lock, the latest first.
    frozen: [Option<(TransactionId, Image)>; IN_FLIGHT_MAX],
    /// As of the latest committed transaction, and not yet home.
    pub committed: Option<(TransactionId, Image)>,
}

impl Images {
    /// `nothing`: a buffer for a block of which nothing is known.
    pub fn unknown(nothing: Rc<Buffer>) -> Images {
        Images { current: Image::unknown(nothing), frozen: Default::default(), committed: None }
    }
    pub fn is_in_flight(&self) -> bool {
        self.frozen.iter().any(Option::is_some)
    }
    pub fn older(&self) -> impl Iterator<Item = &Image> {
        self.frozen.iter().chain([&self.committed]).flatten().map(|(_, image)| image)
    }
    pub fn older_mut(&mut self) -> impl Iterator<Item = &mut Image> {
        self.frozen.iter_mut().chain([&mut self.committed]).flatten().map(|(_, image)| image)
    }
    /// `by` is locked: its image is the current one.
    pub fn freeze(&mut self, by: TransactionId) {
        let image = self.current.clone();
        let is_for = |slot: &Option<(TransactionId, Image)>| slot.as_ref().is_none_or(|(of, _)| *of == by);
        let at = self.frozen.iter().position(is_for).expect("no more transactions in flight than may be");
        self.frozen[..=at].rotate_right(1);
        self.frozen[0] = Some((by, image));
    }
    /// The image that `by` froze is no longer its own.
    pub fn thaw(&mut self, by: TransactionId) -> Option<Image> {
        let slot = self.frozen.iter_mut().find(|slot| slot.as_ref().is_some_and(|(of, _)| *of == by))?;
        slot.take().map(|(_, image)| image)
    }
    /// The image that `by` froze.
    pub fn frozen(&self, by: TransactionId) -> Option<&Image> {
        self.frozen.iter().flatten().find(|(of, _)| *of == by).map(|(_, image)| image)
    }
    /// Older images that are neither the current one nor one another.
    pub fn count_apart(&self) -> usize {
        let differs = |(index, image): (usize, &Image)| {
            !self.current.is(image.bytes()) && !self.older().take(index).any(|newer| newer.is(image.bytes()))
        };
        self.older().enumerate().filter(|(index, image)| differs((*index, image))).count()
    }
}
