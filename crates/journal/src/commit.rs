//! Plans everything that must be written for a locked transaction, in order and with reasons.
//!
//! In two: home data and log blocks; `DataBeforeCommit`, `LogBeforeCommit`; commit block;
//! `CommitBeforeReply`. Sealed: home data; `DataBeforeCommit`; all log blocks at once;
//! `CommitBeforeReply`: they carry a checksum over all of them, so a torn write commits nothing.
//! The record format chooses between the two.

use crate::log_space::{LogFull, LogRuns, LogSlot, LogSpace};
use crate::plan::{Address, Barrier, BlockKind, Plan, Step, blocks_in};
use crate::records::{CommitStamp, Images, LogContent, Records, WholeBlockLocation, WholeBlocks};
use crate::transaction::{
    CommittedTransaction, CommittingTransaction, Coverage, LockedTransaction,
};
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{HomeBlock, TransactionId};

/// Longest write of home data, in bytes: long enough for any disk to stream, short enough not to
/// delay other requests.
const HOME_RUN_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct CommitPlan {
    pub transaction: TransactionId,
    /// The steps to carry out. Log blocks are slots until [`CommitPlan::issue`].
    pub plan: Plan,
    /// The newest transaction that was durable, with all before it, when this one was planned.
    pub durable: TransactionId,
    /// Number of log blocks of the transaction; 0 if it was empty.
    pub log_blocks: u32,
    /// Number of blocks in front of it that hold nothing.
    pub gap: u32,
    /// Bytes of a log block.
    log_block_bytes: usize,
    /// Blocks written, by kind.
    pub counts: BTreeMap<BlockKind, u64>,
    /// Bytes of file data that callers wrote, logged or home.
    pub payload: u64,
    /// Requirements for replaying each record, sorted by block.
    pub records: Vec<(HomeBlock, Coverage)>,
    wholes: WholeBlocks,
}

impl CommitPlan {
    /// Creates a plan that logs nothing.
    fn of(
        transaction: &LockedTransaction,
        plan: Plan,
        durable: TransactionId,
        log_block_bytes: usize,
    ) -> CommitPlan {
        CommitPlan {
            transaction: transaction.id,
            counts: plan.counts(log_block_bytes),
            plan,
            durable,
            log_blocks: 0,
            gap: 0,
            log_block_bytes,
            payload: transaction.payload,
            records: Vec::new(),
            wholes: Vec::new(),
        }
    }

    /// Returns the bytes written to the log.
    pub fn log_bytes(&self) -> u64 {
        u64::from(self.log_blocks - self.gap) * self.log_block_bytes as u64
    }
    /// Returns the bytes left free in front of the transaction.
    pub fn gap_bytes(&self) -> u64 {
        u64::from(self.gap) * self.log_block_bytes as u64
    }

    /// Makes data durable before the log is written, where one barrier would do for both.
    pub fn separate_barriers(&mut self) {
        let is_data = |step: &Step| matches!(step, Step::Barrier(Barrier::DataBeforeCommit));
        let in_log = |step: &Step| {
            matches!(step, Step::Write(write) if matches!(write.at,
            Address::Slot(_)))
        };
        let places =
            (self.plan.steps.iter().position(in_log), self.plan.steps.iter().position(is_data));
        if let (Some(log), Some(data)) = places {
            if log < data {
                let barrier = self.plan.steps.remove(data);
                self.plan.steps.insert(log, barrier);
            }
        }
    }

    /// Binds the plan, which is about to be carried out, to the log blocks that the log chooses.
    pub fn issue(&mut self, log: &mut dyn LogSpace) -> LogRuns {
        if self.log_blocks == 0 {
            return LogRuns::default();
        }
        let runs = log.bind(self.transaction);
        self.plan.bind(&runs, self.log_block_bytes);
        if let Some((at, header)) = log.header(self.transaction, self.durable) {
            self.plan.write_before_log(at, (BlockKind::RunHeader, header));
        }
        self.plan.write_table(log.table_pages(self.transaction));
        // In front of the table, too: to a restart it is as good as a header.
        if let Some(at) = log.stale_start(self.transaction) {
            self.plan.wipe_stale_header(at, self.log_block_bytes);
        }
        runs
    }
}

impl CommitPlan {
    /// Records that the plan has been carried out to its last barrier. `transaction` is the one
    /// that it commits.
    pub fn carried_out(&mut self, transaction: CommittingTransaction) -> CommittedTransaction {
        transaction.committed(self.log_blocks, std::mem::take(&mut self.records))
    }

    /// Returns where blocks of `bytes` bytes lie whole in the log, whose blocks lie in `runs`,
    /// sorted by block: only those that are contiguous.
    pub fn places_of_wholes(
        &mut self,
        runs: &LogRuns,
        records: &dyn Records,
        bytes: usize,
    ) -> Vec<(HomeBlock, WholeBlockLocation)> {
        let unit = self.log_block_bytes as u64;
        let place = |(home, at): (HomeBlock, u64)| {
            let (index, offset) = ((at / unit) as u32, (at % unit) as u16);
            let count = records.blocks_of_whole(offset.into(), bytes);
            match runs.part(index, count)[..] {
                [run] => Some((home, WholeBlockLocation { at: run.start, offset })),
                _ => None,
            }
        };
        let mut places: Vec<_> =
            std::mem::take(&mut self.wholes).into_iter().filter_map(place).collect();
        places.sort_unstable_by_key(|(home, _)| *home);
        places
    }
}

