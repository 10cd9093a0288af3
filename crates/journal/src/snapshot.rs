//! Snapshots of the mapping table, and when a piece of one counts ([`format::snapshot`]). The
//! pieces lie one behind the other in the journal's own blocks, as in a ring.
//!
//! 1. A piece counts only once the superblock names it, durably. By then the piece is durable, and
//!    so is every block that it records as home: `SnapshotBeforeSuperblock`.
//! 2. Extents that the superblock on disk names are not overwritten. Those before the tail are
//!    given up by its next change.
//! 3. A log whose runs have moved is begun again only when a piece that records the move counts, or
//!    none does: `TailBeforeReuse`. The same write of the superblock makes the copies count, so the
//!    addresses that a snapshot records and those that a search finds never differ.
//! 4. A piece records the newest transaction committed when it was written. Every copy of a run
//!    that was left behind before has an earlier durable floor, every later copy a later one.

use crate::plan::{Address, Barrier, BlockKind, Plan};
use crate::tail::SuperblockImage;
use device::Buffer;
use format::jbd2::{JournalSuperblock, Seed};
use format::scattered::{ActiveLogs, NamedSnapshot};
use format::snapshot::{PieceHeader, SnapshotItem};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Maximum number of blocks of a piece, and the share of the ring that one may take.
const PIECE_BLOCKS_MAX: u32 = 256;
const PIECE_PART: u32 = 8;

/// Location of the ring: whole blocks of the journal.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotPlaces {
    blocks: Range<LogBlock>,
    pub block_bytes: usize,
    /// Log blocks in each journal block.
    pub each: u32,
    pub seed: Seed,
}

impl SnapshotPlaces {
    pub fn of(superblock: &JournalSuperblock) -> SnapshotPlaces {
        SnapshotPlaces {
            blocks: superblock.first..superblock.log_end(),
            block_bytes: superblock.block_size.bytes(),
            each: superblock.log_blocks_per_block(),
            seed: superblock.scattered_seed(),
        }
    }
    pub fn piece_blocks_max(&self) -> u32 {
        let ring = self.blocks.end.get() - self.blocks.start.get();
        (ring / PIECE_PART).clamp(1, PIECE_BLOCKS_MAX)
    }
    /// Returns where the piece behind one that ends at `end` begins.
    pub fn behind(&self, end: LogBlock) -> LogBlock {
        let fits = self.holds(end, self.piece_blocks_max());
        if fits { end } else { self.blocks.start }
    }
    pub fn holds(&self, at: LogBlock, blocks: u32) -> bool {
        at >= self.blocks.start
            && at.get().checked_add(blocks).is_some_and(|end| end <= self.blocks.end.get())
    }
    pub fn blocks_of(&self, items: usize) -> u32 {
        PieceHeader::bytes_with(items).div_ceil(self.block_bytes) as u32
    }
}

/// A piece that the superblock names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotPiece {
    pub(crate) number: u32,
    pub(crate) at: LogBlock,
    pub(crate) blocks: u32,
    pub(crate) end: TransactionId,
}

/// The pieces that count, oldest first, and where the next one is written.
#[derive(Clone, Debug)]
pub struct SnapshotRing {
    places: SnapshotPlaces,
    pieces: VecDeque<SnapshotPiece>,
    next: u32,
}

/// A piece that is to count.
#[derive(Clone, Debug)]
pub struct NewPiece {
    piece: SnapshotPiece,
    /// Position, in log blocks.
    at: LogBlock,
    bytes: Rc<Buffer>,
}

impl SnapshotRing {
    /// Creates a ring in which no piece counts. `superblock` describes scattered logs.
    pub fn new(superblock: &JournalSuperblock) -> SnapshotRing {
        let next = superblock.named_snapshot().map_or(0, |named| named.last).wrapping_add(1);
        SnapshotRing { places: SnapshotPlaces::of(superblock), pieces: VecDeque::new(), next }
    }
    /// Continues behind the pieces that recovery has read.
    #[must_use]
    pub fn behind(mut self, pieces: Vec<SnapshotPiece>) -> SnapshotRing {
        self.pieces = pieces.into();
        self
    }
    /// Whether no piece counts.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
    /// Forgets all pieces: none counts any more.
    pub fn forget(&mut self) {
        self.pieces.clear();
    }
    /// Returns the most items of a piece.
    pub fn items_max(&self) -> usize {
        let bytes = self.places.piece_blocks_max() as usize * self.places.block_bytes;
        (bytes - PieceHeader::bytes_with(0))
            / (PieceHeader::bytes_with(1) - PieceHeader::bytes_with(0))
    }
    /// Returns the first transaction from `tail` on that no piece records.
    pub fn end(&self, tail: TransactionId) -> TransactionId {
        self.pieces.back().map(|last| last.end).filter(|end| end.is_after(tail)).unwrap_or(tail)
    }

