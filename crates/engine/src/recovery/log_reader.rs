//! Gives log blocks one by one, and reads what a walk over the log gives next with few requests: by
//! address, several at once.
//!
//! 1. Nobody sees an error of what was read ahead: a caller that wants such a block reads it again.
//!    So far nothing more is read ahead: a disk takes seconds for what it cannot read.
//! 2. Of a block that cannot be read whole its log blocks are read one by one.
//! 3. What was read last stays until something else is read, so a later pass may find it.
//! 4. Between blocks that memory holds other tasks run now and then: a pass may do much with each.

use crate::interface::error::EngineError;
use crate::interface::limits::HOME_REQUESTS_MAX;
use crate::interface::options::EngineParts;
use commit::LogArea;
use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::{LogRing, LogWalk};
use runtime::{WalkPace, join_window};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::LogBlock;

/// Maximum number of bytes of one request.
pub const READ_BYTES: usize = 1 << 20;
/// Bytes that nobody wants are read up to this length rather than skipped: an arm takes longer for
/// that. All together are no more than the wanted bytes.
const HOLE_BYTES: usize = 64 << 10;
/// Bytes that are given before other tasks run.
const GIVEN_AT_ONCE: usize = 128 << 10;

pub(crate) struct LogReader<'a> {
    parts: &'a EngineParts,
    area: &'a LogArea,
    walk: Rc<dyn LogWalk>,
    /// Bytes that are read at once.
    ahead: usize,
    /// Bytes of a log block.
    unit: usize,
    /// Blocks that are read alone, after a read ahead that failed.
    alone: u32,
    /// The block that cannot be read whole.
    in_parts: Option<u32>,
    /// Blocks that were read last, by the first log block.
    pieces: BTreeMap<LogBlock, Buffer>,
    /// Pace of a caller, by bytes given to it.
    pace: WalkPace,
}

impl<'a> LogReader<'a> {
    pub fn new(
        parts: &'a EngineParts,
        area: &'a LogArea,
        superblock: &JournalSuperblock,
    ) -> LogReader<'a> {
        let (walk, unit) = (Rc::new(LogRing::of(superblock)), superblock.log_block_bytes());
        LogReader {
            parts,
            area,
            walk,
            ahead: READ_BYTES,
            unit,
            alone: 0,
            in_parts: None,
            pieces: BTreeMap::new(),
            pace: WalkPace::new(GIVEN_AT_ONCE),
        }
    }

    /// Follows another order from now on, and reads `ahead` bytes of it at once.
    pub fn follow(&mut self, walk: Rc<dyn LogWalk>, ahead: usize) {
        (self.walk, self.ahead) = (walk, ahead);
    }

    pub async fn read(&mut self, at: LogBlock) -> Result<&[u8], EngineError> {
        self.pace.visited(self.unit).await;
        if self.held(at).is_none() {
            self.pieces.clear();
            if self.alone == 0 {
                self.pieces = self.read_pieces(self.next_from(at)).await;
                self.alone = if self.held(at).is_none() { self.blocks_ahead() } else { 0 };
            }
        }
        if self.held(at).is_none() {
            self.alone -= 1;
            let (first, bytes) = self.read_alone(at).await?;
            self.pieces.insert(first, bytes);
        }
        Ok(self.held(at).expect("what was read holds it"))
    }

    fn held(&self, at: LogBlock) -> Option<&[u8]> {
        let (first, bytes) = self.pieces.range(..=at).next_back()?;
        let offset = (at.get() - first.get()) as usize * self.unit;
        bytes.get(offset..offset + self.unit)
    }

    /// Log blocks in a block: blocks are what is read.
    fn each(&self) -> u32 {
        (self.parts.block_size.bytes() / self.unit) as u32
    }

    fn blocks_ahead(&self) -> u32 {
        (self.ahead / self.parts.block_size.bytes()).max(1) as u32
    }

    /// Blocks that the walk comes to from `at` on: sorted, and with holes that are short.
    fn next_from(&self, at: LogBlock) -> Vec<Range<u32>> {
        let (each, size) = (self.each(), self.parts.block_size.bytes());
        let all = self.walk.blocks().div_ceil(each);
        let (mut left, mut next) = (self.blocks_ahead().min(all.max(1)), Some(at));
        let mut wanted = Vec::new();
        while let Some(at) = next.take_if(|_| left > 0) {
            let together = self.walk.together(at);
            let (first, end) = (at.get() / each, (at.get() + together).div_ceil(each));
            let count = (end - first).min(left);
            wanted.push(first..first + count);
            left -= count;
            if first + count == end {
                next = self.walk.next(at.plus(together - 1));
            }
        }
        wanted.sort_by_key(|range| range.start);
        let (hole_max, mut holes) = ((HOLE_BYTES / size) as u32, (self.ahead / size) as u32);
        let mut joined: Vec<Range<u32>> = Vec::new();
        for range in wanted {
            match joined.last_mut() {
                Some(last) if range.start.saturating_sub(last.end) <= hole_max.min(holes) => {
                    holes -= range.start.saturating_sub(last.end);
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Reads those of the given blocks that can be read.
    async fn read_pieces(&self, blocks: Vec<Range<u32>>) -> BTreeMap<LogBlock, Buffer> {
        let most = (READ_BYTES / self.parts.block_size.bytes()) as u32;
        let mut requests = Vec::new();
        for Range { mut start, end } in blocks {
            while start < end {
                let Ok((_, together)) = self.area.locate(LogBlock(start)) else { break };
                let count = together.min(end - start).min(most);
                requests.push(start..start + count);
                start += count;
            }
        }
        let reads = requests.into_iter().map(|blocks| -> Pin<Box<dyn Future<Output = _> + '_>> {
            Box::pin(async move { Ok::<_, Infallible>(self.read_piece(blocks).await.ok()) })
        });
        let Ok(pieces) = join_window(reads, HOME_REQUESTS_MAX).await;
        pieces.into_iter().flatten().collect()
    }

    /// Blocks that lie together, and the first log block of them.
    async fn read_piece(&self, blocks: Range<u32>) -> Result<(LogBlock, Buffer), EngineError> {
        let (place, _) = self.area.locate(LogBlock(blocks.start))?;
        let bytes = self.parts.read_log(self.area, place, blocks.len()).await?;
        Ok((LogBlock(blocks.start * self.each()), bytes))
    }

    async fn read_alone(&mut self, at: LogBlock) -> Result<(LogBlock, Buffer), EngineError> {
        let block = at.get() / self.each();
        if self.in_parts != Some(block) {
            match self.read_piece(block..block + 1).await {
                Err(_) if self.each() > 1 => self.in_parts = Some(block),
                read => return read,
            }
        }
        let byte = u64::from(at.get()) * self.unit as u64;
        let (place, _) = self.area.locate_byte(byte, self.parts.block_size)?;
        Ok((at, self.area.read(&*self.parts.home, place, self.unit).await?))
    }
}
