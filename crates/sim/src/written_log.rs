//! Transactions as they were written to the log. One of which a sector differs from what was
//! written must not be replayed, whatever its checksums say.
//!
//! 1. The written content is what recovery reads when all writes are there, those in flight
//!    included.
//! 2. Before a transaction counts as gone from the log, nothing newer is written in its place. So
//!    the written content stays known.
//! 3. In place of lost sectors an earlier wrap of the log may have left any older content. An older
//!    version of the same block is the worst, since a CRC may be blind to that.

use crate::bytes_read::BytesRead;
use crate::case::Case;
use crate::crash::{CutContent, Snapshot, State};
use crate::memory_disks::MemoryDisks;
use crate::setup::Disks;
use disks::Image;
use engine::PreviewedTransaction;
use format::jbd2::Seed;
use runtime::{SplitMix, VirtualWorld};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use units::{HomeBlock, TransactionId};

const SECTOR: usize = 512;
/// Number of last transactions that can have lost anything.
const LAST: usize = 3;

/// Number of states of the disks whose replay preview is cached: more than one cut leaves.
const KNOWN: usize = 16;

pub struct WrittenLog<'a> {
    case: &'a Case,
    at_cuts: &'a [CutContent],
    /// Number of cuts for which the written content is known.
    learnt: usize,
    /// The first transaction that was there when cuts began.
    first: Option<TransactionId>,
    sums: BTreeMap<u32, u64>,
    /// The log at the last of these cuts.
    log: Rc<Believed>,
    /// Cached previews, the most recently used first.
    known: VecDeque<Rc<Believed>>,
}

impl<'a> WrittenLog<'a> {
    pub fn new(case: &'a Case, at_cuts: &'a [CutContent]) -> WrittenLog<'a> {
        let (sums, log, known) = <_>::default();
        WrittenLog { case, at_cuts, learnt: 0, first: None, sums, log, known }
    }

    /// Checks that recovery would replay, from the disks that a cut has left, what had been written
    /// by then.
    pub fn check(&mut self, cut: u64, left: &Disks) -> Result<(), String> {
        self.learn(cut)?;
        for (id, found) in &self.believed(left).sums {
            match self.sums.get(&id.0) {
                Some(sum) if sum == found => {}
                Some(_) => return Err(format!("{id} is replayed, and is not what was written")),
                // The transaction came and went between two cuts, or before the first.
                None if self.case.changes_a_cut() > 1 => {}
                None if self.first.is_none_or(|first| !id.is_after(first)) => {}
                None => return Err(format!("{id} is replayed, and nobody wrote it")),
            }
        }
        Ok(())
    }

    /// Returns all content written up to the cut, except for sectors of one block in the log. These
    /// have an older version of that block, as if an earlier wrap of the log had left it.
    pub fn stale(&mut self, snapshot: &Snapshot) -> Result<Option<Snapshot>, String> {
        let cut = snapshot.cut;
        self.learn(cut)?;
        let (at_cut, rng) =
            (&self.at_cuts[cut as usize], SplitMix::new(self.case.seed ^ cut << 32));
        let last = self.log.transactions.iter().rev().take(LAST);
        let mut candidates: Vec<_> =
            last.flat_map(|found| overwritten_blocks(found, at_cut)).collect();
        candidates.sort_by_cached_key(|block| (!block.is_blind, rng.next()));
        let lost = candidates.iter().map(|block| (block.home, block.lost_sectors(at_cut)));
        let Some((home, mut sectors)) = lost.into_iter().find(|(_, sectors)| !sectors.is_empty())
        else {
            return Ok(None);
        };
        if rng.below(4) == 0 {
            sectors = vec![sectors.swap_remove(rng.below(sectors.len() as u64) as usize)];
        }
        let mut disks = at_cut.written.clone();
        let count = sectors.len();
        for (at, bytes) in &sectors {
            log_disk_mut(&mut disks).write(*at, bytes);
        }
        let left = format!("all but {count} sectors of {home} in the log, which are older");
        Ok(Some(Snapshot {
            at_superblock: false,
            cut,
            left,
            state: State::Cut(disks),
            progress: snapshot.progress.clone(),
        }))
    }

    fn learn(&mut self, cut: u64) -> Result<(), String> {
        while self.learnt as u64 <= cut {
            self.log = self.believed(&self.at_cuts[self.learnt].written);
            self.learnt += 1;
            for (id, found) in &self.log.sums {
                self.first.get_or_insert(*id);
                if self.sums.entry(id.0).or_insert(*found) != found {
                    return Err(format!("{id} was written over while it was in the log"));
                }
            }
        }
        Ok(())
    }

    /// Returns what recovery believes of the log, which most cuts leave unchanged.
    fn believed(&mut self, disks: &Disks) -> Rc<Believed> {
        let known = self.known.iter().position(|known| known.read.are_of(disks));
        let believed = match known.and_then(|index| self.known.remove(index)) {
            Some(known) => known,
            None => Rc::new(Believed::of(self.case, disks)),
        };
        self.known.truncate(KNOWN - 1);
        self.known.push_front(believed.clone());
        believed
    }
}

/// Transactions that recovery would replay. They follow from the bytes that it read.
#[derive(Default)]
struct Believed {
    transactions: Vec<PreviewedTransaction>,
    sums: Vec<(TransactionId, u64)>,
    read: BytesRead,
}

