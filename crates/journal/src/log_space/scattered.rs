//! Many short logs all over the home disk (`docs/modes/scattered.md`): each transaction is one run
//! in the log nearest to the disk's arm.
//!
//! 1. A run lies in one log, and begins with a header in a block of its own, which recovery
//!    follows.
//! 2. A log is named in the journal superblock, durably, before its first run is written
//!    ([`LogSpace::announce`]).
//! 3. So is the length of the longest run, before it is written. Recovery looks that far for a run
//!    behind one whose header has rotted.
//! 4. A run that fits when it is admitted fits when it is bound (`free_space`).
//! 5. While runs move, the superblock marks the copies: they count from the write of it that
//!    removes the mark, all at once. No run is written behind a mark.
//! 6. A power cut may leave a run without its header. A restart does not see it, and its number is
//!    used again, perhaps in its place: a new header alone would bring the old run back, and so
//!    would a table that lists it. So before runs of these numbers are written or listed, the first
//!    block of their place is wiped ([`LogSpace::stale_start`]). If the log is emptied first, the
//!    superblock skips these numbers ([`LogSpace::numbers_left_over`]).
//! 7. While a snapshot counts, the superblock also names each log that may get a run behind it,
//!    durably, before the run is written. So a restart need not look into the others.

use super::free_space::{FreeSpace, UsedSpace};
use super::held::HeldInOrder;
use super::run_table::{RunTable, TablePage};
use super::scattered_log_map::Logs;
use super::swap::{LogSwap, SwappedRun};
use super::{LogFull, LogRun, LogRuns, LogSpace, LogWalk, transaction_blocks_max};
use device::Buffer;
use format::jbd2::{JournalSuperblock, Seed};
use format::scattered::{ActiveLogs, RunHeader};
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// Maximum number of logs that a restart is to look into, if it knows what is in the others: a seek
/// each.
const LOOKED_INTO_MAX: usize = 512;
/// Bytes that recovery looks ahead whatever the superblock says: shorter runs need not be
/// announced.
pub(crate) const ANNOUNCED_LENGTH_MIN: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct ScatteredLog {
    pub(super) logs: Logs,
    /// Bytes of a log block, and seed of the checksums of run headers.
    pub(super) unit: usize,
    pub(super) seed: Seed,
    /// Start of the log in the journal superblock.
    anchor: LogBlock,
    pub(super) free_space: FreeSpace,
    pub(super) held: HeldInOrder<Held>,
    /// Log of the last run.
    last: u32,
    chosen: Option<u32>,
    /// Log blocks of the longest run that was ever reserved, header included.
    longest: u32,
    /// The log that is being filled with another one's runs.
    pub(super) swapping: Option<Filling>,
    pub(super) table: Option<RunTable>,
    /// First of [`IN_FLIGHT_MAX`] transactions that may have the number of a run that a power cut
    /// has left.
    left_over: Option<TransactionId>,
}

/// Maximum number of transactions in flight at a power cut, so that a restart finds a later one's
/// run without an earlier one's.
const IN_FLIGHT_MAX: u32 = 2;

/// A log that is being filled with copies of another one's runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) log: u32,
    /// The first block of the copies.
    pub(super) at: LogBlock,
    /// The superblock says, or is about to say, that the copies count.
    pub(super) counts: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Blocks of its run, header included.
    pub(super) blocks: u32,
    /// Log of the run, and its first block there.
    pub(super) bound: Option<(u32, u32)>,
}

impl ScatteredLog {
    /// Creates empty logs. `superblock` describes scattered logs.
    pub fn new(superblock: &JournalSuperblock, logs: Logs) -> ScatteredLog {
        let unit = superblock.log_block_bytes();
        ScatteredLog {
            unit,
            seed: superblock.scattered_seed(),
            anchor: superblock.log_blocks().start,
            free_space: FreeSpace::new(logs.count(), logs.length()),
            held: HeldInOrder::new(),
            last: 0,
            chosen: None,
            longest: 0,
            swapping: None,
            table: None,
            left_over: None,
            logs,
        }
    }

