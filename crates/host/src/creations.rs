//! Files that are being made, and what was recalled meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use store::FileId;

/// Recalls that may be of files which are being made.
#[derive(Default)]
pub(crate) struct Creations {
    under_way: Cell<usize>,
    recalled: RefCell<BTreeSet<FileId>>,
}

/// A file is being made for as long as this lives.
pub(crate) struct Creation<'a>(&'a Creations);

impl Creations {
    pub fn note_recall(&self, file: FileId) {
        if self.under_way.get() > 0 {
            self.recalled.borrow_mut().insert(file);
        }
    }
    pub fn begin(&self) -> Creation<'_> {
        self.under_way.set(self.under_way.get() + 1);
        Creation(self)
    }
}

impl Creation<'_> {
    /// Whether `file` has been recalled since it began.
    pub fn is_recalled(&self, file: FileId) -> bool {
        self.0.recalled.borrow().contains(&file)
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        if self.0.under_way.get() == 0 {
            self.0.recalled.borrow_mut().clear();
        }
    }
}
