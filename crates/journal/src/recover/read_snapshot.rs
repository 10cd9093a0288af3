//! Reads from a snapshot of the mapping table what it records of the log ([`format::snapshot`]),
//! instead of the log itself.
//!
//! 1. All pieces that the superblock names are whole, and cover transactions without a gap, or none
//!    of them counts.
//! 2. Only entries that a search could have found count: runs in announced logs, one behind the
//!    other; blocks that records may name.
//! 3. Of each block the newest record counts that no later revoke hides, as in a replay.
//! 4. No more blocks are kept than the caller has memory for.

use super::Bounds;
use crate::log_space::{LogRun, Logs};
use crate::snapshot::{SnapshotPiece, SnapshotPlaces};
use format::jbd2::JournalSuperblock;
use format::scattered::{ActiveLogs, NamedSnapshot};
use format::snapshot::{PieceHeader, SnapshotItem};
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// Reason why a snapshot is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotRefused {
    #[error("none counts")]
    NoneCounts,
    #[error("its piece {0} is lost, damaged or another's")]
    Piece(u32),
    #[error("it does not record {0}")]
    Missing(TransactionId),
    #[error("it records of {0} what is impossible")]
    Impossible(TransactionId),
    #[error("it records more blocks than there is memory for")]
    TooMany,
    #[error("it records another place of {0} than the logs do")]
    Elsewhere(TransactionId),
}

/// A run that a snapshot records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SnapshotRun {
    pub transaction: TransactionId,
    pub run: LogRun,
    /// The newest transaction committed when the snapshot recorded this place. A copy with a later
    /// durable floor was made afterwards, any other was left behind before.
    pub durable: TransactionId,
}

/// The newest record of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotBlock {
    pub by: TransactionId,
    /// The block whole in its run; `None`: home has it.
    pub whole: Option<SnapshotBlockLocation>,
}

/// A block that lies whole in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotBlockLocation {
    /// Bytes from the run's start.
    pub offset: u32,
    pub sum: u32,
    pub durable_only: bool,
}

/// Content of a snapshot from the tail on.
#[derive(Clone, Debug)]
pub struct SnapshotContents {
    tail: TransactionId,
    /// Runs from the tail on, without a gap.
    runs: Vec<SnapshotRun>,
    blocks: BTreeMap<HomeBlock, SnapshotBlock>,
    pieces: Vec<SnapshotPiece>,
    /// The first transaction not covered, and the first that is read from the log.
    end: TransactionId,
    read_from: TransactionId,
}

impl SnapshotContents {
    pub(super) fn runs_from(&self, first: TransactionId) -> impl Iterator<Item = &SnapshotRun> {
        self.runs.iter().filter(move |run| run.transaction.is_at_or_after(first))
    }
    /// Checks that all recorded runs, from the tail on, were found at their recorded places.
    /// `found`: from the tail on. A run elsewhere frees the place that the snapshot names, so the
    /// next search would not look there.
    pub fn check_found(&self, found: &[LogRun]) -> Result<(), SnapshotRefused> {
        if found.len() < self.end.0.wrapping_sub(self.tail.0) as usize {
            return Err(SnapshotRefused::Missing(self.end));
        }
        let is_believed =
            units::fault!("swap-counts-early") || units::fault!("snapshot-kept-in-swap");
        let elsewhere =
            self.runs.iter().zip(found).find(|(recorded, found)| recorded.run != **found);
        match elsewhere.filter(|_| !is_believed) {
            Some((recorded, _)) => Err(SnapshotRefused::Elsewhere(recorded.transaction)),
            None => Ok(()),
        }
    }
    /// Returns the blocks that transactions before [`SnapshotContents::read_from`] hold and home
    /// may lack.
    pub fn blocks(&self) -> &BTreeMap<HomeBlock, SnapshotBlock> {
        &self.blocks
    }
    pub fn pieces(&self) -> &[SnapshotPiece] {
        &self.pieces
    }
    pub fn end(&self) -> TransactionId {
        self.end
    }
    pub fn read_from(&self) -> TransactionId {
        self.read_from
    }
}

