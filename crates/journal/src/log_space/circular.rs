use super::held::HeldInOrder;
use super::{LogFull, LogRun, LogRuns, LogSpace, LogWalk, transaction_blocks_max};
use format::jbd2::JournalSuperblock;
use std::ops::Range;
use units::{LogBlock, TransactionId};

/// Longest transaction that counts as short; short ones are not distinguished by length, as looking
/// this far ahead takes no time.
const SHORT_BYTES: u32 = 512 << 10;

/// Log blocks `first..end`; the last is followed by the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRing {
    first: LogBlock,
    end: LogBlock,
}

impl LogRing {
    pub fn new(first: LogBlock, end: LogBlock) -> LogRing {
        assert!(first < end && end.get() - first.get() >= 2, "a log of {first}..{end}");
        LogRing { first, end }
    }
    /// Returns the blocks that a journal superblock names.
    pub fn of(superblock: &JournalSuperblock) -> LogRing {
        let Range { start, end } = superblock.log_blocks();
        LogRing::new(start, end)
    }

    /// Returns the number of blocks that can be in use at once.
    fn capacity(self) -> u32 {
        self.blocks() - 1
    }
    fn holds(self, at: LogBlock) -> bool {
        self.first <= at && at < self.end
    }
    /// Returns the number of blocks from `from` forward to `to`.
    pub fn distance(self, from: LogBlock, to: LogBlock) -> u32 {
        let (from, to, length) =
            (u64::from(from.get()), u64::from(to.get()), u64::from(self.blocks()));
        ((to + length - from) % length) as u32
    }
    /// Returns the block `count` blocks after `at`.
    pub fn advance(self, at: LogBlock, count: u32) -> LogBlock {
        let from_first = u64::from(at.get() - self.first.get()) + u64::from(count);
        self.first.plus((from_first % u64::from(self.blocks())) as u32)
    }
    fn runs(self, start: LogBlock, count: u32) -> LogRuns {
        let before_wrap = count.min(self.together(start));
        let mut runs = vec![LogRun { start, count: before_wrap }];
        if count > before_wrap {
            runs.push(LogRun { start: self.first, count: count - before_wrap });
        }
        LogRuns(runs)
    }
}

impl LogWalk for LogRing {
    fn next(&self, at: LogBlock) -> Option<LogBlock> {
        Some(self.advance(at, 1))
    }
    fn together(&self, at: LogBlock) -> u32 {
        if self.holds(at) { self.end.get() - at.get() } else { 1 }
    }
    fn blocks(&self) -> u32 {
        self.end.get() - self.first.get()
    }
}

/// A ring of log blocks, as in JBD2: used from tail to head. One block always stays free, so that
/// head = tail means empty. Space is freed from the oldest transaction on: one released earlier
/// waits for those before it.
///
/// Transactions follow each other directly, or behind a gap of blocks that nobody reads
/// ([`LogSpace::leave_gap`]). The superblock records how long one may be. A gap belongs to the
/// transaction behind it.
///
/// The superblock records the length of the longest transaction, with its gap, before a longer one
/// is written. When the log seems to end, recovery looks no further than the next transaction can
/// begin.
#[derive(Clone, Debug)]
pub struct CircularLog {
    ring: LogRing,
    head: LogBlock,
    used: u32,
    /// Log blocks of the longest transaction yet, and of one that counts as short.
    longest: u32,
    short: u32,
    /// Maximum number of blocks of a transaction.
    transaction_max: u32,
    /// Maximum number of blocks of a gap.
    gap_max: u32,
    /// Blocks that the next transaction is to leave free before it.
    gap: u32,
    held: HeldInOrder<HeldRoom>,
}

#[derive(Clone, Debug)]
struct HeldRoom {
    /// First block of the gap.
    start: LogBlock,
    gap: u32,
    count: u32,
}

impl CircularLog {
    /// Creates an empty log in blocks `first..end`, beginning at `first`.
    pub fn new(first: LogBlock, end: LogBlock) -> CircularLog {
        CircularLog::beginning_at(LogRing::new(first, end), first)
    }

    /// Creates the empty log of a journal.
    pub fn of(superblock: &JournalSuperblock) -> CircularLog {
        let ring = LogRing::of(superblock);
        let unit = superblock.log_block_bytes() as u32;
        let log = CircularLog {
            short: SHORT_BYTES / unit,
            transaction_max: (ring.capacity() / 4).min(transaction_blocks_max(unit as usize)),
            ..CircularLog::beginning_at(ring, ring.first)
        };
        log.with_gaps(superblock.gap_max())
    }

