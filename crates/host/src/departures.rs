//! Files of which a name went, that nobody has open, and that have something dirty: until it is
//! known whether it was the last one.

use crate::files::File;
use runtime::sync::{Event, WriteGuard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const FILES_MAX: usize = 1024;
/// Half of what Ceph's client buffers before it sends something by itself.
const BYTES_MAX: u64 = 32 << 20;

#[derive(Default)]
pub(crate) struct Departures {
    waiting: RefCell<Vec<Departure>>,
    /// Files and bytes, those that are asked for now included.
    files: Cell<usize>,
    bytes: Cell<u64>,
    /// Something came or went, or nobody should wait any longer.
    pub changed: Event,
}

pub(crate) struct Departure {
    pub file: Rc<File>,
    /// The file's lock, which is held from before.
    pub settled: Option<WriteGuard>,
    pub bytes: u64,
}

impl Departures {
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
    /// For a file with so many dirty bytes. One that is larger than the bound waits alone.
    pub fn has_room(&self, bytes: u64) -> bool {
        let is_first = self.files.get() == 0;
        is_first || (self.files.get() < FILES_MAX && self.bytes.get() + bytes <= BYTES_MAX)
    }
    pub fn is_half_full(&self) -> bool {
        self.files.get() > FILES_MAX / 2 || self.bytes.get() > BYTES_MAX / 2
    }
    pub fn add(&self, departure: Departure) {
        self.files.set(self.files.get() + 1);
        self.bytes.set(self.bytes.get() + departure.bytes);
        self.waiting.borrow_mut().push(departure);
        self.changed.notify();
    }
    /// They count until [`Departures::end`].
    pub fn take(&self) -> Vec<Departure> {
        self.waiting.take()
    }
    pub fn end(&self, bytes: u64) {
        self.files.set(self.files.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
        self.changed.notify();
    }
}