#[derive(Debug)]
pub struct ReadSnapshot {
    places: SnapshotPlaces,
    logs: Rc<Logs>,
    active: ActiveLogs,
    moving: Option<LogBlock>,
    named: NamedSnapshot,
    /// Maximum number of blocks that are kept.
    most: usize,
    /// The piece being read: its number, where it begins, and what was read of it.
    number: u32,
    begin: LogBlock,
    bytes: Vec<u8>,
    /// Number of its blocks, once its header is read.
    blocks: Option<u32>,
    is_over: bool,
    /// The transaction with which the next piece, or the next run of this one, must begin.
    next: Option<TransactionId>,
    contents: SnapshotContents,
}

impl ReadSnapshot {
    /// Creates the reader. `most`: number of blocks that fit in memory.
    pub fn new(
        superblock: &JournalSuperblock,
        logs: Rc<Logs>,
        most: usize,
    ) -> Result<ReadSnapshot, SnapshotRefused> {
        let (Some(named), Some(scattered)) = (superblock.named_snapshot(), &superblock.scattered)
        else {
            return Err(SnapshotRefused::NoneCounts);
        };
        let (tail, named) = (superblock.sequence, named.clone());
        let is_later = |later: TransactionId, earlier: TransactionId| later.is_at_or_after(earlier);
        if !is_later(named.end, named.read_from) {
            return Err(SnapshotRefused::Impossible(named.read_from));
        }
        let clamp = |transaction: TransactionId| {
            if is_later(transaction, tail) { transaction } else { tail }
        };
        Ok(ReadSnapshot {
            places: SnapshotPlaces::of(superblock),
            logs,
            active: scattered.active.clone(),
            moving: scattered.moving,
            most,
            number: named.first,
            begin: named.first_at,
            bytes: Vec::new(),
            blocks: None,
            is_over: false,
            next: None,
            contents: SnapshotContents {
                tail,
                runs: Vec::new(),
                blocks: BTreeMap::new(),
                pieces: Vec::new(),
                end: clamp(named.end),
                read_from: clamp(named.read_from),
            },
            named,
        })
    }

    /// Returns the log block to read next.
    pub fn wants(&self) -> Option<LogBlock> {
        let read =
            (self.bytes.len() / (self.places.block_bytes / self.places.each as usize)) as u32;
        let at = || LogBlock(self.begin.get() * self.places.each + read);
        let is_inside = || self.places.holds(self.begin, self.blocks.unwrap_or(1));
        (!self.is_over && is_inside()).then(at)
    }

    /// Takes `block`, the bytes of the wanted log block.
    pub fn give(&mut self, block: &[u8]) -> Result<(), SnapshotRefused> {
        self.bytes.extend_from_slice(block);
        let refused = SnapshotRefused::Piece(self.number);
        let Some(blocks) = self.blocks else {
            let header =
                PieceHeader::parse(&self.bytes, self.number, self.places.seed).ok_or(refused)?;
            let blocks = self.places.blocks_of(usize::try_from(header.items).map_err(|_| refused)?);
            if blocks > self.places.piece_blocks_max() || !self.places.holds(self.begin, blocks) {
                return Err(refused);
            }
            self.blocks = Some(blocks);
            return self.end_piece(blocks);
        };
        self.end_piece(blocks)
    }

    /// Ends the piece if all of it was read.
    fn end_piece(&mut self, blocks: u32) -> Result<(), SnapshotRefused> {
        if self.bytes.len() < blocks as usize * self.places.block_bytes {
            return Ok(());
        }
        let (number, refused) = (self.number, SnapshotRefused::Piece(self.number));
        let header = PieceHeader::parse(&self.bytes, number, self.places.seed).ok_or(refused)?;
        let items = header.items(&self.bytes, self.places.seed).ok_or(refused)?;
        self.take(&header, items)?;
        let (at, end) = (self.begin, header.end);
        self.contents.pieces.push(SnapshotPiece { number, at, blocks, end });
        self.is_over = number == self.named.last;
        (self.begin, self.blocks) = (self.places.behind(at.plus(blocks)), None);
        self.number = number.wrapping_add(1);
        self.bytes.clear();
        Ok(())
    }

    fn take(
        &mut self,
        header: &PieceHeader,
        items: Vec<SnapshotItem>,
    ) -> Result<(), SnapshotRefused> {
        let next = *self.next.get_or_insert(header.from);
        if next != header.from || !header.end.is_at_or_after(header.from) {
            return Err(SnapshotRefused::Missing(next));
        }
        let durable = match units::fault!("snapshot-floor-from-end") {
            true => header.end.previous().previous(),
            false => header.committed(),
        };
        for item in items {
            self.take_item(item, durable)?;
        }
        match self.next {
            Some(next) if next != header.end => Err(SnapshotRefused::Missing(next)),
            _ => Ok(()),
        }
    }