    /// Creates an empty log whose next transaction starts at `head`.
    pub fn beginning_at(ring: LogRing, head: LogBlock) -> CircularLog {
        assert!(ring.holds(head), "{head} is outside the log");
        CircularLog {
            ring,
            head,
            used: 0,
            longest: 0,
            short: 1,
            transaction_max: ring.capacity() / 4,
            gap_max: 0,
            gap: 0,
            held: HeldInOrder::new(),
        }
    }

    /// Allows gaps of up to `most` blocks.
    pub fn with_gaps(self, most: u32) -> CircularLog {
        CircularLog { gap_max: most, ..self }
    }
    pub fn ring(&self) -> LogRing {
        self.ring
    }
    /// Returns the blocks freed when all transactions before `tail` are released. `tail` is held,
    /// or follows the last one that is.
    pub fn held_before(&self, tail: TransactionId) -> u32 {
        let Some(oldest) = self.oldest().filter(|oldest| tail.is_after(*oldest)) else { return 0 };
        let start =
            |transaction| self.start_of(transaction).expect("a held transaction, or the next one");
        self.ring.distance(start(oldest), start(tail))
    }
}

impl LogSpace for CircularLog {
    fn capacity(&self) -> u32 {
        self.ring.capacity()
    }
    fn transaction_max(&self) -> u32 {
        self.transaction_max
    }
    fn free(&self) -> u32 {
        self.capacity() - self.used
    }
    /// Returns an eighth where there are gaps, since these fill a log quickly: it is then not
    /// emptied in small steps.
    fn retained_after_checkpoint(&self) -> u32 {
        self.capacity() / if self.gap > 0 { 8 } else { 2 }
    }
    fn reserve(&mut self, transaction: TransactionId, count: u32) -> Result<(), LogFull> {
        assert!(count > 0);
        if count > self.free() {
            return Err(LogFull { needed: count, free: self.free() });
        }
        // Below three eighths blocks are written back, and the largest transaction must find a
        // quarter.
        let to_waste = (self.free() - count).saturating_sub(self.capacity() / 16 * 5);
        let gap = self.gap.min(to_waste);
        self.held.push(transaction, HeldRoom { start: self.head, gap, count });
        self.head = self.ring.advance(self.head, gap + count);
        self.used += if units::fault!("gap-takes-no-room") { count } else { gap + count };
        let announced = if units::fault!("gap-not-announced") { count } else { gap + count };
        self.longest = self.longest.max(announced);
        Ok(())
    }
    fn leave_gap(&mut self, blocks: u32) {
        self.gap = if units::fault!("gap-too-long") { blocks } else { blocks.min(self.gap_max) };
    }
    fn gap_before(&self, transaction: TransactionId) -> u32 {
        self.held.get(transaction).map_or(0, |held| held.gap)
    }
    /// Returns the reserved blocks: in a ring they follow in the order of reservation.
    fn bind(&mut self, transaction: TransactionId) -> LogRuns {
        let held = self.held.get(transaction).expect("a transaction that has reserved room");
        self.ring.runs(self.ring.advance(held.start, held.gap), held.count)
    }
    /// Rounds lengths up to powers of two, so that growing transactions change the superblock only
    /// a few times.
    fn announce(&self, superblock: &mut JournalSuperblock, _tail: Option<TransactionId>) -> bool {
        let bound = self.longest.max(self.short).next_power_of_two();
        let is_more = superblock.transaction_bound.is_none_or(|said| said < bound);
        if is_more {
            superblock.transaction_bound = Some(bound);
        }
        is_more
    }
    fn start_of(&self, transaction: TransactionId) -> Option<LogBlock> {
        let held = self.held.get(transaction).map(|held| held.start);
        held.or_else(|| self.held.is_next(transaction).then_some(self.head))
    }
    fn oldest(&self) -> Option<TransactionId> {
        self.held.oldest()
    }
    fn release(&mut self, transaction: TransactionId) {
        let used = &mut self.used;
        self.held.release(transaction, |held| {
            let gap = if units::fault!("gap-takes-no-room") { 0 } else { held.gap };
            *used -= gap + held.count;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::BlockSize;

    #[test]
    fn a_transaction_of_the_longest_log_is_counted_in_32_bits() {
        for size in [1024, 4096] {
            let size = BlockSize::new(size).unwrap();
            let superblock = JournalSuperblock::new(size, u32::MAX, [7; 16]);
            let bytes = |blocks: u32| u64::from(blocks) * size.bytes() as u64;
            let log = CircularLog::of(&superblock);
            assert!(bytes(log.transaction_max()) < u32::MAX.into());
            assert!(bytes(log.capacity() / 4) > u32::MAX.into(), "the log is not long");
        }
        let size = BlockSize::new(4096).unwrap();
        let short = CircularLog::of(&JournalSuperblock::new(size, 1024, [7; 16]));
        assert_eq!(short.transaction_max(), short.capacity() / 4);
    }

    fn log() -> CircularLog {
        CircularLog::new(LogBlock(1), LogBlock(11))
    }
    fn id(number: u32) -> TransactionId {
        TransactionId((u32::MAX - 1).wrapping_add(number))
    }

    #[test]
    fn a_run_that_passes_the_end_wraps_into_two() {
        let mut log = log();
        log.reserve(id(0), 8).unwrap();
        log.release(id(0));
        log.reserve(id(1), 5).unwrap();
        let runs = log.bind(id(1));
        let expected =
            [LogRun { start: LogBlock(9), count: 2 }, LogRun { start: LogBlock(1), count: 3 }];
        assert_eq!(runs.0, expected);
        assert_eq!(runs.part(1, 2), [9 + 1, 1].map(|at| LogRun { start: LogBlock(at), count: 1 }));
        assert_eq!((log.start_of(id(1)), log.free()), (Some(LogBlock(9)), 4));
        assert_eq!((log.start_of(id(2)), log.start_of(id(3))), (Some(LogBlock(4)), None));
    }

    #[test]
    fn a_transaction_longer_than_any_before_is_announced_once() {
        let mut superblock = JournalSuperblock::new(BlockSize::new(4096).unwrap(), 4096, [9; 16]);
        let mut log = CircularLog::of(&superblock);
        assert!(log.announce(&mut superblock, None) && !log.announce(&mut superblock, None));
        assert_eq!(superblock.transaction_bound, Some(SHORT_BYTES / 4096));
        for (number, count, announced, bound) in
            [(0, 128, false, 128), (1, 129, true, 256), (2, 256, false, 256), (3, 5, false, 256)]
        {
            log.reserve(id(number), count).unwrap();
            assert_eq!(log.announce(&mut superblock, None), announced, "{count} blocks");
            assert_eq!(superblock.transaction_bound, Some(bound));
        }
        // The length on disk must never shrink: that transaction may still be there.
        log.release_before(id(4));
        assert!(!log.announce(&mut superblock, Some(id(4))));
    }

    #[test]
    fn the_head_never_reaches_the_tail() {
        let mut log = log();
        assert_eq!(log.reserve(id(0), 10), Err(LogFull { needed: 10, free: 9 }));
        log.reserve(id(0), 9).unwrap();
        assert_eq!(log.free(), 0);
        assert_ne!(log.start_of(id(0)), log.start_of(id(1)));
        log.release(id(0));
        assert_eq!(log.free(), 9);
        // A run that ends exactly at the end of the log leaves the head at its first block.
        log.reserve(id(1), 1).unwrap();
        assert_eq!(log.start_of(id(2)), Some(LogBlock(1)));
    }

    #[test]
    fn room_released_out_of_order_comes_back_with_the_oldest() {
        let mut log = log();
        (0..4).for_each(|number| log.reserve(id(number), 2).unwrap());
        log.release(id(2));
        log.release(id(1));
        assert_eq!((log.free(), log.oldest()), (1, Some(id(0))));
        log.release(id(0));
        assert_eq!((log.free(), log.oldest()), (7, Some(id(3))));
    }

    #[test]
    fn free_and_reserved_always_sum_to_the_capacity() {
        for log in [log(), log_with_gaps(90)] {
            reserve_and_release(log);
        }
    }
    fn reserve_and_release(mut log: CircularLog) {
        let (mut next, mut counts) = (0u32, Vec::new());
        for step in 0..1000u32 {
            let count = 1 + step % 4;
            log.leave_gap(step % 7);
            match log.reserve(id(next), count) {
                Ok(()) => {
                    counts.push(count + log.gap_before(id(next)));
                    next += 1;
                }
                Err(_) => {
                    let (tail, free) = (id(next - step % 2), log.free());
                    let held = log.held_before(tail);
                    log.release_before(tail);
                    assert_eq!((log.free(), log.held_before(tail)), (free + held, 0));
                }
            }
            let held = log.oldest().map_or(0, |oldest| id(next).0.wrapping_sub(oldest.0) as usize);
            let used: u32 = counts[counts.len() - held..].iter().sum();
            assert_eq!(used + log.free(), log.capacity());
            let starts = (0..=held as u32).map(|back| log.start_of(id(next - back)).unwrap());
            assert!(starts.collect::<Vec<_>>().windows(2).all(|pair| {
                let length = log.ring.distance(pair[1], pair[0]);
                (1..=4 + log.gap_max).contains(&length)
            }));
        }
    }

    const GAP_MAX: u32 = 4;
    /// Creates a log of 96 blocks.
    fn log_with_gaps(head: u32) -> CircularLog {
        let ring = LogRing::new(LogBlock(1), LogBlock(97));
        CircularLog::beginning_at(ring, LogBlock(head)).with_gaps(GAP_MAX)
    }

    #[test]
    fn a_gap_lies_before_its_transaction_and_is_part_of_its_room() {
        let mut log = log_with_gaps(1);
        log.reserve(id(0), 2).unwrap();
        log.leave_gap(3);
        log.reserve(id(1), 5).unwrap();
        assert_eq!([0, 1].map(|number| log.gap_before(id(number))), [0, 3]);
        assert_eq!(log.bind(id(1)).0, [LogRun { start: LogBlock(6), count: 5 }]);
        // Recovery looks for a transaction from the end of the one before it on.
        assert_eq!(
            [1, 2].map(|number| log.start_of(id(number)).unwrap()),
            [LogBlock(3), LogBlock(11)]
        );
        assert_eq!((log.free(), log.held_before(id(2))), (95 - 10, 10));
        log.release(id(0));
        assert_eq!((log.free(), log.held_before(id(2))), (95 - 8, 8));
        log.release(id(1));
        assert_eq!(log.free(), 95);
    }

    #[test]
    fn a_gap_goes_round_the_end_of_the_log() {
        let run = |at, count| LogRun { start: LogBlock(at), count };
        for (head, gap, runs) in [
            (94, 4, vec![run(2, 5)]),
            (93, 4, vec![run(1, 5)]),
            (92, 4, vec![run(96, 1), run(1, 4)]),
            (96, 1, vec![run(1, 5)]),
        ] {
            let mut log = log_with_gaps(head);
            log.leave_gap(gap);
            log.reserve(id(0), 5).unwrap();
            assert_eq!(log.bind(id(0)).0, runs, "a gap of {gap} from {head} on");
            assert_eq!((log.start_of(id(0)), log.free()), (Some(LogBlock(head)), 95 - 5 - gap));
        }
    }

    #[test]
    fn no_gap_is_longer_than_recovery_looks_or_takes_room_that_is_short() {
        let (mut log, mut gaps) = (log_with_gaps(1), Vec::new());
        log.leave_gap(u32::MAX);
        for number in 0.. {
            if log.reserve(id(number), 5).is_err() {
                break;
            }
            gaps.push(log.gap_before(id(number)));
        }
        // 25 of 95 blocks, five sixteenths, are not for gaps.
        assert_eq!(gaps, [4, 4, 4, 4, 4, 4, 4, 2, 0, 0, 0, 0, 0]);
        assert_eq!(log.free(), 0);
        log.release_before(id(4));
        assert_eq!(log.free(), 4 * 9);
    }

    #[test]
    fn a_walk_visits_the_blocks_of_a_transaction_in_order() {
        let mut log = log();
        log.reserve(id(0), 8).unwrap();
        log.release(id(0));
        log.reserve(id(1), 5).unwrap();
        let mut at = log.start_of(id(1)).unwrap();
        for run in log.bind(id(1)).0 {
            for offset in 0..run.count {
                assert_eq!(at, run.start.plus(offset));
                assert!(log.ring().together(at) >= run.count - offset);
                at = log.ring().next(at).unwrap();
            }
        }
        assert_eq!(Some(at), log.start_of(id(2)));
    }
}
