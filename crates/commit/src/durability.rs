//! State of the disks: requests issued, requests completed, and writes that are durable. No other
//! file keeps any of this.
//!
//! Invariants
//! 1. A home write has a number, in the order of completion: a [`HomeWrites`] says "the first so
//!    many".
//! 2. A flush covers the writes that had completed before it began, and no others, whatever else is
//!    in flight.
//! 3. After the first failure nothing becomes durable any more, and nothing is to be written: a
//!    later flush proves nothing.
//! 4. Only write-back counts here. The writes of a plan are made durable by the plan's own
//!    barriers, in the phase that has them ([`Durability::end_phase`]). Copies of runs are the
//!    exception: each piece has a plan, and their barrier always flushes.

use crate::commit_error::CommitError;
use crate::home::DurabilityScope;
use crate::log_area::{LogArea, LogDevice};
use crate::plan_disks::PlanDisks;
use journal::{Barrier, plan_home_durable};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;
use units::{HomeBlock, Instant, Owner};

/// Maximum number of home writes that no flush has covered whose addresses are kept. With more, a
/// flush is one of everything.
const ADDRESSES_MAX: usize = 256;
/// Time for which unordered data that write-back sent home waits in a disk's cache for another
/// flush.
const UNORDERED_VOLATILE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of owners whose unordered data no flush has covered that are kept apart. With
/// more, it counts as everybody's.
const OWNERS_MAX: usize = 4096;

/// A number of home writes by write-back: the first ones, in the order in which they completed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct HomeWrites(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskRole {
    Home,
    Log,
}

/// Properties of the disks of a mount.
#[derive(Clone, Copy, Debug)]
struct Disks {
    /// The log has a disk of its own.
    separate: bool,
    /// Whether a durable write costs less than a write and a flush, for the disk of each place.
    forced_unit_access: [bool; 2],
}

impl Disks {
    fn of(disks: &PlanDisks) -> Disks {
        let of_home = disks.home.has_durable_writes();
        let of_log = match disks.log.as_ref().map(|log| &log.device) {
            Some(LogDevice::Own(disk)) => disk.geometry().forced_unit_access,
            _ => of_home,
        };
        Disks {
            separate: disks.log.as_ref().is_some_and(LogArea::is_separate),
            forced_unit_access: [of_home, of_log],
        }
    }
}

/// A flush in flight.
pub struct Flush {
    place: DiskRole,
    covers: HomeWrites,
    /// [`Durability::begun`] when it began.
    begun: u64,
    at: Instant,
}

impl Flush {
    /// Begins the flush at `now`.
    pub fn at(self, now: Instant) -> Flush {
        Flush { at: now, ..self }
    }
}

/// Way in which the writes between two barriers become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurabilityMethod {
    /// The disk of each place is flushed when they have completed.
    pub flush: [bool; 2],
    /// A write of each place is durable by itself.
    pub durable: [bool; 2],
}

pub struct Durability {
    disks: Disks,
    /// Barriers are kept.
    ordered: Cell<bool>,
    /// Whether each disk was written while barriers were not kept.
    unflushed: [Cell<bool>; 2],
    /// Number of times barriers have been switched on.
    begun: Cell<u64>,
    written: Cell<HomeWrites>,
    durable: Cell<HomeWrites>,
    /// Places of writes that no flush has covered, oldest first. The places of the first `unknown`
    /// ones are not kept.
    volatile: RefCell<Vec<(HomeWrites, Range<HomeBlock>)>>,
    unknown: Cell<HomeWrites>,
    /// The last that held data of no transaction: for each owner, for all who are not kept apart,
    /// for all.
    unordered: RefCell<BTreeMap<Owner, HomeWrites>>,
    unordered_of_others: Cell<HomeWrites>,
    unordered_of_anybody: Cell<HomeWrites>,
    /// Time of the oldest write of unordered data that no flush has covered.
    unordered_since: Cell<Instant>,
    /// The last that held data that must be durable before a commit.
    early: Cell<HomeWrites>,
    failure: RefCell<Option<String>>,
}

