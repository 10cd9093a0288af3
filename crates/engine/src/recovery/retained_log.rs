//! A log that a restart retains, and the knowledge of it with which the engine begins: as if memory
//! had evicted every block that the log holds.
//!
//! Invariants
//! 1. Of each block that any record is replayed of, one of three holds. A copy names its newest
//!    record, which is whole. Or memory holds what the records give of it. Or it is home.
//! 2. Records that a revoke hides are left out: no replay carries them out, and their revoke leaves
//!    the log no sooner.
//! 3. No more is known than memory has room for: whatever the log holds, gathering stops there.
//! 4. Where a snapshot records the oldest transactions, only the newest record of a block is known
//!    of them. Parts are put over blocks that it records as whole.

use crate::cache::mapping::{LogCopy, sum};
use crate::interface::update::Contents;
use format::jbd2::JournalSuperblock;
use journal::{
    CommittedTransaction, Coverage, LogRun, ReplayAction, ReplayImage, ReplayedRecord, RevokeTable,
    SnapshotBlock, SnapshotPiece, WholeBlockLocation,
};
use runtime::WalkPace;
use std::collections::{BTreeMap, BTreeSet};
use units::{HomeBlock, TransactionId};

/// A log that is not empty, for an engine to begin with.
pub struct RetainedLog {
    /// The superblock on disk.
    pub(crate) superblock: JournalSuperblock,
    /// Runs of the transactions, in order.
    pub(crate) runs: Vec<LogRun>,
    pub(crate) transactions: Vec<CommittedTransaction>,
    pub(crate) copies: Vec<(HomeBlock, LogCopy)>,
    /// Blocks that the log does not hold whole: home has them, or memory is to hold them, as of the
    /// transaction of their newest record.
    pub(crate) at_home: Vec<HomeBlock>,
    pub(crate) parts: Vec<(TransactionId, ReplayImage)>,
    /// The pieces of the snapshot that records the first of them.
    pub(crate) pieces: Vec<SnapshotPiece>,
}

impl RetainedLog {
    /// The transaction that comes next.
    pub(crate) fn next(&self) -> TransactionId {
        self.transactions.last().map_or(self.superblock.sequence, |last| last.id.next())
    }
}

/// Records as they are replayed.
pub(crate) struct ReplayRecords {
    first: TransactionId,
    records: Vec<BTreeMap<HomeBlock, Coverage>>,
    newest: BTreeMap<HomeBlock, Newest>,
    /// Blocks that a snapshot records as being home.
    at_home: BTreeSet<HomeBlock>,
    /// Places at which the log holds whole the blocks that later parts are put over.
    bases: BTreeMap<HomeBlock, LogCopy>,
    /// Number of known copies, and its maximum.
    copies: usize,
    recorded: usize,
    most: usize,
}

/// Records that are known for each copy that the mapping table has room for. With that many, and 32
/// bytes each, all records take a quarter of the cache.
const RECORDS_A_COPY: usize = 2;
/// Records, or blocks, that are visited before other tasks run.
pub(crate) const RECORDS_AT_ONCE: usize = 1024;

/// The newest record of a block, and where the log holds it, if that is whole.
struct Newest {
    by: TransactionId,
    copy: Option<LogCopy>,
}

impl ReplayRecords {
    /// Gathers `count` transactions from `first` on. `most`: copies that the mapping table has room
    /// for. Returns `None` if there are more transactions than records could be kept.
    pub fn new(first: TransactionId, count: usize, most: usize) -> Option<ReplayRecords> {
        (count <= most.saturating_mul(RECORDS_A_COPY)).then(|| ReplayRecords {
            first,
            records: vec![BTreeMap::new(); count],
            newest: BTreeMap::new(),
            at_home: BTreeSet::new(),
            bases: BTreeMap::new(),
            copies: 0,
            recorded: 0,
            most,
        })
    }

    /// Whether there is more than memory has room for: nothing is kept then, and no more is to be
    /// added.
    pub fn is_too_much(&self) -> bool {
        let is_over =
            self.copies > self.most || self.recorded > self.most.saturating_mul(RECORDS_A_COPY);
        is_over && !units::fault!("restart-gathers-all")
    }

    fn set_newest(&mut self, home: HomeBlock, newest: Newest) -> Option<Newest> {
        self.copies += usize::from(newest.copy.is_some());
        let before = self.newest.insert(home, newest);
        self.copies -= usize::from(before.as_ref().is_some_and(|before| before.copy.is_some()));
        before
    }
    fn record(&mut self, home: HomeBlock, by: TransactionId, coverage: Coverage) {
        let of_transaction = &mut self.records[by.0.wrapping_sub(self.first.0) as usize];
        let before = of_transaction.len();
        let known = of_transaction.entry(home).or_insert(coverage);
        if coverage == Coverage::Whole {
            *known = coverage;
        }
        self.recorded += of_transaction.len() - before;
    }

