//! Writes: a request is one handle, or several if it is longer than a handle.
//!
//! Invariants
//! 1. What a handle needs to read is in memory before it starts, except for blocks evicted since.
//! 2. The changes of one block are one step: other requests see it before or after.
//! 3. No block is written while a transaction that freed it is uncommitted: its revoke would hide
//!    the new content, or an older record would come back. Nor is a block freed while an open
//!    handle writes it: the commit of both would drop from memory what was written.

use crate::layout::BlockRun;
use crate::shared::{OWNER, Persistence, Shared};
use device::{Buffer, Durability};
use engine::{Base, Credits, EngineError, FileRun, FileUpdate, Handle};
use std::rc::Rc;
use units::{BlockRange, HomeBlock, TransactionId, arrays};

/// Runs of whole blocks of at least this many bytes may bypass the cache, if they are not logged.
const BYPASS_BYTES_MIN: u64 = 64 << 10;

/// Bytes of a request that one handle writes.
struct Piece<'a> {
    at: u64,
    bytes: &'a [u8],
    /// Memory of exactly these bytes.
    memory: Option<&'a Rc<Buffer>>,
    /// Bytes of the whole request.
    request: u64,
}

impl Shared {
    /// Writes whole sectors within the disk.
    pub async fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        let memory = in_one(parts);
        let request = memory.len() as u64;
        if request == 0 {
            return Ok(());
        }
        let shift = self.layout().block_size().shift();
        let (mut last, mut done) = (None, 0);
        while done < memory.len() {
            let (from, left) = (at + done as u64, request - done as u64);
            let is_atomic = left <= self.atomic_blocks << shift;
            let length = match is_atomic && !units::fault!("blocks-write-split") {
                true => left,
                // Pieces end between blocks.
                false => left.min((((from >> shift) + self.atomic_blocks) << shift) - from),
            };
            let length = length as usize;
            let whole = (length == memory.len()).then_some(&memory);
            let bytes = &memory[done..done + length];
            let piece = Piece { at: from, bytes, memory: whole, request };
            let open = self.changes.read().await;
            last = Some(self.write_piece(&piece).await?);
            drop(open);
            done += length;
        }
        let is_durable =
            durability == Durability::Durable || self.persistence == Persistence::WriteThrough;
        match last.filter(|_| is_durable && !units::fault!("blocks-fua-answered")) {
            Some(transaction) => {
                self.note_durable_write();
                self.engine.sync_owner(OWNER, transaction).await
            }
            None => Ok(()),
        }
    }

    async fn write_piece(&self, piece: &Piece<'_>) -> Result<TransactionId, EngineError> {
        let shift = self.layout().block_size().shift();
        let end = piece.at + piece.bytes.len() as u64;
        let blocks = piece.at >> shift..((end - 1) >> shift) + 1;
        let runs: Vec<BlockRun> = self.layout().runs(blocks.clone()).collect();
        let count = (blocks.end - blocks.start) as u32;
        let mut handle = loop {
            self.until_reusable(&blocks).await?;
            self.prepare(piece, &runs).await?;
            let handle = self.engine.start_writing(Credits(0), count).await?;
            // While this waited, a discard may have come.
            if !self.freed.holds(&blocks) || units::fault!("blocks-write-meets-discard") {
                break handle;
            }
        };
        let _writing = self.writing.begin(blocks);
        for run in runs {
            self.write_run(&mut handle, piece, run).await?;
        }
        Ok(handle.stop())
    }

    /// Reads the old content of the first and the last block, if they change in part.
    async fn prepare(&self, piece: &Piece<'_>, runs: &[BlockRun]) -> Result<(), EngineError> {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(()) };
        let first = (first.block, first.home);
        let last = (last.block + last.count - 1, last.home.plus(last.count - 1));
        for (block, home) in [first, last] {
            let (range, _) = self.part_of(piece, block);
            self.engine.prepare_data(home, range, piece.request).await?;
        }
        Ok(())
    }

    /// Returns the range of an exported block that a piece changes, and its bytes.
    fn part_of<'a>(&self, piece: &Piece<'a>, block: u64) -> (BlockRange, &'a [u8]) {
        let size = self.layout().block_size();
        let (start, end) = (block << size.shift(), (block + 1) << size.shift());
        let from = start.max(piece.at);
        let to = end.min(piece.at + piece.bytes.len() as u64);
        let range = BlockRange::new((from - start) as u32, (to - start) as u32);
        (range, &piece.bytes[(from - piece.at) as usize..(to - piece.at) as usize])
    }

    async fn write_run(
        &self,
        handle: &mut Handle,
        piece: &Piece<'_>,
        run: BlockRun,
    ) -> Result<(), EngineError> {
        if self.bypasses_cache(handle, piece, run)? {
            return Ok(());
        }
        for index in 0..run.count {
            let (range, bytes) = self.part_of(piece, run.block + index);
            self.write_block(handle, run.home.plus(index), range, bytes, piece.request).await?;
        }
        Ok(())
    }

    /// Returns whether a run bypasses the cache: a large run of whole blocks that is not logged
    /// needs no memory.
    fn bypasses_cache(
        &self,
        handle: &mut Handle,
        piece: &Piece<'_>,
        run: BlockRun,
    ) -> Result<bool, EngineError> {
        let size = self.layout().block_size();
        let (from, length) = (run.block << size.shift(), run.count << size.shift());
        let end = piece.at + piece.bytes.len() as u64;
        if length < BYPASS_BYTES_MIN || from < piece.at || from + length > end {
            return Ok(false);
        }
        let start = (from - piece.at) as usize;
        let bytes = &piece.bytes[start..start + length as usize];
        let memory = piece.memory.filter(|memory| memory.len() == bytes.len());
        let (home, request) = (run.home, piece.request);
        handle.file_run_past_cache(&FileRun {
            owner: OWNER,
            home,
            bytes,
            memory,
            request,
            sequential: false,
            in_place: true,
        })
    }

    async fn write_block(
        &self,
        handle: &mut Handle,
        home: HomeBlock,
        range: BlockRange,
        bytes: &[u8],
        request: u64,
    ) -> Result<(), EngineError> {
        let update = FileUpdate {
            owner: OWNER,
            home,
            range,
            bytes,
            base: Base::Home,
            request,
            sequential: false,
            in_place: true,
            durable_only: false,
        };
        if range == self.layout().block_size().whole() && is_zero(bytes) && !self.is_zero_now(home)
        {
            // A byte and the base describe a block of zeros.
            let range = BlockRange::new(0, 1);
            let update = FileUpdate { range, bytes: &bytes[..1], base: Base::Zero, ..update };
            return handle.write_file_data(update).await.map(drop);
        }
        match handle.try_overwrite(&update)? {
            Some(_) => Ok(()),
            None => handle.write_file_data(update).await.map(drop),
        }
    }

    fn is_zero_now(&self, home: HomeBlock) -> bool {
        self.engine.cached_data(home).is_some_and(|content| is_zero(&content))
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (mut words, rest) = arrays::<16>(bytes);
    words.all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// Joins all parts in one buffer.
fn in_one(mut parts: Vec<Rc<Buffer>>) -> Rc<Buffer> {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let length = parts.iter().map(|part| part.len()).sum();
    let mut all = Buffer::to_fill(length);
    let mut at = 0;
    for part in parts {
        all[at..at + part.len()].copy_from_slice(&part);
        at += part.len();
    }
    Rc::new(all)
}
