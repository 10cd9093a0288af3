//! The content of a crashed host's log, file by file. Reads only.
//!
//! A slot whose record was revoked is at the store and is left out whole. What is left of a file:
//! its slots in order, the states it may have at the store, the bytes to bring there.
//!
//! A record format may log a block in parts, and leave out zeros. So the record of each transaction
//! is assembled from the ranges of its parts before it is parsed. Bytes of a slot without a record
//! in the same transaction are damage: nothing is replayed then.

use crate::error::HostError;
use crate::log_reader::LogReader;
use crate::record::{BLOCK, FileRecord, Slot};
use crate::superblock::HostJournal;
use format::jbd2::JournalSuperblock;
use journal::{Bounds, ReplayAction, ReplayPass, RevokePass, ScanPass};
use runtime::WalkPace;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::{FileId, Version};
use units::{BlockRange, HomeBlock, TransactionId};

/// Blocks that are visited before other tasks run.
const BLOCKS_AT_ONCE: usize = 256;

/// The work to recover one file.
#[derive(Clone, Debug)]
pub(crate) struct FileReplay {
    /// The state that the last slot builds on: the store had it.
    pub base: Version,
    /// The state that all slots build on, and every one reported since.
    pub states: Vec<Version>,
    /// The record in the last transaction.
    pub last: FileRecord,
    /// Blocks of the file in order, with the known bytes of each.
    pub blocks: BTreeMap<u64, BlockBytes>,
}

/// A block of which some bytes are known.
#[derive(Clone, Debug)]
pub(crate) struct BlockBytes {
    bytes: Vec<u8>,
    known: journal::RangeSet,
}

/// The whole log.
#[derive(Clone, Debug)]
pub(crate) struct LogContent {
    pub files: BTreeMap<FileId, FileReplay>,
    /// The id that the next transaction must have.
    pub next: TransactionId,
    pub transactions: u64,
    /// Slots that were freed already.
    pub slots_freed: u64,
}

/// A slot as it is assembled.
#[derive(Default)]
struct Gathered {
    records: Vec<FileRecord>,
    blocks: BTreeMap<u64, BlockBytes>,
}

/// Slots of one transaction, as they are read: the block of each slot's record.
struct OpenTransaction {
    id: TransactionId,
    records: BTreeMap<Slot, BlockBytes>,
    /// Slots of which the transaction has file data.
    with_data: BTreeSet<Slot>,
}

impl BlockBytes {
    fn zeroed() -> BlockBytes {
        BlockBytes { bytes: vec![0; BLOCK.bytes()], known: journal::RangeSet::new() }
    }
    fn put(&mut self, range: BlockRange, bytes: &[u8]) {
        self.bytes[range.as_usize()].copy_from_slice(bytes);
        self.known.insert(range);
    }
    /// Zeros the other bytes of the block.
    fn clear(&mut self) {
        self.bytes.fill(0);
        self.known.insert(BLOCK.whole());
    }
    /// Returns the known bytes from the first byte on.
    fn beginning(&self) -> &[u8] {
        let first = self.known.as_slice().first().filter(|range| range.start == 0);
        first.map_or(&[], |range| &self.bytes[range.as_usize()])
    }
}

impl OpenTransaction {
    fn new(id: TransactionId) -> OpenTransaction {
        OpenTransaction { id, records: BTreeMap::new(), with_data: BTreeSet::new() }
    }
    /// Ends the transaction: all of it has been read.
    fn end(self, slots: &mut BTreeMap<Slot, Gathered>) -> Result<(), DamagedSlot> {
        let damaged = |slot| DamagedSlot { slot, transaction: self.id };
        for slot in &self.with_data {
            if !self.records.contains_key(slot) && !units::fault!("host-bytes-without-record") {
                return Err(damaged(*slot));
            }
        }
        for (slot, block) in &self.records {
            let record = FileRecord::parse(block.beginning()).ok_or(damaged(*slot))?;
            let gathered = slots.entry(*slot).or_default();
            if gathered.records.first().is_some_and(|first| first.file != record.file) {
                return Err(damaged(*slot));
            }
            gathered.records.push(record);
        }
        Ok(())
    }
}

