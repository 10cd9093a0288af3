//! Owners of locks of a file, and the descriptors by which they locked it.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use store::{FileLock, LockOwner};

/// Ends a wait for a lock.
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
