//! The window of files that are recovered at once.
//!
//! 1. Files are begun in the order of their numbers, none more than [`FILES_MAX`] after the first
//!    that is not finished.
//! 2. A file that is begun has reserved space in the ledger for the states that it may record
//!    there.
//! 3. After an error no file is begun any more.

use crate::error::HostError;
use crate::ledger::{FILES_MAX, STATES_TOGETHER_MAX};
use crate::record::STATES_MAX;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};

pub(crate) struct RecoveryWindow {
    /// Index of the next file to begin.
    next: Cell<usize>,
    finished: RefCell<Vec<bool>>,
    /// Index of the first file that is not finished.
    first: Cell<usize>,
    /// Reserved states.
    reserved: Cell<usize>,
    failed: Cell<bool>,
    changed: Event,
}

/// A file's slot in the window, until it is dropped.
pub(crate) struct WindowSlot<'a> {
    window: &'a RecoveryWindow,
    index: usize,
    states: usize,
    is_finished: Cell<bool>,
}

/// Returns the number of states that a file of `runs` runs of bytes may record: the state it builds
/// on, one for each run, and that of its attributes.
pub(crate) fn states_for(runs: usize) -> usize {
    (runs + 2).min(STATES_MAX)
}

impl RecoveryWindow {
    /// Creates a window over `files` files; `noted` states are in the ledger from an earlier
    /// recovery.
    pub fn of(files: usize, noted: usize) -> RecoveryWindow {
        RecoveryWindow {
            next: Cell::new(0),
            finished: RefCell::new(vec![false; files]),
            first: Cell::new(0),
            reserved: Cell::new(noted),
            failed: Cell::new(false),
            changed: Event::default(),
        }
    }

    /// Waits until the file may begin. It may record `states`, of which the ledger already has
    /// `noted`.
    pub async fn enter(
        &self,
        index: usize,
        states: usize,
        noted: usize,
    ) -> Result<WindowSlot<'_>, HostError> {
        let states = states.max(noted);
        let entered = self.changed.until(|| {
            if self.failed.get() {
                return Some(Err(HostError::Aborted("another file could not be recovered".into())));
            }
            let has_space = self.reserved.get() + states - noted <= STATES_TOGETHER_MAX;
            (self.next.get() == index && index < self.first.get() + FILES_MAX && has_space)
                .then_some(Ok(()))
        });
        entered.await?;
        self.next.set(index + 1);
        self.reserved.set(self.reserved.get() + states - noted);
        self.changed.notify();
        Ok(WindowSlot { window: self, index, states, is_finished: Cell::new(false) })
    }
}

impl WindowSlot<'_> {
    pub fn finish(self) {
        self.is_finished.set(true);
    }
}

impl Drop for WindowSlot<'_> {
    fn drop(&mut self) {
        let window = self.window;
        window.reserved.set(window.reserved.get() - self.states);
        if self.is_finished.get() {
            let mut finished = window.finished.borrow_mut();
            finished[self.index] = true;
            let next = finished[window.first.get()..].iter().position(|finished| !finished);
            window.first.set(next.map_or(finished.len(), |next| window.first.get() + next));
        } else {
            window.failed.set(true);
        }
        window.changed.notify();
    }
}
