//! Reports to the servers with a recall. Ceph's clients answer it with the attributes that they
//! hold back, before any content. A client that dies in between leaves zeros up to a size that it
//! had not filled.

use super::Client;
use crate::attributes::FileId;
use crate::simulated::servers::RequestKind;
use std::collections::BTreeMap;

/// Recalled files. At a real store a write to one would deadlock.
#[derive(Default)]
pub(super) struct Recalls {
    /// Whether the servers have a report of the file since.
    open: BTreeMap<FileId, bool>,
}

impl Recalls {
    pub fn contains(&self, file: FileId) -> bool {
        self.open.contains_key(&file)
    }
    pub fn end(&mut self, file: FileId) {
        self.open.remove(&file);
    }
    pub fn clear(&mut self) {
        self.open.clear();
    }
}

impl Client {
    /// Begins a recall that the host reads.
    pub fn begin_recall(&self, file: FileId) {
        self.recalls.borrow_mut().open.insert(file, false);
    }
    /// Answers a recall: the host's journal has every reported state.
    pub fn answer_recall(&self, file: FileId) {
        match self.recalls.borrow_mut().open.get_mut(&file) {
            Some(is_answered) if !*is_answered => *is_answered = true,
            _ => return,
        }
        let held =
            self.files.borrow().get(&file).filter(|held| !held.clean).map(|held| held.attributes);
        let Some(attributes) = held else { return };
        let (state, session) = (self.state.clone(), self.session());
        self.state.world.spawn(Box::pin(async move {
            let set =
                || state.inodes.borrow_mut().get_mut(&file).map(|inode| inode.set(attributes));
            // A lost connection is reported elsewhere.
            let _ = state.exchange(&session, RequestKind::Attributes, 0, set).await;
        }));
    }
}
