//! Plans are data: what is written where, in what order and why. The engine carries them out; the
//! barrier kind decides what each barrier costs; tests read them, cut them at every step, and check
//! what survives.

use crate::log_space::{LogRuns, LogSlot, TablePage};
use device::Buffer;
use format::run_table::LATEST_PAGES;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// Reason why everything before a barrier must be durable before anything after it. The barrier
/// kind decides how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// Data is home before the commit that makes it reachable (ordered, and data that bypasses the
    /// log).
    DataBeforeCommit,
    /// The transaction's log blocks are durable before its commit block. Not needed when a checksum
    /// over the whole transaction is verified while scanning.
    LogBeforeCommit,
    /// The commit block is durable before anyone is answered that the transaction is.
    CommitBeforeReply,
    /// Home copies are durable before the log tail moves past the records they came from.
    HomeBeforeLogTail,
    /// Blocks written home are durable before a waiting caller is answered: a sync of data that no
    /// log holds, or a reader past the journal.
    HomeBeforeReply,
    /// The journal superblock's new tail is durable before its old log blocks are overwritten; so
    /// are the new headers of runs that move.
    TailBeforeReuse,
    /// Entries of the table of runs are durable before the runs that they record; an invalidated
    /// table is durable before runs move.
    TableBeforeRun,
    /// The wiped first block of a run that a power cut has left is durable before a header stands
    /// in front of it again, or the table of runs lists it.
    WipedBeforeRun,
    /// Copies of runs that move are durable before headers place the runs there.
    CopyBeforeHeader,
    /// A piece of a snapshot, and the content that it records as home, are durable before the
    /// superblock names the piece.
    SnapshotBeforeSuperblock,
    /// Blocks found at a mount are durable before it writes anything: the process that wrote them
    /// may have been killed while they were in the disk's cache.
    FoundBeforeWrite,
}

/// Kind of a written block, for `stats`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockKind {
    Descriptor,
    Multiwrite,
    Regular,
    Revoke,
    Commit,
    Packed,
    RunHeader,
    /// Blocks of runs that move to another log.
    Swapped,
    /// Extents of a snapshot.
    Snapshot,
    JournalSuperblock,
    HomeData,
    HomeMetadata,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    Home(HomeBlock),
    Log(LogBlock),
    /// A page of the table of runs.
    Table(u64),
    /// A block of a transaction's log whose address is not known yet: no plan is carried out before
    /// [`Plan::bind`].
    Slot(LogSlot),
}

/// Consecutive blocks, written as one request where the disk allows it. A buffer holds one block,
/// or several of a kind.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Address,
    pub blocks: Vec<(BlockKind, Rc<Buffer>)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Write(Write),
    Barrier(Barrier),
}