    /// Creates logs that hold the `runs` of `first` and the transactions behind it, as recovery
    /// found them. Each log continues behind the last of its own. None of the runs counts as fresh:
    /// a swap needs a later durable floor than their headers have.
    #[must_use]
    pub fn holding(mut self, first: TransactionId, runs: &[LogRun]) -> ScatteredLog {
        let mut transaction = first;
        for run in runs {
            let blocks = run.count + HEADER;
            let (log, behind_header) = self.logs.log_of(run.start);
            let at = behind_header - HEADER;
            self.held.push(transaction, Held { blocks, bound: Some((log, at)) });
            let used = self.free_space.used(log);
            let end = used.blocks.max(at + blocks);
            self.free_space.set(log, UsedSpace { blocks: end, live: used.live + 1, fresh: 0 });
            (self.last, self.longest) = (log, self.longest.max(blocks));
            transaction = transaction.next();
        }
        self.left_over = Some(transaction);
        self
    }

    /// Whether the longest run is longer than was announced. Announced lengths are rounded up, so
    /// that there are few of them, and never shrink, so that none is repeated with each move of the
    /// tail.
    fn announce_longest(&self, said: &mut Option<u32>) -> bool {
        let is_long = self.longest as usize * self.unit >= ANNOUNCED_LENGTH_MIN;
        let is_longer = is_long && said.is_none_or(|said| self.longest > said);
        if is_longer {
            *said = Some(self.longest.next_power_of_two());
        }
        is_longer
    }

    /// Returns the logs that get runs next, which are announced together.
    fn about_to_be_filled(&self) -> ActiveLogs {
        let mut wanted = ActiveLogs::none();
        let chosen = self.chosen.unwrap_or(self.last);
        let filled = self.swapping.map(|filling| filling.log);
        for log in [Some(chosen), filled].into_iter().flatten() {
            self.logs.announced_with(log).for_each(|bit| wanted.set(bit));
        }
        wanted
    }

    /// Records in the superblock where the copies lie that do not count. Returns whether that must
    /// be durable before the next run is written: a mark that an interrupted swap has left would
    /// hide it.
    fn announce_moving(&self, superblock: &mut JournalSuperblock) -> bool {
        let (said, chosen) = (superblock.moving(), self.chosen.unwrap_or(self.last));
        let moving = self.swapping.filter(|filling| !filling.counts).map(|filling| filling.at);
        superblock.set_moving(moving);
        let hides = |at| self.logs.holding(at) == Some(chosen);
        match moving {
            Some(_) => said != moving,
            None => said.is_some_and(hides) && !units::fault!("swap-mark-stays"),
        }
    }

    /// Returns the log with space for `blocks` in which the next run would lie nearest to `head`.
    fn nearest(&self, blocks: u32, head: HomeBlock) -> Option<u32> {
        let distance = |log: &u32| {
            self.logs.home(*log, self.free_space.used(*log).blocks).get().abs_diff(head.get())
        };
        (0..self.logs.count()).filter(|log| self.free_space.fits(*log, blocks)).min_by_key(distance)
    }
}

/// Log blocks of a run's header.
pub(super) const HEADER: u32 = 1;

