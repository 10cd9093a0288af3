//! Log swapping: the runs of a log that is nearly full move to an empty one, so that there is room again where the arm is.
//!
//! 1. What moves stays where it was until its copies, with headers of their own, are durable ([`crate::plan_run_headers`]).
//! 2. A copy's header names a later durable floor than the header before it did. So recovery, which may meet both, knows
//!    the copy by it. For that a log moves only if it got a transaction since its runs came there.
//! 3. Meanwhile neither log takes a run, and recovery is told of the one that is filled ([`super::LogSpace::announce`]).

use super::rooms::Used;
use super::scattered::{HEADER, ScatteredLog};
use device::Buffer;
use format::scattered::RunHeader;
use std::rc::Rc;
use units::{HomeBlock, LogBlock, TransactionId};

/// Runs on their way from one log to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSwap {
    from: u32,
    to: u32,
    /// Blocks of the log that were in use.
    used: u32,
    runs: Vec<SwappedRun>,
}

/// A run on its way. Its header comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwappedRun {
    pub transaction: TransactionId,
    pub from: LogBlock,
    pub to: LogBlock,
    /// Behind the header.
    pub blocks: u32,
}

impl SwappedRun {
    /// Where the block `at` of the run has gone.
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
    /// Of the logs that are filled above `percent` the one nearest to `head`, and the empty one farthest from it.
    pub(super) fn find_swap(&self, percent: u32, head: HomeBlock) -> Option<LogSwap> {
        if self.swapping.is_some() || self.held.iter().any(|(_, held)| held.bound.is_none()) {
            return None;
        }
        let distance = |log: u32| self.logs.home(log, 0).get().abs_diff(head.get());
        let logs = || (0..self.logs.count()).map(|log| (log, self.rooms.used(log)));
        let is_full = |used: u32| u64::from(used) * 100 > u64::from(self.logs.length()) * u64::from(percent);
        let full = logs().filter(|(_, used)| used.is_hot && is_full(used.blocks)).map(|(log, _)| log);
        let from = full.min_by_key(|log| distance(*log))?;
        let empty = logs().filter(|(_, used)| used.blocks == 0).map(|(log, _)| log);
        let to = empty.max_by_key(|log| distance(*log)).filter(|to| distance(*to) > distance(from))?;
        let (mut runs, mut at) = (Vec::new(), self.logs.start(to));
        for (transaction, held) in self.held.iter() {
            if let Some((_, first)) = held.bound.filter(|(log, _)| *log == from) {
                let from = self.logs.start(from).plus(first);
                runs.push(SwappedRun { transaction, from, to: at, blocks: held.blocks - HEADER });
                at = at.plus(held.blocks);
            }
        }
        Some(LogSwap { from, to, used: self.rooms.used(from).blocks, runs })
    }

    /// Both logs are full for whoever looks for room.
    pub(super) fn close_for(&mut self, swap: &LogSwap) {
        self.swapping = Some(swap.to);
        self.rooms.close(swap.from);
        self.rooms.close(swap.to);
    }

    /// The runs that are still held, and lie now where their copies do.
    pub(super) fn rebind(&mut self, swap: &LogSwap) -> Vec<SwappedRun> {
        let mut moved = Vec::new();
        for run in self.remaining(swap) {
            let first = run.to.get() - self.logs.start(swap.to).get();
            let held = self.held.get_mut(run.transaction).expect("a transaction that is held");
            held.bound = Some((swap.to, first));
            moved.push(run);
        }
        let end = moved.last().map_or(self.logs.start(swap.to), |run| run.to.plus(HEADER + run.blocks));
        let blocks = end.get() - self.logs.start(swap.to).get();
        self.rooms.set(swap.to, Used { blocks, live: moved.len() as u32, is_hot: false });
        if !moved.is_empty() {
            self.rooms.set(swap.from, Used::default());
        }
        self.swapping = None;
        moved
    }

    /// Everything is as it was. `again`: the log may be swapped another time.
    pub(super) fn open_again(&mut self, swap: &LogSwap, again: bool) {
        self.rooms.set(swap.to, Used::default());
        if !self.remaining(swap).is_empty() {
            let live = self.rooms.used(swap.from).live;
            self.rooms.set(swap.from, Used { blocks: swap.used, live, is_hot: again });
        }
        self.swapping = None;
    }

    /// Runs of which no transaction was released meanwhile. While there are any, their log was not begun again.
    fn remaining(&self, swap: &LogSwap) -> Vec<SwappedRun> {
        let first = |run: &SwappedRun| run.from.get() - self.logs.start(swap.from).get();
        let is_held = |run: &&SwappedRun| {
            let held = self.held.get(run.transaction);
            held.is_some_and(|held| held.bound == Some((swap.from, first(run))))
        };
        swap.runs.iter().filter(is_held).copied().collect()
    }

