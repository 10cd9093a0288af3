//! Finds the transactions of scattered logs, before the scan. It follows the run headers in the
//! logs that the journal superblock calls active, from each log's start on.
//!
//! 1. Reads one block for each run, and a few behind the last of each log. Headers that do not
//!    belong to this life of the log, or lie before the tail, are skipped.
//! 2. Copies that a swap has not finished (`moving` in the journal superblock) are skipped.
//! 3. Of several copies of a run that with the latest durable floor counts. Where a snapshot
//!    records the place, the floor is what was committed when it did.
//! 4. The durable floor of a run behind a gap shows whether the missing runs were committed once:
//!    then the log is damaged.

use super::{RecoverError, SnapshotContents};
use crate::log_space::{LogRun, LogWalk, Logs};
use device::Buffer;
use format::jbd2::{JournalSuperblock, Seed};
use format::scattered::RunHeader;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Bytes behind the last run of a log that are searched for another, and more where the superblock
/// knows of longer runs, so that a rotted header is noticed.
const LOOK_AHEAD: usize = crate::log_space::ANNOUNCED_LENGTH_MIN;

/// Returns how many log blocks behind the last run of a log are searched for another.
pub fn look_ahead(superblock: &JournalSuperblock) -> u32 {
    look_ahead_of(superblock, superblock.transaction_bound.unwrap_or(0))
}

fn look_ahead_of(superblock: &JournalSuperblock, longest: u32) -> u32 {
    let unit = superblock.log_block_bytes();
    // That block and those behind it of a run whose header has rotted; and the next one's header.
    ((LOOK_AHEAD / unit) as u32).max(longest.saturating_add(1))
}

/// Finds which runs there are, before the first pass.
#[derive(Debug)]
pub struct FindRuns {
    logs: Rc<Logs>,
    seed: Seed,
    tail: TransactionId,
    /// Logs to look at; the first is being read.
    queue: VecDeque<u32>,
    at: LogBlock,
    /// The last run of this log.
    last: Option<TransactionId>,
    /// End of the last run, and its transaction, of each log that a snapshot covers.
    covered: BTreeMap<u32, (LogBlock, TransactionId)>,
    /// The block at which the next run of this log begins, if there is one.
    expected: LogBlock,
    /// Blocks that may still be looked at without a header.
    left: u32,
    look_ahead: u32,
    /// Start of the copies that do not count, up to the end of their log.
    moving: Option<LogBlock>,
    /// Start of the snapshot that the superblock names, and the first transaction that it does
    /// not cover. It is named when it is durable, and covers what is committed.
    snapshot: Option<(LogBlock, TransactionId)>,
    /// Runs by distance from the tail.
    found: BTreeMap<u32, FoundRun>,
    /// Headers, including those of which another copy counts.
    headers: Vec<(LogBlock, TransactionId)>,
    /// Whether blocks could not be read, and the first of them at which a run would begin.
    has_unread: bool,
    unread_begin: Option<LogBlock>,
    logs_read: u32,
    blocks_read: u64,
}

#[derive(Clone, Copy, Debug)]
struct FoundRun {
    run: LogRun,
    durable: TransactionId,
}

/// Runs of consecutive transactions from the tail on, and what is known of those behind.
#[derive(Debug)]
pub struct FoundRuns {
    pub(super) walk: Rc<RunsInOrder>,
    pub(super) tail: TransactionId,
    /// The latest transaction of which anything was found.
    pub(super) latest: TransactionId,
    /// The latest transaction up to which all were durable once.
    pub(super) proven: Option<TransactionId>,
    pub(super) gave_up: bool,
    pub(super) headers: Vec<(LogBlock, TransactionId)>,
    pub(super) has_unread: bool,
    /// Header of the latest run, where a table records it. In the log it may be torn.
    pub(super) header_in_table: Option<RunHeader>,
    pub logs_read: u32,
    pub blocks_read: u64,
}