/// Writes between two barriers may reach the disk in any order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn write(&mut self, at: Address, blocks: Vec<(BlockKind, Rc<Buffer>)>) {
        self.steps.push(Step::Write(Write { at, blocks }));
    }
    pub fn barrier(&mut self, reason: Barrier) {
        self.steps.push(Step::Barrier(reason));
    }
    /// Replaces slots by addresses: the log, whose blocks have `unit` bytes, has placed those of
    /// the plan's transaction in `runs`.
    pub fn bind(&mut self, runs: &LogRuns, unit: usize) {
        let mut bound = Vec::with_capacity(self.steps.len());
        for step in self.steps.drain(..) {
            match step {
                Step::Write(Write { at: Address::Slot(slot), mut blocks }) => {
                    for run in runs.part(slot.index, blocks_in(&blocks, unit)) {
                        let rest = split_off(&mut blocks, run.count as usize * unit);
                        let at = Address::Log(run.start);
                        bound.push(Step::Write(Write {
                            at,
                            blocks: std::mem::replace(&mut blocks, rest),
                        }));
                    }
                }
                step => bound.push(step),
            }
        }
        self.steps = bound;
    }
    /// Inserts a block in front of the first log block.
    pub fn write_before_log(&mut self, at: LogBlock, block: (BlockKind, Rc<Buffer>)) {
        let in_log = |step: &Step| matches!(step, Step::Write(Write { at: Address::Log(_), .. }));
        let first = self.steps.iter().position(in_log).unwrap_or(self.steps.len());
        self.steps.insert(first, Step::Write(Write { at: Address::Log(at), blocks: vec![block] }));
    }
    /// Returns the reason of the last barrier: why the last writes must be durable.
    pub fn last_barrier(&self) -> Option<Barrier> {
        match self.steps.last() {
            Some(Step::Barrier(reason)) => Some(*reason),
            _ => None,
        }
    }
    /// Inserts, in front of all other steps, a wipe of the first block of a run that a power cut
    /// has left.
    pub fn wipe_stale_header(&mut self, at: LogBlock, unit: usize) {
        let blocks = vec![(BlockKind::RunHeader, Rc::new(Buffer::zeroed(unit)))];
        let wipe = Step::Write(Write { at: Address::Log(at), blocks });
        self.steps.splice(0..0, [wipe, Step::Barrier(Barrier::WipedBeforeRun)]);
    }
    /// Inserts, in front of all other steps, the pages of the table of runs that must be durable
    /// first. Where both pages of the latest run are among them, the table begins to count: what
    /// else it records is durable before these.
    pub fn write_table(&mut self, pages: Vec<TablePage>) {
        if pages.is_empty() {
            return;
        }
        let write = |(page, bytes)| {
            Step::Write(Write {
                at: Address::Table(page),
                blocks: vec![(BlockKind::RunHeader, bytes)],
            })
        };
        let is_latest = |(page, _): &TablePage| LATEST_PAGES.contains(page);
        let mut latest_pages = LATEST_PAGES;
        let begins = latest_pages.all(|latest| pages.iter().any(|(page, _)| *page == latest))
            && !units::fault!("run-table-counts-too-early");
        let (latest, others): (Vec<TablePage>, Vec<TablePage>) =
            pages.into_iter().partition(|page| begins && is_latest(page));
        let at = if units::fault!("run-table-after-run") { self.steps.len() } else { 0 };
        let phases = [others, latest].into_iter().filter(|pages| !pages.is_empty());
        let barrier = [Step::Barrier(Barrier::TableBeforeRun)];
        let steps = phases.flat_map(|pages| pages.into_iter().map(write).chain(barrier.clone()));
        self.steps.splice(at..at, steps.collect::<Vec<_>>());
    }
    /// Removes and returns the steps between the last two barriers, with the last barrier.
    pub fn split_off_last_phase(&mut self) -> Plan {
        let before = self.steps.len().saturating_sub(1);
        let barrier =
            self.steps[..before].iter().rposition(|step| matches!(step, Step::Barrier(_)));
        Plan { steps: self.steps.split_off(barrier.map_or(0, |at| at + 1)) }
    }
    /// Whether the plan writes the log alone, with one barrier behind all writes.
    pub fn is_log_alone(&self) -> bool {
        let Some((Step::Barrier(_), writes)) = self.steps.split_last() else { return false };
        let in_log = |step: &Step| {
            matches!(step, Step::Write(Write { at: Address::Log(_) | Address::Slot(_), .. }))
        };
        writes.iter().all(in_log)
    }
    /// Returns the number of home writes, and their bytes.
    pub fn home_writes(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for step in &self.steps {
            if let Step::Write(Write { at: Address::Home(_), blocks }) = step {
                sum.0 += 1;
                sum.1 += blocks.iter().map(|(_, buffer)| buffer.len() as u64).sum::<u64>();
            }
        }
        sum
    }
    /// Returns the number of blocks written, by kind; log blocks have `unit` bytes.
    pub fn counts(&self, unit: usize) -> BTreeMap<BlockKind, u64> {
        let mut counts = BTreeMap::new();
        for step in &self.steps {
            if let Step::Write(write) = step {
                let blocks = write.blocks.iter();
                blocks.for_each(|(kind, buffer)| {
                    *counts.entry(*kind).or_default() += kind.blocks_in(buffer, unit)
                });
            }
        }
        counts
    }
}