    /// What stands in front of the copies. `durable`: that transaction and all before it are.
    pub(super) fn headers(&self, swap: &LogSwap, durable: TransactionId) -> Vec<(LogBlock, Rc<Buffer>)> {
        let header = |run: &SwappedRun| {
            let SwappedRun { transaction, to: at, blocks, .. } = *run;
            let mut block = Buffer::zeroed(self.unit);
            RunHeader { at, transaction, blocks, durable }.serialize(self.seed, &mut block);
            (at, Rc::new(block))
        };
        swap.runs.iter().map(header).collect()
    }

    /// Whether `bytes` begin with the header of `run`, where it was.
    pub(super) fn begins(&self, run: &SwappedRun, bytes: &[u8]) -> bool {
        let header = RunHeader::parse(run.from, bytes, self.seed);
        header.is_some_and(|header| (header.transaction, header.blocks) == (run.transaction, run.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogPlaces, LogRun, LogRuns, LogSpace};
    use super::*;
    use format::jbd2::JournalSuperblock;
    use units::{BlockSize, SplitMix};

    /// Logs of 16 blocks, 100 blocks of home apart.
    fn log(count: u64) -> ScatteredLog {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let homes = (0..count).map(|log| HomeBlock(100 * log)).collect();
        let places = LogPlaces { first: LogBlock(64), blocks: 16, homes };
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
        assert_eq!(runs, [(id(0), 64 + 16, 64 + 48), (id(1), 64 + 24, 64 + 56)], "the last one is in use");
        assert_eq!(log.free(), free - 16 - 2, "both are closed meanwhile");
        assert_eq!(log.begin_swap(0, HEAD), None, "one at a time");
        assert_eq!(put(&mut log, 3, 3, 110).start, LogBlock(64 + 32 + 1));
        assert_eq!(put(&mut log, 4, 3, 310).start, LogBlock(64 + 64 + 5));
        assert_eq!(log.end_swap(&swap).len(), 2);
        assert_eq!(log.free(), 5 * 16 - 14 - 4 - 4 - 4);
        assert_eq!(put(&mut log, 5, 3, 110).start, LogBlock(64 + 16 + 1), "there is room again");
        // It has got nothing of its own, and nothing farther is empty.
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
    fn what_is_released_meanwhile_does_not_move_and_its_log_may_be_begun_again() {
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
            assert_eq!((log.free(), log.room()), (4 * 16 - used, 15));
            assert_eq!(log.begin_swap(80, HomeBlock(0)).is_some(), released == 0);
        }
    }

    /// Recovery would not look there otherwise, and might believe what is left in the old log.
    #[test]
    fn the_log_that_is_filled_is_announced_until_its_runs_count() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
        superblock.set_scattered(5);
        let mut log = log(40);
        put(&mut log, 0, 14, 0);
        log.announce(&mut superblock, Some(id(0)));
        let swap = log.begin_swap(80, HomeBlock(0)).unwrap();
        let is_active =
            |superblock: &JournalSuperblock| superblock.scattered.as_ref().unwrap().active.contains(39);
        assert!(log.announce(&mut superblock, None) && is_active(&superblock));
        log.announce(&mut superblock, Some(id(0)));
        assert!(is_active(&superblock), "though the tail moves");
        let [header] = &log.headers_of_swap(&swap, id(0))[..] else { panic!("one run") };
        let read = RunHeader::parse(header.0, &header.1, log.seed).unwrap();
        assert_eq!(
            (read.at, read.transaction, read.blocks, read.durable),
            (LogBlock(64 + 39 * 16), id(0), 14, id(0))
        );
        log.end_swap(&swap);
        log.announce(&mut superblock, Some(id(0)));
        assert!(is_active(&superblock));
        let bound: LogRuns = LogRuns(vec![LogRun { start: LogBlock(64 + 1), count: 14 }]);
        assert_eq!(LogRuns(vec![put(&mut log, 1, 14, 0)]), bound);
    }

    /// Random transactions and swaps: room is counted right, and no two live runs share a block.
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
                    let swap = under_way.take().expect("one that is under way");
                    match random.below(3) {
                        0 => log.give_up_swap(&swap, true),
                        _ => swaps += log.end_swap(&swap).len(),
                    }
                }
                1 if next > oldest => {
                    oldest += 1 + random.below(u64::from(next - oldest)) as u32;
                    log.release_before(id(oldest));
                }
                _ if count <= log.room() => {
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
            let mut places: Vec<_> = log.held.iter().map(|(_, held)| place(held)).collect();
            places.sort_by_key(|place| place.start);
            assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start), "seed {seed}: {places:?}");
            let free: u32 = (0..6).map(|number| 16 - log.rooms.used(number).blocks).sum();
            assert_eq!(log.free(), free, "seed {seed}");
        }
        assert!(next > 500 && swaps > 50, "seed {seed}: {next} runs, {swaps} moved");
    }
}
