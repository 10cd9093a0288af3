//! Finds the transactions of scattered logs, before the scan: by the run headers in the logs that the journal superblock
//! calls active, from each log's start on.
//!
//! 1. Reads one block for each run, and a few behind the last of each log: what does not belong to this life of the log,
//!    or lies before the tail, is passed over.
//! 2. A run behind a gap shows by its durable floor whether what is missing was committed once: then the log is damaged.

use super::RecoverError;
use crate::log_space::{LogRun, LogWalk, Logs};
use format::jbd2::{JournalSuperblock, Seed};
use format::scattered::RunHeader;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// So many bytes behind the last run of a log are looked at for another: a header that has rotted is to be noticed.
const LOOK_AHEAD: usize = 64 << 10;

/// Before the first pass: which runs there are.
#[derive(Debug)]
pub struct FindRuns {
    logs: Rc<Logs>,
    seed: Seed,
    tail: TransactionId,
    /// Logs to look at; the first is under way.
    queue: VecDeque<u32>,
    at: LogBlock,
    /// The last run of this log.
    last: Option<TransactionId>,
    /// Blocks that may still be looked at without a header.
    left: u32,
    look_ahead: u32,
    /// By distance from the tail.
    found: BTreeMap<u32, FoundRun>,
    logs_read: u32,
    blocks_read: u64,
}

#[derive(Clone, Copy, Debug)]
struct FoundRun {
    run: LogRun,
    durable: TransactionId,
}

/// The runs of consecutive transactions from the tail on, and what is known of those behind.
#[derive(Debug)]
pub struct FoundRuns {
    pub(super) walk: Rc<RunsInOrder>,
    pub(super) tail: TransactionId,
    /// The latest transaction of which there is anything.
    pub(super) latest: TransactionId,
    /// Up to which one all were durable once.
    pub(super) proven: Option<TransactionId>,
    pub(super) gave_up: bool,
    pub logs_read: u32,
    pub blocks_read: u64,
}

impl FoundRuns {
    /// The runs, in order.
    pub fn walk(&self) -> Rc<dyn LogWalk> {
        self.walk.clone()
    }
}

impl FindRuns {
    /// `superblock` says that the log lies in scattered logs.
    pub fn new(superblock: &JournalSuperblock, logs: Rc<Logs>) -> FindRuns {
        let active = superblock.scattered.as_ref().map(|scattered| logs.active(&scattered.active));
        let unit = superblock.block_size.bytes() / superblock.log_blocks_per_block() as usize;
        let look_ahead = (LOOK_AHEAD / unit) as u32;
        let mut find = FindRuns {
            queue: active.into_iter().flatten().collect(),
            seed: superblock.scattered_seed(),
            tail: superblock.sequence,
            at: LogBlock(0),
            last: None,
            left: look_ahead,
            look_ahead,
            found: BTreeMap::new(),
            logs_read: 0,
            blocks_read: 0,
            logs,
        };
        find.logs_read = find.queue.len() as u32;
        find.begin_log();
        find
    }

    fn begin_log(&mut self) {
        if let Some(log) = self.queue.front() {
            self.at = self.logs.start(*log);
            (self.last, self.left) = (None, self.look_ahead);
        }
    }

    pub fn wants(&self) -> Option<LogBlock> {
        (!self.queue.is_empty()).then_some(self.at)
    }

    /// `block`: the bytes of the wanted log block.
    pub fn give(&mut self, block: &[u8]) {
        self.blocks_read += 1;
        let log = *self.queue.front().expect("no block was wanted");
        let left = self.logs.end(log).get() - self.at.get();
        let header = RunHeader::parse(self.at, block, self.seed).filter(|header| {
            let in_order = self.last.is_none_or(|last| header.transaction.is_after(last));
            header.blocks > 0 && header.blocks < left && in_order
        });
        let passed = match header {
            Some(header) => {
                self.note(header);
                (self.last, self.left) = (Some(header.transaction), self.look_ahead);
                1 + header.blocks
            }
            None => {
                self.left -= 1;
                1
            }
        };
        if passed >= left || self.left == 0 {
            self.queue.pop_front();
            self.begin_log();
        } else {
            self.at = self.at.plus(passed);
        }
    }

    fn note(&mut self, header: RunHeader) {
        // A transaction takes two blocks and more, so no more than these can be live.
        let distance = header.transaction.0.wrapping_sub(self.tail.0);
        if distance < self.logs.blocks() {
            let run = LogRun { start: header.at.plus(1), count: header.blocks };
            self.found.insert(distance, FoundRun { run, durable: header.durable });
        }
    }

    /// `until_damage`: what was committed behind a gap is given up.
    pub fn finish(self, until_damage: bool) -> Result<FoundRuns, RecoverError> {
        assert!(self.queue.is_empty(), "the search is not over");
        let id = |distance: u32| TransactionId(self.tail.0.wrapping_add(distance));
        let there = (0u32..).take_while(|distance| self.found.contains_key(distance)).count() as u32;
        let missing = id(there);
        let mut gave_up = false;
        let proves = |found: &&FoundRun| !missing.is_after(found.durable);
        if let Some(found) = self.found.range(there..).map(|(_, found)| found).find(proves) {
            if !until_damage {
                let what = "no log holds it, though a later one says that it was durable".to_owned();
                return Err(RecoverError::Damaged { at: found.run.start, transaction: missing, what });
            }
            gave_up = true;
        }
        let latest = self.found.keys().next_back().map_or(self.tail, |distance| id(*distance));
        let floors = self.found.range(..there).map(|(_, found)| found.durable);
        let proven = floors.reduce(|most, floor| if floor.is_after(most) { floor } else { most });
        let runs = self.found.range(..there).map(|(_, found)| found.run).collect();
        let walk = Rc::new(RunsInOrder::new(runs, self.logs.blocks()));
        let FindRuns { tail, logs_read, blocks_read, .. } = self;
        Ok(FoundRuns { walk, tail, latest, proven, gave_up, logs_read, blocks_read })
    }
}

/// Runs in the order of their transactions.
#[derive(Debug)]
pub(super) struct RunsInOrder {
    runs: Vec<LogRun>,
    by_start: BTreeMap<LogBlock, usize>,
    blocks: u32,
}

impl RunsInOrder {
    fn new(runs: Vec<LogRun>, blocks: u32) -> RunsInOrder {
        let by_start = runs.iter().enumerate().map(|(index, run)| (run.start, index)).collect();
        RunsInOrder { runs, by_start, blocks }
    }
    pub fn start(&self) -> Option<LogBlock> {
        self.runs.first().map(|run| run.start)
    }
    fn holding(&self, at: LogBlock) -> Option<usize> {
        let (_, index) = self.by_start.range(..=at).next_back()?;
        let run = self.runs[*index];
        (at.get() - run.start.get() < run.count).then_some(*index)
    }
}

impl LogWalk for RunsInOrder {
    fn next(&self, at: LogBlock) -> Option<LogBlock> {
        let index = self.holding(at)?;
        match self.together(at) {
            1 => self.runs.get(index + 1).map(|run| run.start),
            _ => Some(at.plus(1)),
        }
    }
    fn together(&self, at: LogBlock) -> u32 {
        self.holding(at).map_or(1, |index| {
            let run = self.runs[index];
            run.start.get() + run.count - at.get()
        })
    }
    fn blocks(&self) -> u32 {
        self.blocks
    }
}
