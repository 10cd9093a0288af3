//! Directories with changes that the store may not have made durable: names, and their attributes.
//!
//! 1. The store answers a change before it is durable. If the connection is lost then, servers that
//!    crash, too, may lose it, and a sync over a new connection knows nothing of it.
//! 2. So each directory with such changes has lost something when the connection is lost. The next
//!    sync of it fails, once for each descriptor. One that is opened later gets the error, too, as
//!    long as no other has.
//! 3. Changes are many and syncs of directories are few. Beyond a bound every directory counts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use store::FileId;

/// Directories that are known one by one.
const DIRECTORIES_MAX: usize = 1 << 14;

/// An open directory.
pub struct DirectoryDescriptor {
    pub(crate) directory: FileId,
    /// The last losses that it has seen: of its directory, and of all.
    seen: [Cell<u64>; 2],
}

/// The loss of changes by the connection with this number.
#[derive(Clone, Copy, Default)]
struct Loss {
    connection: u64,
    /// Whether a sync has reported it.
    is_reported: bool,
}

#[derive(Default)]
pub(crate) struct UnsyncedNames {
    /// Number of changes, and of connections that were lost.
    changes: Cell<u64>,
    connections: Cell<u64>,
    /// The last change of each directory since its last sync.
    unsynced: RefCell<BTreeMap<FileId, u64>>,
    /// Whether others have unsynced changes, too.
    are_more: Cell<bool>,
    losses: RefCell<BTreeMap<FileId, Loss>>,
    /// A loss of every directory.
    loss_of_all: Cell<Loss>,
}

impl Loss {
    fn of(connection: u64) -> Loss {
        Loss { connection, is_reported: false }
    }
    /// Returns what a descriptor that is opened now has seen of it.
    fn seen(self) -> u64 {
        if self.is_reported { self.connection } else { 0 }
    }
}

impl UnsyncedNames {
    /// Records a change of these directories, of which the answer is here, or is lost.
    pub fn changed(&self, directories: &[FileId]) {
        self.changes.set(self.changes.get() + 1);
        let mut unsynced = self.unsynced.borrow_mut();
        for directory in directories {
            if unsynced.len() < DIRECTORIES_MAX || unsynced.contains_key(directory) {
                unsynced.insert(*directory, self.changes.get());
            } else {
                self.are_more.set(true);
            }
        }
    }
    /// Returns the changes that a sync that begins now covers.
    pub fn begin_sync(&self) -> u64 {
        self.changes.get()
    }
    pub fn synced(&self, directory: FileId, covered: u64) {
        let mut unsynced = self.unsynced.borrow_mut();
        if unsynced.get(&directory).is_some_and(|last| *last <= covered) {
            unsynced.remove(&directory);
        }
    }
    /// Records that the connection is lost.
    pub fn lose(&self) {
        self.connections.set(self.connections.get() + 1);
        let loss = Loss::of(self.connections.get());
        let mut losses = self.losses.borrow_mut();
        losses.extend(self.unsynced.take().into_keys().map(|directory| (directory, loss)));
        if self.are_more.take() || losses.len() > DIRECTORIES_MAX {
            losses.clear();
            self.loss_of_all.set(loss);
        }
    }

    pub fn open(&self, directory: FileId) -> DirectoryDescriptor {
        let known = self.losses.borrow().get(&directory).copied().unwrap_or_default();
        let seen = [known.seen(), self.loss_of_all.get().seen()].map(Cell::new);
        DirectoryDescriptor { directory, seen }
    }
    /// Returns whether changes were lost that this descriptor has not reported. It has then.
    pub fn report_loss(&self, descriptor: &DirectoryDescriptor) -> bool {
        let report = |loss: &mut Loss, seen: &Cell<u64>| {
            let is_new = loss.connection > seen.replace(loss.connection.max(seen.get()));
            loss.is_reported |= is_new;
            is_new
        };
        let [seen, seen_of_all] = &descriptor.seen;
        let mut losses = self.losses.borrow_mut();
        let is_lost = losses.get_mut(&descriptor.directory).is_some_and(|loss| report(loss, seen));
        let mut of_all = self.loss_of_all.get();
        let are_all_lost = report(&mut of_all, seen_of_all);
        self.loss_of_all.set(of_all);
        is_lost || are_all_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_reports_a_loss_once() {
        let names = UnsyncedNames::default();
        let [changed, synced] = [FileId(2), FileId(3)];
        let [before, other] = [changed, synced].map(|directory| names.open(directory));
        names.changed(&[changed, synced]);
        names.synced(synced, names.begin_sync());
        names.lose();
        let later = names.open(changed);
        for (descriptor, is_lost) in [(&before, true), (&later, true), (&other, false)] {
            assert_eq!(names.report_loss(descriptor), is_lost);
            assert!(!names.report_loss(descriptor), "once");
        }
        assert!(!names.report_loss(&names.open(changed)), "others have reported it");
        names.lose();
        assert!(!names.report_loss(&before), "nothing has changed since");
    }

    #[test]
    fn a_sync_covers_only_changes_before_it_began() {
        let names = UnsyncedNames::default();
        let descriptor = names.open(FileId(2));
        names.changed(&[FileId(2)]);
        let covered = names.begin_sync();
        names.changed(&[FileId(2)]);
        names.synced(FileId(2), covered);
        names.lose();
        assert!(names.report_loss(&descriptor));
    }

    #[test]
    fn beyond_the_bound_every_directory_has_lost_something() {
        let names = UnsyncedNames::default();
        let descriptor = names.open(FileId(1));
        let most = DIRECTORIES_MAX as u64;
        (2..most + 3).for_each(|directory| names.changed(&[FileId(directory)]));
        names.lose();
        assert_eq!((names.unsynced.borrow().len(), names.losses.borrow().len()), (0, 0));
        assert!(names.report_loss(&descriptor) && !names.report_loss(&descriptor));
        // As many as are known one by one, in two connections.
        for first in [2, most + 2] {
            (first..first + most).for_each(|directory| names.changed(&[FileId(directory)]));
            names.lose();
        }
        assert!(names.losses.borrow().len() <= DIRECTORIES_MAX);
        assert!(names.report_loss(&descriptor));
    }
}
