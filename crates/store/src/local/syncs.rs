//! Changes of open files past any buffer, and their syncs.

use super::durability::Durability;
use super::store::{Local, Open};
use crate::attributes::FileId;
use crate::error::StoreError;
use crate::open_file::OpenFile;
use std::fs::File;

impl Local {
    fn mark(&self, file: FileId, mark: impl Fn(&Durability)) {
        self.opens.borrow().of(file).for_each(|Open { durability, .. }| mark(durability));
    }
    /// Records a change that is made before this task waits for anything.
    pub fn changed_at_once(&self, file: FileId) {
        let step = self.next_step();
        self.mark(file, |durability| durability.changed.set(step));
    }
    /// Records that everything up to a step is durable.
    pub fn synced_until(&self, file: FileId, step: u64) {
        self.mark(file, |Durability { synced, .. }| synced.set(synced.get().max(step)));
    }
    pub fn is_unsynced(&self, open: OpenFile) -> bool {
        self.opens.borrow().get(open).is_ok_and(|(_, open)| open.durability.is_unsynced())
    }
    pub async fn sync_at_once(&self, file: FileId, handle: &File) -> Result<(), StoreError> {
        let step = self.next_step();
        let handle = handle.try_clone().map_err(|error| self.failed("making durable", &error))?;
        self.away("making durable", move || handle.sync_all()).await?;
        self.synced_until(file, step);
        Ok(())
    }
    /// Makes writes under a shared token durable before it is returned: a later sync has another
    /// token, and asks for its own writes.
    pub async fn sync_shared(&self, file: FileId) -> Result<(), StoreError> {
        let is_unsynced = |open: &&Open| open.durability.is_unsynced();
        let handle = self.opens.borrow().of(file).find(is_unsynced).map(|open| open.handle.clone());
        match handle {
            Some(handle) => self.sync_at_once(file, &handle).await,
            None => Ok(()),
        }
    }
}
