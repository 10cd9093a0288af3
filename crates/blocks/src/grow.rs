//! Growing a volume whose disk has become longer.
//!
//! Order: a copy of the new superblock at the disk's new end, durable; zeros where the copy was,
//! since that becomes data; the new superblock, durable. A crash before the last step leaves the
//! volume as it was. Homes of blocks that there were before do not change, so the log and what is
//! in memory stay as they are.

use crate::error::BlocksError;
use crate::find::write_superblock;
use crate::layout::BlocksLayout;
use crate::make::{clear, clear_tail};
use crate::parts::BlockParts;
use crate::shared::{Busy, Shared};
use crate::volume::BlockVolume;
use device::{DeviceError, Disk};
use engine::EngineError;
use format::blocks::{BlocksSuperblock, SUPERBLOCK_AT, blocks_copy_at};

/// Returns the superblock of the volume once it fills its disk; `None` if that has no space for
/// more data.
///
/// # Errors
/// [`BlocksError::Shrunk`] for a disk that has become shorter, [`BlocksError::Unusable`] for one
/// that is too long.
pub(crate) fn grown(
    disk: &dyn Disk,
    superblock: &BlocksSuperblock,
) -> Result<Option<BlocksSuperblock>, BlocksError> {
    let (name, size) = (|| disk.name().to_owned(), disk.geometry().size);
    if size < superblock.disk_bytes {
        let wanted = superblock.disk_bytes;
        return Err(BlocksError::Shrunk { disk: name(), size, wanted });
    }
    let end = blocks_copy_at(size).map_or(0, |at| at >> superblock.block_size.shift());
    let data_blocks = end.saturating_sub(superblock.data_at);
    if data_blocks <= superblock.data_blocks {
        return Ok(None);
    }
    let grown = BlocksSuperblock { disk_bytes: size, data_blocks, ..superblock.clone() };
    match grown.check() {
        Ok(()) => Ok(Some(grown)),
        Err(why) => Err(BlocksError::Unusable { disk: name(), why }),
    }
}

/// Writes the superblock of a grown volume, and its copy.
async fn write_grown(
    disk: &dyn Disk,
    before: &BlocksSuperblock,
    after: &BlocksSuperblock,
) -> Result<(), DeviceError> {
    let copy_of = |superblock: &BlocksSuperblock| {
        blocks_copy_at(superblock.disk_bytes).expect("a superblock that was checked has a copy")
    };
    if units::fault!("blocks-grow-superblock-first") {
        write_superblock(disk, after, SUPERBLOCK_AT).await?;
    }
    let at = copy_of(after);
    clear(disk, at).await?;
    clear_tail(disk).await?;
    write_superblock(disk, after, at).await?;
    disk.flush().await?;
    clear(disk, copy_of(before)).await?;
    write_superblock(disk, after, SUPERBLOCK_AT).await
}

/// Grows a volume that is not open, over all of its disk. Returns the bytes of the exported disk.
///
/// # Errors
/// [`BlocksError::Shrunk`] for a disk that has become shorter; others as [`BlockVolume::open`].
pub async fn grow(parts: &BlockParts) -> Result<u64, BlocksError> {
    let disk = &*parts.disk;
    let before = parts.superblock().await?.superblock;
    let after = grown(disk, &before)?;
    if let Some(after) = &after {
        write_grown(disk, &before, after).await?;
    }
    let superblock = after.unwrap_or(before);
    Ok(superblock.exported_blocks() << superblock.block_size.shift())
}

impl BlockVolume {
    /// Grows over all of the disk, if that has become longer. Returns the bytes of the exported
    /// disk. New blocks hold what the disk held there. Scattered logs do not grow: the new blocks
    /// have none. A caller that stops waiting changes nothing.
    ///
    /// # Errors
    /// [`BlocksError::Shrunk`] for a disk that has become shorter, [`BlocksError::GrowClosed`] for
    /// one so long that the log must begin anew, [`BlocksError::Engine`] for a volume that is
    /// read-only, closed or has failed. [`BlocksError::Device`] where the disk fails: then the
    /// volume has failed, and every later change and flush does.
    pub async fn grow(&self) -> Result<u64, BlocksError> {
        let shared = self.0.clone();
        let world = shared.engine.world().clone();
        // What the disk answers counts even if the caller does not wait.
        let busy = Busy::new(&shared);
        let whole = async move {
            let grown = shared.grow().await;
            drop(busy);
            grown
        };
        runtime::spawn_after_first_step(&*world, whole).await?;
        Ok(self.geometry().size)
    }
}

impl Shared {
    async fn grow(&self) -> Result<(), BlocksError> {
        let _alone = self.changes.write().await;
        self.engine.check()?;
        if self.engine.options().read_only {
            return Err(EngineError::ReadOnly.into());
        }
        if self.closed.get() {
            return Err(EngineError::ShutDown.into());
        }
        let (disk, before) = (&*self.disk, self.layout());
        let Some(after) = grown(disk, before.superblock())? else { return Ok(()) };
        let after = BlocksLayout::new(after).expect("it was checked");
        // The log's records have addresses of 32 bits where these were enough.
        let narrow = u64::from(u32::MAX);
        if before.used().end <= narrow && after.used().end > narrow {
            return Err(BlocksError::GrowClosed { disk: disk.name().to_owned() });
        }
        let written = write_grown(disk, before.superblock(), after.superblock()).await;
        // What a failed flush covered may be the engine's, too, and no later flush proves it.
        if let (Err(error), false) = (&written, units::fault!("blocks-grow-failure-forgotten")) {
            self.engine.abort(&EngineError::Device(error.clone()));
        }
        written?;
        self.set_layout(after);
        Ok(())
    }
}
