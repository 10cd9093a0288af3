//! Reading a file's content.

use super::{Content, Piece};
use crate::{Error, Inode, MappingState, Result, Volume, errno};
use std::rc::Rc;

impl Volume {
    /// Up to `length` bytes from `offset` on. Holes and unwritten blocks read as zeros.
    pub async fn read(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, length: usize) -> Result<Content> {
        let _guard = inode.lock.read().await;
        self.read_and_note(inode, offset, length).await
    }

    /// The same for the kernel's page cache, which asks for whole pages, and may be asked to change them.
    pub async fn read_for_cache(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        length: usize,
    ) -> Result<Content> {
        let _guard = inode.lock.read().await;
        let content = self.read_and_note(inode, offset, length).await?;
        let end = offset.saturating_add(length as u64);
        inode.pages.filled(offset..end);
        let mut at = offset;
        for piece in &content.pieces {
            match piece {
                Piece::Zeros(count) => {
                    inode.pages.zeros_shown(at..at + *count as u64);
                    at += *count as u64;
                }
                Piece::Bytes { range, .. } => at += range.len() as u64,
            }
        }
        // Behind the end of the file the kernel puts zeros.
        if at < end {
            inode.pages.zeros_shown(at..end);
        }
        Ok(content)
    }

    async fn read_and_note(&self, inode: &Inode, offset: u64, length: usize) -> Result<Content> {
        if inode.is_directory() {
            return Err(Error::Refused(errno::EISDIR));
        }
        let content = self.read_locked(inode, offset, length).await?;
        self.note_access(inode);
        Ok(content)
    }

    pub(crate) async fn read_locked(&self, inode: &Inode, offset: u64, length: usize) -> Result<Content> {
        // A damaged size may go beyond what blocks can be counted.
        let size = inode.fields.borrow().size.min(self.file_size_max(inode));
        let end = size.min(offset.saturating_add(length as u64));
        if self.is_inline(inode) {
            return self.read_inline(inode, offset, end);
        }
        let mut content = Content::default();
        let mut at = offset;
        while at < end {
            let blocks = self.block_of(end - 1).get() - self.block_of(at).get() + 1;
            let mapping = self.map(inode, self.block_of(at), blocks).await?;
            let mapped =
                (u64::from(mapping.count) << self.block_size().shift()) - u64::from(self.place_of(at));
            let taken = mapped.min(end - at);
            match mapping.state {
                MappingState::Written(home) => {
                    let buffers = self.engine().read_data(home, mapping.count).await?;
                    self.take_pieces(&mut content, buffers, at, at + taken);
                }
                MappingState::Hole | MappingState::Unwritten(_) => {
                    content.pieces.push(Piece::Zeros(taken as usize));
                }
            }
            at += taken;
        }
        Ok(content)
    }

    /// The bytes `from .. to` of consecutive blocks, the first of which has `from`.
    fn take_pieces(&self, content: &mut Content, buffers: Vec<Rc<device::Buffer>>, from: u64, to: u64) {
        let mut at = from;
        for buffer in buffers {
            let start = self.place_of(at) as usize;
            let end = buffer.len().min(start + (to - at) as usize);
            content.pieces.push(Piece::Bytes { buffer, range: start..end });
            at += (end - start) as u64;
        }
    }
}
