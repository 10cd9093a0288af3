//! State of the log: its superblock, its free space, and the home blocks that have records in it.
//!
//! It puts parts together that keep their own state: [`LogSpace`], [`Checkpoint`], [`Tail`],
//! [`LiveRecords`] and [`Mapping`]. Others may look at the last two; what changes several parts at
//! once is a method here.
//!
//! Invariants
//! 1. Records are live from when their transaction is locked until the tail on disk has passed it,
//!    or they are revoked durably.
//! 2. The space of a transaction is taken back only when the tail on disk has passed it.

mod space;
mod superblock_writes;

pub(crate) use superblock_writes::{Announcement, SnapshotSuperblockWrite, TailMove};

use crate::cache::mapping::{LogCopy, Mapping};
use crate::interface::error::EngineError;
use crate::interface::options::EngineParts;
use crate::interface::stats::LogUse;
use crate::log::live_records::LiveRecords;
use crate::log::log_format::records_wanted;
use crate::log::snapshot::Snapshot;
use crate::log::tail::Tail;
use crate::recovery::retained_log::{RECORDS_AT_ONCE, RetainedLog};
use commit::LogArea;
use commit::LogSuperblock;
use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::records::{self, Images, LogContent, Records, WholeBlocks};
use journal::{
    Checkpoint, CircularLog, CommitPlan, CommitStamp, CommittedTransaction, Coverage, Gaps,
    LockedTransaction, LogGap, LogKind, LogSpace, LogSwap, Plan, ScatteredLog, SnapshotRing,
    SuperblockImage, SwappedRun, TablePage, TimedCommit, WholeBlockLocation, begin_log,
    plan_written,
};
use runtime::WalkPace;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Instant, LogBlock, TransactionId};

pub(crate) struct LogState {
    superblock: LogSuperblock,
    space: Box<dyn LogSpace>,
    gaps: Gaps,
    checkpoint: Checkpoint,
    records: Rc<dyn Records>,
    tail: Tail,
    live: LiveRecords,
    /// Whether memory may evict what the log holds.
    redirects: bool,
    mapping: Mapping,
    /// Position of the head when each transaction finished.
    ends: std::collections::BTreeMap<u32, LogBlock>,
    /// Snapshot of the mapping table, where the log is scattered.
    snapshot: Option<Snapshot>,
}

impl LogState {
    /// Creates a clean log, to be written in the format that the options ask for.
    pub fn new(
        mut superblock: JournalSuperblock,
        parts: &EngineParts,
        area: &LogArea,
    ) -> Result<LogState, EngineError> {
        let is_scattered = parts.options.log == LogKind::Scattered;
        records::begin(&mut superblock, records_wanted(parts, area), || parts.world.random());
        if !parts.options.keeps_recorded_error || units::fault!("blocks-error-forgotten") {
            superblock.errno = 0;
        }
        let next = superblock.next_transaction();
        let each = superblock.log_blocks_per_block();
        let space: Box<dyn LogSpace> = match parts.options.log {
            LogKind::Circular => Box::new(CircularLog::of(&superblock)),
            LogKind::Scattered => {
                superblock.set_scattered(parts.world.random());
                Box::new(with_table(ScatteredLog::new(&superblock, area.logs(each)?), parts))
            }
        };
        let snapshot = is_scattered.then(|| snapshot_of(&superblock, parts));
        Ok(LogState {
            gaps: gaps_of(&superblock, &*space, parts.options.log_gap),
            checkpoint: Checkpoint::new(next),
            records: records::of(&superblock),
            superblock: LogSuperblock::new(superblock, area.superblock, false),
            space,
            tail: Tail::new(next),
            live: LiveRecords::default(),
            redirects: is_scattered,
            mapping: Mapping::default(),
            ends: Default::default(),
            snapshot,
        })
    }