    fn take_item(
        &mut self,
        item: SnapshotItem,
        durable: TransactionId,
    ) -> Result<(), SnapshotRefused> {
        let next = self.next.expect("a piece was begun");
        let impossible = SnapshotRefused::Impossible(next);
        let tail = self.contents.tail;
        match item {
            SnapshotItem::Run { transaction, start, blocks } => {
                if transaction != next {
                    return Err(SnapshotRefused::Missing(next));
                }
                self.next = Some(next.next());
                if transaction.is_at_or_after(tail) {
                    if self.contents.runs.is_empty() && transaction != tail {
                        return Err(SnapshotRefused::Missing(tail));
                    }
                    let run = LogRun { start, count: blocks };
                    self.contents.runs.push(SnapshotRun { transaction, run, durable });
                }
            }
            SnapshotItem::Moved { transaction, start } => {
                let index = transaction.0.wrapping_sub(tail.0) as usize;
                if let Some(run) = self.contents.runs.get_mut(index) {
                    (run.run.start, run.durable) = (start, durable);
                } else if transaction.is_at_or_after(tail) {
                    return Err(impossible);
                }
            }
            SnapshotItem::Whole { home, durable_only, offset, sum } => {
                self.take_record(home, Some(SnapshotBlockLocation { offset, sum, durable_only }))?;
            }
            SnapshotItem::Other { home } => self.take_record(home, None)?,
            SnapshotItem::Revoke { home } => {
                self.contents.blocks.remove(&home);
            }
        }
        Ok(())
    }

    /// Adds a record of the transaction whose run was recorded last.
    fn take_record(
        &mut self,
        home: HomeBlock,
        whole: Option<SnapshotBlockLocation>,
    ) -> Result<(), SnapshotRefused> {
        let by = self.next.expect("a piece was begun").previous();
        let is_read = by.is_at_or_after(self.contents.read_from);
        if !by.is_at_or_after(self.contents.tail) || is_read {
            return Ok(());
        }
        self.contents.blocks.insert(home, SnapshotBlock { by, whole });
        if self.contents.blocks.len() > self.most { Err(SnapshotRefused::TooMany) } else { Ok(()) }
    }

    pub fn finish(self, bounds: &dyn Bounds) -> Result<SnapshotContents, SnapshotRefused> {
        if !self.is_over {
            return Err(SnapshotRefused::Piece(self.number));
        }
        let named_end = self.named.end;
        if self.next != Some(named_end) {
            return Err(SnapshotRefused::Missing(named_end));
        }
        self.check_places()?;
        for (home, block) in &self.contents.blocks {
            if bounds.refuses(*home).is_some() || !self.lies_in_run(block) {
                return Err(SnapshotRefused::Impossible(block.by));
            }
        }
        Ok(self.contents)
    }

    fn lies_in_run(&self, block: &SnapshotBlock) -> bool {
        let Some(whole) = block.whole else { return true };
        let index = block.by.0.wrapping_sub(self.contents.tail.0) as usize;
        let unit = (self.places.block_bytes / self.places.each as usize) as u64;
        let end = u64::from(whole.offset) + self.places.block_bytes as u64;
        self.contents.runs.get(index).is_some_and(|run| end <= u64::from(run.run.count) * unit)
    }

