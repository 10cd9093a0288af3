//! A cache that a flush does not empty: only what needs its room pushes content out to the medium.

use runtime::SplitMix;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that the cache takes in and gives up together.
pub(super) const LINE: u64 = 4096;
/// What the medium takes for a line or a read.
pub(super) const MEDIUM: Duration = Duration::from_micros(200);

/// Which line makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineReplacement {
    /// The one not written or read for the longest time.
    LeastRecentlyUsed,
    /// Any.
    Random,
}

/// A disk that acknowledges flushes and durable writes, and does nothing for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lying {
    /// Lines of 4096 bytes in its cache; at least 1.
    pub lines: usize,
    pub replacement: LineReplacement,
    /// Of the dice that replace at random.
    pub seed: u64,
}

/// The lines with content that is not on the medium.
#[derive(Clone)]
pub(super) struct Lines {
    lying: Lying,
    /// When each was used last.
    used: BTreeMap<u64, u64>,
    uses: u64,
}

impl Lines {
    pub fn new(lying: Lying) -> Lines {
        assert!(lying.lines > 0, "a cache has room");
        Lines { lying, used: BTreeMap::new(), uses: 0 }
    }

    /// Takes a line in, or finds it there. Says which other one gave way.
    pub fn write(&mut self, line: u64) -> Option<u64> {
        let full = self.used.len() == self.lying.lines && !self.used.contains_key(&line);
        let victim = full.then(|| self.victim());
        victim.inspect(|victim| _ = self.used.remove(victim));
        self.uses += 1;
        self.used.insert(line, self.uses);
        victim
    }
    pub fn read(&mut self, line: u64) {
        self.uses += 1;
        self.used.entry(line).and_modify(|used| *used = self.uses);
    }

    fn victim(&self) -> u64 {
        let line = match self.lying.replacement {
            LineReplacement::LeastRecentlyUsed => self.used.iter().min_by_key(|(_, used)| **used),
            LineReplacement::Random => {
                let dice = SplitMix::new(self.lying.seed ^ self.uses).next();
                self.used.iter().nth((dice % self.used.len() as u64) as usize)
            }
        };
        *line.expect("it is full").0
    }
}
