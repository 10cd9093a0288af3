//! Where the journal lies, and the engine over it.

use super::OpenParts;
use crate::Result;
use engine::Engine;
use format::ext4::Superblock;
use std::rc::Rc;
use units::HomeBlock;

/// An engine over the volume, its journal empty.
pub(super) struct OpenedEngine {
    pub engine: Rc<Engine>,
    pub recovered: bool,
    /// Runs of the hidden journal inode.
    pub journal: Vec<(HomeBlock, u64)>,
}

pub(super) async fn open_engine(parts: &OpenParts, superblock: &Superblock) -> Result<OpenedEngine> {
    let engine = Engine::without_journal(parts.world.clone(), parts.home.clone(), superblock.block_size);
    Ok(OpenedEngine { engine, recovered: false, journal: Vec::new() })
}
