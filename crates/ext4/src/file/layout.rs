//! Data and holes of a file: lseek, and lists of extents.

use super::SeekWhat;
use crate::{Error, Inode, Mapping, MappingState, Result, Volume};
use std::rc::Rc;
use units::FileBlock;
use units::Refusal;

/// Runs in memory that are passed before other tasks run.
const RUNS_AT_ONCE: u32 = 256;

impl Volume {
    /// The next byte of data, or of a hole (the end of the file is one), from `offset` on. `ENXIO`
    /// when there is none. Unwritten blocks count as holes, but for those that may have been
    /// changed in the kernel's memory.
    pub async fn seek(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        what: SeekWhat,
    ) -> Result<u64> {
        let _guard = inode.lock.read().await;
        let size = inode.fields.borrow().size.min(self.file_size_max(inode));
        let (mut at, mut runs) = (offset, 0u32);
        if self.is_inline(inode) && at < size && what == SeekWhat::Data {
            return Ok(at);
        }
        while at < size && !self.is_inline(inode) {
            let mapping = self.map(inode, self.block_of(at), u32::MAX).await?;
            let end = (u64::from(mapping.at.get()) + u64::from(mapping.count))
                << self.block_size().shift();
            let (is_data, end) = match mapping.state {
                MappingState::Written(_) => (true, end),
                _ => match inode.pages.changed_zeros(at..end.min(size)) {
                    Some(changed) => {
                        // Blocks are data or holes as a whole.
                        let block = self.block_size().bytes() as u64;
                        let start = (changed.start - changed.start % block).max(at);
                        match start == at {
                            true => (true, changed.end.next_multiple_of(block)),
                            false => (false, start),
                        }
                    }
                    None => (false, end),
                },
            };
            if is_data == (what == SeekWhat::Data) {
                return Ok(at);
            }
            at = end;
            runs = runs.wrapping_add(1);
            if runs % RUNS_AT_ONCE == 0 {
                runtime::yield_now().await;
            }
        }
        match what {
            SeekWhat::Hole if offset < size => Ok(size),
            _ => Err(Error::Refused(Refusal::BeyondEnd)),
        }
    }

    /// The mapped runs that begin before `to` and end behind `from`, `max` at most, as FIEMAP
    /// reports them.
    pub async fn extents(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: FileBlock,
        to: FileBlock,
        max: usize,
    ) -> Result<Vec<Mapping>> {
        let _guard = inode.lock.read().await;
        let mut extents: Vec<Mapping> = Vec::new();
        let (mut at, mut runs) = (u64::from(from.get()), 0u32);
        if self.is_inline(inode) {
            return Ok(extents);
        }
        while at < u64::from(to.get()) && extents.len() < max {
            let mapping = self.map(inode, FileBlock(at as u32), to.get() - at as u32).await?;
            at += u64::from(mapping.count);
            if mapping.state != MappingState::Hole {
                extents.push(mapping);
            }
            runs = runs.wrapping_add(1);
            if runs % RUNS_AT_ONCE == 0 {
                runtime::yield_now().await;
            }
        }
        Ok(extents)
    }
}
