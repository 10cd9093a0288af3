//! Runs that discards have freed, until they may be written again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use units::TransactionId;

/// With more runs than this a discard waits until they are committed.
const RUNS_MAX: usize = 1024;

/// Runs of exported blocks that a transaction has freed which may not be committed yet.
#[derive(Default)]
pub(crate) struct FreedRuns {
    runs: RefCell<Vec<FreedRun>>,
    /// How many there were.
    count: Cell<u64>,
}

struct FreedRun {
    blocks: Range<u64>,
    by: TransactionId,
    number: u64,
}

/// Runs that a commit of `by` settles: those that there were when it was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Unsettled {
    pub by: TransactionId,
    before: u64,
}

impl FreedRuns {
    pub fn add(&self, blocks: Range<u64>, by: TransactionId) {
        let number = self.count.get();
        self.count.set(number + 1);
        self.runs.borrow_mut().push(FreedRun { blocks, by, number });
    }
    pub fn is_full(&self) -> bool {
        self.runs.borrow().len() >= RUNS_MAX
    }
    /// The latest transaction that has freed one of `blocks` and is not known to be committed.
    pub fn latest(&self, blocks: &Range<u64>) -> Option<Unsettled> {
        let runs = self.runs.borrow();
        let overlaps =
            |run: &&FreedRun| run.blocks.start < blocks.end && blocks.start < run.blocks.end;
        let by = runs.iter().filter(overlaps).map(|run| run.by).next_back()?;
        Some(Unsettled { by, before: self.count.get() })
    }
    /// Whether one of `blocks` may not be written yet.
    pub fn holds(&self, blocks: &Range<u64>) -> bool {
        self.latest(blocks).is_some() && !units::fault!("blocks-freed-reused")
    }
    /// The runs of blocks that [`FreedRuns::settle`] takes away.
    pub fn settled_by(&self, done: Unsettled) -> Vec<Range<u64>> {
        let runs = self.runs.borrow();
        let settled = runs.iter().filter(|run| done.settles(run));
        settled.map(|run| run.blocks.clone()).collect()
    }
    /// They are committed. A transaction that had nothing to log was none, and its number is that
    /// of the next: so the numbers of transactions alone would not tell.
    pub fn settle(&self, done: Unsettled) {
        self.runs.borrow_mut().retain(|run| !done.settles(run));
    }
}

impl Unsettled {
    fn settles(self, run: &FreedRun) -> bool {
        run.number < self.before && !run.by.is_after(self.by)
    }
}