    /// A log that goes on where a restart found it. Yields to other tasks now and then.
    pub async fn keeping(
        kept: RetainedLog,
        parts: &EngineParts,
        area: &LogArea,
    ) -> Result<LogState, EngineError> {
        let (first, last) = (kept.superblock.sequence, kept.next().previous());
        let each = kept.superblock.log_blocks_per_block();
        let RetainedLog { superblock, runs, transactions, copies, at_home, pieces, .. } = kept;
        let mut log = LogState {
            snapshot: Some(snapshot_of(&superblock, parts).behind(pieces)),
            gaps: Gaps::new(LogGap::Off, 0, 0),
            checkpoint: Checkpoint::new(first),
            records: records::of(&superblock),
            space: {
                let log = ScatteredLog::new(&superblock, area.logs(each)?).holding(first, &runs);
                Box::new(with_table(log, parts))
            },
            superblock: LogSuperblock::new(superblock, area.superblock, true),
            tail: Tail::new(first),
            live: LiveRecords::default(),
            redirects: true,
            mapping: Mapping::default(),
            ends: Default::default(),
        };
        let mut pace = WalkPace::new(RECORDS_AT_ONCE);
        for transaction in transactions {
            pace.visited(transaction.records.len() + 1).await;
            let blocks = transaction.records.iter().map(|(block, _)| *block).collect();
            log.live.add(transaction.id, blocks);
            log.committed(&transaction);
        }
        for block in at_home {
            log.home_written(block, last);
            pace.visited(1).await;
        }
        log.note_covered(last);
        let now = parts.world.now();
        for (block, copy) in copies {
            log.mapping.insert(block, copy, now);
            pace.visited(1).await;
        }
        Ok(log)
    }

    // What it holds.

    /// Blocks that it holds whole, and that memory has evicted.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
    /// Blocks of which it has records.
    pub fn live(&self) -> &LiveRecords {
        &self.live
    }
    pub fn records(&self) -> &Rc<dyn Records> {
        &self.records
    }
    /// The superblock on disk says where it begins, and not that it is empty.
    pub fn is_started(&self) -> bool {
        self.superblock.has_begun()
    }
    /// The first transaction that the superblock on disk names.
    pub fn tail_on_disk(&self) -> TransactionId {
        self.tail.on_disk()
    }
    /// Whether memory may evict what it holds.
    pub fn redirects(&self) -> bool {
        self.redirects
    }
    /// Whether no transaction in it waits for blocks to be written home.
    pub fn is_all_home(&self) -> bool {
        self.checkpoint.is_empty()
    }
    pub fn usage(&self) -> LogUse {
        LogUse {
            blocks: self.space.capacity().into(),
            free_blocks: self.space.free().into(),
            block_bytes: self.records.block_bytes() as u64,
            mapped_blocks: self.mapping.len() as u64,
            gap_bytes: self.gaps.wanted(Duration::ZERO, 0).into(),
            ..LogUse::default()
        }
    }

    // How a transaction comes into it, and leaves it.

    /// Records how long the last commit took.
    pub fn is_written(&mut self, commit: &TimedCommit) {
        self.gaps.committed(commit);
    }