/// Plans the commit of `transaction` and reserves blocks of `log`.
///
/// An empty transaction gives an empty plan. Do not commit it but keep it running, because the log
/// has no gaps in its sequence numbers.
pub fn plan_commit(
    transaction: &LockedTransaction,
    images: Images,
    log: &mut dyn LogSpace,
    records: &dyn Records,
    stamp: &CommitStamp,
) -> Result<CommitPlan, LogFull> {
    if transaction.is_empty() {
        let bytes = records.block_bytes();
        return Ok(CommitPlan::of(transaction, Plan::default(), stamp.durable, bytes));
    }
    let written = records.writer(transaction, stamp).finish(images);
    plan_written(transaction, written, images, log, records, stamp)
}

/// Plans the commit of `transaction`, whose log blocks are `written`, as [`plan_commit`] does.
pub fn plan_written(
    transaction: &LockedTransaction,
    (written, wholes): (LogContent, WholeBlocks),
    images: Images,
    log: &mut dyn LogSpace,
    records: &dyn Records,
    stamp: &CommitStamp,
) -> Result<CommitPlan, LogFull> {
    let (id, log_block_bytes) = (transaction.id, records.block_bytes());
    let mut plan = Plan::default();
    let count = written.count(log_block_bytes);
    log.reserve(id, count)?;
    let gap = log.gap_before(id);
    let log_blocks = log.taken(count) + gap;

    let mut late = Plan::default();
    let early = if units::fault!("data-after-commit") { &mut late } else { &mut plan };
    let has_home_data =
        plan_home_data(transaction, images, early) || transaction.home_written_early;
    let slot = |index| Address::Slot(LogSlot { transaction: id, index });
    match written {
        LogContent::Sealed(blocks) => {
            if has_home_data && !units::fault!("data-before-commit") {
                plan.barrier(Barrier::DataBeforeCommit);
            }
            plan.write(slot(0), blocks);
        }
        LogContent::InTwo { body, commit } => {
            let (before, has_body) = (blocks_in(&body, log_block_bytes), !body.is_empty());
            if has_body {
                plan.write(slot(0), body);
            }
            if has_home_data {
                plan.barrier(Barrier::DataBeforeCommit);
            }
            if has_body && !units::fault!("log-before-commit") {
                plan.barrier(Barrier::LogBeforeCommit);
            }
            plan.write(slot(before), commit);
        }
    }
    if !units::fault!("commit-before-reply") {
        plan.barrier(Barrier::CommitBeforeReply);
    }
    plan.steps.append(&mut late.steps);
    let records = coverage(transaction, records);
    let planned = CommitPlan::of(transaction, plan, stamp.durable, log_block_bytes);
    Ok(CommitPlan { log_blocks, gap, records, wholes, ..planned })
}

/// Returns what replaying each record needs, sorted by block.
fn coverage(transaction: &LockedTransaction, format: &dyn Records) -> Vec<(HomeBlock, Coverage)> {
    let metadata = transaction.metadata_ranges();
    let metadata = metadata.map(|(block, ranges)| (block, format.metadata_coverage(ranges)));
    let data = transaction.data().map(|(block, record)| (block, record.coverage()));
    let mut records: Vec<_> = metadata.chain(data).collect();
    records.sort_unstable_by_key(|(block, _)| *block);
    records
}

/// Plans a commit without a journal, which only writes blocks home: nothing is atomic.
pub fn plan_commit_home(transaction: &LockedTransaction, images: Images) -> CommitPlan {
    let mut plan = Plan::default();
    let mut write = |kind, at| plan.write(Address::Home(at), vec![(kind, images(at))]);
    transaction.metadata().for_each(|at| write(BlockKind::HomeMetadata, at));
    transaction.home_data().for_each(|at| write(BlockKind::HomeData, at));
    // Needed even if nothing is left to write: write-back may have sent some of it.
    plan.barrier(Barrier::DataBeforeCommit);
    CommitPlan::of(transaction, plan, transaction.id.previous(), 0)
}

/// Adds writes of home data in runs of neighbours, sorted by address. Returns whether there are
/// any.
fn plan_home_data(transaction: &LockedTransaction, images: Images, plan: &mut Plan) -> bool {
    let mut run: Vec<(HomeBlock, Rc<Buffer>)> = Vec::new();
    let mut flush = |run: &mut Vec<(HomeBlock, Rc<Buffer>)>| {
        if let Some((start, _)) = run.first() {
            let at = Address::Home(*start);
            plan.write(at, run.drain(..).map(|(_, image)| (BlockKind::HomeData, image)).collect());
        }
    };
    for block in transaction.home_data() {
        let is_full =
            run.first().is_some_and(|(_, image)| (run.len() + 1) * image.len() > HOME_RUN_BYTES);
        if is_full || run.last().is_some_and(|(last, _)| last.plus(1) != block) {
            flush(&mut run);
        }
        run.push((block, images(block)));
    }
    flush(&mut run);
    !transaction.home_data.is_empty()
}
