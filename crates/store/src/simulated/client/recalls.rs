//! What the servers hear with a recall. Ceph's clients answer it with the attributes that they hold
//! back, before any content. A client that dies in between leaves zeros up to a size that it had
//! not filled.

use super::Client;
use crate::attributes::FileId;
use crate::simulated::servers::Asks;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Without the host's word: another client waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Recalled files. A write would deadlock at a real store.
#[derive(Default)]
pub(super) struct Recalls {
    /// The number of the recall, and whether the servers have heard of the file since.
    open: BTreeMap<FileId, (u64, bool)>,
    begun: u64,
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
    /// The host reads of a recall.
    pub fn begin_recall(self: &Rc<Self>, file: FileId) {
        let number = {
            let mut recalls = self.recalls.borrow_mut();
            recalls.begun += 1;
            let number = recalls.begun;
            recalls.open.insert(file, (number, false));
            number
        };
        let client = self.clone();
        self.state.world.spawn(Box::pin(async move {
            client.state.world.sleep_until(client.state.world.now().plus(PATIENCE)).await;
            let open = client.recalls.borrow().open.get(&file).copied();
            if open == Some((number, false)) {
                client.answer_recall(file);
            }
        }));
    }
    /// The host's journal has every state that it was told, or has had its time.
    pub fn answer_recall(&self, file: FileId) {
        match self.recalls.borrow_mut().open.get_mut(&file) {
            Some((_, is_answered)) if !*is_answered => *is_answered = true,
            _ => return,
        }
        let held =
            self.files.borrow().get(&file).filter(|held| !held.clean).map(|held| held.attributes);
        let Some(attributes) = held else { return };
        let (state, session) = (self.state.clone(), self.session());
        self.state.world.spawn(Box::pin(async move {
            let set =
                || state.inodes.borrow_mut().get_mut(&file).map(|inode| inode.set(attributes));
            // Whose connection is lost learns of it elsewhere.
            let _ = state.exchange(&session, Asks::Attributes, 0, set).await;
        }));
    }
}
