//! Finds the headers of copies that an interrupted swap has left. They do not count, and are wiped
//! before their place is used: a torn run might overwrite a copy and leave its header, and a header
//! with a later durable floor than that of the run itself would be believed.

use crate::log_space::Logs;
use format::jbd2::{JournalSuperblock, Seed};
use format::scattered::RunHeader;
use units::LogBlock;

#[derive(Debug)]
pub struct FindCopies {
    seed: Seed,
    /// The block to look at next, and the end of the log.
    at: LogBlock,
    end: LogBlock,
    headers: Vec<LogBlock>,
}

impl FindCopies {
    /// Creates the search; `None` if no swap was interrupted.
    pub fn new(superblock: &JournalSuperblock, logs: &Logs) -> Option<FindCopies> {
        let at = superblock.moving().filter(|_| !units::fault!("swap-counts-early"))?;
        let end = logs.end(logs.holding(at)?);
        Some(FindCopies { seed: superblock.scattered_seed(), at, end, headers: Vec::new() })
    }
    pub fn wants(&self) -> Option<LogBlock> {
        (self.at < self.end).then_some(self.at)
    }
    /// Takes `block`, the bytes of the wanted log block. A header may be in any of them: those
    /// before it may be lost.
    pub fn give(&mut self, block: &[u8]) {
        if RunHeader::parse(self.at, block, self.seed).is_some() {
            self.headers.push(self.at);
        }
        self.at = self.at.plus(1);
    }
    /// Skips the wanted block, which cannot be read and may hold a header: it is wiped like one.
    pub fn pass_over(&mut self) {
        self.headers.push(self.at);
        self.at = self.at.plus(1);
    }
    /// Returns the headers' addresses.
    pub fn finish(self) -> Vec<LogBlock> {
        self.headers
    }
}