    /// Checks that every run lies in a log that recovery would look at, behind those of earlier
    /// transactions.
    fn check_places(&self) -> Result<(), SnapshotRefused> {
        let active: Vec<u32> = self.logs.active(&self.active).collect();
        let mut ends: BTreeMap<u32, LogBlock> = BTreeMap::new();
        for SnapshotRun { transaction, run, .. } in &self.contents.runs {
            let refused = SnapshotRefused::Impossible(*transaction);
            let log = self.logs.holding(run.start).filter(|log| active.binary_search(log).is_ok());
            let log = log.ok_or(refused)?;
            // A header precedes each.
            let behind = ends.get(&log).copied().unwrap_or(self.logs.start(log));
            let left = self.logs.counted_end(log, self.moving).get().checked_sub(run.start.get());
            let fits = left.is_some_and(|left| run.count <= left);
            if run.start <= behind || run.count == 0 || !fits {
                return Err(refused);
            }
            ends.insert(log, run.start.plus(run.count));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::HomeBounds;
    use super::*;
    use crate::log_space::ScatteredLogMap;
    use crate::plan::{Address, Step};
    use crate::snapshot::{SnapshotRing, plan_piece};
    use units::BlockSize;

    const FIRST: u32 = u32::MAX - 1;
    const TAIL: TransactionId = TransactionId(FIRST);

    fn id(number: u32) -> TransactionId {
        TransactionId(FIRST.wrapping_add(number))
    }
    fn run(number: u32, start: u32) -> SnapshotItem {
        SnapshotItem::Run { transaction: id(number), start: LogBlock(start), blocks: 4 }
    }
    fn whole(home: u64, sum: u32) -> SnapshotItem {
        SnapshotItem::Whole { home: HomeBlock(home), durable_only: false, offset: 1024, sum }
    }

    /// Four logs of 32 blocks behind a journal of 64, all announced, and that journal's blocks.
    struct Written {
        superblock: JournalSuperblock,
        ring: SnapshotRing,
        blocks: Vec<Vec<u8>>,
    }

    impl Written {
        fn new() -> Written {
            let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
            superblock.set_scattered(5);
            superblock.sequence = TAIL;
            let scattered = superblock.scattered.as_mut().unwrap();
            (0..4).for_each(|log| scattered.active.set(log));
            let ring = SnapshotRing::new(&superblock);
            Written { superblock, ring, blocks: vec![vec![0; 1024]; 64] }
        }
        /// Adds a piece that covers all transactions before `end`.
        fn piece(self, end: u32, items: &[SnapshotItem]) -> Written {
            self.piece_late(end, end.wrapping_sub(1), items)
        }
        /// Adds a piece, written when `committed` was committed.
        fn piece_late(mut self, end: u32, committed: u32, items: &[SnapshotItem]) -> Written {
            let piece =
                self.ring.begin_piece(self.ring.end(TAIL)..id(end), id(committed), items).unwrap();
            for step in plan_piece(Some(&piece)).steps {
                if let Step::Write(write) = step {
                    if let Address::Log(at) = write.at {
                        let (_, bytes) = &write.blocks[0];
                        let blocks = self.blocks[at.get() as usize..].iter_mut();
                        blocks
                            .zip(bytes.chunks(1024))
                            .for_each(|(block, bytes)| block.copy_from_slice(bytes));
                    }
                }
            }
            let named = self.ring.name(TAIL, Some(&piece), id(end)).unwrap();
            self.ring.counts(&named, Some(piece));
            self.superblock.name_snapshot(Some(named));
            self
        }
        fn of_two() -> Written {
            Written::new()
                .piece(2, &[run(0, 65), whole(7, 1), whole(8, 2), run(1, 97), whole(7, 3)])
                .piece(3, &[run(2, 70), SnapshotItem::Revoke { home: HomeBlock(8) }, whole(9, 4)])
        }
        fn read(&self, most: usize) -> Result<SnapshotContents, SnapshotRefused> {
            let homes = (0..4).map(|log| HomeBlock(100 * log)).collect();
            let places = ScatteredLogMap { first: LogBlock(64), blocks: 32, homes };
            let logs = Rc::new(places.in_units(1).unwrap());
            let mut pieces = ReadSnapshot::new(&self.superblock, logs, most)?;
            while let Some(at) = pieces.wants() {
                pieces.give(&self.blocks[at.get() as usize])?;
            }
            pieces.finish(&HomeBounds {
                blocks: 50,
                forbidden: [(20, 30)].map(|(from, end)| from..end).to_vec(),
            })
        }
        fn refuses(self, refused: SnapshotRefused) {
            assert_eq!(self.read(10).unwrap_err(), refused);
        }
    }

    #[test]
    fn the_newest_record_that_no_revoke_hides_counts() {
        let contents = Written::of_two().read(10).unwrap();
        let known = |by, sum| {
            let whole = SnapshotBlockLocation { offset: 1024, sum, durable_only: false };
            SnapshotBlock { by: id(by), whole: Some(whole) }
        };
        let expected = [(HomeBlock(7), known(1, 3)), (HomeBlock(9), known(2, 4))];
        assert_eq!(
            contents.blocks().iter().map(|(home, block)| (*home, *block)).collect::<Vec<_>>(),
            expected
        );
        assert_eq!((contents.end(), contents.pieces().len(), contents.runs.len()), (id(3), 2, 3));
    }

    #[test]
    fn snapshot_omits_records_before_tail_or_read_anyway() {
        let mut written = Written::of_two();
        written.superblock.sequence = id(1);
        let mut named = written.superblock.named_snapshot().cloned().unwrap();
        named.read_from = id(2);
        written.superblock.name_snapshot(Some(named));
        let read = written.read(10).unwrap();
        assert_eq!(read.blocks().keys().copied().collect::<Vec<_>>(), [HomeBlock(7)]);
        assert_eq!((read.runs.len(), read.read_from()), (2, id(2)));
    }

    #[test]
    fn a_moved_run_lies_where_it_was_recorded_last() {
        let moved = SnapshotItem::Moved { transaction: id(0), start: LogBlock(130) };
        let contents = Written::of_two().piece(3, &[moved]).read(10).unwrap();
        assert_eq!(contents.runs[0].run.start, LogBlock(130));
        assert_eq!([0, 1].map(|at| contents.runs[at].durable), [id(2), id(1)]);
    }

    #[test]
    fn a_piece_with_a_backlog_outranks_copies_left_behind_before() {
        let contents = Written::new().piece_late(1, 9, &[run(0, 65)]).read(10).unwrap();
        assert_eq!(contents.runs[0].durable, id(9));
        let found = [65, 97].map(|start| LogRun { start: LogBlock(start), count: 4 });
        assert_eq!(contents.check_found(&found), Ok(()));
        assert_eq!(contents.check_found(&found[1..]), Err(SnapshotRefused::Elsewhere(id(0))));
        assert_eq!(contents.check_found(&[]), Err(SnapshotRefused::Missing(id(1))));
    }

    #[test]
    fn a_snapshot_that_records_the_impossible_is_refused() {
        let first = SnapshotRefused::Impossible(id(0));
        for start in [0, 64, 64 + 4 * 32, 93] {
            Written::new().piece(1, &[run(0, start)]).refuses(first);
        }
        Written::new()
            .piece(2, &[run(0, 70), run(1, 65)])
            .refuses(SnapshotRefused::Impossible(id(1)));
        for home in [25, 50] {
            Written::new().piece(1, &[run(0, 65), whole(home, 1)]).refuses(first);
        }
        let long =
            SnapshotItem::Whole { home: HomeBlock(1), durable_only: false, offset: 3073, sum: 0 };
        Written::new().piece(1, &[run(0, 65), long]).refuses(first);
        let moved = SnapshotItem::Moved { transaction: id(4), start: LogBlock(65) };
        Written::new().piece(1, &[run(0, 65), moved]).refuses(SnapshotRefused::Impossible(id(1)));
        let mut unannounced = Written::of_two();
        unannounced.superblock.scattered.as_mut().unwrap().active = ActiveLogs::none();
        unannounced.refuses(first);
    }

    #[test]
    fn a_snapshot_with_a_gap_is_refused() {
        Written::new().piece(2, &[run(0, 65)]).refuses(SnapshotRefused::Missing(id(1)));
        Written::new().piece(2, &[run(0, 65), run(2, 97)]).refuses(SnapshotRefused::Missing(id(1)));
        let mut late = Written::of_two();
        late.superblock.sequence = TransactionId(FIRST - 1);
        late.refuses(SnapshotRefused::Missing(TransactionId(FIRST - 1)));
        let mut longer = Written::of_two();
        let mut named = longer.superblock.named_snapshot().cloned().unwrap();
        named.end = id(4);
        longer.superblock.name_snapshot(Some(named));
        longer.refuses(SnapshotRefused::Missing(id(4)));
    }

    #[test]
    fn a_piece_that_is_not_the_named_one_is_refused() {
        let mut swapped = Written::of_two();
        swapped.blocks.swap(1, 2);
        swapped.refuses(SnapshotRefused::Piece(1));
        let mut named = Written::of_two();
        let mut other = named.superblock.named_snapshot().cloned().unwrap();
        other.first_at = LogBlock(u32::MAX);
        named.superblock.name_snapshot(Some(other));
        named.refuses(SnapshotRefused::Piece(1));
        assert_eq!(Written::of_two().read(1).unwrap_err(), SnapshotRefused::TooMany);
        Written::new().refuses(SnapshotRefused::NoneCounts);
    }
}
