//! The end of one transaction's commit, for those who wait for it.

use crate::commit_error::CommitError;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[derive(Default)]
pub struct Completion {
    result: RefCell<Option<Result<(), CommitError>>>,
    event: Event,
    waiters: Cell<usize>,
}

impl Completion {
    pub async fn wait(&self) -> Result<(), CommitError> {
        self.waiters.set(self.waiters.get() + 1);
        self.event.until(|| self.result.borrow().clone()).await
    }
    /// Returns the result; `None` while the commit is in flight.
    #[cfg(test)]
    pub fn result(&self) -> Option<Result<(), CommitError>> {
        self.result.borrow().clone()
    }
    /// Returns the number of callers that have asked for it so far.
    pub fn waiters(&self) -> usize {
        self.waiters.get()
    }
    /// Wakes those who wait, in the order they came.
    pub fn complete(self: &Rc<Self>, result: Result<(), CommitError>) {
        self.result.borrow_mut().get_or_insert(result);
        self.event.notify();
    }
}
