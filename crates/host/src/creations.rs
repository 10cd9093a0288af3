//! Files that are being created, and the recalls that arrive during that time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use store::FileId;

/// Recalls that may concern files that are being created.
#[derive(Default)]
pub(crate) struct Creations {
    in_flight: Cell<usize>,
    recalled: RefCell<BTreeSet<FileId>>,
}

/// Keeps a creation counted as in flight until it is dropped.
pub(crate) struct Creation<'a>(&'a Creations);

impl Creations {
    pub fn note_recall(&self, file: FileId) {
        if self.in_flight.get() > 0 {
            self.recalled.borrow_mut().insert(file);
        }
    }
    pub fn begin(&self) -> Creation<'_> {
        self.in_flight.set(self.in_flight.get() + 1);
        Creation(self)
    }
}

impl Creation<'_> {
    /// Returns whether `file` has been recalled since the creation began.
    pub fn is_recalled(&self, file: FileId) -> bool {
        self.0.recalled.borrow().contains(&file)
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        if self.0.in_flight.get() == 0 {
            self.0.recalled.borrow_mut().clear();
        }
    }
}
