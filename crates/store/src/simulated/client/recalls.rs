//! Reports to the servers with a recall. Ceph's clients answer it with the attributes that they
//! hold back, before any content. A client that dies in between leaves zeros up to a size that it
//! had not filled.

use super::Client;
use crate::attributes::FileId;
use crate::simulated::servers::RequestKind;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Time for which the host may keep the answer back: another client waits. A recovery has no limit.
const PATIENCE: Duration = Duration::from_secs(1);

/// Recalled files. At a real store a write to one would deadlock.
#[derive(Default)]
pub(super) struct Recalls {
    /// The number of the recall, and whether the servers have a report of the file since.
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
    /// Begins a recall that the host reads.
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
            let is_recovered =
                client.files.borrow().get(&file).is_some_and(|held| held.is_recovered);
            if open == Some((number, false)) && !is_recovered {
                client.answer_recall(file);
            }
        }));
    }
    /// Answers a recall: the host's journal has every reported state, or its time has ended.
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
            // A lost connection is reported elsewhere.
            let _ = state.exchange(&session, RequestKind::Attributes, 0, set).await;
        }));
    }
}
