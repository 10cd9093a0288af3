//! What was written to the log, transaction by transaction. One of which a sector is not what was written must not be replayed,
//! whatever its checksums say.
//!
//! 1. What was written is what recovery reads when all writes are there, those in flight included.
//! 2. Before a transaction counts as gone from the log, nothing newer is written in its place. So what was written stays known.
//! 3. In place of lost sectors an earlier turn of the log may have left any older content. An older version of the same block is
//!    the worst, since a CRC may be blind to that.

use crate::case::Case;
use crate::crash::{Moment, Snapshot, State};
use crate::memory_disks::MemoryDisks;
use crate::setup::Disks;
use disks::Image;
use engine::BelievedTransaction;
use format::jbd2::Seed;
use runtime::{SplitMix, VirtualWorld};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use units::TransactionId;

const SECTOR: usize = 512;
/// Only the last few transactions can have lost anything.
const LAST: usize = 3;

pub struct WrittenLog<'a> {
    case: &'a Case,
    moments: &'a [Moment],
    /// Of so many cuts it is known what was written.
    learnt: usize,
    /// The first transaction that was there when cuts began.
    first: Option<TransactionId>,
    sums: BTreeMap<u32, u64>,
    /// The log at the last of these cuts.
    log: Vec<BelievedTransaction>,
}

impl<'a> WrittenLog<'a> {
    pub fn new(case: &'a Case, moments: &'a [Moment]) -> WrittenLog<'a> {
        WrittenLog { case, moments, learnt: 0, first: None, sums: BTreeMap::new(), log: Vec::new() }
    }

    /// Whether what recovery believes of the disks that a cut has left is what had been written by then.
    pub fn check(&mut self, cut: u64, left: &Disks) -> Result<(), String> {
        self.learn(cut)?;
        for found in believed(self.case, left).unwrap_or_default() {
            match self.sums.get(&found.id.0) {
                Some(sum) if *sum == sum_of(&found) => {}
                Some(_) => return Err(format!("{} is replayed, and is not what was written", found.id)),
                // It came and went between two cuts, or before the first.
                None if self.case.changes_a_cut() > 1 => {}
                None if self.first.is_none_or(|first| !found.id.is_after(first)) => {}
                None => return Err(format!("{} is replayed, and nobody wrote it", found.id)),
            }
        }
        Ok(())
    }

    /// All that was written up to the cut, but for sectors of one block in the log. These have an older version of that block,
    /// as if an earlier turn of the log had left it.
    pub fn stale(&mut self, snapshot: &Snapshot) -> Result<Option<Snapshot>, String> {
        let cut = snapshot.cut;
        self.learn(cut)?;
        let (moment, dice) = (&self.moments[cut as usize], SplitMix::new(self.case.seed ^ cut << 32));
        let transactions = self.log.iter().rev().take(LAST);
        let mut candidates = transactions.flat_map(|found| lost_blocks(found, moment)).collect::<Vec<_>>();
        if candidates.iter().any(|lost| lost.is_blind) {
            candidates.retain(|lost| lost.is_blind);
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        let mut lost = candidates.swap_remove(dice.below(candidates.len() as u64) as usize);
        if dice.below(4) == 0 {
            lost.sectors = vec![lost.sectors.swap_remove(dice.below(lost.sectors.len() as u64) as usize)];
        }
        let mut disks = moment.written.clone();
        let count = lost.sectors.len();
        for (at, bytes) in &lost.sectors {
            log_disk_mut(&mut disks).write(*at, bytes);
        }
        let left = format!("all but {count} sectors of {} in the log, which are older", lost.home);
        Ok(Some(Snapshot { cut, left, state: State::Cut(disks), progress: snapshot.progress.clone() }))
    }

    fn learn(&mut self, cut: u64) -> Result<(), String> {
        while self.learnt as u64 <= cut {
            // What is wrong with it the judge will say.
            self.log = believed(self.case, &self.moments[self.learnt].written).unwrap_or_default();
            self.learnt += 1;
            for found in &self.log {
                self.first.get_or_insert(found.id);
                let sum = sum_of(found);
                if *self.sums.entry(found.id.0).or_insert(sum) != sum {
                    return Err(format!("{} was written over while it was in the log", found.id));
                }
            }
        }
        Ok(())
    }
}

/// A block that the log holds whole, and what an older version has in place of those of its sectors that a cut may lose.
struct LostBlock {
    home: units::HomeBlock,
    sectors: Vec<(u64, Vec<u8>)>,
    /// A CRC-32C says the same of both versions.
    is_blind: bool,
}

fn lost_blocks(found: &BelievedTransaction, moment: &Moment) -> Vec<LostBlock> {
    let log: Vec<u8> = found.blocks.iter().flat_map(|block| block.bytes.iter().copied()).collect();
    let unit = found.blocks.first().map_or(SECTOR, |block| block.bytes.len());
    let is_volatile =
        |at: u64| sector(log_disk(&moment.durable), at) != sector(log_disk(&moment.written), at);
    let first = found.blocks.first().map(|block| block.at);
    // Most cuts come when the log is as it was.
    if first.is_none() || !found.blocks.iter().any(|block| sectors(block.at, unit).any(is_volatile)) {
        return Vec::new();
    }
    let lost = |(home, bytes): &(units::HomeBlock, Vec<u8>)| {
        let older = moment.written.home.copy(home.get() * bytes.len() as u64, bytes.len()).to_vec();
        let as_block = found.blocks.iter().position(|block| block.bytes == *bytes);
        let begin = (older != *bytes)
            .then(|| as_block.map(|index| index * unit).or_else(|| position(&log, bytes)))??;
        let whole = (begin.next_multiple_of(SECTOR)..).step_by(SECTOR);
        let whole = whole.take_while(|offset| offset + SECTOR <= begin + bytes.len());
        let sectors: Vec<_> = whole
            .map(|offset| (found.blocks[offset / unit].at + (offset % unit) as u64, offset - begin))
            .map(|(at, within)| (at, older[within..within + SECTOR].to_vec()))
            .filter(|(at, old)| is_volatile(*at) && sector(log_disk(&moment.written), *at) != *old)
            .collect();
        let is_blind = Seed(!0).with(&older) == Seed(!0).with(bytes);
        (!sectors.is_empty()).then_some(LostBlock { home: *home, sectors, is_blind })
    };
    found.whole.iter().filter_map(lost).collect()
}

/// Where the bytes of a block begin in the log.
fn position(log: &[u8], bytes: &[u8]) -> Option<usize> {
    log.windows(bytes.len()).position(|window| window == bytes)
}
fn sectors(at: u64, bytes: usize) -> impl Iterator<Item = u64> {
    (at..at + bytes as u64).step_by(SECTOR)
}
fn sector(disk: &Image, at: u64) -> Vec<u8> {
    disk.copy(at, SECTOR).to_vec()
}
fn log_disk(disks: &Disks) -> &Image {
    disks.journal.as_ref().unwrap_or(&disks.home)
}
fn log_disk_mut(disks: &mut Disks) -> &mut Image {
    disks.journal.as_mut().unwrap_or(&mut disks.home)
}

fn sum_of(found: &BelievedTransaction) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.blocks.iter().for_each(|block| block.bytes.hash(&mut hasher));
    hasher.finish()
}

/// What recovery would replay.
fn believed(case: &Case, disks: &Disks) -> Result<Vec<BelievedTransaction>, ext4::Error> {
    let world = VirtualWorld::new(case.seed);
    let parts = MemoryDisks::of(&world, disks, case).parts(&world, case);
    let believed = world.run(async move { ext4::believed(&parts).await });
    world.end();
    believed
}
