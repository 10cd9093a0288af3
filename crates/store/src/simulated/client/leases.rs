//! Names that a client knows. Ceph grants clients leases of names, and revokes them when another
//! client changes one.

use super::Client;
use crate::attributes::{FileAttributes, FileId};
use crate::names::Found;

/// A name that this client knows.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    file: FileId,
    /// Number of changes of names that other clients had made.
    changes: u64,
}

impl Client {
    pub fn lease(&self, parent: FileId, name: Vec<u8>, file: FileId) {
        let lease = Lease { file, changes: self.changes_by_others() };
        self.leases.borrow_mut().insert((parent, name), lease);
    }
    pub fn end_lease(&self, parent: FileId, name: &[u8]) {
        self.leases.borrow_mut().remove(&(parent, name.to_vec()));
    }
    /// Returns a known name, as long as no other client has changed any.
    pub(super) fn known_name(&self, parent: FileId, name: &[u8]) -> Option<Found> {
        let Lease { file, changes } = *self.leases.borrow().get(&(parent, name.to_vec()))?;
        let held = self.files.borrow().get(&file).map(|held| held.attributes)?;
        let session = self.session();
        let is_cut_off = session.fenced.get() || session.silent.get() || session.dead.get();
        if is_cut_off || changes != self.changes_by_others() {
            return None;
        }
        Some(Found { file, attributes: FileAttributes { links: self.state.links(file)?, ..held } })
    }
    fn changes_by_others(&self) -> u64 {
        let changes = self.state.name_changes.borrow();
        let own = self.session().number;
        changes.iter().filter(|(number, _)| **number != own).map(|(_, count)| count).sum()
    }
}
