//! Packed transactions that lie apart: recovery looks for each behind a gap, and takes no gap for
//! the end of the log.

use crate::packed::{format, one_change};
use format::jbd2::JournalSuperblock;
use journal::records::{RecordFormat, Records, RecordsWanted};
use journal::*;
use std::collections::BTreeSet;
use std::rc::Rc;
use units::*;

const UNIT: usize = 512;
const LOG_UNITS: u32 = 128;
const GAP_MAX: u32 = 5;

/// A log, as far as it has been written.
struct Log {
    records: Rc<dyn Records>,
    first: TransactionId,
    bytes: Vec<u8>,
    unreadable: BTreeSet<u32>,
}

impl Log {
    fn beginning_with(first: u32) -> Log {
        let records = format(UNIT as u32, 1);
        Log { records, first: TransactionId(first), bytes: Vec::new(), unreadable: BTreeSet::new() }
    }
    fn new() -> Log {
        Log::beginning_with(1)
    }
    fn with(mut self, bytes: &[u8]) -> Log {
        self.bytes.extend(bytes);
        self
    }
    fn gap(self, units: u32) -> Log {
        self.with(&vec![0x5a; units as usize * UNIT])
    }
    /// Adds a transaction of two units, issued when those up to `durable` were durable.
    fn issued(self, id: u32, durable: u32) -> Log {
        let bytes = one_change(&*self.records, id, durable, 700);
        assert_eq!(bytes.len(), 2 * UNIT);
        self.with(&bytes)
    }
    fn transaction(self, id: u32) -> Log {
        self.issued(id, id - 1)
    }
    fn unreadable(mut self, unit: u32) -> Log {
        self.unreadable.insert(unit);
        self
    }
    fn damaged(mut self, unit: u32) -> Log {
        self.bytes[unit as usize * UNIT + 8] ^= 1;
        self
    }

    /// Returns the last transaction that the scan finds, and whether it gave up what lies behind.
    fn scan_with(&self, gap_max: u32, until_damage: bool) -> Result<(u32, bool), String> {
        let mut bytes = self.bytes.clone();
        bytes.resize(LOG_UNITS as usize * UNIT, 0);
        let ring = Rc::new(LogRing::new(LogBlock(0), LogBlock(LOG_UNITS)));
        let start = LogStart { transaction: self.first, at: LogBlock(0) };
        let scan = ScanPass::over(self.records.clone(), ring, start).behind_gaps(gap_max);
        let (mut scan, mut asked) = (scan.until_damage(until_damage), 0);
        let text = |error: RecoverError| error.to_string();
        while let Some(at) = scan.wants() {
            asked += 1;
            assert!(asked <= LOG_UNITS + gap_max + 1, "more than one wrap of the log");
            let unit = &bytes[at.get() as usize * UNIT..][..UNIT];
            match self.unreadable.contains(&at.get()) {
                false => scan.give(unit).map_err(text)?,
                true if scan.pass_over().map_err(text)? => {}
                true => return Err(format!("{at} cannot be read")),
            }
        }
        let scanned = scan.finish();
        Ok((scanned.end.previous().0, scanned.gave_up))
    }
    fn scan(&self) -> Result<(u32, bool), String> {
        self.scan_with(GAP_MAX, false)
    }
    fn scan_until_damage(&self) -> (u32, bool) {
        self.scan_with(GAP_MAX, true).expect("damage is no reason to refuse")
    }
}

#[test]
fn transactions_are_found_behind_gaps_up_to_the_longest() {
    for first in 0..=GAP_MAX {
        for second in 0..=GAP_MAX {
            let log =
                Log::new().gap(first).transaction(1).gap(second).transaction(2).transaction(3);
            assert_eq!(log.scan(), Ok((3, false)), "gaps of {first} and {second}");
        }
    }
    let too_far = Log::new().transaction(1).gap(GAP_MAX + 1).transaction(2);
    assert_eq!(too_far.scan(), Ok((1, false)));
    let without_gaps = Log::new().transaction(1).gap(1).transaction(2);
    assert_eq!(without_gaps.scan_with(0, false), Ok((1, false)));
}