impl Durability {
    /// Creates the state of `disks`; `ordered` if barriers are kept.
    fn new(disks: Disks, ordered: bool) -> Durability {
        Durability {
            ordered: Cell::new(ordered),
            unflushed: Default::default(),
            begun: Cell::default(),
            disks,
            written: Cell::default(),
            durable: Cell::default(),
            volatile: RefCell::default(),
            unknown: Cell::default(),
            unordered: RefCell::default(),
            unordered_of_others: Cell::default(),
            unordered_of_anybody: Cell::default(),
            unordered_since: Cell::default(),
            early: Cell::default(),
            failure: RefCell::default(),
        }
    }

    /// Returns the state of disks that nobody has written yet. `ordered`: barriers are kept.
    pub fn of(disks: &PlanDisks, ordered: bool) -> Durability {
        Durability::new(Disks::of(disks), ordered)
    }

    /// Returns the state of disks in whose caches earlier runs may have left writes.
    pub fn with_dirty_caches(self) -> Durability {
        self.written.set(HomeWrites(1));
        self.unknown.set(HomeWrites(1));
        self
    }

    /// Sets whether barriers are kept from now on. The first of each disk flushes what was written
    /// while they were not. True if they begin to be kept.
    pub fn keep_barriers(&self, ordered: bool) -> bool {
        let begins = ordered && !self.ordered.get();
        self.ordered.set(ordered);
        if begins {
            self.assume_unflushed();
        }
        begins
    }
    /// Records that the caches of the disks may hold what nobody has counted: the next barrier of
    /// each flushes it.
    pub fn assume_unflushed(&self) {
        self.unflushed.iter().for_each(|disk| disk.set(true));
        self.begun.set(self.begun.get() + 1);
    }

    pub fn keeps_barriers(&self) -> bool {
        self.ordered.get()
    }
    /// Fails if anything may have been lost.
    pub fn check(&self) -> Result<(), CommitError> {
        match &*self.failure.borrow() {
            Some(cause) => Err(CommitError::Aborted { cause: cause.clone() }),
            None => Ok(()),
        }
    }
    /// Notes the result of a request to a disk.
    pub fn note<T, E: Display>(&self, result: Result<T, E>) -> Result<T, E> {
        if let Err(error) = &result {
            if !units::fault!("writes-after-failure") {
                self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
            }
        }
        result
    }

    /// Notes that write-back has written these blocks home; this write is the last of those
    /// returned.
    pub fn home_write_completed(&self, blocks: Range<HomeBlock>) -> HomeWrites {
        let this = HomeWrites(self.written.get().0 + 1);
        self.written.set(this);
        let mut volatile = self.volatile.borrow_mut();
        volatile.push((this, blocks));
        if volatile.len() > ADDRESSES_MAX {
            volatile.clear();
            self.unknown.set(this);
        }
        this
    }
    /// Whether the one home write that a sync waits for is durable by itself. That saves the flush
    /// that the plan would make behind it, if nothing else needs one.
    pub fn is_home_write_durable(&self) -> bool {
        self.end_phase([1, 0], plan_home_durable().last_barrier()).durable[DiskRole::Home as usize]
    }
    /// Returns the number of home writes that have completed.
    pub fn home_written(&self) -> HomeWrites {
        self.written.get()
    }
    /// Whether they are durable, as far as barriers are wanted.
    pub fn is_durable(&self, writes: HomeWrites) -> bool {
        !self.ordered.get() || self.durable.get() >= writes
    }

