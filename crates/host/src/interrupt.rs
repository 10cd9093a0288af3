//! Waits that a signal to their caller ends.

use crate::error::HostError;
use runtime::sync::Event;
use runtime::{Either, race};
use std::cell::Cell;
use store::{Refusal, StoreError};

const EINTR: i32 = 4;

/// Ends the waits of one operation.
#[derive(Default)]
pub struct Interrupt {
    is_set: Cell<bool>,
    changed: Event,
}

impl Interrupt {
    pub fn set(&self) {
        self.is_set.set(true);
        self.changed.notify();
    }
    pub fn is_set(&self) -> bool {
        self.is_set.get()
    }
    pub async fn until_set(&self) {
        self.changed.until(|| self.is_set.get().then_some(())).await
    }
}

/// Returns the error of an operation that a signal has ended.
pub(crate) fn interrupted() -> HostError {
    StoreError::from(Refusal::Other(EINTR)).into()
}

/// Waits for `work`, unless a signal comes first. What is dropped then must leave nothing behind.
///
/// # Errors
/// EINTR: a signal came first.
pub async fn interruptible<T>(
    interrupt: Option<&Interrupt>,
    work: impl Future<Output = T>,
) -> Result<T, HostError> {
    let Some(interrupt) = interrupt.filter(|_| !units::fault!("host-signal-unheard")) else {
        return Ok(work.await);
    };
    match race(work, interrupt.until_set()).await {
        Either::Left(result) => Ok(result),
        Either::Right(()) => Err(interrupted()),
    }
}