impl BlockKind {
    /// Returns the number of blocks that a buffer of this kind holds; log blocks have `unit` bytes.
    pub fn blocks_in(self, buffer: &Buffer, unit: usize) -> u64 {
        match self {
            BlockKind::Packed | BlockKind::Swapped | BlockKind::Snapshot => {
                (buffer.len() / unit) as u64
            }
            _ => 1,
        }
    }
}

/// Returns how many blocks of `unit` bytes the buffers hold.
pub(crate) fn blocks_in(blocks: &[(BlockKind, Rc<Buffer>)], unit: usize) -> u32 {
    (blocks.iter().map(|(_, buffer)| buffer.len()).sum::<usize>() / unit) as u32
}

/// Splits the buffers behind the given number of bytes and returns the rest. A buffer in which the
/// log wraps becomes two.
fn split_off(
    blocks: &mut Vec<(BlockKind, Rc<Buffer>)>,
    bytes: usize,
) -> Vec<(BlockKind, Rc<Buffer>)> {
    let mut left = bytes;
    for index in 0..blocks.len() {
        let length = blocks[index].1.len();
        if left < length {
            let mut rest = blocks.split_off(index);
            if left > 0 {
                let [before, behind] = rest[0].1.cut(left).map(Rc::new);
                blocks.push((rest[0].0, before));
                rest[0].1 = behind;
            }
            return rest;
        }
        left -= length;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_split_wherever_the_log_wraps_within_a_buffer_or_between_two() {
        let bytes: Vec<u8> = (0..6 * 512).map(|at| (at / 512) as u8).collect();
        for cut in 0..=6 {
            let buffer = |part: &[u8]| (BlockKind::Packed, Rc::new(Buffer::copy_of(part)));
            let mut blocks: Vec<_> =
                [&bytes[..2048], &bytes[2048..2560], &bytes[2560..]].map(buffer).into();
            let rest = split_off(&mut blocks, cut * 512);
            let whole = |blocks: &[(BlockKind, Rc<Buffer>)]| -> Vec<u8> {
                blocks.iter().flat_map(|(_, buffer)| buffer.to_vec()).collect()
            };
            assert_eq!(
                (whole(&blocks), whole(&rest)),
                (bytes[..cut * 512].to_vec(), bytes[cut * 512..].to_vec())
            );
            assert!(blocks.iter().chain(&rest).all(|(_, buffer)| !buffer.is_empty()));
        }
    }

    /// Names the pages of a plan's steps; `None` for a barrier.
    fn table_steps<const COUNT: usize>(pages: [u64; COUNT]) -> Vec<Option<u64>> {
        let mut plan = Plan::default();
        plan.write_table(pages.map(|page| (page, Rc::new(Buffer::zeroed(512)))).into());
        let page = |step: &Step| match step {
            Step::Write(Write { at: Address::Table(page), .. }) => Some(*page),
            _ => None,
        };
        plan.steps.iter().map(page).collect()
    }

    /// Slots from before a swap are valid under the same mark until they are overwritten.
    #[test]
    fn a_table_counts_only_when_all_of_it_is_durable() {
        let all = [Some(0), Some(3), Some(7), None, Some(1), Some(2), None];
        assert_eq!(table_steps([0, 1, 2, 3, 7]), all);
        assert_eq!(table_steps([1, 3]), [Some(1), Some(3), None]);
        assert_eq!(table_steps([1, 2]), [Some(1), Some(2), None]);
        assert_eq!(table_steps([]), []);
    }
}
