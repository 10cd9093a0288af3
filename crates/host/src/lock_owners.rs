//! Owners of locks of a file, and the descriptors by which they locked it.

use crate::error::HostError;
use runtime::sync::Event;
use runtime::{Either, race};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{FileLock, LockOwner, Refusal, StoreError};

pub(crate) const EINTR: i32 = 4;
/// Pauses between two attempts to get a lock: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Ends a wait for a lock, or of a write that has not begun.
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
    pub(crate) async fn until_set(&self) {
        self.changed.until(|| self.is_set.get().then_some(())).await
    }
}

/// Waits for `work`, of which nothing is left when it is dropped.
///
/// # Errors
/// EINTR: the signal came first.
pub(crate) async fn interruptible<T>(
    interrupt: Option<&Interrupt>,
    work: impl Future<Output = T>,
) -> Result<T, HostError> {
    let Some(interrupt) = interrupt.filter(|_| !units::fault!("host-signal-unheard")) else {
        return Ok(work.await);
    };
    match race(work, interrupt.until_set()).await {
        Either::Left(result) => Ok(result),
        Either::Right(()) => Err(StoreError::from(Refusal::Other(EINTR)).into()),
    }
}

/// Pauses between two attempts to get a lock that another owner has.
pub(crate) struct LockPauses(Duration);

impl LockPauses {
    pub fn begin() -> LockPauses {
        LockPauses(PAUSES[0])
    }
    /// Returns the next pause.
    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSES[1]);
        pause
    }
}

/// Owners of locks of one file, and the descriptors by which they locked it.
#[derive(Default)]
pub(crate) struct ProgramLocks(RefCell<BTreeMap<LockOwner, BTreeSet<u64>>>);

impl ProgramLocks {
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
    pub fn has(&self, owner: LockOwner) -> bool {
        self.0.borrow().contains_key(&owner)
    }
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
    pub fn note(&self, lock: &FileLock, descriptor: u64) {
        let mut owners = self.0.borrow_mut();
        match lock.mode {
            Some(_) => {
                owners.entry(lock.owner).or_default().insert(descriptor);
            }
            None if lock.is_whole() => {
                owners.remove(&lock.owner);
            }
            None => {}
        }
    }
    /// Returns the owners that locked the file by this descriptor.
    pub fn owners_by(&self, descriptor: u64) -> Vec<LockOwner> {
        let owners = self.0.borrow();
        let asked = owners.iter().filter(|(_, descriptors)| descriptors.contains(&descriptor));
        asked.map(|(owner, _)| *owner).collect()
    }
}