/// The log wrapped, and an earlier one lay there as well.
#[test]
fn what_earlier_turns_left_in_a_gap_is_passed_over() {
    let earlier = one_change(&*format(UNIT as u32, 2), 8, 7, 700);
    let log = Log::beginning_with(7).transaction(4).transaction(5).transaction(7);
    let log = log.with(&earlier).transaction(6).transaction(8);
    assert_eq!(log.scan(), Ok((8, false)));
}

/// An old power cut may have left it so: commits need not overwrite it.
#[test]
fn a_unit_of_a_gap_that_cannot_be_read_is_passed_over() {
    for gap in 1..=GAP_MAX {
        for unreadable in 0..gap {
            let log = Log::new().transaction(1).gap(gap).transaction(2).unreadable(2 + unreadable);
            // The block behind the last transaction can be read.
            assert_eq!(log.scan(), Ok((2, false)), "unit {unreadable} of a gap of {gap}");
            let first = Log::new().gap(gap).transaction(1).unreadable(unreadable);
            assert_eq!(first.scan(), Ok((1, false)), "unit {unreadable} of a first gap of {gap}");
        }
    }
    let all = (2..2 + GAP_MAX)
        .fold(Log::new().transaction(1).gap(GAP_MAX).transaction(2), Log::unreadable);
    assert_eq!(all.scan(), Ok((2, false)));
}

#[test]
fn where_the_next_transaction_may_begin_but_cannot_be_read_recovery_refuses() {
    for unreadable in 0..=GAP_MAX {
        let log = Log::new().transaction(1).transaction(2).unreadable(4 + unreadable);
        let refused = log.scan().expect_err("it may be the beginning of transaction 3");
        let place = format!("{} cannot be read, and transaction 3", LogBlock(4 + unreadable));
        assert!(refused.contains(&place) && refused.contains("--until-damage"), "{refused}");
        assert_eq!(log.scan_until_damage(), (2, true), "unit {unreadable}");
    }
    // A torn transaction behind the unreadable block does not prove that nothing was committed
    // there.
    let log = Log::new().transaction(1).gap(2).transaction(2).damaged(4).unreadable(2);
    assert!(log.scan().is_err());
    assert_eq!(log.scan_until_damage(), (1, true));
}

#[test]
fn within_a_transaction_a_block_that_cannot_be_read_ends_the_log_only_if_asked_to() {
    let second = Log::new().transaction(1).gap(2).transaction(2).unreadable(5);
    let first = Log::new().transaction(1).unreadable(1);
    for (log, at, transaction) in [(second, 5, 2), (first, 1, 1)] {
        let refused = log.scan().expect_err("it may be readable again");
        let place = format!("{} cannot be read, and transaction {transaction}", LogBlock(at));
        assert!(refused.contains(&place) && refused.contains("--until-damage"), "{refused}");
        assert_eq!(log.scan_until_damage(), (transaction - 1, true));
    }
}

#[test]
fn a_damaged_header_behind_a_gap_is_no_end_if_proven() {
    for gap in 0..=GAP_MAX {
        for (durable, is_proven) in [(1, false), (2, true)] {
            // Header, and body.
            for at in [2 + gap, 3 + gap] {
                let log = Log::new().transaction(1).gap(gap).transaction(2).gap(1);
                let log = log.issued(3, durable).damaged(at);
                let what =
                    format!("gap of {gap}, unit {at} damaged, 3 issued when {durable} was durable");
                assert_eq!(log.scan().is_err(), is_proven, "{what}");
                assert_eq!(log.scan_until_damage(), (1, is_proven), "{what}");
            }
        }
    }
}

