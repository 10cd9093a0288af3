//! How a journal ends: it is closed, or fails; and which error that means for whom.
//!
//! 1. It ends once. Every caller gets the first failure, for ever.

use crate::interface::error::EngineError;
use std::cell::{Cell, RefCell};

#[derive(Default)]
pub(crate) struct Shutdown {
    failure: RefCell<Option<String>>,
    was_shut_down: Cell<bool>,
    closed: Cell<bool>,
}

impl Shutdown {
    /// The error that every sync gets after an abort.
    pub fn check(&self) -> Result<(), EngineError> {
        match &*self.failure.borrow() {
            Some(cause) => Err(EngineError::Aborted { cause: cause.clone() }),
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
    pub fn fail(&self, cause: &EngineError) {
        if !self.has_failed() {
            *self.failure.borrow_mut() = Some(cause.to_string());
            self.was_shut_down.set(matches!(cause, EngineError::ShutDown));
        }
    }
    /// Returns the error for a caller that only begins, and loses nothing: the volume is read-only
    /// now, unless it was shut down on purpose.
    pub fn refusal_of_changes(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Aborted { cause } if !self.was_shut_down.get() => {
                EngineError::ReadOnlySince { cause }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_handles_are_refused_and_syncs_report_it() {
        let shutdown = Shutdown::default();
        assert_eq!((shutdown.check().is_ok(), shutdown.has_ended()), (true, false));
        shutdown.fail(&EngineError::ReadOnly);
        shutdown.fail(&EngineError::ShutDown);
        let error = shutdown.check().unwrap_err();
        assert!(matches!(&error,
                EngineError::Aborted { cause } if *cause == EngineError::ReadOnly.to_string()));
        assert!(matches!(shutdown.refusal_of_changes(error), EngineError::ReadOnlySince { .. }));
        let shutdown = Shutdown::default();
        shutdown.fail(&EngineError::ShutDown);
        let error = shutdown.check().unwrap_err();
        assert!(matches!(shutdown.refusal_of_changes(error), EngineError::Aborted { .. }));
    }
}
