//! The volume's label, and its forced shutdown.

use super::Volume;
use crate::Result;
use engine::{Credits, EngineError};
use std::rc::Rc;
use units::Refusal;

impl Volume {
    /// The volume's label, without the zeros behind it.
    pub fn label(&self) -> Vec<u8> {
        let name = self.superblock.borrow().volume_name;
        name.iter().copied().take_while(|byte| *byte != 0).collect()
    }

    /// Sets the label, durably. EINVAL when it is longer than the superblock's field. Copies of the
    /// superblock keep the old one, as after `tune2fs -L` on a mounted volume.
    pub async fn set_label(&self, label: &[u8]) -> Result<()> {
        let mut name = [0; 16];
        let Some(place) = name.get_mut(..label.len()) else {
            return Err(Refusal::Invalid.into());
        };
        place.copy_from_slice(label);
        let mut handle = self.engine.start(Credits(1)).await?;
        self.superblock.borrow_mut().volume_name = name;
        self.change_superblock(&mut handle);
        let transaction = handle.stop();
        Ok(self.engine.commit(transaction).await?)
    }

    /// Makes all earlier changes durable, and then writes nothing any more: later changes fail.
    pub async fn shut_down(self: &Rc<Self>) -> Result<()> {
        let synced = self.sync().await;
        self.engine.stop_writing(&EngineError::ShutDown);
        synced
    }
}