/// A slot whose records do not name its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DamagedSlot {
    slot: Slot,
    transaction: TransactionId,
}

impl FileReplay {
    pub fn bytes(&self) -> u64 {
        self.blocks.values().map(|block| block.known.bytes() as u64).sum()
    }

    /// Returns the runs of bytes to write, none longer than `most`, none beyond the file's end.
    pub fn runs(&self, most: u64) -> Vec<Range<u64>> {
        let size = self.last.states.last().map_or(0, |state| state.size);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (block, content) in &self.blocks {
            let start = block << BLOCK.shift();
            for range in content.known.as_slice() {
                let (at, end) = (start + u64::from(range.start), start + u64::from(range.end));
                let end = end.min(size);
                match runs.last_mut() {
                    _ if at >= end => {}
                    Some(run) if run.end == at && end - run.start <= most => run.end = end,
                    _ => runs.push(at..end),
                }
            }
        }
        runs
    }
    /// Returns the bytes of a run: only those of one are copied at once.
    pub fn bytes_of(&self, run: &Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((run.end - run.start) as usize);
        for (block, content) in self.blocks.range(run.start >> BLOCK.shift()..) {
            let start = block << BLOCK.shift();
            if start >= run.end {
                break;
            }
            let (from, to) = (run.start.max(start) - start, run.end - start);
            let to = to.min(BLOCK.bytes() as u64);
            bytes.extend_from_slice(&content.bytes[from as usize..to as usize]);
        }
        bytes
    }
}

/// Accepts every address as a slot's. Its numbers are checked when they are used.
struct AnySlot;
impl Bounds for AnySlot {
    fn refuses(&self, _home: HomeBlock) -> Option<&'static str> {
        None
    }
}

impl LogContent {
    /// Reads the log, and trusts only what its checksums cover. Memory is bounded by the length of
    /// the log.
    pub async fn read(
        journal: &HostJournal,
        superblock: &JournalSuperblock,
    ) -> Result<LogContent, HostError> {
        let mut reader = LogReader::new(journal, superblock);
        let mut scan = ScanPass::new(superblock)?;
        reader.feed(&mut scan).await?;
        let scanned = scan.finish();
        let mut revoke = RevokePass::new(&scanned);
        reader.feed(&mut revoke).await?;
        let revokes = revoke.finish();
        let slots_freed = revokes.len() as u64;

        let freed = revokes.clone();
        let mut replay = ReplayPass::new(&scanned, revokes, AnySlot);
        let mut slots: BTreeMap<Slot, Gathered> = BTreeMap::new();
        let mut open: Option<OpenTransaction> = None;
        let mut transactions = 0;
        let damaged = |DamagedSlot { slot, transaction }| HostError::DamagedSlot {
            journal: journal.disk.name().into(),
            slot: slot.0,
            transaction: transaction.0,
        };
        while let Some(at) = journal::Pass::wants(&replay) {
            journal::Pass::give(&mut replay, reader.read(at).await?)?;
            transactions = journal::Pass::counts(&replay).transactions;
            for record in replay.take_records() {
                if open.as_ref().is_none_or(|open| open.id != record.by) {
                    let next = OpenTransaction::new(record.by);
                    open.replace(next)
                        .map_or(Ok(()), |one| one.end(&mut slots))
                        .map_err(damaged)?;
                }
                // The revoke of a freed slot hides its record but not its data.
                if !freed.hides(Slot::of(record.action.home()).0.record_at(), record.by) {
                    let open = open.as_mut().expect("a transaction has just been begun");
                    gather(&mut slots, open, record.action);
                }
            }
        }
        open.map_or(Ok(()), |one| one.end(&mut slots)).map_err(damaged)?;
        let mut files: BTreeMap<FileId, FileReplay> = BTreeMap::new();
        let mut pace = WalkPace::new(BLOCKS_AT_ONCE);
        // In the order in which the slots were begun.
        for gathered in slots.into_values() {
            pace.visited(gathered.blocks.len() + 1).await;
            add_slot(&mut files, gathered);
        }
        Ok(LogContent { files, next: scanned.next, transactions, slots_freed })
    }
}