impl FoundRuns {
    /// Returns the start of the oldest run.
    pub fn start(&self) -> Option<LogBlock> {
        self.walk.start()
    }
    /// Returns the addresses of all runs, without their headers.
    pub fn runs(&self) -> &[LogRun] {
        &self.walk.runs
    }
    /// Returns the addresses of the first `count` runs, without their headers.
    pub fn first_runs(&self, count: usize) -> &[LogRun] {
        &self.walk.runs[..count]
    }
    /// Returns the headers of transactions from `end` on: where the log continues with that one,
    /// they must be overwritten.
    pub fn headers_from(&self, end: TransactionId) -> impl Iterator<Item = LogBlock> {
        let is_later =
            move |(_, transaction): &&(LogBlock, TransactionId)| transaction.is_at_or_after(end);
        self.headers.iter().filter(is_later).map(|(at, _)| *at)
    }
    /// Whether the search passed over blocks that cannot be read. Each may be the header of a torn
    /// run, which may be readable again: such logs cannot be continued.
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }
    /// Returns the header of the last transaction before `end`, if only a table records it: a log
    /// block, and its address.
    pub fn missing_header(
        &self,
        superblock: &JournalSuperblock,
        end: TransactionId,
    ) -> Option<(LogBlock, Rc<Buffer>)> {
        let header = self.header_in_table.filter(|header| end.is_after(header.transaction))?;
        if units::fault!("recorded-header-not-written") {
            return None;
        }
        let unit = superblock.log_block_bytes();
        let mut block = Buffer::zeroed(unit);
        header.serialize(superblock.scattered_seed(), &mut block);
        Some((header.at, Rc::new(block)))
    }
    /// Whether a table of runs, which recorded some, was believed.
    pub fn are_of_table(&self) -> bool {
        self.header_in_table.is_some()
    }
    /// Restricts the runs to those from a later transaction on.
    #[must_use]
    pub fn from(&self, first: TransactionId) -> FoundRuns {
        let skipped = (first.0.wrapping_sub(self.tail.0) as usize).min(self.walk.runs.len());
        FoundRuns {
            walk: Rc::new(RunsInOrder::new(self.walk.runs[skipped..].to_vec(), self.walk.blocks)),
            tail: first,
            latest: if first.is_after(self.latest) { first } else { self.latest },
            headers: Vec::new(),
            ..*self
        }
    }
    /// Returns the number of runs.
    pub fn count(&self) -> usize {
        self.walk.runs.len()
    }
    /// Returns the walk over the runs, in order.
    pub fn walk(&self) -> Rc<dyn LogWalk> {
        self.walk.clone()
    }
}

impl FindRuns {
    /// Creates the search. `superblock` describes scattered logs.
    pub fn new(superblock: &JournalSuperblock, logs: Rc<Logs>) -> FindRuns {
        let active = superblock.scattered.as_ref().map(|scattered| logs.active(&scattered.active));
        let look_ahead = look_ahead(superblock);
        let mut find = FindRuns {
            queue: active.into_iter().flatten().collect(),
            seed: superblock.scattered_seed(),
            tail: superblock.sequence,
            at: LogBlock(0),
            last: None,
            covered: BTreeMap::new(),
            expected: LogBlock(0),
            left: look_ahead,
            look_ahead,
            moving: superblock.moving(),
            snapshot: superblock.named_snapshot().map(|named| (named.first_at, named.end)),
            found: BTreeMap::new(),
            headers: Vec::new(),
            has_unread: false,
            unread_begin: None,
            logs_read: 0,
            blocks_read: 0,
            logs,
        };
        find.begin();
        find
    }

    /// Skips logs of which nothing is to be read.
    fn begin(&mut self) {
        let (logs, covered, moving) = (&self.logs, &self.covered, self.moving);
        let from = |log: u32| covered.get(&log).map_or(logs.start(log), |(end, _)| *end);
        self.queue.retain(|log| from(*log) < logs.counted_end(*log, moving));
        self.logs_read = self.queue.len() as u32;
        self.begin_log();
    }

