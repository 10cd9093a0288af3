//! Home addresses of a file's blocks, for users that bypass the file system: FIBMAP, and with it
//! swapon(8) and boot loaders.
//!
//! The newest content of a block may be in the journal alone; its later write-back would overwrite
//! what such a user has written. So before the first address is returned all data of the file is
//! written back. Until the last descriptor is closed (a swap file stays open) each write is home
//! before its reply; where files are opened without a request, until the kernel forgets the file.

use crate::{Inode, MappingState, Result, Volume};
use std::rc::Rc;
use units::{FileBlock, HomeBlock};

/// Runs looked up before their blocks are written back: bounds the memory for them.
const RUNS_MAX: usize = 4096;

impl Volume {
    /// The home of one block, which durably holds the file's content; `None` for a hole.
    pub async fn exposed_address(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: FileBlock,
    ) -> Result<Option<HomeBlock>> {
        let _guard = inode.lock.read().await;
        if self.is_inline(inode) {
            return Ok(None);
        }
        if !inode.kept_home.get() {
            self.bring_home(inode).await?;
            // No write has come between: writers wait for the lock.
            inode.kept_home.set(true);
        }
        Ok(match self.map(inode, at, 1).await?.state {
            MappingState::Written(home) => Some(home),
            _ => None,
        })
    }

    /// Writes the file back after a write if addresses of it were returned before.
    pub async fn keep_home(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<()> {
        if !inode.kept_home.get() {
            return Ok(());
        }
        let _guard = inode.lock.read().await;
        Box::pin(self.bring_home(inode)).await
    }

    async fn bring_home(&self, inode: &Inode) -> Result<()> {
        let size = inode.fields.borrow().size.min(self.file_size_max(inode));
        let end = size.div_ceil(self.block_size().bytes() as u64);
        let (mut at, mut runs) = (0, Vec::new());
        while at < end {
            let (from, rest) = (FileBlock(at as u32), (end - at).min(u64::from(u32::MAX)) as u32);
            let mapping = self.map(inode, from, rest).await?;
            at += u64::from(mapping.count);
            if let MappingState::Written(home) = mapping.state {
                runs.push((home, u64::from(mapping.count)));
            }
            if runs.len() == RUNS_MAX || at >= end {
                runs.sort_unstable();
                self.engine().write_back_range(&runs).await?;
                runs.clear();
            }
        }
        Ok(())
    }
}
