//! Closed files with dirty bytes that lost a name, until it is known whether it was the last one.

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
    /// Files and their bytes, including those whose question is in flight.
    files: Cell<usize>,
    bytes: Cell<u64>,
    /// Set when a file is added or removed, or when questions must not wait any longer.
    pub changed: Event,
}

pub(crate) struct Departure {
    pub file: Rc<File>,
    /// The file's lock, held since the unlink.
    pub settled: WriteGuard,
    pub bytes: u64,
}

impl Departures {
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
    /// Returns whether a file with `bytes` dirty bytes may wait here. A file beyond the bound waits
    /// alone.
    pub fn has_space(&self, bytes: u64) -> bool {
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
    /// Takes all files; they count until [`Departures::end`].
    pub fn take(&self) -> Vec<Departure> {
        self.waiting.take()
    }
    pub fn end(&self, bytes: u64) {
        self.files.set(self.files.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
        self.changed.notify();
    }
}