    /// Searches behind what a snapshot covers: only in logs that may have got runs since.
    pub fn behind(
        superblock: &JournalSuperblock,
        logs: Rc<Logs>,
        snapshot: &SnapshotContents,
    ) -> FindRuns {
        let mut find = FindRuns::new(superblock, logs);
        let longest = superblock.named_snapshot().map_or(0, |named| named.longest);
        find.look_ahead = look_ahead_of(superblock, longest);
        for run in snapshot.runs_from(find.tail) {
            let distance = run.transaction.0.wrapping_sub(find.tail.0);
            find.found.insert(distance, FoundRun { run: run.run, durable: run.durable });
            if let Some(log) = find.logs.holding(run.run.start) {
                find.covered.insert(log, (run.run.start.plus(run.run.count), run.transaction));
            }
        }
        let since = superblock.named_snapshot().map(|named| find.logs.active(&named.since));
        find.queue = since.into_iter().flatten().collect();
        find.begin();
        find
    }

    /// Returns how many log blocks of most logs are read.
    pub fn look_ahead(&self) -> u32 {
        self.look_ahead
    }

    fn begin_log(&mut self) {
        if let Some(log) = self.queue.front() {
            self.left = self.look_ahead;
            (self.at, self.last) = match self.covered.get(log) {
                Some((end, last)) => (*end, Some(*last)),
                None => (self.logs.start(*log), None),
            };
            self.expected = self.at;
        }
    }

    pub fn wants(&self) -> Option<LogBlock> {
        (!self.queue.is_empty()).then_some(self.at)
    }

    /// Takes `block`, the bytes of the wanted log block.
    pub fn give(&mut self, block: &[u8]) {
        self.blocks_read += 1;
        let left = self.left_in_log();
        let header = RunHeader::parse(self.at, block, self.seed).filter(|header| {
            let in_order = self.last.is_none_or(|last| header.transaction.is_after(last));
            header.blocks > 0 && header.blocks < left && in_order
        });
        let Some(header) = header else { return self.pass_one() };
        self.note(header);
        (self.last, self.left) = (Some(header.transaction), self.look_ahead);
        self.expected = self.at.plus(1 + header.blocks);
        self.pass(1 + header.blocks);
    }

    /// Skips the wanted block, which cannot be read. Where a run would begin it may be the header
    /// of the first transaction that is missing, or of a later one that proves that this was
    /// committed: the search ends with an error. Runs found behind it are no proof against that,
    /// since they may be older remains.
    pub fn pass_over(&mut self) {
        self.has_unread = true;
        // A header needs a block behind it.
        let begins = self.at == self.expected && self.left_in_log() > 1;
        if begins && !units::fault!("unread-header-is-none") {
            self.unread_begin.get_or_insert(self.at);
        }
        self.pass_one();
    }

    /// Blocks from the wanted one to the end of its log.
    fn left_in_log(&self) -> u32 {
        let log = *self.queue.front().expect("no block was wanted");
        self.logs.counted_end(log, self.moving).get() - self.at.get()
    }
    fn pass_one(&mut self) {
        self.left -= 1;
        self.pass(1);
    }
    fn pass(&mut self, passed: u32) {
        if passed >= self.left_in_log() || self.left == 0 {
            self.queue.pop_front();
            self.begin_log();
        } else {
            self.at = self.at.plus(passed);
        }
    }

    fn note(&mut self, header: RunHeader) {
        // A transaction takes at least two blocks, so no more than these can be live.
        let distance = header.transaction.0.wrapping_sub(self.tail.0);
        if distance < self.logs.blocks() {
            self.headers.push((header.at, header.transaction));
            let run = LogRun { start: header.at.plus(1), count: header.blocks };
            let new = FoundRun { run, durable: header.durable };
            let found = self.found.entry(distance).or_insert(new);
            // A log that was swapped may still hold what was moved: the copy's floor is the later
            // one.
            if new.durable.is_after(found.durable) != units::fault!("swap-old-copy-believed") {
                *found = new;
            }
        }
    }

