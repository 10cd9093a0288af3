//! What a restart leaves in the log, and what the engine then knows of it. It is as if memory had let go of every block that the log holds.
//!
//! Invariants
//! 1. Of each block that any record is replayed of, either a copy names its newest record, and that is whole; or it is home.
//! 2. Records that a revoke hides are left out: no replay carries them out, and their revoke leaves the log no sooner.

use crate::mapping::{LogCopy, sum};
use crate::update::Contents;
use format::jbd2::JournalSuperblock;
use journal::{CommittedTransaction, Coverage, LogRun, ReplayAction, ReplayedRecord};
use std::collections::BTreeMap;
use units::{HomeBlock, TransactionId};

/// A log that is not empty, for an engine to begin with.
pub struct KeptLog {
    /// As on disk.
    pub(crate) superblock: JournalSuperblock,
    /// Of the transactions, in order.
    pub(crate) runs: Vec<LogRun>,
    pub(crate) transactions: Vec<CommittedTransaction>,
    pub(crate) copies: Vec<(HomeBlock, LogCopy)>,
    /// What the log does not hold whole.
    pub(crate) at_home: Vec<HomeBlock>,
}

impl KeptLog {
    /// The transaction that comes next.
    pub(crate) fn next(&self) -> TransactionId {
        self.transactions.last().map_or(self.superblock.sequence, |last| last.id.next())
    }
}

/// Records as they are replayed.
pub(crate) struct Gathered {
    first: TransactionId,
    records: Vec<BTreeMap<HomeBlock, Coverage>>,
    /// Where the log holds the newest record of each block, if that is whole.
    newest: BTreeMap<HomeBlock, Option<LogCopy>>,
}

impl Gathered {
    /// Of `count` transactions from `first` on.
    pub fn new(first: TransactionId, count: usize) -> Gathered {
        Gathered { first, records: vec![BTreeMap::new(); count], newest: BTreeMap::new() }
    }

    /// Records come in log order. `read_early`: blocks that are read at home before there is an engine.
    pub fn add(&mut self, record: &ReplayedRecord, read_early: &[HomeBlock]) {
        let ReplayedRecord { by, place, stays, action } = record;
        let home = home_of(action);
        let (coverage, copy) = match action {
            ReplayAction::WriteWhole { bytes, .. } => {
                // Whose it is no record says.
                let copy = place.map(|place| LogCopy::new(*by, place, sum(bytes), Contents::Data, *stays));
                (Coverage::Whole, copy)
            }
            ReplayAction::Merge { base_zero: true, .. } => (Coverage::Whole, None),
            ReplayAction::Merge { .. } => (Coverage::Fragment, None),
        };
        self.newest.insert(home, copy.filter(|_| !read_early.contains(&home)));
        let of_transaction = &mut self.records[by.0.wrapping_sub(self.first.0) as usize];
        let known = of_transaction.entry(home).or_insert(coverage);
        if coverage == Coverage::Whole {
            *known = coverage;
        }
    }

    pub fn copies(&self) -> usize {
        self.newest.values().flatten().count()
    }
    /// Whether the block must go home.
    pub fn goes_home(&self, action: &ReplayAction) -> bool {
        self.newest.get(&home_of(action)).is_some_and(Option::is_none)
    }
    pub fn some_go_home(&self) -> bool {
        self.newest.values().any(Option::is_none)
    }

    pub fn keep(self, superblock: JournalSuperblock, runs: Vec<LogRun>) -> KeptLog {
        let mut id = self.first;
        let transactions = runs.iter().zip(self.records).map(|(run, records)| {
            let records = records.into_iter().collect();
            let this = CommittedTransaction { id, log_blocks: run.count, records, revoked: Vec::new() };
            id = id.next();
            this
        });
        let transactions = transactions.collect();
        let at_home = self.newest.iter().filter(|(_, copy)| copy.is_none()).map(|(home, _)| *home).collect();
        let copies = self.newest.into_iter().filter_map(|(home, copy)| Some((home, copy?))).collect();
        KeptLog { superblock, runs, transactions, copies, at_home }
    }
}

fn home_of(action: &ReplayAction) -> HomeBlock {
    match action {
        ReplayAction::WriteWhole { home, .. } | ReplayAction::Merge { home, .. } => *home,
    }
}
