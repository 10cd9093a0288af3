//! Log swapping moves the runs of a log that is nearly full to a cold one, so that there is space
//! again near the arm.
//!
//! 1. Runs that move stay where they were until their copies, with headers of their own, are
//!    durable ([`crate::plan_run_headers`]), and the superblock says that they count. It says so of
//!    all of them at once ([`super::LogSpace::count_copies`]): after a crash either all runs have
//!    moved or none. Headers of copies that do not count are wiped before their place is used.
//! 2. A copy's header has a later durable floor than the header before it. So recovery, which may
//!    meet both, recognizes the copy. For that a log moves only if it got a transaction since its
//!    runs came there. Such transactions must fill an eighth of it, or all of it would be read and
//!    written to free little space.
//! 3. During a swap neither log takes a run, and the log that is filled is announced to recovery
//!    ([`super::LogSpace::announce`]).
//! 4. Numbers rise within a log: runs move to an empty one, or behind others that are all older and
//!    leave space for them.

use super::free_space::UsedSpace;
use super::scattered::{Filling, HEADER, ScatteredLog};
use device::Buffer;
use format::scattered::RunHeader;
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// Runs that are being moved from one log to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSwap {
    from: u32,
    to: u32,
    /// Blocks of the log that were in use, and of the one that is filled.
    used: u32,
    filled: UsedSpace,
    runs: Vec<SwappedRun>,
}

/// Inverse of the share of a log that runs put there, not moved there, must fill before it moves.
const FRESH_PART: u32 = 8;

/// A run that is being moved. Its header comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwappedRun {
    pub transaction: TransactionId,
    pub from: LogBlock,
    pub to: LogBlock,
    /// Log blocks behind the header.
    pub blocks: u32,
}

impl SwappedRun {
    /// Returns the new address of the block `at` of the run.
    #[must_use]
    pub fn moved(&self, at: LogBlock) -> LogBlock {
        self.to.plus(at.get() - self.from.get())
    }
}

impl LogSwap {
    pub fn runs(&self) -> &[SwappedRun] {
        &self.runs
    }
}

impl ScatteredLog {
    /// Returns, of the logs that are filled above `percent`, the one nearest to `head`; and,
    /// farther away, the farthest empty one. If there is none, the farthest that has space behind
    /// older runs.
    pub(super) fn find_swap(&self, percent: u32, head: HomeBlock) -> Option<LogSwap> {
        if self.swapping.is_some() || self.held.iter().any(|(_, held)| held.bound.is_none()) {
            return None;
        }
        let distance = |log: u32| self.logs.home(log, 0).get().abs_diff(head.get());
        let from = (0..self.logs.count()).filter(|log| self.may_move(*log, percent));
        let from = from.min_by_key(|log| distance(*log))?;
        let moving: Vec<_> = self.bound_to(from).collect();
        let (oldest, ..) = *moving.first()?;
        let blocks = moving.iter().map(|(_, _, blocks)| blocks).sum();
        let newest = self.newest_of_each();
        let takes = |to: &u32| {
            let are_older = newest[*to as usize].is_none_or(|newest| oldest.is_after(newest));
            distance(*to) > distance(from) && are_older && self.free_space.fits(*to, blocks)
        };
        let cold = (0..self.logs.count()).filter(takes);
        let to = cold.max_by_key(|log| (self.free_space.used(*log).blocks == 0, distance(*log)))?;
        let filled = self.free_space.used(to);
        let (mut runs, mut at) = (Vec::new(), self.logs.start(to).plus(filled.blocks));
        for (transaction, first, blocks) in moving {
            let from = self.logs.start(from).plus(first);
            runs.push(SwappedRun { transaction, from, to: at, blocks: blocks - HEADER });
            at = at.plus(blocks);
        }
        Some(LogSwap { from, to, used: self.free_space.used(from).blocks, filled, runs })
    }