    /// Begins the commit of `locked`: decides which blocks are logged whole. Its records are live
    /// from now on.
    pub fn begin_commit(&mut self, locked: &mut LockedTransaction) {
        self.checkpoint.log_hot_blocks_whole(locked, self.space.capacity());
        let records = locked.metadata().chain(locked.data().map(|(at, _)| at)).collect();
        self.live.add(locked.id(), records);
    }
    /// The plan of `locked`, which takes room here; `written` are its log blocks. `idle`: since the
    /// one before it was complete.
    pub fn plan_commit(
        &mut self,
        locked: &LockedTransaction,
        written: (LogContent, WholeBlocks),
        images: Images,
        stamp: &CommitStamp,
        idle: Duration,
    ) -> Result<CommitPlan, EngineError> {
        let gap = self.gaps.wanted(idle, locked.logged_blocks());
        self.space.leave_gap(gap / self.records.block_bytes() as u32);
        plan_written(locked, written, images, &mut *self.space, &*self.records, stamp)
            .map_err(|error| EngineError::BadJournal { why: error.to_string() })
    }
    /// Chooses where in the log `transaction` will lie. `head`: where the arm of the home disk is.
    pub fn choose_place(&mut self, transaction: TransactionId, head: HomeBlock) {
        self.space.choose(transaction, head);
    }
    /// Issues the plan: its log blocks get their addresses at the last moment before it is carried
    /// out. Returns where the log will hold blocks of `bytes` bytes whole, sorted, if memory may
    /// evict them.
    pub fn issue(
        &mut self,
        planned: &mut CommitPlan,
        bytes: usize,
    ) -> Vec<(HomeBlock, WholeBlockLocation)> {
        let runs = planned.issue(&mut *self.space);
        let places = match self.redirects {
            true => planned.places_of_wholes(&runs, &*self.records, bytes),
            false => Vec::new(),
        };
        if !self.superblock.has_begun() {
            begin_log(&mut planned.plan, self.start(planned.transaction, true));
        }
        places
    }
    /// Begins the log before there is a transaction in it: `first` will be the first one. `None`:
    /// it has begun.
    pub fn plan_start(&mut self, first: TransactionId) -> Option<Plan> {
        if self.superblock.has_begun() {
            return None;
        }
        let mut plan = Plan::default();
        begin_log(&mut plan, self.start(first, self.superblock.on_disk().scattered.is_none()));
        Some(plan)
    }
    /// Starts the log: from now on the superblock on disk says that it begins with `first`, which
    /// is still to come. `announces`: and where that will lie.
    fn start(&mut self, first: TransactionId, announces: bool) -> SuperblockImage {
        let at = self.space.start_of(first).expect("the transaction that comes next");
        self.superblock.begin(|superblock| {
            superblock.set_tail(first, at);
            if announces {
                self.space.announce(superblock, None);
            }
        })
    }
    /// Notes that memory has evicted `block`, which `copy` holds.
    pub fn evict(&mut self, block: HomeBlock, copy: LogCopy, now: Instant) {
        self.mapping.insert(block, copy, now);
        if units::fault!("mapped-counts-as-home") {
            self.checkpoint.home_written(block, copy.by);
        }
    }
    /// Returns the superblock of the log once all up to `last` is home; `None` if it already says
    /// that it is empty.
    pub fn superblock_emptied(
        &self,
        last: TransactionId,
        checksums: bool,
    ) -> Option<SuperblockImage> {
        self.superblock.emptied(self.taken(last), checksums)
    }
    /// The last number that a run on the disk may have, once all up to `last` is home.
    fn taken(&self, last: TransactionId) -> TransactionId {
        TransactionId(last.0.wrapping_add(self.space.numbers_left_over()))
    }
    /// Notes that everything up to `last` is home, and the superblock on disk says that the log is
    /// empty.
    pub fn emptied(&mut self, last: TransactionId) {
        let next = last.next();
        self.snapshot.iter_mut().for_each(Snapshot::emptied);
        // On a damaged volume, where a block has two owners, it may still wait for one that is
        // gone.
        self.checkpoint = Checkpoint::new(next);
        self.superblock.end(self.taken(last));
        self.tail = Tail::new(next);
        self.space.release_before(next);
        self.live.release_before(next);
        self.mapping.forget_all();
    }
    /// A transaction is durable in the log.
    pub fn committed(&mut self, transaction: &CommittedTransaction) {
        self.checkpoint.committed(transaction);
        if units::fault!("end-from-head") {
            let next = transaction.id.next();
            let head = self.space.start_of(next.next()).or(self.space.start_of(next));
            self.ends.extend(head.map(|head| (transaction.id.0, head)));
        }
        self.live.revoked(transaction.id, &transaction.revoked);
        if let (Some(snapshot), Some(run)) = (&mut self.snapshot, self.space.run_of(transaction.id))
        {
            snapshot.committed(transaction, run);
        }
        if !self.mapping.is_empty() {
            let whole =
                transaction.records.iter().filter(|(_, coverage)| *coverage == Coverage::Whole);
            let superseded = whole.map(|(block, _)| block).chain(&transaction.revoked);
            superseded.for_each(|block| self.mapping.forget(*block, transaction.id));
        }
    }
    /// Notes that home has `block` with all updates up to `as_of`, if perhaps not durably.
    pub fn home_written(&mut self, block: HomeBlock, as_of: TransactionId) {
        self.checkpoint.home_written(block, as_of);
        if !units::fault!("mapping-outlives-home") {
            self.mapping.forget(block, as_of);
        }
    }

