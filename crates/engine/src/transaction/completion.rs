//! The end of one transaction's commit, for those who wait for it.

use crate::interface::error::EngineError;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[derive(Default)]
pub(crate) struct Completion {
    result: RefCell<Option<Result<(), EngineError>>>,
    event: Event,
    waiters: Cell<usize>,
}

impl Completion {
    pub async fn wait(&self) -> Result<(), EngineError> {
        self.waiters.set(self.waiters.get() + 1);
        self.event.until(|| self.result.borrow().clone()).await
    }
    /// `None` as long as it goes on.
    #[cfg(test)]
    pub fn result(&self) -> Option<Result<(), EngineError>> {
        self.result.borrow().clone()
    }
    /// How many have asked for it so far.
    pub fn waiters(&self) -> usize {
        self.waiters.get()
    }
    /// Wakes those who wait, in the order they came.
    pub fn complete(self: &Rc<Self>, result: Result<(), EngineError>) {
        self.result.borrow_mut().get_or_insert(result);
        self.event.notify();
    }
}