#[test]
fn logs_with_random_gaps_and_damage_are_never_read_too_far() {
    let (mut read, mut refused) = (0, 0);
    for seed in 0..2000 {
        let rng = SplitMix::new(seed);
        let (mut log, count) = (Log::new(), 1 + rng.below(12) as u32);
        let mut begins = Vec::new();
        for id in 1..=count {
            log = log.gap(rng.below(u64::from(GAP_MAX) + 1) as u32);
            begins.push((log.bytes.len() / UNIT) as u32);
            log = log.transaction(id);
        }
        let end = (log.bytes.len() / UNIT) as u64;
        let (mut damaged, mut hidden) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..rng.below(3) {
            damaged.insert(rng.below(end) as u32);
        }
        for _ in 0..rng.below(3) {
            hidden.insert(rng.below(end + 10) as u32);
        }
        log = damaged.iter().fold(log, |log, unit| log.damaged(*unit));
        log = hidden.iter().fold(log, |log, unit| log.unreadable(*unit));
        let is_good = |unit: u32| !damaged.contains(&unit) && !hidden.contains(&unit);
        let last =
            begins.iter().take_while(|begin| is_good(**begin) && is_good(**begin + 1)).count();
        // Each records that the one before it was durable.
        let is_proven = begins.iter().skip(last + 1).any(|begin| is_good(*begin));
        let from = last.checked_sub(1).map_or(0, |last| begins[last] + 2);
        let begins_unseen = (from..=from + GAP_MAX).any(|unit| hidden.contains(&unit))
            && begins.get(last).is_none_or(|begin| !is_good(*begin));
        match log.scan() {
            Ok(found) => {
                assert_eq!(found, (last as u32, false), "seed {seed}");
                assert!(!is_proven && !begins_unseen, "seed {seed}");
                read += 1;
            }
            Err(_) => refused += 1,
        }
        if let Ok((found, gave_up)) = log.scan_with(GAP_MAX, true) {
            assert_eq!(found, last as u32, "seed {seed}");
            assert!(gave_up || !is_proven && !begins_unseen, "seed {seed}");
        }
    }
    assert!(read > 200 && refused > 200, "{read} read, {refused} refused");
}

/// Creates a log in a journal of 4 KiB blocks whose transactions may lie `gap_max` blocks apart.
fn circular_log(gap_max: u32) -> (JournalSuperblock, CircularLog) {
    let mut superblock = JournalSuperblock::new(BlockSize::new(4096).unwrap(), 4096, [9; 16]);
    let wanted = RecordsWanted {
        format: RecordFormat::Packed,
        unit: 4096,
        bytes: true,
        checksums: true,
        transaction_checksum: false,
        wide: false,
        gap_bytes: gap_max * 4096,
    };
    records::begin(&mut superblock, wanted, || 1);
    let log = CircularLog::of(&superblock);
    (superblock, log)
}

#[test]
fn no_gap_is_left_that_the_superblock_does_not_allow() {
    for gap_max in [0, 7] {
        let (superblock, mut log) = circular_log(gap_max);
        assert_eq!(superblock.gap_max(), gap_max);
        log.leave_gap(100);
        log.reserve(TransactionId(1), 5).unwrap();
        assert_eq!(log.gap_before(TransactionId(1)), gap_max);
    }
    // A sixteenth of the log.
    assert_eq!(circular_log(1000).0.gap_max(), 4095 / 16);
}

/// Recovery must look far enough to prove that a damaged transaction was durable.
#[test]
fn what_is_announced_of_a_transaction_holds_its_gap() {
    let (mut superblock, mut log) = circular_log(200);
    log.reserve(TransactionId(1), 100).unwrap();
    log.announce(&mut superblock, None);
    assert_eq!(superblock.transaction_bound, Some(128), "what counts as short");
    log.leave_gap(29);
    log.reserve(TransactionId(2), 100).unwrap();
    assert!(log.announce(&mut superblock, None));
    assert_eq!(superblock.transaction_bound, Some(256));
}