    /// Returns where and in what it is recorded that a transaction of which no run was found was
    /// durable. Headers of copies record what was durable when they were made, which may be later
    /// than their own transaction.
    fn proof_of(&self, missing: TransactionId) -> Option<(LogBlock, &'static str)> {
        let from = if units::fault!("floor-of-copies-unasked") { u32::MAX } else { 0 };
        let mut found = self.found.range(from..).map(|(_, found)| found);
        let header = found.find(|found| !missing.is_after(found.durable));
        let snapshot = self.snapshot.filter(|(_, end)| end.is_after(missing));
        header
            .map(|found| (found.run.start, "another run"))
            .or(snapshot.map(|(at, _)| (at, "the snapshot of the logs")))
    }

    /// Returns the runs found. `until_damage`: transactions committed behind a gap are given up.
    pub fn finish(self, until_damage: bool) -> Result<FoundRuns, RecoverError> {
        assert!(self.queue.is_empty(), "the search is not over");
        let id = |distance: u32| TransactionId(self.tail.0.wrapping_add(distance));
        let there =
            (0u32..).take_while(|distance| self.found.contains_key(distance)).count() as u32;
        let missing = id(there);
        let mut gave_up = false;
        if let Some(at) = self.unread_begin {
            if !until_damage {
                return Err(RecoverError::Unreadable { at, transaction: missing });
            }
            gave_up = true;
        }
        if let Some((at, what)) = self.proof_of(missing) {
            if !until_damage {
                let what = format!("no log holds it, though {what} says that it was durable");
                return Err(RecoverError::Damaged { at, transaction: missing, what });
            }
            gave_up = true;
        }
        let latest = self.found.keys().next_back().map_or(self.tail, |distance| id(*distance));
        // Of a run whose header is sound the body may be rotten.
        let covered = self.snapshot.map(|(_, end)| end.previous());
        let covered = covered.filter(|last| last.is_at_or_after(self.tail));
        let floors = self.found.range(..there).map(|(_, found)| found.durable);
        let proven = floors
            .chain(covered)
            .reduce(|most, floor| if floor.is_after(most) { floor } else { most });
        let runs = self.found.range(..there).map(|(_, found)| found.run).collect();
        let walk = Rc::new(RunsInOrder::new(runs, self.logs.blocks()));
        let FindRuns { tail, headers, has_unread, logs_read, blocks_read, .. } = self;
        Ok(FoundRuns {
            walk,
            tail,
            latest,
            proven,
            gave_up,
            headers,
            has_unread,
            header_in_table: None,
            logs_read,
            blocks_read,
        })
    }
}

/// Runs in the order of their transactions.
#[derive(Debug)]
pub(super) struct RunsInOrder {
    runs: Vec<LogRun>,
    by_start: BTreeMap<LogBlock, usize>,
    blocks: u32,
}

impl RunsInOrder {
    pub fn new(runs: Vec<LogRun>, blocks: u32) -> RunsInOrder {
        let by_start = runs.iter().enumerate().map(|(index, run)| (run.start, index)).collect();
        RunsInOrder { runs, by_start, blocks }
    }
    pub fn start(&self) -> Option<LogBlock> {
        self.runs.first().map(|run| run.start)
    }
    fn holding(&self, at: LogBlock) -> Option<usize> {
        let (_, index) = self.by_start.range(..=at).next_back()?;
        let run = self.runs[*index];
        (at.get() - run.start.get() < run.count).then_some(*index)
    }
}

