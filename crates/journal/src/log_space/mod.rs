//! WHERE the log lies: hands out log blocks to transactions and takes them back after a checkpoint.

mod circular;

pub use circular::CircularLog;

use units::LogBlock;

/// Consecutive log blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRun {
    pub start: LogBlock,
    pub count: u32,
}

/// The log blocks of one transaction, in log order: one run, or two where the log wraps (scattered logs: more).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogRuns(pub Vec<LogRun>);

impl LogRuns {
    pub fn count(&self) -> u32 {
        self.0.iter().map(|run| run.count).sum()
    }
    pub fn start(&self) -> Option<LogBlock> {
        self.0.first().map(|run| run.start)
    }
    pub fn blocks(&self) -> impl Iterator<Item = LogBlock> + '_ {
        self.0.iter().flat_map(|run| (0..run.count).map(|index| run.start.plus(index)))
    }
}

/// More blocks were asked for than are free. Reservation (credits) must make this impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has {free} free blocks and the transaction needs {needed}")]
pub struct LogFull {
    pub needed: u32,
    pub free: u32,
}

pub trait LogSpace {
    /// Blocks that can ever be in use at once.
    fn capacity(&self) -> u32;
    /// Blocks that `allocate` can hand out now.
    fn free(&self) -> u32;
    /// Where the next transaction begins.
    fn head(&self) -> LogBlock;
    /// Takes the next `count` (> 0) blocks.
    fn allocate(&mut self, count: u32) -> Result<LogRuns, LogFull>;
    /// Everything before `tail` is free again. Call it once the tail is durable in the journal superblock.
    fn release_to(&mut self, tail: LogBlock);
}