    /// Adds a block of the snapshot, of which `run` holds the newest record. Log blocks have `unit`
    /// bytes.
    pub fn add_covered(
        &mut self,
        home: HomeBlock,
        covered: &SnapshotBlock,
        run: LogRun,
        unit: u32,
        durable_only: bool,
        is_early: bool,
    ) {
        self.record(home, covered.by, Coverage::Whole);
        let Some(whole) = covered.whole else {
            self.at_home.insert(home);
            return;
        };
        let place = WholeBlockLocation {
            at: run.start.plus(whole.offset / unit),
            offset: (whole.offset % unit) as u16,
        };
        let copy = LogCopy::new(
            covered.by,
            place,
            whole.sum,
            Contents::Data,
            whole.durable_only && durable_only,
        );
        if is_early {
            self.bases.insert(home, copy);
        }
        self.set_newest(home, Newest { by: covered.by, copy: (!is_early).then_some(copy) });
    }

    /// Records come in log order. `read_early`: blocks that are read at home before there is an
    /// engine. Whether a copy stays in the log.
    pub fn add(&mut self, record: &ReplayedRecord, read_early: &[HomeBlock]) -> bool {
        let ReplayedRecord { by, place, durable_only, action } = record;
        let home = action.home();
        let (coverage, copy) = match action {
            ReplayAction::WriteWhole { bytes, .. } => {
                // Whose it is no record says.
                let copy = place.map(|place| {
                    LogCopy::new(*by, place, sum(bytes), Contents::Data, *durable_only)
                });
                (Coverage::Whole, copy)
            }
            ReplayAction::Merge { base_zero: true, .. } => (Coverage::Whole, None),
            ReplayAction::Merge { .. } => (Coverage::Fragment, None),
        };
        let copy = copy.filter(|_| !read_early.contains(&home));
        let was_whole = self.newest.get(&home).is_some_and(|newest| newest.copy.is_some());
        if units::fault!("kept-part-as-whole") && copy.is_none() && was_whole {
            return true;
        }
        let before = self.set_newest(home, Newest { by: *by, copy });
        self.at_home.remove(&home);
        match (coverage, before.and_then(|before| before.copy)) {
            (Coverage::Whole, _) => drop(self.bases.remove(&home)),
            (Coverage::Fragment, Some(_)) if units::fault!("snapshot-base-left-out") => {}
            (Coverage::Fragment, Some(base)) => drop(self.bases.insert(home, base)),
            (Coverage::Fragment, None) => {}
        }
        self.record(home, *by, coverage);
        copy.is_some()
    }

    pub fn copies(&self) -> usize {
        self.copies
    }
    /// Whether the log holds the block in part.
    pub fn is_in_part(&self, action: &ReplayAction) -> bool {
        self.newest.get(&action.home()).is_some_and(|newest| newest.copy.is_none())
    }
    pub fn has_parts(&self) -> bool {
        self.newest.values().any(|newest| newest.copy.is_none())
    }

    /// Returns the copies that parts of blocks are put over.
    pub fn bases(&self) -> impl Iterator<Item = (HomeBlock, LogCopy)> {
        self.bases.iter().map(|(home, copy)| (*home, *copy))
    }

    /// Keeps what the log holds; `parts` are the blocks, sorted, that it holds in part and that are
    /// not home. `revokes`: of what was read from the log. `pieces`: those of the snapshot. Yields
    /// to other tasks now and then.
    pub async fn keep(
        self,
        superblock: JournalSuperblock,
        runs: Vec<LogRun>,
        parts: Vec<ReplayImage>,
        revokes: &RevokeTable,
        pieces: Vec<SnapshotPiece>,
    ) -> RetainedLog {
        let ReplayRecords { first, records, newest, at_home, .. } = self;
        let mut pace = WalkPace::new(RECORDS_AT_ONCE);
        let mut revoked = vec![Vec::new(); records.len()];
        for (home, by) in revokes.iter() {
            if let Some(revoked) = revoked.get_mut(by.0.wrapping_sub(first.0) as usize) {
                revoked.push(home);
            }
            pace.visited(1).await;
        }
        let (mut id, mut transactions) = (first, Vec::with_capacity(runs.len()));
        for ((run, records), revoked) in runs.iter().zip(records).zip(revoked) {
            pace.visited(records.len() + 1).await;
            let records = records.into_iter().collect();
            transactions.push(CommittedTransaction { id, log_blocks: run.count, records, revoked });
            id = id.next();
        }
        let parts: Vec<_> = parts.into_iter().map(|part| (newest[&part.home].by, part)).collect();
        let is_kept =
            |home: HomeBlock| parts.binary_search_by_key(&home, |(_, part)| part.home).is_ok();
        let is_kept = |home: HomeBlock| is_kept(home) && !units::fault!("kept-part-at-home");
        let (mut at_home, mut copies) = (Vec::from_iter(at_home), Vec::new());
        for (home, newest) in newest {
            pace.visited(1).await;
            match newest.copy {
                Some(copy) => copies.push((home, copy)),
                None if is_kept(home) => {}
                None => at_home.push(home),
            }
        }
        RetainedLog { superblock, runs, transactions, copies, at_home, parts, pieces }
    }
}
