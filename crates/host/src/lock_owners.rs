//! Owners of locks of a file, and the descriptors by which they locked it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use store::{FileLock, LockOwner};

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