    // How runs move to another log.

    /// Runs are about to move: what makes the table of runs count for nothing.
    pub fn forget_table(&mut self) -> Vec<TablePage> {
        self.space.forget_table()
    }
    /// Begins a swap if a log is filled above `percent`, and another may take its runs while the
    /// largest transaction finds space elsewhere.
    pub fn begin_swap(&mut self, percent: u32, head: HomeBlock) -> Option<LogSwap> {
        let largest = self.largest();
        let swap = self.space.begin_swap(percent, head)?;
        if self.space.reservable_blocks() < largest {
            self.space.give_up_swap(&swap, true);
            return None;
        }
        Some(swap)
    }
    pub fn is_run_of_swap(&self, run: &SwappedRun, bytes: &[u8]) -> bool {
        self.space.is_run_of_swap(run, bytes)
    }
    /// [`LogSpace::give_up_swap`].
    pub fn give_up_swap(&mut self, swap: &LogSwap, again: bool) {
        self.space.give_up_swap(swap, again);
    }
    /// [`LogSpace::headers_of_swap`].
    pub fn headers_of_swap(
        &self,
        swap: &LogSwap,
        durable: TransactionId,
    ) -> Vec<(LogBlock, Rc<Buffer>)> {
        self.space.headers_of_swap(swap, durable)
    }
    /// Ends the swap: the runs lie elsewhere now. `note` is called for each block that one of them
    /// has.
    pub fn end_swap(&mut self, swap: &LogSwap, note: impl Fn(HomeBlock, &SwappedRun)) {
        for run in self.space.end_swap(swap) {
            for block in self.live.blocks_of(run.transaction) {
                self.mapping.moved(*block, &run);
                note(*block, &run);
            }
        }
    }
}

/// Returns `log` with a table of its runs, if the mount has memory for one. Its mark is of this
/// mount alone.
fn with_table(log: ScatteredLog, parts: &EngineParts) -> ScatteredLog {
    match parts.options.run_table {
        Some(_) => log.with_table((parts.world.random() as u32).max(1)),
        None => log,
    }
}

fn gaps_of(superblock: &JournalSuperblock, space: &dyn LogSpace, option: LogGap) -> Gaps {
    let most = superblock.gap_max() * superblock.log_block_bytes() as u32;
    Gaps::new(option, most, u64::from(space.capacity()) * superblock.log_block_bytes() as u64)
}