    /// Returns transaction, first block and blocks of each run that is held in `log`, in order.
    fn bound_to(&self, log: u32) -> impl Iterator<Item = (TransactionId, u32, u32)> {
        self.held.iter().filter_map(move |(transaction, held)| {
            let (_, first) = held.bound.filter(|(bound, _)| *bound == log)?;
            Some((transaction, first, held.blocks))
        })
    }
    /// Returns the last run that is held in each log.
    fn newest_of_each(&self) -> Vec<Option<TransactionId>> {
        let mut newest = vec![None; self.logs.count() as usize];
        for (transaction, held) in self.held.iter() {
            if let Some((log, _)) = held.bound {
                newest[log as usize] = Some(transaction);
            }
        }
        newest
    }
    fn may_move(&self, log: u32, percent: u32) -> bool {
        let (used, length) = (self.free_space.used(log), u64::from(self.logs.length()));
        let full = length * u64::from(percent) / 100;
        u64::from(used.blocks) > full
            && u64::from(used.fresh) >= full.min(length / u64::from(FRESH_PART)).max(1)
    }
    /// Closes both logs: neither has space for further runs.
    pub(super) fn close_for(&mut self, swap: &LogSwap) {
        let at = self.logs.start(swap.to).plus(swap.filled.blocks);
        self.swapping = Some(Filling { log: swap.to, at, counts: false });
        self.free_space.close(swap.from);
        self.free_space.close(swap.to);
        // The runs that come count as one, so that the log is not begun again if all its own are
        // released during the swap.
        self.free_space.hold(swap.to);
    }

    /// Moves the runs that are still held to the addresses of their copies.
    pub(super) fn rebind(&mut self, swap: &LogSwap) -> Vec<SwappedRun> {
        let mut moved = Vec::new();
        for run in self.remaining(swap) {
            let first = run.to.get() - self.logs.start(swap.to).get();
            let held = self.held.get_mut(run.transaction).expect("a transaction that is held");
            held.bound = Some((swap.to, first));
            moved.push(run);
        }
        match moved.last() {
            Some(last) => {
                let blocks =
                    last.to.plus(HEADER + last.blocks).get() - self.logs.start(swap.to).get();
                let live = self.free_space.used(swap.to).live + moved.len() as u32;
                self.free_space.set(swap.to, UsedSpace { blocks, live, fresh: 0 });
                self.free_space.release(swap.to);
                self.free_space.set(swap.from, UsedSpace::default());
            }
            None => self.open_filled(swap),
        }
        self.swapping = None;
        moved
    }

    /// Restores the state before the swap. `again`: the log may be swapped another time.
    pub(super) fn open_again(&mut self, swap: &LogSwap, again: bool) {
        self.open_filled(swap);
        if !self.remaining(swap).is_empty() {
            let UsedSpace { live, fresh, .. } = self.free_space.used(swap.from);
            let fresh = if again { fresh } else { 0 };
            self.free_space.set(swap.from, UsedSpace { blocks: swap.used, live, fresh });
        }
        self.swapping = None;
    }

    /// Reopens the log that was to be filled, to which nothing came.
    fn open_filled(&mut self, swap: &LogSwap) {
        let live = self.free_space.used(swap.to).live;
        self.free_space.set(swap.to, UsedSpace { live, ..swap.filled });
        self.free_space.release(swap.to);
    }

    /// Returns the runs of which no transaction was released during the swap. While there are any,
    /// their log was not begun again.
    fn remaining(&self, swap: &LogSwap) -> Vec<SwappedRun> {
        let first = |run: &SwappedRun| run.from.get() - self.logs.start(swap.from).get();
        let is_held = |run: &&SwappedRun| {
            let held = self.held.get(run.transaction);
            held.is_some_and(|held| held.bound == Some((swap.from, first(run))))
        };
        swap.runs.iter().filter(is_held).copied().collect()
    }

    /// Returns the headers of the copies. `durable`: that transaction and all before it are.
    pub(super) fn headers(
        &self,
        swap: &LogSwap,
        durable: TransactionId,
    ) -> Vec<(LogBlock, Rc<Buffer>)> {
        let header = |run: &SwappedRun| {
            let SwappedRun { transaction, to: at, blocks, .. } = *run;
            let mut block = Buffer::zeroed(self.unit);
            RunHeader { at, transaction, blocks, durable }.serialize(self.seed, &mut block);
            (at, Rc::new(block))
        };
        swap.runs.iter().map(header).collect()
    }

