//! Which files are recovered at once.
//!
//! 1. Files are begun in the order of their numbers, none more than [`FILES_MAX`] behind the first
//!    that is not finished.
//! 2. Whoever begins has reserved room in the ledger for the states that he may note there.
//! 3. After an error nobody begins any more.

use crate::error::HostError;
use crate::ledger::{FILES_MAX, STATES_TOGETHER_MAX};
use crate::record::STATES_MAX;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};

pub(crate) struct RecoveryWindow {
    /// Of the files in their order: the next to begin.
    next: Cell<usize>,
    finished: RefCell<Vec<bool>>,
    /// The first that is not finished.
    first: Cell<usize>,
    /// In states.
    reserved: Cell<usize>,
    failed: Cell<bool>,
    changed: Event,
}

/// A place in the window, until it is dropped.
pub(crate) struct Place<'a> {
    window: &'a RecoveryWindow,
    index: usize,
    states: usize,
    is_finished: Cell<bool>,
}

/// What a file of so many runs of bytes may note. That is the state it builds on, one for each run,
/// and that of its attributes.
pub(crate) fn states_for(runs: usize) -> usize {
    (runs + 2).min(STATES_MAX)
}

impl RecoveryWindow {
    /// `noted`: states that an earlier recovery has left in the ledger.
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

    /// Waits for the file's turn. It may note `states`; so many of it were `noted`.
    pub async fn enter(
        &self,
        index: usize,
        states: usize,
        noted: usize,
    ) -> Result<Place<'_>, HostError> {
        let states = states.max(noted);
        let turn = self.changed.until(|| {
            if self.failed.get() {
                return Some(Err(HostError::Aborted("another file could not be recovered".into())));
            }
            let has_room = self.reserved.get() + states - noted <= STATES_TOGETHER_MAX;
            (self.next.get() == index && index < self.first.get() + FILES_MAX && has_room)
                .then_some(Ok(()))
        });
        turn.await?;
        self.next.set(index + 1);
        self.reserved.set(self.reserved.get() + states - noted);
        self.changed.notify();
        Ok(Place { window: self, index, states, is_finished: Cell::new(false) })
    }
}

impl Place<'_> {
    pub fn finish(self) {
        self.is_finished.set(true);
    }
}

impl Drop for Place<'_> {
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
