//! The content of a block at one moment, perhaps known in part only.
//!
//! Invariants
//! 1. Bytes are shared and copied on write ([`Rc::make_mut`]): a holder of an image keeps its
//!    content.
//! 2. Bytes outside the known ranges were never changed since the block came into the cache. They
//!    are what home holds, and are filled in when someone needs them.

use device::Buffer;
use journal::RangeSet;
use std::rc::Rc;
use units::{BlockRange, BlockSize};

#[derive(Clone)]
pub(crate) struct Image {
    bytes: Rc<Buffer>,
    /// The bytes that are known; `None`: all of them.
    known: Option<RangeSet>,
}

impl Image {
    /// An image of which nothing is known. `bytes` are no part of it.
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
    /// Returns the bytes, to be changed: copied first if anyone shares them. The known ranges stay
    /// as they are.
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
    pub fn is_same_image(&self, other: &Image) -> bool {
        self.is(&other.bytes) && self.known == other.known
    }
}