    /// Whether `bytes` begin with the header of `run`, at its old address.
    pub(super) fn begins(&self, run: &SwappedRun, bytes: &[u8]) -> bool {
        let header = RunHeader::parse(run.from, bytes, self.seed);
        header.is_some_and(|header| {
            (header.transaction, header.blocks) == (run.transaction, run.blocks)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogRun, LogRuns, LogSpace, ScatteredLogMap};
    use super::*;
    use format::jbd2::JournalSuperblock;
    use units::{BlockSize, SplitMix};

    /// Creates logs of 16 blocks, 100 blocks of home apart.
    fn log(count: u64) -> ScatteredLog {
        log_of(count, 16)
    }
    fn log_of(count: u64, blocks: u32) -> ScatteredLog {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let homes = (0..count).map(|log| HomeBlock(100 * log)).collect();
        let places = ScatteredLogMap { first: LogBlock(64), blocks, homes };
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
    const HEAD: HomeBlock = HomeBlock(110);

    #[test]
    fn a_full_log_near_the_head_moves_to_the_farthest_empty_one() {
        let mut log = log(5);
        put(&mut log, 0, 7, 100);
        put(&mut log, 1, 5, 100);
        put(&mut log, 2, 3, 400);
        assert_eq!(log.begin_swap(95, HEAD), None, "it is not full enough");
        let free = log.free();
        let swap = log.begin_swap(80, HEAD).unwrap();
        let runs: Vec<_> =
            swap.runs().iter().map(|run| (run.transaction, run.from.get(), run.to.get())).collect();
        assert_eq!(
            runs,
            [(id(0), 64 + 16, 64 + 48), (id(1), 64 + 24, 64 + 56)],
            "the last one is in use"
        );
        assert_eq!(log.free(), free - 16 - 2, "both are closed during the swap");
        assert_eq!(log.begin_swap(0, HEAD), None, "one at a time");
        assert_eq!(put(&mut log, 3, 3, 110).start, LogBlock(64 + 32 + 1));
        assert_eq!(put(&mut log, 4, 3, 310).start, LogBlock(64 + 64 + 5));
        assert_eq!(log.end_swap(&swap).len(), 2);
        assert_eq!(log.free(), 5 * 16 - 14 - 4 - 4 - 4);
        assert_eq!(put(&mut log, 5, 3, 110).start, LogBlock(64 + 16 + 1), "there is room again");
        // The log has got no runs of its own, and none farther away is empty.
        assert_eq!(log.begin_swap(80, HomeBlock(300)), None);
        log.release_before(id(6));
        assert_eq!(log.free(), 5 * 16);
    }

    #[test]
    fn nothing_is_swapped_to_where_the_head_is_nearer() {
        let mut log = log(2);
        put(&mut log, 0, 14, 100);
        assert_eq!(log.begin_swap(80, HomeBlock(20)), None);
        assert!(log.begin_swap(80, HomeBlock(90)).is_some());
    }

    #[test]
    fn a_run_released_during_a_swap_does_not_move() {
        for (released, moved) in [(0, 2), (1, 1), (2, 0)] {
            let mut log = log(4);
            put(&mut log, 0, 6, 0);
            put(&mut log, 1, 6, 0);
            let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
            log.release_before(id(released));
            put(&mut log, 2, 3, 0);
            let runs = log.end_swap(&swap);
            assert_eq!(runs.len(), moved);
            let copies = if moved > 0 { 14 } else { 0 };
            assert_eq!(log.free(), 4 * 16 - copies - 4);
            log.release_before(id(3));
            assert_eq!(log.free(), 4 * 16);
        }
    }

    #[test]
    fn a_swap_that_is_given_up_leaves_all_as_it_was() {
        for released in 0..=2 {
            let mut log = log(4);
            put(&mut log, 0, 6, 0);
            put(&mut log, 1, 6, 0);
            let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
            log.release_before(id(released));
            log.give_up_swap(&swap, released == 0);
            let used = if released == 2 { 0 } else { 14 };
            assert_eq!((log.free(), log.reservable_blocks()), (4 * 16 - used, 15));
            assert_eq!(log.begin_swap(80, HomeBlock(0)).is_some(), released == 0);
        }
    }

    /// A swap could otherwise read and write ten megabytes to free a few kilobytes.
    #[test]
    fn moved_log_moves_again_after_eighth_of_runs() {
        let mut log = log_of(4, 64);
        put(&mut log, 0, 26, 0);
        put(&mut log, 1, 26, 0);
        let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
        log.end_swap(&swap);
        // The arm has moved to where the runs are now.
        let there = HomeBlock(354);
        assert_eq!(put(&mut log, 2, 3, there.get()).start, LogBlock(64 + 3 * 64 + 54 + 1));
        assert_eq!(log.begin_swap(80, there), None, "4 blocks are new");
        put(&mut log, 3, 2, there.get());
        assert_eq!(log.begin_swap(80, there), None, "7 blocks are new");
        put(&mut log, 4, 1, there.get());
        let swap = log.begin_swap(80, there).expect("9 blocks are new");
        assert_eq!(swap.runs().len(), 5);
    }

    #[test]
    fn without_an_empty_log_runs_move_behind_older_ones_that_leave_room() {
        let mut log = log(4);
        put(&mut log, 0, 2, 200);
        put(&mut log, 1, 1, 300);
        put(&mut log, 2, 5, 0);
        put(&mut log, 3, 6, 0);
        put(&mut log, 4, 1, 100);
        let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
        let runs: Vec<_> = swap.runs().iter().map(|run| (run.transaction, run.to.get())).collect();
        // The last log has 14 blocks left.
        assert_eq!(runs, [(id(2), 64 + 48 + 2), (id(3), 64 + 48 + 8)]);
        assert_eq!(log.end_swap(&swap).len(), 2);
        assert_eq!(log.free(), 4 * 16 - 3 - 2 - 2 - 13);
        assert_eq!(put(&mut log, 5, 10, 0).start, LogBlock(64 + 1));
        log.release_before(id(6));
        assert_eq!(log.free(), 4 * 16);
    }

    /// Recovery takes the runs of a log as they come only while their numbers rise.
    #[test]
    fn runs_do_not_move_behind_later_ones() {
        let mut log = log(2);
        put(&mut log, 0, 12, 0);
        put(&mut log, 1, 1, 100);
        assert_eq!(log.begin_swap(80, HomeBlock(0)), None);
    }

    /// Runs that the cold log held are released while it is being filled.
    #[test]
    fn a_cold_log_is_not_begun_again_under_the_runs_that_come() {
        for moves in [true, false] {
            let mut log = log(2);
            put(&mut log, 0, 1, 100);
            put(&mut log, 1, 12, 0);
            let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
            log.release_before(id(1));
            assert_eq!(log.reservable_blocks(), 0, "both are closed");
            match moves {
                true => assert_eq!(log.end_swap(&swap).len(), 1),
                false => log.give_up_swap(&swap, true),
            }
            let empty = if moves { 0 } else { 100 };
            assert_eq!(put(&mut log, 2, 2, empty).start.get(), 64 + empty as u32 / 100 * 16 + 1);
            log.release_before(id(3));
            assert_eq!(log.free(), 2 * 16);
        }
    }

    /// Recovery would not look there otherwise, and might believe remains in the old log.
    #[test]
    fn the_log_that_is_filled_is_announced_until_its_runs_count() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let mut log = log(40);
        put(&mut log, 0, 14, 0);
        log.announce(&mut superblock, Some(id(0)));
        let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
        let is_active = |superblock: &JournalSuperblock| {
            superblock.scattered.as_ref().unwrap().active.contains(39)
        };
        assert!(log.announce(&mut superblock, None) && is_active(&superblock));
        log.announce(&mut superblock, Some(id(0)));
        assert!(is_active(&superblock), "though the tail moves");
        let [header] = &log.headers_of_swap(&swap, id(0))[..] else { panic!("one run") };
        let read = RunHeader::parse(header.0, &header.1, log.seed).unwrap();
        assert_eq!(
            (read.at, read.transaction, read.blocks, read.durable),
            (LogBlock(64 + 39 * 16), id(0), 14, id(0))
        );
        assert_eq!(superblock.moving(), Some(header.0), "they do not count yet");
        log.count_copies();
        log.announce(&mut superblock, Some(id(0)));
        assert_eq!(superblock.moving(), None);
        log.end_swap(&swap);
        log.announce(&mut superblock, Some(id(0)));
        assert!(is_active(&superblock));
        let bound: LogRuns = LogRuns(vec![LogRun { start: LogBlock(64 + 1), count: 14 }]);
        assert_eq!(LogRuns(vec![put(&mut log, 1, 14, 0)]), bound);
    }

    /// Recovery looks at nothing behind the mark that an interrupted swap has left.
    #[test]
    fn no_run_is_written_behind_a_mark() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        (0..4).for_each(|log| superblock.scattered.as_mut().unwrap().active.set(log));
        superblock.set_moving(Some(LogBlock(64 + 16)));
        for (head, is_news) in [(0, false), (100, true)] {
            let (mut log, mut announced) = (log(4), superblock.clone());
            log.reserve(id(0), 3).unwrap();
            log.choose(id(0), HomeBlock(head));
            assert_eq!(log.announce(&mut announced, None), is_news, "the head at {head}");
            assert_eq!(announced.moving(), None, "the next write of the superblock removes it");
        }
    }

    /// Random transactions and swaps: space is counted right, and no two live runs share a block.
    #[test]
    fn no_two_live_runs_share_a_block_whatever_is_swapped() {
        let seed = 12;
        let (mut log, mut next, mut oldest, mut swaps) = (log(6), 0u32, 0u32, 0);
        let random = SplitMix::new(seed);
        let mut under_way: Option<LogSwap> = None;
        for _ in 0..4000 {
            let (count, head) = (1 + random.below(7) as u32, HomeBlock(random.below(600)));
            match random.below(4) {
                0 if under_way.is_none() => under_way = log.begin_swap(30, head),
                0 => {
                    let swap = under_way.take().expect("one that is in flight");
                    match random.below(3) {
                        0 => log.give_up_swap(&swap, true),
                        _ => swaps += log.end_swap(&swap).len(),
                    }
                }
                1 if next > oldest => {
                    oldest += 1 + random.below(u64::from(next - oldest)) as u32;
                    log.release_before(id(oldest));
                }
                _ if count <= log.reservable_blocks() => {
                    put(&mut log, next, count, head.get());
                    next += 1;
                }
                _ => {}
            }
            let place = |held: &super::super::scattered::Held| {
                let (log_number, first) = held.bound.expect("all are bound");
                log.logs.start(log_number).plus(first).get()
                    ..log.logs.start(log_number).plus(first + held.blocks).get()
            };
            let mut runs: Vec<_> =
                log.held.iter().map(|(number, held)| (place(held), number)).collect();
            runs.sort_by_key(|(place, _)| place.start);
            let log_of = |place: &std::ops::Range<u32>| (place.start - 64) / 16;
            let rises = |pair: &[(std::ops::Range<u32>, TransactionId)]| {
                log_of(&pair[0].0) != log_of(&pair[1].0) || pair[1].1.is_after(pair[0].1)
            };
            assert!(runs.windows(2).all(rises), "seed {seed}: {runs:?}");
            let places: Vec<_> = runs.into_iter().map(|(place, _)| place).collect();
            assert!(
                places.windows(2).all(|pair| pair[0].end <= pair[1].start),
                "seed {seed}: {places:?}"
            );
            let free: u32 = (0..6).map(|number| 16 - log.free_space.used(number).blocks).sum();
            assert_eq!(log.free(), free, "seed {seed}");
        }
        assert!(next > 500 && swaps > 50, "seed {seed}: {next} runs, {swaps} moved");
    }
}
