//! What a restart leaves in the log, and what the engine then knows of it. It is as if memory had let go of every block that the log holds.
//!
//! Invariants
//! 1. Of each block that any record is replayed of, either a copy names its newest record, and that is whole; or it is home.
//! 2. Records that a revoke hides are left out: no replay carries them out, and their revoke leaves the log no sooner.
//! 3. Where a snapshot tells of the oldest transactions, only the newest record of a block is known of them. Parts that were read are
//!    put over what it tells to be whole.

use crate::mapping::{LogCopy, sum};
use crate::update::Contents;
use format::jbd2::JournalSuperblock;
use journal::{
    CommittedTransaction, Coverage, LogRun, ReplayAction, ReplayedRecord, RevokeTable, ToldBlock, ToldPiece,
    WholePlace,
};
use std::collections::{BTreeMap, BTreeSet};
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
    /// The pieces of the snapshot that tells of the first of them.
    pub(crate) told: Vec<ToldPiece>,
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
    /// Blocks of which a snapshot tells that home has them.
    at_home: BTreeSet<HomeBlock>,
    /// Where the log holds what the records of blocks that go home are put over, if a snapshot told it.
    bases: BTreeMap<HomeBlock, LogCopy>,
    /// The first transaction that is read from the log.
    read_from: TransactionId,
}

impl Gathered {
    /// Of `count` transactions from `first` on.
    pub fn new(first: TransactionId, count: usize) -> Gathered {
        Gathered {
            first,
            records: vec![BTreeMap::new(); count],
            newest: BTreeMap::new(),
            at_home: BTreeSet::new(),
            bases: BTreeMap::new(),
            read_from: first,
        }
    }
    /// The same where a snapshot tells of what comes before `read_from`.
    #[must_use]
    pub fn told_before(self, read_from: TransactionId) -> Gathered {
        Gathered { read_from, ..self }
    }

    /// What a snapshot tells of a block, of which `run` holds the newest record. Log blocks have `unit` bytes.
    pub fn tell(
        &mut self,
        home: HomeBlock,
        told: &ToldBlock,
        run: LogRun,
        unit: u32,
        stays: bool,
        is_early: bool,
    ) {
        self.records[told.by.0.wrapping_sub(self.first.0) as usize].insert(home, Coverage::Whole);
        let Some(whole) = told.whole else {
            self.at_home.insert(home);
            return;
        };
        let place =
            WholePlace { at: run.start.plus(whole.offset / unit), offset: (whole.offset % unit) as u16 };
        let copy = LogCopy::new(told.by, place, whole.sum, Contents::Data, whole.stays && stays);
        if is_early {
            self.bases.insert(home, copy);
        }
        self.newest.insert(home, (!is_early).then_some(copy));
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
        let newest = self.newest.insert(home, copy.filter(|_| !read_early.contains(&home)));
        self.at_home.remove(&home);
        match (coverage, newest) {
            (Coverage::Whole, _) => drop(self.bases.remove(&home)),
            (Coverage::Fragment, Some(Some(told))) if self.read_from.is_after(told.by) => {
                self.bases.insert(home, told);
            }
            (Coverage::Fragment, _) => {}
        }
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

    /// What the records of blocks that go home are put over.
    pub fn bases(&self) -> impl Iterator<Item = (HomeBlock, LogCopy)> {
        self.bases.iter().map(|(home, copy)| (*home, *copy))
    }

    /// `revokes`: of what was read from the log. `told`: the pieces of the snapshot.
    pub fn keep(
        self,
        superblock: JournalSuperblock,
        runs: Vec<LogRun>,
        revokes: &RevokeTable,
        told: Vec<ToldPiece>,
    ) -> KeptLog {
        let mut revoked = vec![Vec::new(); self.records.len()];
        for (home, by) in revokes.iter() {
            if let Some(revoked) = revoked.get_mut(by.0.wrapping_sub(self.first.0) as usize) {
                revoked.push(home);
            }
        }
        let mut id = self.first;
        let transactions = runs.iter().zip(self.records).zip(revoked).map(|((run, records), revoked)| {
            let records = records.into_iter().collect();
            let this = CommittedTransaction { id, log_blocks: run.count, records, revoked };
            id = id.next();
            this
        });
        let transactions = transactions.collect();
        let gone = self.newest.iter().filter(|(_, copy)| copy.is_none()).map(|(home, _)| *home);
        let at_home = self.at_home.iter().copied().chain(gone).collect();
        let copies = self.newest.into_iter().filter_map(|(home, copy)| Some((home, copy?))).collect();
        KeptLog { superblock, runs, transactions, copies, at_home, told }
    }
}

fn home_of(action: &ReplayAction) -> HomeBlock {
    match action {
        ReplayAction::WriteWhole { home, .. } | ReplayAction::Merge { home, .. } => *home,
    }
}
