//! A cache that a flush does not empty: content reaches the medium only when other content replaces
//! it.

use runtime::SplitMix;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that the cache admits and evicts together.
pub(super) const LINE: u64 = 4096;
/// Time of the medium for a line or a read.
pub(super) const MEDIUM: Duration = Duration::from_micros(200);

/// Choice of the line to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineReplacement {
    /// The line not written or read for the longest time.
    LeastRecentlyUsed,
    /// A random line.
    Random,
}

/// A disk that acknowledges flushes and durable writes, and does nothing for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lying {
    /// Lines of 4096 bytes in its cache; at least 1.
    pub lines: usize,
    pub replacement: LineReplacement,
    /// Seed of random replacement.
    pub seed: u64,
}

/// Lines with content that is not on the medium.
#[derive(Clone)]
pub(super) struct Lines {
    lying: Lying,
    /// Time of the last use of each line.
    used: BTreeMap<u64, u64>,
    uses: u64,
}

impl Lines {
    pub fn new(lying: Lying) -> Lines {
        assert!(lying.lines > 0, "a cache has a line");
        Lines { lying, used: BTreeMap::new(), uses: 0 }
    }

    /// Adds a line, or finds it. Returns the line evicted for it.
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
                let random = SplitMix::new(self.lying.seed ^ self.uses).next();
                self.used.iter().nth((random % self.used.len() as u64) as usize)
            }
        };
        *line.expect("it is full").0
    }
}