impl LogWalk for RunsInOrder {
    fn next(&self, at: LogBlock) -> Option<LogBlock> {
        let index = self.holding(at)?;
        match self.together(at) {
            1 => self.runs.get(index + 1).map(|run| run.start),
            _ => Some(at.plus(1)),
        }
    }
    fn together(&self, at: LogBlock) -> u32 {
        self.holding(at).map_or(1, |index| {
            let run = self.runs[index];
            run.start.get() + run.count - at.get()
        })
    }
    fn blocks(&self) -> u32 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_space::ScatteredLogMap;
    use format::scattered::{ActiveLogs, NamedSnapshot};
    use units::{BlockSize, HomeBlock, SplitMix};

    /// Four logs of blocks of 1 KiB, of which all are active.
    struct Disk {
        superblock: JournalSuperblock,
        logs: Rc<Logs>,
        blocks: Vec<Vec<u8>>,
        unread: Vec<LogBlock>,
    }
    const FIRST: u32 = 64;
    const EACH: u32 = 32;

    impl Disk {
        fn new(tail: TransactionId) -> Disk {
            Disk::with_logs(tail, EACH)
        }
        fn with_logs(tail: TransactionId, each: u32) -> Disk {
            let mut superblock =
                JournalSuperblock::new(BlockSize::new(1024).unwrap(), FIRST, [9; 16]);
            superblock.set_scattered(5);
            superblock.sequence = tail;
            (0..4).for_each(|log| superblock.scattered.as_mut().unwrap().active.set(log));
            let homes = (0..4).map(|log| HomeBlock(100 * log)).collect();
            let places = ScatteredLogMap { first: LogBlock(FIRST), blocks: each, homes };
            let blocks = vec![vec![0xa5; 1024]; (FIRST + 4 * each) as usize];
            let logs = Rc::new(places.in_units(1).unwrap());
            Disk { superblock, logs, blocks, unread: Vec::new() }
        }
        fn put(&mut self, log: u32, at: u32, transaction: u32, blocks: u32) -> LogBlock {
            let at = self.logs.start(log).plus(at);
            self.put_copy(at, transaction, blocks, TransactionId(transaction).previous());
            at
        }
        fn put_copy(&mut self, at: LogBlock, number: u32, blocks: u32, durable: TransactionId) {
            let header = RunHeader { at, transaction: TransactionId(number), blocks, durable };
            let block = &mut self.blocks[at.get() as usize];
            block.fill(0);
            header.serialize(self.superblock.scattered_seed(), block);
        }
        fn search(&self, until_damage: bool) -> Result<FoundRuns, RecoverError> {
            let mut find = FindRuns::new(&self.superblock, self.logs.clone());
            while let Some(at) = find.wants() {
                assert!(find.blocks_read <= u64::from(self.logs.blocks()), "a search without end");
                match self.unread.contains(&at) {
                    true => find.pass_over(),
                    false => find.give(&self.blocks[at.get() as usize]),
                }
            }
            find.finish(until_damage)
        }
    }

    fn starts(found: &FoundRuns) -> Vec<LogBlock> {
        found.walk.runs.iter().map(|run| run.start).collect()
    }

    #[test]
    fn runs_of_all_logs_come_in_the_order_of_their_transactions() {
        let mut disk = Disk::new(TransactionId(u32::MAX));
        let at = [(2, 0, u32::MAX, 3), (0, 0, 0, 5), (2, 4, 1, 2), (3, 0, 2, 31)]
            .map(|(log, at, transaction, blocks)| disk.put(log, at, transaction, blocks).plus(1));
        let found = disk.search(false).unwrap();
        assert_eq!(starts(&found), at);
        assert_eq!(
            (found.latest, found.proven, found.logs_read),
            (TransactionId(2), Some(TransactionId(1)), 4)
        );
        let (mut block, mut visited) = (found.walk.start().unwrap(), 1);
        while let Some(next) = found.walk.next(block) {
            (block, visited) = (next, visited + 1);
        }
        assert_eq!((block, visited), (at[3].plus(30), 3 + 5 + 2 + 31));
    }