    /// The last of `writes` held data of `owner` that is in no transaction. Whether it is the first
    /// that a flush has to cover.
    pub fn note_unordered(&self, owner: Owner, writes: HomeWrites, now: Instant) -> bool {
        let is_first = !self.wants_flush_of_unordered(None);
        if is_first {
            self.unordered_since.set(now);
        }
        self.unordered_of_anybody.set(writes);
        let mut unordered = self.unordered.borrow_mut();
        unordered.insert(owner, writes);
        if unordered.len() > OWNERS_MAX {
            unordered.clear();
            self.unordered_of_others.set(writes);
        }
        is_first
    }
    /// Returns the time at which unordered data at home must be flushed, unless another flush
    /// covered it; `None` if there is none.
    pub fn flush_of_unordered_at(&self) -> Option<Instant> {
        let at = self.unordered_since.get().plus(UNORDERED_VOLATILE_MAX);
        self.wants_flush_of_unordered(None).then_some(at)
    }
    /// Notes that the last of `writes` held data that must be durable before the running
    /// transaction commits.
    pub fn note_early(&self, writes: HomeWrites) {
        if units::fault!("early-not-flushed") {
            return;
        }
        self.early.set(self.early.get().max(writes));
    }
    /// Whether unordered data of `owner`, or of anybody, may still be in a disk's cache.
    pub fn wants_flush_of_unordered(&self, owner: Option<Owner>) -> bool {
        let last = match owner {
            Some(owner) => self
                .unordered
                .borrow()
                .get(&owner)
                .copied()
                .unwrap_or_default()
                .max(self.unordered_of_others.get()),
            None => self.unordered_of_anybody.get(),
        };
        !self.is_durable(last) && !units::fault!("loose-not-flushed")
    }

    pub fn flush_begins(&self, place: DiskRole) -> Flush {
        let at = Instant::default();
        Flush { place, covers: self.written.get(), begun: self.begun.get(), at }
    }
    /// Returns the writes that a flush of home which begins now must cover, besides `blocks`, which
    /// a plan wrote.
    pub fn volatile_home(&self, mut blocks: Vec<Range<HomeBlock>>) -> DurabilityScope {
        let is_unknown = self.unflushed[DiskRole::Home as usize].get()
            || self.unknown.get() > self.durable.get();
        if is_unknown || !self.disks.separate {
            return DurabilityScope::Everything;
        }
        blocks.extend(self.volatile.borrow().iter().map(|(_, blocks)| blocks.clone()));
        DurabilityScope::Of(blocks)
    }
    pub fn flush_completed(&self, mut flush: Flush) {
        if units::fault!("flush-covers-later") {
            flush.covers = self.written.get();
        }
        if flush.begun == self.begun.get() {
            self.unflushed[self.disk_of(flush.place)].set(false);
        }
        if flush.place == DiskRole::Home {
            self.durable.set(self.durable.get().max(flush.covers));
            self.volatile.borrow_mut().retain(|(write, _)| *write > flush.covers);
            self.unordered.borrow_mut().retain(|_, write| *write > flush.covers);
            // What it does not cover was written home after it began.
            if !units::fault!("flush-due-twice") {
                self.unordered_since.set(self.unordered_since.get().max(flush.at));
            }
        }
    }

    /// Whether the flush of a commit makes what is home durable, too: there is one disk, and no
    /// cheaper way to make a commit durable.
    pub fn commits_cover_home(&self) -> bool {
        let at_no_cost =
            !self.ordered.get() || !self.disks.forced_unit_access[DiskRole::Home as usize];
        !self.disks.separate && at_no_cost
    }

    /// The disk of a place; both places are one disk unless the log has its own.
    fn disk_of(&self, place: DiskRole) -> usize {
        if self.disks.separate { place as usize } else { DiskRole::Home as usize }
    }

