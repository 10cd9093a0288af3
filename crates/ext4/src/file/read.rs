//! Reading a file's content.

use super::{Content, Piece};
use crate::{Inode, MappingState, Result, Volume};
use device::Buffer;
use runtime::join_window;
use std::pin::Pin;
use std::rc::Rc;
use units::HomeBlock;
use units::Refusal;

/// Maximum number of home reads in flight at once for one request.
const READS_AT_ONCE: usize = 8;

/// Cache that keeps the blocks read for the next reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptBy {
    BlockCache,
    /// The kernel's page cache. A second copy of long runs in the block cache would cost memory and
    /// time, and gain nothing.
    Kernel,
}

type LocalRead<'a> = Pin<Box<dyn Future<Output = Result<(usize, Vec<Rc<Buffer>>)>> + 'a>>;

/// Blocks one after the other, and how many of their bytes are wanted.
struct ReadRun {
    state: MappingState,
    blocks: u32,
    length: u64,
}

impl ReadRun {
    /// Home of its blocks, if they are to be read.
    fn written(&self) -> Option<(HomeBlock, u32)> {
        match self.state {
            MappingState::Written(home) => Some((home, self.blocks)),
            MappingState::Hole | MappingState::Unwritten(_) => None,
        }
    }
}

impl Volume {
    /// Reads up to `length` bytes from `offset` on. Holes and unwritten blocks read as zeros.
    pub async fn read(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        length: usize,
    ) -> Result<Content> {
        let _guard = inode.lock.read().await;
        self.read_and_note(inode, offset, length, KeptBy::BlockCache).await
    }

    /// Reads for the kernel's page cache, which asks for whole pages, and may be asked to change
    /// them. Otherwise as [`Volume::read`].
    pub async fn read_for_cache(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        length: usize,
    ) -> Result<Content> {
        let _guard = inode.lock.read().await;
        let content = self.read_and_note(inode, offset, length, KeptBy::Kernel).await?;
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

    async fn read_and_note(
        &self,
        inode: &Inode,
        offset: u64,
        length: usize,
        kept_by: KeptBy,
    ) -> Result<Content> {
        if inode.is_directory() {
            return Err(Refusal::IsDirectory.into());
        }
        let content = self.read_kept(inode, offset, length, kept_by).await?;
        self.note_access(inode);
        Ok(content)
    }

    pub(crate) async fn read_locked(
        &self,
        inode: &Inode,
        offset: u64,
        length: usize,
    ) -> Result<Content> {
        self.read_kept(inode, offset, length, KeptBy::BlockCache).await
    }

    async fn read_kept(
        &self,
        inode: &Inode,
        offset: u64,
        length: usize,
        kept_by: KeptBy,
    ) -> Result<Content> {
        // A damaged size may go beyond what blocks can be counted.
        let size = inode.fields.borrow().size.min(self.file_size_max(inode));
        let end = size.min(offset.saturating_add(length as u64));
        if self.is_inline(inode) {
            return self.read_inline(inode, offset, end);
        }
        let (mut runs, mut at) = (Vec::new(), offset);
        while at < end {
            let blocks = self.block_of(end - 1).get() - self.block_of(at).get() + 1;
            let mapping = self.map(inode, self.block_of(at), blocks).await?;
            let mapped = (u64::from(mapping.count) << self.block_size().shift())
                - u64::from(self.place_of(at));
            let length = mapped.min(end - at);
            runs.push(ReadRun { state: mapping.state, blocks: mapping.count, length });
            at += length;
        }
        let mut buffers = self.read_runs(&runs, kept_by).await?.into_iter();
        let (mut content, mut at) = (Content::default(), offset);
        for run in &runs {
            match run.state {
                MappingState::Written(_) => {
                    let buffers = buffers.next().expect("one result for each run that is written");
                    self.take_pieces(&mut content, buffers, at, at + run.length);
                }
                MappingState::Hole | MappingState::Unwritten(_) => {
                    content.pieces.push(Piece::Zeros(run.length as usize));
                }
            }
            at += run.length;
        }
        Ok(content)
    }

    /// Content of the runs that are written, in order, from home and the cache. Several runs are
    /// read from the disk concurrently.
    async fn read_runs(&self, runs: &[ReadRun], kept_by: KeptBy) -> Result<Vec<Vec<Rc<Buffer>>>> {
        let written: Vec<_> = runs.iter().filter_map(|run| run.written()).collect();
        if let [(home, blocks)] = written[..] {
            return Ok(vec![self.read_run(home, blocks, kept_by).await?]);
        }
        let reads =
            written.into_iter().enumerate().map(|(index, (home, blocks))| -> LocalRead<'_> {
                Box::pin(async move { Ok((index, self.read_run(home, blocks, kept_by).await?)) })
            });
        let mut found = join_window(reads, READS_AT_ONCE).await?;
        found.sort_unstable_by_key(|(index, _)| *index);
        Ok(found.into_iter().map(|(_, buffers)| buffers).collect())
    }

    async fn read_run(
        &self,
        home: HomeBlock,
        blocks: u32,
        kept_by: KeptBy,
    ) -> Result<Vec<Rc<Buffer>>> {
        Ok(match kept_by {
            KeptBy::BlockCache => self.engine().read_data(home, blocks).await?,
            KeptBy::Kernel => self.engine().read_data_past_cache(home, blocks).await?,
        })
    }

    /// The bytes `from .. to` of consecutive blocks, the first of which has `from`.
    fn take_pieces(&self, content: &mut Content, buffers: Vec<Rc<Buffer>>, from: u64, to: u64) {
        let mut at = from;
        for buffer in buffers {
            let start = self.place_of(at) as usize;
            let end = buffer.len().min(start + (to - at) as usize);
            content.pieces.push(Piece::Bytes { buffer, range: start..end });
            at += (end - start) as u64;
        }
    }
}