impl Believed {
    fn of(case: &Case, disks: &Disks) -> Believed {
        let world = VirtualWorld::new(case.seed);
        let memory = MemoryDisks::of(&world, disks, case);
        BytesRead::record(&memory);
        let parts = memory.parts(&world, case);
        // The judge will report its faults.
        let transactions =
            world.run(async move { ext4::replay_preview(&parts).await }).unwrap_or_default();
        world.end();
        let read = BytesRead::of(disks, &memory);
        let sums = transactions.iter().map(|found| (found.id, sum_of(found))).collect();
        Believed { transactions, sums, read }
    }
}

/// A block that the log holds whole, with an older version at home.
struct OverwrittenBlock<'a> {
    found: &'a PreviewedTransaction,
    home: HomeBlock,
    bytes: &'a [u8],
    older: Vec<u8>,
    /// Whether a CRC-32C is the same for both versions.
    is_blind: bool,
}

/// Returns the overwritten blocks of a transaction, if a cut may lose any of it. Most cuts come
/// when the log is unchanged.
fn overwritten_blocks<'a>(
    found: &'a PreviewedTransaction,
    at_cut: &CutContent,
) -> Vec<OverwrittenBlock<'a>> {
    if !found.blocks.iter().any(|block| is_volatile(at_cut, block.at, block.bytes.len())) {
        return Vec::new();
    }
    let overwritten = |(home, bytes): &'a (HomeBlock, Vec<u8>)| {
        let older = at_cut.written.home.copy(home.get() * bytes.len() as u64, bytes.len()).to_vec();
        let is_blind = Seed(!0).with(&older) == Seed(!0).with(bytes);
        (older != *bytes).then_some(OverwrittenBlock { found, home: *home, bytes, older, is_blind })
    };
    found.whole.iter().filter_map(overwritten).collect()
}

impl OverwrittenBlock<'_> {
    /// Returns the older content of those of its sectors in the log that a cut may lose.
    fn lost_sectors(&self, at_cut: &CutContent) -> Vec<(u64, Vec<u8>)> {
        let Some(begin) = self.begin() else { return Vec::new() };
        let blocks = &self.found.blocks;
        let unit = blocks[0].bytes.len();
        let whole = (begin.next_multiple_of(SECTOR)..).step_by(SECTOR);
        let whole = whole.take_while(|offset| offset + SECTOR <= begin + self.bytes.len());
        whole
            .map(|offset| (blocks[offset / unit].at + (offset % unit) as u64, offset - begin))
            .map(|(at, within)| (at, self.older[within..within + SECTOR].to_vec()))
            .filter(|(at, old)| {
                is_volatile(at_cut, *at, SECTOR)
                    && log_disk(&at_cut.written).copy(*at, SECTOR)[..] != *old
            })
            .collect()
    }

    /// Returns where its bytes begin among the log blocks of its transaction.
    fn begin(&self) -> Option<usize> {
        let (blocks, bytes) = (&self.found.blocks, self.bytes);
        if let Some(index) = blocks.iter().position(|block| block.bytes == bytes) {
            return Some(index * bytes.len());
        }
        let log: Vec<&[u8]> = blocks.iter().map(|block| &block.bytes[..]).collect();
        log.concat()
            .windows(bytes.len())
            .position(|window| window[0] == bytes[0] && window == bytes)
    }
}

/// Whether a cut may lose some of these bytes of the log's disk.
fn is_volatile(at_cut: &CutContent, at: u64, bytes: usize) -> bool {
    let [durable, written] = [&at_cut.durable, &at_cut.written].map(log_disk);
    !durable.is_equal_in(written, at..at + bytes as u64)
}
fn log_disk(disks: &Disks) -> &Image {
    disks.journal.as_ref().unwrap_or(&disks.home)
}
fn log_disk_mut(disks: &mut Disks) -> &mut Image {
    disks.journal.as_mut().unwrap_or(&mut disks.home)
}

fn sum_of(found: &PreviewedTransaction) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.blocks.iter().for_each(|block| block.bytes.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::record;
    use crate::setup;
    use engine::DataMode;

    /// States of the disks must not be taken for one another.
    #[test]
    fn what_recovery_believes_follows_from_what_it_read() {
        for (name, seed) in [("small-log-1k", 3), ("external-1k", 6), ("scattered-4k", 8)] {
            let setup = setup::find(name).expect("a setup");
            let fresh = setup::make(setup).expect("a volume");
            let case = Case::random(setup, DataMode::Wasteless, seed, 2, 8);
            let recording =
                record(&case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}"));
            let mut log = WrittenLog::new(&case, &recording.at_cuts);
            let (mut images, mut again) = (0, 0);
            for snapshot in &recording.snapshots {
                let State::Cut(disks) = &snapshot.state else { continue };
                (images, again) = (
                    images + 1,
                    again + u64::from(log.known.iter().any(|known| known.read.are_of(disks))),
                );
                let (known, anew) = (log.believed(disks), Believed::of(&case, disks));
                assert_eq!(known.transactions, anew.transactions, "{name}, cut {}", snapshot.cut);
            }
            println!("{name}: {again} of {images} images had a log that was known");
            assert!(again * 4 > images, "{name}: hardly a log was known: {again} of {images}");
        }
    }
}