    /// Decides how `barrier` is carried out, behind a phase with the given number of writes of each
    /// place. A single write is made durable by itself, if that saves the flush.
    pub fn end_phase(&self, writes: [usize; 2], barrier: Option<Barrier>) -> DurabilityMethod {
        let Some(barrier) = barrier.filter(|_| self.ordered.get()) else {
            return DurabilityMethod { flush: [false; 2], durable: [false; 2] };
        };
        if barrier == Barrier::FoundBeforeWrite && units::fault!("found-not-flushed") {
            return DurabilityMethod { flush: [false; 2], durable: [false; 2] };
        }
        let mut of_disk = [0; 2];
        for place in [DiskRole::Home, DiskRole::Log] {
            of_disk[self.disk_of(place)] += writes[place as usize];
        }
        let forgotten = self.disks.separate && units::fault!("one-disk-flushed");
        if forgotten {
            of_disk[DiskRole::Home as usize] = 0;
        }
        let mut flush: [bool; 2] = std::array::from_fn(|disk| {
            of_disk[disk] > usize::from(self.disks.forced_unit_access[disk])
        });
        let before = match barrier {
            Barrier::HomeBeforeLogTail
            | Barrier::HomeBeforeReply
            | Barrier::SnapshotBeforeSuperblock
            | Barrier::FoundBeforeWrite => self.written.get(),
            Barrier::DataBeforeCommit => self.early.get(),
            _ => HomeWrites::default(),
        };
        flush[DiskRole::Home as usize] |= self.durable.get() < before;
        let of_others = matches!(barrier, Barrier::CopyBeforeHeader | Barrier::FoundBeforeWrite);
        flush[self.disk_of(DiskRole::Log)] |= of_others;
        for place in [DiskRole::Home, DiskRole::Log] {
            flush[self.disk_of(place)] |= self.unflushed[self.disk_of(place)].get();
        }
        let mut durable = [DiskRole::Home, DiskRole::Log].map(|place| !flush[self.disk_of(place)]);
        durable[DiskRole::Home as usize] &= !forgotten;
        DurabilityMethod { flush, durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Disks = Disks { separate: false, forced_unit_access: [true; 2] };
    const TWO: Disks = Disks { separate: true, ..ONE };
    const NOTHING: DurabilityMethod = DurabilityMethod { flush: [false; 2], durable: [true; 2] };

    fn block(at: u64) -> Range<HomeBlock> {
        HomeBlock(at)..HomeBlock(at + 1)
    }
    fn flush(durability: &Durability) {
        durability.flush_completed(durability.flush_begins(DiskRole::Home));
    }

    #[test]
    fn a_flush_covers_only_writes_that_completed_before_it_began() {
        let durability = Durability::new(ONE, true);
        let first = durability.home_write_completed(block(1));
        let flush = durability.flush_begins(DiskRole::Home);
        let second = durability.home_write_completed(block(1));
        assert!(!durability.is_durable(first));
        durability.flush_completed(flush);
        assert!(durability.is_durable(first) && !durability.is_durable(second));
    }

    #[test]
    fn an_older_flush_that_completes_late_takes_nothing_back() {
        let durability = Durability::new(ONE, true);
        let (early, written) =
            (durability.flush_begins(DiskRole::Home), durability.home_write_completed(block(1)));
        flush(&durability);
        durability.flush_completed(early);
        assert!(durability.is_durable(written));
    }

    #[test]
    fn what_recovery_found_is_flushed_on_both_disks() {
        for disks in [ONE, TWO] {
            let durability = Durability::new(disks, true).with_dirty_caches();
            let phase = durability.end_phase([0; 2], Some(Barrier::FoundBeforeWrite));
            let flushed =
                [DiskRole::Home, DiskRole::Log].map(|place| phase.flush[durability.disk_of(place)]);
            assert_eq!((flushed, phase.durable), ([true; 2], [false; 2]));
        }
    }

    #[test]
    fn a_flush_of_the_log_says_nothing_of_home() {
        let durability = Durability::new(TWO, true);
        let written = durability.home_write_completed(block(1));
        durability.flush_completed(durability.flush_begins(DiskRole::Log));
        assert!(!durability.is_durable(written));
    }

    #[test]
    fn a_flush_names_the_blocks_that_no_earlier_one_covered() {
        let durability = Durability::new(TWO, true);
        durability.home_write_completed(block(1));
        let first = durability.flush_begins(DiskRole::Home);
        durability.home_write_completed(block(2));
        // The first may fail yet.
        assert_eq!(
            durability.volatile_home(vec![block(9)]),
            DurabilityScope::Of(vec![block(9), block(1), block(2)])
        );
        durability.flush_completed(first);
        assert_eq!(durability.volatile_home(vec![]), DurabilityScope::Of(vec![block(2)]));
        flush(&durability);
        assert_eq!(durability.volatile_home(vec![]), DurabilityScope::Of(vec![]));
    }

    #[test]
    fn a_flush_is_one_of_everything_where_addresses_are_not_known() {
        let durability = Durability::new(TWO, true);
        for at in 0..=ADDRESSES_MAX as u64 {
            durability.home_write_completed(block(at));
        }
        durability.home_write_completed(block(7));
        assert_eq!(durability.volatile_home(vec![]), DurabilityScope::Everything);
        flush(&durability);
        assert_eq!(durability.volatile_home(vec![]), DurabilityScope::Of(vec![]));
        let lax = Durability::new(TWO, false);
        lax.keep_barriers(true);
        for everything in
            [lax, Durability::new(TWO, true).with_dirty_caches(), Durability::new(ONE, true)]
        {
            assert_eq!(everything.volatile_home(vec![]), DurabilityScope::Everything);
        }
    }

    #[test]
    fn overflowing_owner_table_makes_each_sync_flush() {
        let durability = Durability::new(ONE, true);
        let owners = OWNERS_MAX as u64 + 1;
        for owner in 0..owners {
            assert_eq!(durability.unordered.borrow().len() as u64, owner);
            let writes = durability.home_write_completed(block(owner));
            durability.note_unordered(Owner(owner), writes, Instant(0));
        }
        assert!(durability.unordered.borrow().is_empty());
        assert!((0..owners).all(|owner| durability.wants_flush_of_unordered(Some(Owner(owner)))));
        flush(&durability);
        assert!((0..owners).all(|owner| !durability.wants_flush_of_unordered(Some(Owner(owner)))));
        durability.note_unordered(Owner(1), durability.home_write_completed(block(1)), Instant(0));
        let wants = [1, 2].map(|owner| durability.wants_flush_of_unordered(Some(Owner(owner))));
        assert_eq!(wants, [true, false], "after a flush they are kept apart again");
    }

    /// A stream of overwrites has a write in flight at any time, also while a commit flushes.
    #[test]
    fn unordered_data_is_not_due_before_its_second_although_writes_never_pause() {
        let durability = Durability::new(ONE, true);
        let writes = |at, now| {
            let writes = durability.home_write_completed(block(at));
            durability.note_unordered(Owner(1), writes, now)
        };
        let second = Duration::from_secs(1);
        let begin = Instant(0).plus(second);
        assert_eq!(durability.flush_of_unordered_at(), None);
        assert!(writes(1, begin) && !writes(2, begin.plus(second / 4)));
        assert_eq!(durability.flush_of_unordered_at(), Some(begin.plus(second)));
        let half = begin.plus(second / 2);
        let flush = durability.flush_begins(DiskRole::Home).at(half);
        assert!(!writes(3, half.plus(second / 4)));
        durability.flush_completed(flush);
        assert_eq!(durability.flush_of_unordered_at(), Some(half.plus(second)));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let durability = Durability::new(ONE, true);
        for at in [1, 2] {
            let failed: Result<(), String> = Err(format!("request {at}"));
            assert!(durability.note(failed).is_err());
        }
        let Err(CommitError::Aborted { cause }) = durability.check() else { panic!("no failure") };
        assert!(cause == "request 1", "{cause}");
    }

    #[test]
    fn a_single_write_is_durable_by_itself_where_that_saves_a_flush() {
        let durability = Durability::new(ONE, true);
        assert_eq!(durability.end_phase([0, 1], Some(Barrier::CommitBeforeReply)), NOTHING);
        let two = durability.end_phase([1, 1], Some(Barrier::CommitBeforeReply));
        assert_eq!(two, DurabilityMethod { flush: [true, false], durable: [false; 2] });
        let without = Durability::new(Disks { forced_unit_access: [false; 2], ..ONE }, true);
        assert!(without.end_phase([0, 1], Some(Barrier::CommitBeforeReply)).flush[0]);
        assert_eq!(
            durability.end_phase([2, 2], None),
            DurabilityMethod { flush: [false; 2], durable: [false; 2] }
        );
        let unordered = Durability::new(ONE, false);
        assert_eq!(unordered.end_phase([2, 2], Some(Barrier::DataBeforeCommit)).flush, [false; 2]);
    }

    #[test]
    fn barriers_that_are_kept_from_now_on_flush_what_was_written_before() {
        for disks in [ONE, TWO] {
            let durability = Durability::new(disks, false);
            assert!(durability.keep_barriers(true) && !durability.keep_barriers(true));
            let first = durability.end_phase([0, 1], Some(Barrier::CommitBeforeReply));
            assert_eq!(first.flush, [true, disks.separate]);
            for place in [DiskRole::Home, DiskRole::Log] {
                durability.flush_completed(durability.flush_begins(place));
            }
            assert_eq!(durability.end_phase([0, 1], Some(Barrier::CommitBeforeReply)), NOTHING);
        }
    }

    #[test]
    fn a_flush_from_before_covers_nothing_that_was_written_without_barriers() {
        for disks in [ONE, TWO] {
            let durability = Durability::new(disks, true);
            let flush = durability.flush_begins(DiskRole::Home);
            durability.keep_barriers(false);
            durability.keep_barriers(true);
            durability.flush_completed(flush);
            assert!(durability.end_phase([0, 1], Some(Barrier::CommitBeforeReply)).flush[0]);
        }
    }

    #[test]
    fn with_two_disks_each_is_flushed_for_its_own_writes() {
        let durability = Durability::new(TWO, true);
        assert_eq!(durability.end_phase([1, 1], Some(Barrier::DataBeforeCommit)), NOTHING);
        let both = durability.end_phase([2, 2], Some(Barrier::DataBeforeCommit));
        assert_eq!(both, DurabilityMethod { flush: [true; 2], durable: [false; 2] });
        let home = durability.end_phase([2, 1], Some(Barrier::DataBeforeCommit));
        assert_eq!(home, DurabilityMethod { flush: [true, false], durable: [false, true] });
    }

    #[test]
    fn a_barrier_flushes_what_write_back_sent_if_it_concerns_that() {
        let durability = Durability::new(TWO, true);
        let written = durability.home_write_completed(block(1));
        let flushes = |barrier| durability.end_phase([0, 1], Some(barrier)).flush[0];
        assert!(flushes(Barrier::HomeBeforeLogTail) && flushes(Barrier::HomeBeforeReply));
        assert!(!flushes(Barrier::CommitBeforeReply) && !flushes(Barrier::DataBeforeCommit));
        durability.note_early(written);
        assert!(flushes(Barrier::DataBeforeCommit));
        flush(&durability);
        assert!(!flushes(Barrier::HomeBeforeLogTail) && !flushes(Barrier::DataBeforeCommit));
    }

    #[test]
    fn unordered_data_asks_for_a_flush_until_one_has_covered_it() {
        let durability = Durability::new(ONE, true);
        durability.home_write_completed(block(1));
        let (own, stranger) = (Some(Owner(1)), Some(Owner(2)));
        assert!(!durability.wants_flush_of_unordered(None));
        assert!(durability.note_unordered(Owner(1), durability.home_written(), Instant(0)));
        let wants = [own, None, stranger].map(|owner| durability.wants_flush_of_unordered(owner));
        assert_eq!(wants, [true, true, false]);
        flush(&durability);
        assert!(!durability.wants_flush_of_unordered(None));
        assert!(!Durability::new(ONE, true).with_dirty_caches().is_durable(HomeWrites(1)));
    }
}
