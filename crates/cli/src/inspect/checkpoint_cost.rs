//! Estimated cost of a checkpoint of scattered logs, as after a restart: requests, and on an
//! emulated drive the time for them.

use super::log_reader::LogReader;
use crate::disk::served::{ServedModel, TimedRequests};
use crate::error::CliError;
use journal::records;
use journal::{
    FindRuns, HomeBounds, Logs, Pass, ReplayAction, ReplayPass, RevokePass, ScanPass,
    ScatteredLogMap,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// Maximum request, in bytes: as in write-back and recovery.
const REQUEST_BYTES: u64 = 1 << 20;

/// Blocks in the live runs of logs, without those of transactions that later ones supersede.
pub struct HeldBlocks {
    /// Logs that hold each block, as numbered by the caller, and whether home is read, too: if the
    /// logs hold parts alone.
    blocks: BTreeMap<HomeBlock, (BTreeSet<usize>, bool)>,
    block_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CheckpointCost {
    /// Bytes written home.
    pub home_bytes: u64,
    /// Read requests, neighbours merged: of the logs, and of home where the logs hold only parts of
    /// a block.
    pub reads: u64,
    pub writes: u64,
    /// Time on an emulated drive.
    pub nanoseconds: Option<u64>,
}

/// Reads the log as recovery does. `log_of`: by transaction, the log of its run.
pub fn held_blocks(
    log: &LogReader,
    places: &ScatteredLogMap,
    blocks: u64,
    log_of: &BTreeMap<u32, usize>,
) -> Result<HeldBlocks, CliError> {
    let superblock = &log.superblock;
    let each = superblock.log_blocks_per_block();
    let logs =
        places.in_units(each).ok_or_else(|| CliError::new("the scattered logs are too long"))?;
    let source = Source { log, logs: Rc::new(logs), each, unit: superblock.log_block_bytes() };
    let mut find = FindRuns::new(superblock, source.logs.clone());
    while let Some(at) = find.wants() {
        find.give(&source.read(at)?);
    }
    let found = find.finish(false).map_err(failed)?;
    let mut scan = ScanPass::over_runs(records::of(superblock), &found);
    source.feed(&mut scan)?;
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    source.feed(&mut revoke)?;
    // Records that name forbidden blocks are reported by recovery.
    let bounds = HomeBounds { blocks, forbidden: Vec::new() };
    let mut replay = ReplayPass::new(&scanned, revoke.finish(), bounds);
    let mut held = HeldBlocks { blocks: BTreeMap::new(), block_bytes: log.block_bytes() as u64 };
    while let Some(at) = replay.wants() {
        replay.give(&source.read(at)?).map_err(failed)?;
        for record in replay.take_records() {
            held.add(record.by, &record.action, log_of);
        }
    }
    Ok(held)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(error.to_string())
}

struct Source<'a> {
    log: &'a LogReader,
    logs: Rc<Logs>,
    each: u32,
    unit: usize,
}

impl Source<'_> {
    fn feed(&self, pass: &mut impl Pass) -> Result<(), CliError> {
        while let Some(at) = pass.wants() {
            pass.give(&self.read(at)?).map_err(failed)?;
        }
        Ok(())
    }
    fn read(&self, at: LogBlock) -> Result<Vec<u8>, CliError> {
        let Some(offset) = at.get().checked_sub(self.logs.start(0).get()) else {
            return self.log.unit(at);
        };
        let (log, index) = (offset / self.logs.length(), offset % self.logs.length());
        if log >= self.logs.count() {
            return Err(CliError::new(format!("{at} lies in no log")));
        }
        let block = self.log.home_block(self.logs.home(log, index))?;
        let within = (index % self.each) as usize * self.unit;
        Ok(block[within..within + self.unit].to_vec())
    }
}

impl HeldBlocks {
    fn add(&mut self, by: TransactionId, action: &ReplayAction, log_of: &BTreeMap<u32, usize>) {
        let (logs, reads_home) =
            self.blocks.entry(action.home()).or_insert((BTreeSet::new(), true));
        match action {
            ReplayAction::WriteWhole { .. } => (*logs, *reads_home) = (BTreeSet::new(), false),
            ReplayAction::Merge { base_zero, .. } => *reads_home &= !base_zero,
        }
        logs.extend(log_of.get(&by.0));
    }