    /// Returns the pieces that record transactions from `tail` on.
    fn live(&self, tail: TransactionId) -> impl Iterator<Item = &SnapshotPiece> {
        self.pieces.iter().skip_while(move |piece| !piece.end.is_after(tail))
    }
    /// Whether the superblock names pieces that record nothing from `tail` on.
    pub fn has_passed_pieces(&self, tail: TransactionId) -> bool {
        self.pieces.len() > 1 && self.pieces.front().is_some_and(|piece| !piece.end.is_after(tail))
    }
    /// Makes a piece that records the transactions in `covered`, which begin with
    /// [`SnapshotRing::end`]. All up to `committed` are committed, and the piece records the
    /// present addresses of the runs. `None` if the ring has no space for it.
    pub fn begin_piece(
        &self,
        covered: Range<TransactionId>,
        committed: TransactionId,
        items: &[SnapshotItem],
    ) -> Option<NewPiece> {
        let Range { start: from, end } = covered;
        assert!(items.len() <= self.items_max(), "a piece of {} items", items.len());
        let blocks = self.places.blocks_of(items.len());
        let start = self.places.blocks.start;
        let at =
            self.pieces.back().map_or(start, |last| self.places.behind(last.at.plus(last.blocks)));
        let is_taken =
            |piece: &SnapshotPiece| at < piece.at.plus(piece.blocks) && piece.at < at.plus(blocks);
        if self.pieces.iter().any(is_taken) || !self.places.holds(at, blocks) {
            return None;
        }
        let number = self.next;
        let backlog = committed.next().0.wrapping_sub(end.0);
        let header = PieceHeader { number, from, end, items: items.len() as u32, backlog };
        let mut bytes = Buffer::zeroed(blocks as usize * self.places.block_bytes);
        let piece = header.serialize(items, self.places.seed);
        bytes[..piece.len()].copy_from_slice(&piece);
        let piece = SnapshotPiece { number, at, blocks, end };
        let at = LogBlock(at.get() * self.places.each);
        Some(NewPiece { piece, at, bytes: Rc::new(bytes) })
    }
    /// Returns what the superblock, whose tail is `tail`, is to name: with `piece`, or without a
    /// piece that is given up. `None` if nothing is left.
    pub fn name(
        &self,
        tail: TransactionId,
        piece: Option<&NewPiece>,
        read_from: TransactionId,
    ) -> Option<NamedSnapshot> {
        let last = piece.map(|new| &new.piece).or(self.pieces.back())?;
        let first = self.live(tail).next().unwrap_or(last);
        let (first, first_at) = (first.number, first.at);
        let read_from = if read_from.is_after(last.end) { last.end } else { read_from };
        let (last, end) = (last.number, last.end);
        // The caller adds what the log itself knows.
        let (longest, since) = (0, ActiveLogs::none());
        Some(NamedSnapshot { first, first_at, last, end, read_from, longest, since })
    }
    /// Records that the superblock on disk names `named`.
    pub fn counts(&mut self, named: &NamedSnapshot, piece: Option<NewPiece>) {
        if let Some(NewPiece { piece, .. }) = piece {
            self.next = piece.number.wrapping_add(1);
            self.pieces.push_back(piece);
        }
        while self.pieces.front().is_some_and(|piece| piece.number != named.first) {
            self.pieces.pop_front();
        }
    }
}

/// Plans what must be durable before a snapshot counts: `piece`, if it gets one, and the content
/// that it records as home.
pub fn plan_piece(piece: Option<&NewPiece>) -> Plan {
    let mut plan = Plan::default();
    if let Some(piece) = piece {
        plan.write(Address::Log(piece.at), vec![(BlockKind::Snapshot, piece.bytes.clone())]);
    }
    if !units::fault!("snapshot-named-early") {
        plan.barrier(Barrier::SnapshotBeforeSuperblock);
    }
    plan
}

/// Plans the write of the superblock that names the pieces that count, behind [`plan_piece`].
pub fn plan_snapshot_superblock(superblock: SuperblockImage) -> Plan {
    let mut plan = Plan::default();
    plan.steps.push(superblock.write());
    plan.barrier(Barrier::TailBeforeReuse);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BlockSize, HomeBlock};

    fn ring(blocks: u32) -> SnapshotRing {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), blocks, [9; 16]);
        superblock.set_scattered(5);
        SnapshotRing::new(&superblock)
    }
    fn id(number: u32) -> TransactionId {
        TransactionId((u32::MAX - 1).wrapping_add(number))
    }
    /// Records one more transaction in a piece of `items` items.
    fn record(ring: &mut SnapshotRing, tail: u32, items: usize) -> Option<NamedSnapshot> {
        let items = vec![SnapshotItem::Other { home: HomeBlock(1) }; items];
        let end = ring.end(id(tail)).next();
        let piece = ring.begin_piece(ring.end(id(tail))..end, end.previous(), &items)?;
        let named = ring.name(id(tail), Some(&piece), end).unwrap();
        ring.counts(&named, Some(piece));
        Some(named)
    }

    #[test]
    fn pieces_go_round_and_none_that_counts_is_written_over() {
        // Pieces of up to 8 blocks, of which 62 fit one behind the other.
        let mut ring = ring(65);
        assert_eq!(ring.items_max(), 8 * 64 - 2);
        for number in 0..7 {
            let named = record(&mut ring, 0, 510).unwrap();
            assert_eq!((named.first, named.first_at, named.last), (1, LogBlock(1), number + 1));
            assert_eq!(named.end, id(number + 1));
        }
        assert!(record(&mut ring, 0, 510).is_some(), "the eighth fits");
        assert_eq!(record(&mut ring, 0, 510), None, "the first still counts");
        // The tail has passed three: they are given up, which frees their blocks.
        assert_eq!(record(&mut ring, 3, 510), None);
        let named = ring.name(id(3), None, id(8)).unwrap();
        assert_eq!((named.first, named.last, named.end), (4, 8, id(8)));
        ring.counts(&named, None);
        let named = record(&mut ring, 3, 510).unwrap();
        assert_eq!((named.first, named.last), (4, 9));
        assert_eq!(ring.pieces.back().unwrap().at, LogBlock(1));
    }

    #[test]
    fn a_tail_beyond_all_pieces_starts_afresh() {
        let mut ring = ring(65);
        record(&mut ring, 0, 3).unwrap();
        assert_eq!((ring.end(id(0)), ring.end(id(5))), (id(1), id(5)));
        let named = record(&mut ring, 5, 3).unwrap();
        assert_eq!((named.first, named.last, ring.pieces.len()), (2, 2, 1));
    }
}
