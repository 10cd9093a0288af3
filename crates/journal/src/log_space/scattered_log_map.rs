//! Addresses of scattered logs, and the order in which their blocks are read.

use super::LogWalk;
use format::scattered::ActiveLogs;
use units::{HomeBlock, LogBlock};

/// Number of neighbours that are announced together, though no more than an eighth of all: an arm
/// that moves on finds the next ones announced.
const ANNOUNCED_BITS: u32 = 16;

/// Location of the logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScatteredLogMap {
    /// The first block of the first log; the others follow it in the numbering of log blocks.
    pub first: LogBlock,
    /// Blocks of each log.
    pub blocks: u32,
    /// Start of each log on the home disk.
    pub homes: Vec<HomeBlock>,
}

impl ScatteredLogMap {
    /// Size of logs in log blocks, of which a block of home has `each`.
    #[must_use]
    pub fn in_units(&self, each: u32) -> Option<Logs> {
        let count = u32::try_from(self.homes.len()).ok().filter(|count| *count > 0)?;
        let (first, blocks) = (self.first.get().checked_mul(each)?, self.blocks.checked_mul(each)?);
        blocks.checked_mul(count)?.checked_add(first)?;
        Some(Logs { first: LogBlock(first), blocks, each, homes: self.homes.clone() })
    }
}

/// Returns the same places in log blocks.
#[derive(Clone, Debug)]
pub struct Logs {
    first: LogBlock,
    blocks: u32,
    each: u32,
    homes: Vec<HomeBlock>,
}

impl Logs {
    pub fn count(&self) -> u32 {
        self.homes.len() as u32
    }
    /// Returns the blocks of each log.
    pub fn length(&self) -> u32 {
        self.blocks
    }
    pub fn start(&self, log: u32) -> LogBlock {
        self.first.plus(log * self.blocks)
    }
    pub fn end(&self, log: u32) -> LogBlock {
        self.start(log).plus(self.blocks)
    }
    /// Returns the end of what counts in `log`: copies from `moving` on do not.
    pub(crate) fn counted_end(&self, log: u32, moving: Option<LogBlock>) -> LogBlock {
        let moving = moving.filter(|_| !units::fault!("swap-counts-early"));
        moving.filter(|at| self.holding(*at) == Some(log)).unwrap_or(self.end(log))
    }
    /// Returns the log that `at` lies in, and the index of the block there.
    pub(super) fn log_of(&self, at: LogBlock) -> (u32, u32) {
        let offset = at.get() - self.first.get();
        (offset / self.blocks, offset % self.blocks)
    }
    /// Returns the log that `at` lies in.
    pub(crate) fn holding(&self, at: LogBlock) -> Option<u32> {
        let log = at.get().checked_sub(self.first.get())? / self.blocks;
        (log < self.count()).then_some(log)
    }
    /// Returns where the block `index` of a log lies on the home disk.
    pub fn home(&self, log: u32, index: u32) -> HomeBlock {
        self.homes[log as usize].plus(u64::from(index / self.each))
    }
    /// Returns the logs that may hold runs.
    pub fn active(&self, active: &ActiveLogs) -> impl Iterator<Item = u32> {
        let (shared, active) = (ActiveLogs::logs_a_bit(self.count()), active.clone());
        (0..self.count()).filter(move |log| active.contains(log / shared))
    }
    /// Returns the bits that are announced with a log's own.
    pub(super) fn announced_with(&self, log: u32) -> impl Iterator<Item = u32> + use<> {
        let shared = ActiveLogs::logs_a_bit(self.count());
        let bits = self.count().div_ceil(shared);
        let together = (bits / 8).clamp(1, ANNOUNCED_BITS);
        let first = log / shared / together * together;
        first..(first + together).min(bits)
    }
}

impl LogWalk for Logs {
    fn next(&self, at: LogBlock) -> Option<LogBlock> {
        (self.together(at) > 1).then(|| at.plus(1))
    }
    fn together(&self, at: LogBlock) -> u32 {
        match at.get().checked_sub(self.first.get()) {
            Some(offset) if offset / self.blocks < self.count() => {
                self.blocks - offset % self.blocks
            }
            _ => 1,
        }
    }
    fn blocks(&self) -> u32 {
        self.blocks * self.count()
    }
}