    /// Costs one log, or all. `runs`: addresses of its live runs, in bytes of the disk.
    pub fn cost(
        &self,
        log: Option<usize>,
        runs: Vec<Range<u64>>,
        model: Option<&ServedModel>,
    ) -> CheckpointCost {
        let is_held = |logs: &BTreeSet<usize>| log.is_none_or(|log| logs.contains(&log));
        let held = || self.blocks.iter().filter(|(_, (logs, _))| is_held(logs));
        let bytes =
            |home: &HomeBlock| home.get() * self.block_bytes..(home.get() + 1) * self.block_bytes;
        let writes = merged(held().map(|(home, _)| bytes(home)));
        let mut reads = merged(runs);
        reads.extend(merged(held().filter(|(_, (_, reads))| *reads).map(|(home, _)| bytes(home))));
        CheckpointCost::of(&reads, &writes, model)
    }
}

impl CheckpointCost {
    /// Counts requests in bytes of the disk.
    fn of(
        reads: &[Range<u64>],
        writes: &[Range<u64>],
        model: Option<&ServedModel>,
    ) -> CheckpointCost {
        let time = model.and_then(|model| {
            model.time_of(&TimedRequests { reads: reads.to_vec(), writes: writes.to_vec() })
        });
        CheckpointCost {
            home_bytes: writes.iter().map(|range| range.end - range.start).sum(),
            reads: reads.len() as u64,
            writes: writes.len() as u64,
            nanoseconds: time.map(|time| time.as_nanos() as u64),
        }
    }
}

/// Converts sorted ranges to requests: neighbours are merged, up to the maximum request.
fn merged(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut requests: Vec<Range<u64>> = Vec::new();
    for mut range in ranges {
        if let Some(last) = requests.last_mut().filter(|last| last.end == range.start) {
            range.start = last.start;
            requests.pop();
        }
        while range.end - range.start > REQUEST_BYTES {
            requests.push(range.start..range.start + REQUEST_BYTES);
            range.start += REQUEST_BYTES;
        }
        requests.push(range);
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn held(blocks: &[(u64, usize, bool)]) -> HeldBlocks {
        let block =
            |(home, log, reads): &(u64, usize, bool)| (HomeBlock(*home), ([*log].into(), *reads));
        HeldBlocks { blocks: blocks.iter().map(block).collect(), block_bytes: BLOCK }
    }

    #[test]
    fn neighbours_are_one_request_and_parts_need_a_read() {
        let held = held(&[(7, 0, false), (8, 0, true), (9, 1, false), (20, 0, true)]);
        let cost = |log, runs| held.cost(log, runs, None);
        let expected = |blocks, reads, writes| CheckpointCost {
            home_bytes: blocks * BLOCK,
            reads,
            writes,
            nanoseconds: None,
        };
        assert_eq!(cost(Some(0), vec![0..BLOCK, BLOCK..3 * BLOCK]), expected(3, 1 + 2, 2));
        assert_eq!(cost(Some(1), Vec::new()), expected(1, 0, 1));
        assert_eq!(
            cost(None, std::iter::once(0..REQUEST_BYTES + 1).collect()),
            expected(4, 2 + 2, 2)
        );
    }

    #[test]
    fn a_later_whole_block_leaves_earlier_logs_nothing_to_do() {
        let log_of = BTreeMap::from([(1, 0), (2, 1), (3, 2)]);
        let (home, range) = (HomeBlock(5), units::BlockRange::new(0, 4));
        let part = ReplayAction::Merge { home, range, bytes: vec![0; 4], base_zero: false };
        let whole = ReplayAction::WriteWhole { home, bytes: vec![0; BLOCK as usize] };
        let mut blocks = held(&[]);
        blocks.add(TransactionId(1), &part, &log_of);
        assert_eq!(blocks.blocks[&home], ([0].into(), true));
        blocks.add(TransactionId(2), &whole, &log_of);
        blocks.add(TransactionId(3), &part, &log_of);
        assert_eq!(blocks.blocks[&home], ([1, 2].into(), false));
    }
}
