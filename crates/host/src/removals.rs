//! Directories in which names were removed, until the store has made that durable.
//!
//! A removal is done when the store answers, and may be durable later: in a directory, when its
//! file system writes its own journal. A crash of the store before that brings the name back, and
//! the file then has what was destaged last. So the records of a removed file are freed only when
//! its removal is durable. One sync serves all removals before it.

use runtime::sync::RwLock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{FileId, Store, StoreError};

/// Number of directories above which the store is asked to make all removals durable.
const DIRECTORIES_MAX: usize = 256;

/// A removal, in the order of their answers; 0: before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Removal(u64);

#[derive(Default)]
pub(crate) struct Removals {
    last: Cell<Removal>,
    /// Last durable removal: everything up to it is durable.
    durable: Cell<Removal>,
    /// The last removal in each directory that may not be durable.
    directories: RefCell<BTreeMap<FileId, Removal>>,
    /// The last removal of which the directory is not kept.
    elsewhere: Cell<Removal>,
    /// Lock held during a sync. Those who wait for it mostly find their removal durable afterwards.
    syncing: Rc<RwLock>,
}

impl Removals {
    /// Records that a name was removed in `directory`.
    pub fn add(&self, directory: FileId) -> Removal {
        let removal = self.next();
        let mut directories = self.directories.borrow_mut();
        directories.insert(directory, removal);
        if directories.len() > DIRECTORIES_MAX {
            directories.clear();
            self.elsewhere.set(removal);
        }
        removal
    }
    /// Whether all removals are durable.
    pub fn is_empty(&self) -> bool {
        self.durable.get() >= self.last.get()
    }
    /// Records that a directory was removed: its parent has that, and with it all that was in it.
    pub fn directory_removed(&self, directory: FileId, parent: FileId) {
        let removed = self.directories.borrow_mut().remove(&directory);
        if removed.is_some() {
            self.add(parent);
        }
    }
    /// Records that a name was removed in a directory that is not known.
    pub fn add_anywhere(&self) -> Removal {
        let removal = self.next();
        self.elsewhere.set(removal);
        removal
    }
    fn next(&self) -> Removal {
        self.last.set(Removal(self.last.get().0 + 1));
        self.last.get()
    }

    /// Returns when this removal and all before it are durable at the store.
    pub async fn make_durable(&self, store: &dyn Store, one: Removal) -> Result<(), StoreError> {
        let _guard = self.syncing.write().await;
        if self.durable.get() >= one || units::fault!("host-removal-not-durable") {
            return Ok(());
        }
        let until = self.last.get();
        let is_known = self.elsewhere.get() <= self.durable.get();
        let known = || self.directories.borrow().keys().copied().collect();
        store.make_removals_durable(is_known.then(known)).await?;
        // Only now: this task may have ended in between, and a sync may have failed.
        self.durable.set(until);
        self.directories.borrow_mut().retain(|_, last| *last > until);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_beyond_the_bound_are_not_kept() {
        let removals = Removals::default();
        for directory in 0..DIRECTORIES_MAX as u64 {
            removals.add(FileId(directory % 7));
        }
        assert_eq!(
            (removals.directories.borrow().len(), removals.elsewhere.get()),
            (7, Removal(0))
        );
        let last = (0..=DIRECTORIES_MAX as u64).map(|directory| removals.add(FileId(directory)));
        let last = last.last().unwrap();
        assert_eq!((removals.directories.borrow().len(), removals.elsewhere.get()), (0, last));
    }

    #[test]
    fn a_removed_directory_leaves_its_removals_to_its_parent() {
        let removals = Removals::default();
        assert!(removals.is_empty());
        removals.directory_removed(FileId(2), FileId(1));
        assert!(removals.is_empty(), "nothing was in it");
        let first = removals.add(FileId(2));
        removals.directory_removed(FileId(2), FileId(1));
        let kept: Vec<_> = removals.directories.borrow().keys().copied().collect();
        assert_eq!(kept, [FileId(1)]);
        assert!(!removals.is_empty() && removals.last.get() > first);
    }
}