    #[test]
    fn what_lies_before_the_tail_or_in_another_life_is_passed_over() {
        let mut disk = Disk::new(TransactionId(7));
        disk.put(0, 0, 5, 2);
        let live = disk.put(0, 3, 7, 2);
        // Behind it the remains of an earlier wrap, and in another log those of an earlier life.
        disk.put(0, 6, 4, 2);
        disk.superblock.scattered.as_mut().unwrap().nonce = 4;
        disk.put(1, 0, 8, 2);
        disk.superblock.scattered.as_mut().unwrap().nonce = 5;
        let found = disk.search(false).unwrap();
        assert_eq!((starts(&found), found.latest), (vec![live.plus(1)], TransactionId(7)));
        assert!(Disk::new(TransactionId(7)).search(false).unwrap().walk.start().is_none());
    }

    #[test]
    fn a_run_that_was_durable_and_is_missing_is_damage() {
        for later in [(0, 6), (1, 0)] {
            let mut disk = Disk::new(TransactionId(7));
            disk.put(0, 0, 7, 2);
            let rotten = disk.put(0, 3, 8, 2);
            disk.put(later.0, later.1, 9, 2);
            assert_eq!(starts(&disk.search(false).unwrap()).len(), 3);
            disk.blocks[rotten.get() as usize][9] ^= 1;
            let error = disk.search(false).unwrap_err();
            assert!(
                matches!(error, RecoverError::Damaged { transaction: TransactionId(8), .. }),
                "{error}"
            );
            let found = disk.search(true).unwrap();
            assert_eq!(
                (starts(&found).len(), found.gave_up, found.latest),
                (1, true, TransactionId(9))
            );
        }
    }

    /// The last run is rotten, and no later one was written.
    #[test]
    fn a_copy_and_a_snapshot_prove_that_a_later_run_was_durable() {
        let mut disk = Disk::new(TransactionId(7));
        let (moved, rotten) = (disk.put(0, 0, 7, 2), disk.put(1, 0, 8, 2));
        disk.blocks[rotten.get() as usize].fill(0);
        assert_eq!(starts(&disk.search(false).unwrap()).len(), 1);
        let is_damage = |disk: &Disk| {
            let found = disk.search(false);
            matches!(found, Err(RecoverError::Damaged { transaction: TransactionId(8), .. }))
        };
        let snapshot = NamedSnapshot {
            first: 1,
            first_at: LogBlock(FIRST + EACH),
            last: 1,
            end: TransactionId(0),
            read_from: TransactionId(7),
            longest: 2,
            since: ActiveLogs::none(),
        };
        for (end, proves) in [(8, false), (9, true)] {
            let named = NamedSnapshot { end: TransactionId(end), ..snapshot.clone() };
            disk.superblock.scattered.as_mut().unwrap().snapshot = Some(named);
            assert_eq!(is_damage(&disk), proves, "a snapshot up to {end}");
        }
        // Where the header is there, the scan of the run asks.
        disk.put(1, 0, 8, 2);
        assert_eq!(disk.search(false).unwrap().proven, Some(TransactionId(8)));
        disk.blocks[rotten.get() as usize].fill(0);
        disk.superblock.scattered.as_mut().unwrap().snapshot = None;
        disk.put_copy(moved, 7, 2, TransactionId(8));
        assert!(is_damage(&disk));
        assert_eq!(starts(&disk.search(true).unwrap()).len(), 1);
    }

    #[test]
    fn a_rotted_header_of_the_longest_run_hides_no_later_run() {
        for longest in [2, 63, 64, 65, 300, 1024] {
            let mut disk = Disk::with_logs(TransactionId(7), 2048);
            disk.superblock.transaction_bound = Some(u32::next_power_of_two(longest));
            disk.put(0, 0, 7, 2);
            let rotten = disk.put(0, 3, 8, longest - 1);
            disk.put(0, 3 + longest, 9, 2);
            assert_eq!(starts(&disk.search(false).unwrap()).len(), 3);
            disk.blocks[rotten.get() as usize].fill(0);
            let error = disk.search(false).unwrap_err();
            let is_damage =
                matches!(error, RecoverError::Damaged { transaction: TransactionId(8), .. });
            assert!(is_damage, "a run of {longest} blocks: {error}");
        }
    }