fn snapshot_of(superblock: &JournalSuperblock, parts: &EngineParts) -> Snapshot {
    let unit = superblock.log_block_bytes();
    Snapshot::new(SnapshotRing::new(superblock), unit, parts.options.snapshot_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::commit_pacing::NoPacing;
    use crate::interface::options::EngineOptions;
    use crate::log::tail::TailRequest;
    use commit::DiskHome;
    use commit::{LogDevice, LogExtent};
    use device::World;
    use disks::MemoryDisk;
    use journal::RunningTransaction;
    use runtime::VirtualWorld;
    use units::{BlockRange, BlockSize, Timestamp};

    const BLOCKS: u32 = 64;
    /// First transaction of a new journal.
    const FIRST: TransactionId = TransactionId(2);
    const CHANGED: HomeBlock = HomeBlock(100);

    fn size() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }
    fn log() -> LogState {
        let world: Rc<dyn World> = Rc::new(VirtualWorld::new(1));
        let disk = Rc::new(MemoryDisk::new(world.clone(), 1 << 20));
        let extents = vec![LogExtent { first: LogBlock(0), count: BLOCKS, disk_block: 500 }];
        let area =
            LogArea { device: LogDevice::Inside, extents, superblock: LogBlock(0), logs: None };
        let parts = EngineParts {
            world,
            home: Rc::new(DiskHome::whole(disk, size())),
            block_size: size(),
            log: Some(area.clone()),
            options: EngineOptions::default(),
            pacing: Rc::new(NoPacing),
        };
        LogState::new(JournalSuperblock::new(size(), BLOCKS, [7; 16]), &parts, &area).unwrap()
    }
    /// Commits transaction `id`, which changes one block.
    fn commit(log: &mut LogState, id: TransactionId) {
        let mut running = RunningTransaction::new(id, Instant(0), size());
        running.open_handle(1);
        running.add_metadata(CHANGED, &[BlockRange::new(0, 4)]);
        running.close_handle(1);
        let mut locked = running.lock();
        let stamp =
            CommitStamp { time: Timestamp { seconds: 0, nanoseconds: 0 }, durable: id.previous() };
        let image = Rc::new(Buffer::zeroed(1024));
        let image = |_| image.clone();
        log.begin_commit(&mut locked);
        let written = log.records.writer(&locked, &stamp).finish(&image);
        let planned = log.plan_commit(&locked, written, &image, &stamp, Duration::ZERO);
        let mut planned = planned.unwrap();
        log.issue(&mut planned, 1024);
        log.committed(&planned.carried_out(locked.start_commit()));
    }

    #[test]
    fn space_comes_back_when_the_tail_on_disk_has_passed_its_transaction() {
        let mut log = log();
        let free = log.usage().free_blocks;
        commit(&mut log, FIRST);
        assert!(log.is_started() && log.live().contains(CHANGED) && !log.is_all_home());
        let used = log.usage().free_blocks;
        assert!(used < free && log.ask_tail(TailRequest::Space, false).is_none());
        log.home_written(CHANGED, FIRST);
        assert!(log.is_all_home());
        let moved = log.ask_tail(TailRequest::Space, false).expect("the tail may move");
        assert!(log.is_moving() && log.ask_tail(TailRequest::Space, false).is_none());
        assert_eq!((log.usage().free_blocks, log.tail_on_disk()), (used, FIRST));
        assert_eq!(log.tail_moved(moved), FIRST.next());
        assert_eq!((log.usage().free_blocks, log.live().len()), (free, 0));
        assert_eq!((log.tail_on_disk(), log.is_moving()), (FIRST.next(), false));
    }

    #[test]
    fn room_for_a_transaction_leaves_room_for_what_its_handles_revoke() {
        let mut log = log();
        let largest = log.largest_now(1);
        assert!(log.fits_now(largest, 1) && !log.fits_now(largest + 1, 1));
        let mut next = FIRST;
        while log.has_free(BLOCKS / 2, 1) {
            commit(&mut log, next);
            next = next.next();
        }
        let rest = log.space.reservable_blocks() - log.revoke_reserve(1);
        assert!(rest > 0 && log.has_free(rest, 1) && !log.has_free(rest + 1, 1));
        let live = log.live().len() as u64;
        let reserve = |revokes| log.records().revoke_blocks_bound(revokes) + 1;
        assert_eq!(
            log.revoke_reserve(1),
            reserve(live.min(crate::log::revokes::FREED_BESIDE_RUN_MAX))
        );
        assert_eq!(log.revoke_reserve(live), reserve(live), "no more than there are records");
    }
}