impl LogSpace for ScatteredLog {
    fn capacity(&self) -> u32 {
        self.logs.blocks()
    }
    fn free(&self) -> u32 {
        self.free_space.free()
    }
    fn reservable_blocks(&self) -> u32 {
        let unbound = self.held.iter().rev().take_while(|(_, held)| held.bound.is_none()).count();
        self.free_space.fitting(unbound).saturating_sub(HEADER)
    }
    /// Leaves space for the next transaction, and for a revoke for each live record.
    fn transaction_max(&self) -> u32 {
        let most = ((self.logs.length() - HEADER) / 2).min(self.capacity() / 4);
        most.min(transaction_blocks_max(self.unit))
    }
    fn taken(&self, count: u32) -> u32 {
        count + HEADER
    }
    /// Returns the blocks to free. Space is freed log by log: all transactions that hold a log are
    /// written back until it is empty.
    fn to_free(&self, needed: u32, largest: u32) -> u32 {
        if self.reservable_blocks() < largest {
            needed
        } else {
            needed.saturating_sub(self.capacity() / 2)
        }
    }
    fn reserve(&mut self, transaction: TransactionId, count: u32) -> Result<(), LogFull> {
        assert!(count > 0);
        if count > self.reservable_blocks() {
            return Err(LogFull { needed: count, free: self.reservable_blocks() });
        }
        let blocks = count + HEADER;
        self.held.push(transaction, Held { blocks, bound: None });
        self.free_space.reserve(blocks);
        self.longest = self.longest.max(blocks);
        Ok(())
    }
    fn choose(&mut self, transaction: TransactionId, head: HomeBlock) {
        let held = self.held.get(transaction).expect("a transaction that has reserved room");
        self.chosen = self.nearest(held.blocks, head);
        assert!(self.chosen.is_some(), "room was reserved");
    }
    fn bind(&mut self, transaction: TransactionId) -> LogRuns {
        let blocks =
            self.held.get(transaction).expect("a transaction that has reserved room").blocks;
        let log = self.chosen.take().or_else(|| {
            let head = self.logs.home(self.last, 0);
            self.nearest(blocks, head)
        });
        let log = log.expect("room was reserved");
        let first = self.free_space.take(log, blocks);
        self.held.get_mut(transaction).expect("as before").bound = Some((log, first));
        self.last = log;
        LogRuns(vec![LogRun {
            start: self.logs.start(log).plus(first + HEADER),
            count: blocks - HEADER,
        }])
    }
    fn header(
        &self,
        transaction: TransactionId,
        durable: TransactionId,
    ) -> Option<(LogBlock, Rc<Buffer>)> {
        let held = self.held.get(transaction)?;
        let (log, first) = held.bound.expect("a transaction that is bound");
        let at = self.logs.start(log).plus(first);
        let mut block = Buffer::zeroed(self.unit);
        let header = RunHeader { at, transaction, blocks: held.blocks - HEADER, durable };
        header.serialize(self.seed, &mut block);
        Some((at, Rc::new(block)))
    }
    fn stale_start(&self, transaction: TransactionId) -> Option<LogBlock> {
        let left_over = self.left_over.filter(|_| !units::fault!("stale-run-not-wiped"))?;
        let may_be = transaction.0.wrapping_sub(left_over.0) < IN_FLIGHT_MAX;
        self.run_of(transaction).filter(|_| may_be).map(|run| run.start)
    }
    fn numbers_left_over(&self) -> u32 {
        match self.left_over {
            Some(_) if !units::fault!("left-over-number-given-again") => IN_FLIGHT_MAX,
            _ => 0,
        }
    }
    fn announce(&self, superblock: &mut JournalSuperblock, tail: Option<TransactionId>) -> bool {
        let is_longer = self.announce_longest(&mut superblock.transaction_bound);
        let is_moving = self.announce_moving(superblock);
        let Some(scattered) = &mut superblock.scattered else { return is_longer };
        let mut mark = self.table.as_ref().map_or(0, |table| table.mark);
        if units::fault!("run-table-mark-not-said") && mark == 0 {
            mark = scattered.table_mark;
        }
        let is_marked = std::mem::replace(&mut scattered.table_mark, mark) == mark;
        let mut wanted = self.about_to_be_filled();
        let mut is_known = true;
        if let Some(snapshot) = &mut scattered.snapshot {
            let longest = self.longest_from(snapshot.end).max(snapshot.longest);
            is_known = snapshot.since.includes(&wanted) && snapshot.longest == longest;
            if !units::fault!("snapshot-log-unsaid") {
                snapshot.since.add(&wanted);
            }
            snapshot.longest = longest;
        }
        let said = match tail {
            Some(tail) => {
                // Recovery need not see transactions before the tail.
                let live = self.held.iter().filter(|(transaction, _)| !tail.is_after(*transaction));
                for (log, _) in live
                    .filter_map(|(_, held)| held.bound)
                    .filter(|_| !units::fault!("scattered-tail-forgets"))
                {
                    self.logs.announced_with(log).for_each(|bit| wanted.set(bit));
                }
                std::mem::replace(&mut scattered.active, wanted)
            }
            None => {
                let said = scattered.active.clone();
                scattered.active.add(&wanted);
                said
            }
        };
        is_longer || is_moving || !is_marked || !is_known || !said.includes(&scattered.active)
    }
    fn table_pages(&mut self, transaction: TransactionId) -> Vec<TablePage> {
        self.pages_for(transaction)
    }
    fn forget_table(&mut self) -> Vec<TablePage> {
        self.pages_without()
    }
    fn run_of(&self, transaction: TransactionId) -> Option<LogRun> {
        let held = self.held.get(transaction)?;
        let (log, first) = held.bound?;
        let start = self.logs.start(log).plus(first + HEADER);
        Some(LogRun { start, count: held.blocks - HEADER })
    }
    /// Logs that a restart looked into before stay among them while they are few: they need not be
    /// announced anew.
    fn since(&self, end: TransactionId, said: &ActiveLogs) -> ActiveLogs {
        let mut needed = self.about_to_be_filled();
        let later =
            self.held.iter().rev().take_while(|(transaction, _)| transaction.is_at_or_after(end));
        for (log, _) in later.filter_map(|(_, held)| held.bound) {
            self.logs.announced_with(log).for_each(|bit| needed.set(bit));
        }
        let mut all = said.clone();
        all.add(&needed);
        if self.are_many(&all) { needed } else { all }
    }
    fn longest_from(&self, first: TransactionId) -> u32 {
        let later =
            self.held.iter().rev().take_while(|(transaction, _)| transaction.is_at_or_after(first));
        let longest = later.map(|(_, held)| held.blocks).max().unwrap_or(0);
        if longest as usize * self.unit < ANNOUNCED_LENGTH_MIN {
            0
        } else {
            longest.next_power_of_two()
        }
    }
    /// Returns false where a table names each run: a restart looks into no log.
    fn are_many(&self, since: &ActiveLogs) -> bool {
        self.table.is_none() && self.logs.active(since).count() > LOOKED_INTO_MAX
    }
    /// Returns the anchor: recovery begins with the announced logs, wherever a transaction starts.
    fn start_of(&self, _transaction: TransactionId) -> Option<LogBlock> {
        Some(self.anchor)
    }
    fn oldest(&self) -> Option<TransactionId> {
        self.held.oldest()
    }
    fn release(&mut self, transaction: TransactionId) {
        let held = self.held.get(transaction).expect("a transaction in the log is released once");
        let (log, _) = held.bound.expect("what was never written is not released");
        self.free_space.release(log);
        self.held.release(transaction, drop);
    }
    fn begin_swap(&mut self, percent: u32, head: HomeBlock) -> Option<LogSwap> {
        let swap = self.find_swap(percent, head)?;
        self.close_for(&swap);
        Some(swap)
    }
    fn is_run_of_swap(&self, run: &SwappedRun, bytes: &[u8]) -> bool {
        self.begins(run, bytes)
    }
    fn headers_of_swap(
        &self,
        swap: &LogSwap,
        durable: TransactionId,
    ) -> Vec<(LogBlock, Rc<Buffer>)> {
        self.headers(swap, durable)
    }
    fn count_copies(&mut self) {
        self.swapping.iter_mut().for_each(|filling| filling.counts = true);
    }
    fn end_swap(&mut self, swap: &LogSwap) -> Vec<SwappedRun> {
        self.rebind(swap)
    }
    fn give_up_swap(&mut self, swap: &LogSwap, again: bool) {
        self.open_again(swap, again);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScatteredLogMap;
    use super::*;
    use format::scattered::NamedSnapshot;
    use std::collections::VecDeque;
    use units::{BlockSize, SplitMix};

    /// Creates four logs of 16 blocks, 100 blocks of home apart.
    fn log() -> ScatteredLog {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let homes = (0..4).map(|log| HomeBlock(90 + 100 * log)).collect();
        let places = ScatteredLogMap { first: LogBlock(64), blocks: 16, homes };
        ScatteredLog::new(&superblock, places.in_units(1).unwrap())
    }
    fn id(number: u32) -> TransactionId {
        TransactionId((u32::MAX - 1).wrapping_add(number))
    }
    fn put(log: &mut ScatteredLog, number: u32, count: u32, head: u64) -> LogRun {
        log.reserve(id(number), count).unwrap();
        log.choose(id(number), HomeBlock(head));
        log.bind(id(number)).0[0]
    }

    #[test]
    fn a_run_lies_in_the_nearest_log_with_room() {
        let mut log = log();
        assert_eq!(put(&mut log, 0, 7, 180), LogRun { start: LogBlock(64 + 16 + 1), count: 7 });
        assert_eq!(put(&mut log, 1, 6, 180), LogRun { start: LogBlock(64 + 16 + 9), count: 6 });
        assert_eq!(
            put(&mut log, 2, 2, 180).start,
            LogBlock(64 + 1),
            "the nearest has one block left"
        );
        assert_eq!(put(&mut log, 3, 2, 5000).start, LogBlock(64 + 48 + 1));
        let header = log.header(id(1), id(0)).unwrap();
        assert_eq!(header.0, LogBlock(64 + 16 + 8));
        let read = RunHeader::parse(header.0, &header.1, log.seed).unwrap();
        assert_eq!((read.transaction, read.blocks, read.durable), (id(1), 6, id(0)));
    }

    #[test]
    fn a_log_is_begun_again_when_all_in_it_is_released() {
        let mut log = log();
        put(&mut log, 0, 3, 90);
        put(&mut log, 1, 3, 90);
        put(&mut log, 2, 3, 300);
        log.release(id(0));
        assert_eq!((log.free(), log.oldest()), (64 - 12, Some(id(1))));
        log.release(id(1));
        assert_eq!((log.free(), log.oldest()), (64 - 4, Some(id(2))));
        assert_eq!(put(&mut log, 3, 3, 90).start, LogBlock(64 + 1));
    }

    #[test]
    fn what_is_admitted_fits_wherever_the_others_go() {
        let mut log = log();
        assert_eq!((log.reservable_blocks(), log.transaction_max()), (15, 7));
        // Two logs are full, one has 8 blocks left, one all of its 16.
        put(&mut log, 0, 15, 90);
        put(&mut log, 1, 15, 190);
        put(&mut log, 2, 7, 290);
        assert_eq!(log.reservable_blocks(), 15);
        log.reserve(id(3), 7).unwrap();
        // It takes 8 blocks of either log: the other's 8 are left, or its own.
        assert_eq!(log.reservable_blocks(), 7);
        log.choose(id(3), HomeBlock(390));
        log.bind(id(3));
        assert_eq!(log.reservable_blocks(), 7);
        assert_eq!(log.reserve(id(4), 8), Err(LogFull { needed: 8, free: 7 }));
        log.release_before(id(3));
        assert_eq!(log.reservable_blocks(), 15);
    }

    /// Random transactions at random places: each admitted one is bound, and no two runs share a
    /// block.
    #[test]
    fn no_two_live_runs_share_a_block() {
        let (mut log, mut next, mut oldest) = (log(), 0u32, 0u32);
        let random = SplitMix::new(11);
        let roll = |sides: u64| random.below(sides);
        let mut live: VecDeque<LogRun> = VecDeque::new();
        for _ in 0..2000 {
            let count = 1 + roll(7) as u32;
            if count > log.reservable_blocks() {
                let released = oldest + 1 + roll(u64::from(next - oldest)) as u32;
                log.release_before(id(released));
                live.drain(..(released - oldest) as usize);
                oldest = released;
                continue;
            }
            let run = put(&mut log, next, count, roll(500));
            next += 1;
            let apart = |other: &LogRun| {
                other.start.get() + other.count < run.start.get()
                    || run.start.get() + run.count < other.start.get()
            };
            assert!(live.iter().all(apart), "{run:?} beside {live:?}");
            live.push_back(run);
        }
        assert!(next > 500, "only {next} runs");
    }

    #[test]
    fn restart_reads_only_logs_with_possible_later_runs() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let homes = (0..3000).map(|log| HomeBlock(90 + 100 * log)).collect();
        let places = ScatteredLogMap { first: LogBlock(64), blocks: 16, homes };
        let mut log = ScatteredLog::new(&superblock, places.in_units(1).unwrap());
        for number in 0..40 {
            put(&mut log, number, 2, u64::from(number) * 7000);
        }
        let looked_into = |since: &ActiveLogs| log.logs.active(since).collect::<Vec<_>>();
        let mut all = ActiveLogs::none();
        (0..ActiveLogs::BITS).for_each(|bit| all.set(bit));
        // Three logs share a bit, and sixteen bits are said together.
        assert!(log.are_many(&all) && !log.clone().with_table(7).are_many(&all));
        let few = looked_into(&log.since(id(38), &all));
        assert!(few.len() <= 2 * 3 * 16 && few.len() < LOOKED_INTO_MAX, "{} logs", few.len());
        for number in 38..40 {
            let run = log.run_of(id(number)).unwrap();
            assert!(few.contains(&log.logs.holding(run.start).unwrap()), "{number}");
        }
        let mut said = ActiveLogs::none();
        said.set(500);
        let kept = log.since(id(40), &said);
        assert!(kept.includes(&said), "few are looked into again");
        // A later run in any other log is announced before it is written.
        let named = NamedSnapshot {
            first: 1,
            first_at: LogBlock(1),
            last: 1,
            end: id(40),
            read_from: id(40),
            longest: 0,
            since: kept.clone(),
        };
        superblock.scattered.as_mut().unwrap().active = all;
        superblock.name_snapshot(Some(named));
        log.reserve(id(40), 2).unwrap();
        log.choose(id(40), HomeBlock(150_000));
        assert!(log.announce(&mut superblock, None));
        let bound = log.bind(id(40)).0[0].start;
        let since = &superblock.named_snapshot().unwrap().since;
        let log_of = log.logs.holding(bound).unwrap();
        assert!(log.logs.active(since).any(|looked_into| looked_into == log_of), "{log_of}");
        assert!(!log.announce(&mut superblock, None), "it is said once");
        // Like a run that is longer than those before it.
        log.unit = 32 << 10;
        assert!(log.announce(&mut superblock, None));
        assert_eq!(
            (superblock.named_snapshot().unwrap().longest, log.longest_from(id(41))),
            (4, 0)
        );
    }