fn gather(slots: &mut BTreeMap<Slot, Gathered>, open: &mut OpenTransaction, action: ReplayAction) {
    let (home, range, bytes, base_zero) = match action {
        ReplayAction::WriteWhole { home, bytes } => (home, BLOCK.whole(), bytes, false),
        ReplayAction::Merge { home, range, bytes, base_zero } => (home, range, bytes, base_zero),
    };
    let (slot, block) = Slot::of(home);
    let content = match block {
        Some(block) => {
            open.with_data.insert(slot);
            let blocks = &mut slots.entry(slot).or_default().blocks;
            blocks.entry(block).or_insert_with(BlockBytes::zeroed)
        }
        None => open.records.entry(slot).or_insert_with(BlockBytes::zeroed),
    };
    if base_zero && block.is_none() && !units::fault!("host-record-parts-alone") {
        content.clear();
    }
    content.put(range, &bytes);
}

/// Adds a slot to its file. Each transaction with anything of the slot had a record of it.
fn add_slot(files: &mut BTreeMap<FileId, FileReplay>, gathered: Gathered) {
    let (Some(first), Some(last)) = (gathered.records.first(), gathered.records.last()) else {
        return;
    };
    let states = gathered.records.iter().flat_map(|record| record.states.iter().copied());
    let states: Vec<Version> = states.collect();
    match files.entry(last.file) {
        std::collections::btree_map::Entry::Vacant(place) => {
            let states = [vec![first.base], states].concat();
            place.insert(FileReplay {
                base: first.base,
                states,
                last: last.clone(),
                blocks: gathered.blocks,
            });
        }
        std::collections::btree_map::Entry::Occupied(mut found) => {
            let file = found.get_mut();
            file.base = first.base;
            file.states.extend(states);
            file.last = last.clone();
            for (block, newer) in gathered.blocks {
                let content = file.blocks.entry(block).or_insert_with(BlockBytes::zeroed);
                for range in newer.known.as_slice() {
                    content.put(*range, &newer.bytes[range.as_usize()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{SplitMix, Timestamp};

    fn record(version: Version) -> FileRecord {
        FileRecord {
            file: FileId(7),
            base: version,
            states: vec![version],
            is_removed: false,
            mode: 0o644,
            uid: 0,
            gid: 0,
            blocks: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
        }
    }

    /// Runs hold every known byte of the file once, and none is longer than asked for.
    #[test]
    fn runs_are_what_is_known_of_a_file() {
        for seed in 0..300 {
            let random = SplitMix::new(seed);
            let roll = |sides: u64| random.below(sides) as u32;
            let mut blocks: BTreeMap<u64, BlockBytes> = BTreeMap::new();
            let mut known: BTreeMap<u64, u8> = BTreeMap::new();
            for _ in 0..roll(12) {
                let (block, byte) = (u64::from(roll(5)), 1 + roll(255) as u8);
                let start = roll(4) * 1024;
                let range =
                    BlockRange::new(start, start + 1024 * (1 + roll(4 - u64::from(start / 1024))));
                let bytes = vec![byte; range.len()];
                blocks.entry(block).or_insert_with(BlockBytes::zeroed).put(range, &bytes);
                let at = (block << BLOCK.shift()) + u64::from(range.start);
                known.extend((at..).zip(bytes));
            }
            let size = u64::from(roll(24 << 10));
            known.retain(|at, _| *at < size);
            let version = Version { number: 1, ctime_ns: 1, size };
            let last = record(version);
            let replay = FileReplay { base: version, states: Vec::new(), last, blocks };
            let most = 1024 * (1 + u64::from(roll(8)));
            let runs = replay.runs(most);
            assert!(runs.iter().all(|run| run.end - run.start <= most.max(BLOCK.bytes() as u64)));
            assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start), "seed {seed}");
            let found = runs.iter().flat_map(|run| (run.start..run.end).zip(replay.bytes_of(run)));
            assert!(found.eq(known), "seed {seed}");
        }
    }
}
