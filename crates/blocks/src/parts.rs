//! The disks and options that a block volume is opened with.

use crate::error::BlocksError;
use crate::find::{BlocksDisk, FoundSuperblock, find_superblock};
use crate::shared::Persistence;
use device::{Disk, World};
use engine::EngineOptions;
use std::rc::Rc;

/// The disks and options of a block volume.
#[derive(Clone)]
pub struct BlockParts {
    pub world: Rc<dyn World>,
    pub disk: Rc<dyn Disk>,
    /// The journal's device, where the volume has one.
    pub journal: Option<Rc<dyn Disk>>,
    pub options: EngineOptions,
    pub persistence: Persistence,
}

impl BlockParts {
    /// Reads the superblock of the volume, or its copy.
    pub(crate) async fn superblock(&self) -> Result<FoundSuperblock, BlocksError> {
        match find_superblock(&*self.disk).await? {
            BlocksDisk::Volume(found) => Ok(found),
            BlocksDisk::Journal(found) => {
                let (disk, volume) = (self.disk.name().to_owned(), found.superblock.uuid);
                Err(BlocksError::IsJournal { disk, volume })
            }
        }
    }
}
