//! Runs that discards have freed, until they may be written again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use units::TransactionId;

/// Number of runs above which a discard waits until they are committed.
const RUNS_MAX: usize = 1024;

/// Runs of exported blocks that a transaction has freed which may not be committed yet.
#[derive(Default)]
pub(crate) struct FreedRuns {
    runs: RefCell<Vec<FreedRun>>,
    /// Number of runs added so far.
    count: Cell<u64>,
}

struct FreedRun {
    blocks: Range<u64>,
    by: TransactionId,
    number: u64,
}

/// The runs that a commit of `by` settles: those that existed when it was requested.
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
    /// Returns the latest transaction that has freed one of `blocks` and is not known to be
    /// committed.
    pub fn latest(&self, blocks: &Range<u64>) -> Option<Unsettled> {
        let runs = self.runs.borrow();
        let overlaps =
            |run: &&FreedRun| run.blocks.start < blocks.end && blocks.start < run.blocks.end;
        let by = runs.iter().filter(overlaps).map(|run| run.by).next_back()?;
        Some(Unsettled { by, before: self.count.get() })
    }
    /// Returns whether one of `blocks` may not be written yet.
    pub fn holds(&self, blocks: &Range<u64>) -> bool {
        self.latest(blocks).is_some() && !units::fault!("blocks-freed-reused")
    }
    /// Returns the runs of blocks that [`FreedRuns::settle`] removes.
    pub fn settled_by(&self, done: Unsettled) -> Vec<Range<u64>> {
        let runs = self.runs.borrow();
        let settled = runs.iter().filter(|run| done.settles(run));
        settled.map(|run| run.blocks.clone()).collect()
    }
    /// Removes runs that are committed. A transaction with nothing to log is skipped, and the next
    /// one gets its number: so numbers of transactions alone are not enough.
    pub fn settle(&self, done: Unsettled) {
        self.runs.borrow_mut().retain(|run| !done.settles(run));
    }
}

impl Unsettled {
    fn settles(self, run: &FreedRun) -> bool {
        run.number < self.before && !run.by.is_after(self.by)
    }
}