    #[test]
    fn a_longer_run_is_announced_before_it_is_written() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(4096).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let places = ScatteredLogMap {
            first: LogBlock(64),
            blocks: 256,
            homes: vec![HomeBlock(0), HomeBlock(1000)],
        };
        let mut log = ScatteredLog::new(&superblock, places.in_units(1).unwrap());
        let mut longest = Vec::new();
        for (number, count) in [(0, 3), (1, 14), (2, 15), (3, 40), (4, 50), (5, 3)] {
            log.reserve(id(number), count).unwrap();
            log.choose(id(number), HomeBlock(0));
            let is_news = log.announce(&mut superblock, None);
            longest.push((is_news, superblock.transaction_bound.unwrap_or(0)));
            log.bind(id(number));
        }
        // The first announces the log.
        assert_eq!(
            longest,
            [(true, 0), (false, 0), (true, 16), (true, 64), (false, 64), (false, 64)]
        );
        assert!(
            !log.announce(&mut superblock, Some(id(5))),
            "the tail moves, and the length stays"
        );
        assert_eq!(superblock.transaction_bound, Some(64));
    }

    #[test]
    fn logs_are_announced_before_use_and_forgotten_with_the_tail() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let homes = (0..40).map(|log| HomeBlock(100 * log)).collect();
        let places = ScatteredLogMap { first: LogBlock(64), blocks: 16, homes };
        let mut log = ScatteredLog::new(&superblock, places.in_units(1).unwrap());
        let active = |superblock: &JournalSuperblock| superblock.scattered.clone().unwrap().active;
        log.reserve(id(0), 3).unwrap();
        log.choose(id(0), HomeBlock(3900));
        assert!(log.announce(&mut superblock, None) && !log.announce(&mut superblock, None));
        assert!(active(&superblock).contains(39) && active(&superblock).contains(35));
        assert!(!active(&superblock).contains(34));
        log.bind(id(0));
        log.reserve(id(1), 3).unwrap();
        log.choose(id(1), HomeBlock(0));
        assert!(log.announce(&mut superblock, None));
        log.bind(id(1));
        log.announce(&mut superblock, Some(id(0)));
        assert!(active(&superblock).contains(39) && active(&superblock).contains(0));
        log.announce(&mut superblock, Some(id(1)));
        assert!(!active(&superblock).contains(39) && active(&superblock).contains(0));
        assert_eq!(log.logs.active(&active(&superblock)).count(), 5);
    }
}
