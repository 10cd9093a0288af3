//! Shutdown of a journal: it is closed, or fails.
//!
//! 1. It ends once. Every caller gets the first failure, for ever.

use crate::commit_error::CommitError;
use std::cell::{Cell, RefCell};
use std::fmt::Display;

#[derive(Default)]
pub struct Shutdown {
    failure: RefCell<Option<String>>,
    was_shut_down: Cell<bool>,
    closed: Cell<bool>,
}

impl Shutdown {
    /// The error that every sync gets after an abort.
    pub fn check(&self) -> Result<(), CommitError> {
        match &*self.failure.borrow() {
            Some(cause) => Err(CommitError::Aborted { cause: cause.clone() }),
            None => Ok(()),
        }
    }
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }
    pub fn has_ended(&self) -> bool {
        self.is_closed() || self.has_failed()
    }
    pub fn close(&self) {
        self.closed.set(true);
    }
    /// Fails the journal; `on_purpose` if this was requested.
    pub fn fail(&self, cause: &dyn Display, on_purpose: bool) {
        if !self.has_failed() {
            *self.failure.borrow_mut() = Some(cause.to_string());
            self.was_shut_down.set(on_purpose);
        }
    }
    /// Whether it failed on purpose.
    pub fn was_shut_down(&self) -> bool {
        self.was_shut_down.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_what_all_later_callers_get() {
        let shutdown = Shutdown::default();
        assert_eq!((shutdown.check().is_ok(), shutdown.has_ended()), (true, false));
        shutdown.fail(&"a write failed", false);
        shutdown.fail(&"shut down", true);
        let Err(CommitError::Aborted { cause }) = shutdown.check() else { panic!("no failure") };
        assert_eq!((cause.as_str(), shutdown.was_shut_down()), ("a write failed", false));
        let shutdown = Shutdown::default();
        shutdown.fail(&"shut down", true);
        assert!(shutdown.was_shut_down() && shutdown.has_ended() && !shutdown.is_closed());
    }
}