    /// The first transaction that is missing may begin there, also where a later one proves that it
    /// was committed. An older run behind it is no proof that it does not.
    #[test]
    fn an_unread_block_where_a_run_would_begin_is_not_passed_in_silence() {
        for (log, at, behind) in [(0, 3, 5), (1, 0, 5), (0, 3, 9), (1, 0, 9)] {
            let mut disk = Disk::new(TransactionId(7));
            disk.put(0, 0, 7, 2);
            let begin = disk.put(log, at, 8, 2);
            disk.put(log, at + 3, behind, 2);
            disk.unread = vec![begin];
            let error = disk.search(false).unwrap_err();
            let is_named = matches!(error, RecoverError::Unreadable { at, transaction }
                if at == begin && transaction == TransactionId(8));
            assert!(is_named, "{error}");
            let found = disk.search(true).unwrap();
            assert_eq!((starts(&found).len(), found.gave_up), (1, true));
        }
    }

    #[test]
    fn an_unread_block_elsewhere_is_passed_and_the_logs_are_not_continued() {
        let mut disk = Disk::new(TransactionId(7));
        disk.put(0, 0, 7, 2);
        let torn = disk.put(0, 3, 8, 2);
        disk.blocks[torn.get() as usize].fill(0);
        assert!(!disk.search(false).unwrap().has_unread());
        disk.unread = vec![torn.plus(1), torn.plus(4)];
        let found = disk.search(false).unwrap();
        assert_eq!((starts(&found).len(), found.gave_up, found.has_unread()), (1, false, true));
    }

    /// A log that was swapped still holds its runs, or what a torn run has left of them.
    #[test]
    fn run_copy_with_later_durable_floor_wins() {
        for (old, new) in [(0, 3), (3, 0)] {
            let mut disk = Disk::new(TransactionId(7));
            disk.put(old, 0, 7, 2);
            disk.put(old, 3, 8, 3);
            let at = disk.logs.start(new);
            let header = RunHeader {
                at,
                transaction: TransactionId(7),
                blocks: 2,
                durable: TransactionId(8),
            };
            header.serialize(disk.superblock.scattered_seed(), &mut disk.blocks[at.get() as usize]);
            let found = disk.search(false).unwrap();
            assert_eq!(starts(&found), [at.plus(1), disk.logs.start(old).plus(4)]);
        }
    }

    #[test]
    fn a_hostile_length_makes_the_search_no_longer_than_the_logs() {
        let mut disk = Disk::new(TransactionId(7));
        disk.superblock.transaction_bound = Some(u32::MAX);
        assert_eq!(disk.search(false).unwrap().blocks_read, u64::from(4 * EACH));
    }

    /// Headers with right checksums and anything else: no panic, and no block is read twice.
    #[test]
    fn no_headers_make_the_search_loop_or_read_a_block_twice() {
        for seed in 0..500u64 {
            let random = SplitMix::new(seed);
            let roll = |sides: u64| random.below(sides) as u32;
            let mut disk = Disk::new(TransactionId(roll(20)));
            for _ in 0..roll(60) {
                let blocks = if roll(4) == 0 { u32::MAX - roll(3) } else { roll(12) };
                disk.put(roll(4), roll(EACH.into()), roll(30), blocks);
            }
            if let Ok(found) = disk.search(roll(2) == 0) {
                let runs = &found.walk.runs;
                assert!(runs.iter().all(|run| run.count < EACH), "seed {seed}: {runs:?}");
            }
        }
    }
}
