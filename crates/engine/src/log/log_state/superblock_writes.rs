//! Writes of the journal superblock, one at a time: with a new tail, an announcement of scattered
//! logs, or another snapshot.

use super::LogState;
use crate::log::tail::{TailDecision, TailRequest};
use commit::Durability;
use commit::{LogSuperblock, SuperblockChange};
use format::jbd2::JournalSuperblock;
use format::scattered::NamedSnapshot;
use format::snapshot::SnapshotItem;
use journal::{LogRun, NewPiece, SuperblockImage};
use runtime::sync::Event;
use std::ops::Range;
use std::rc::Rc;
use units::{HomeBlock, TransactionId};

/// A superblock that names another snapshot, in flight to the disk.
pub(crate) struct SnapshotChange {
    named: Option<NamedSnapshot>,
    change: SuperblockChange,
}

impl SnapshotChange {
    pub fn image(&self) -> SuperblockImage {
        self.change.image()
    }
}

/// Whether the superblock can go to the disk to name a snapshot.
pub(crate) enum SnapshotSuperblockWrite {
    Begins(Box<SnapshotChange>),
    /// Deferred: another write of the superblock is in flight; the caller asks again when that has
    /// arrived.
    Waits(Rc<Event>),
}

/// A superblock with a new tail, in flight to the disk.
pub(crate) struct TailMove {
    tail: TransactionId,
    change: SuperblockChange,
}

impl TailMove {
    pub fn image(&self) -> SuperblockImage {
        self.change.image()
    }
}

/// Whether the superblock must say more before the next transaction is written.
pub(crate) enum Announcement {
    Needless,
    /// The write goes to the disk now. The caller reports its arrival by [`LogState::announced`].
    Begins(SuperblockChange),
    /// Deferred: another write of the superblock is in flight; the caller asks again when that has
    /// arrived.
    Waits(Rc<Event>),
}

impl LogState {
    // How its tail moves.

    /// Notes that a handle waits for log space.
    pub fn is_waited_for(&mut self) {
        self.tail.is_waited_for();
    }
    /// Forgets what was taken for durable: barriers were not kept.
    pub fn forget_notes(&mut self) {
        self.tail.forget_notes();
    }
    /// Write-back asks for the tail to move as far as it may. The move begins, or is left to a
    /// commit.
    pub fn ask_tail(&mut self, occasion: TailRequest, covered: bool) -> Option<TailMove> {
        let tail = self.checkpoint.tail();
        let possible = self.superblock.has_begun().then_some(tail);
        (self.tail.ask(occasion, covered, possible) == TailDecision::Move)
            .then(|| self.begin_move(tail))
    }
    /// Notes that a commit begins, which will flush: what is home now is durable afterwards.
    pub fn commit_begins(&mut self, durability: &Durability) {
        self.tail.promote(|writes| durability.is_durable(writes));
        self.tail.commit_begins(self.checkpoint.tail(), durability.home_written());
    }
    /// Whether the tail would go along with a commit that begins now.
    pub fn tail_goes_along(&mut self, durability: &Durability) -> bool {
        self.tail.promote(|writes| durability.is_durable(writes));
        self.tail.ask_by_commit().is_some()
    }
    /// Takes the tail along for a commit, before it writes what comes before its last barrier. If
    /// the tail may go along, its move begins.
    pub fn take_tail_along(&mut self, durability: &Durability) -> Option<TailMove> {
        self.tail.promote(|writes| durability.is_durable(writes));
        let tail = self.tail.ask_by_commit()?;
        Some(self.begin_move(tail))
    }
    fn begin_move(&mut self, tail: TransactionId) -> TailMove {
        self.tail.move_begins();
        let mut superblock = self.superblock.on_disk().clone();
        let at =
            self.space.start_of(tail).expect("the tail is in the log, or the next transaction");
        let at = self.ends.get(&tail.previous().0).copied().unwrap_or(at);
        superblock.set_tail(tail, at);
        self.space.announce(&mut superblock, Some(tail));
        self.leave_out_foreign(&mut superblock);
        TailMove { tail, change: self.superblock.change(superblock) }
    }
    /// The superblock is on disk with its new tail, which this returns.
    pub fn tail_moved(&mut self, moved: TailMove) -> TransactionId {
        let TailMove { tail, change } = moved;
        self.tail.moved(tail);
        self.space.release_before(tail);
        self.live.release_before(tail);
        self.snapshot.iter_mut().for_each(|snapshot| snapshot.tail_moved(tail));
        self.superblock.arrived(change);
        tail
    }

    // What the superblock says besides.

    /// Begins an announcement of the places that recovery must learn before more transactions are
    /// written there.
    pub fn announce(&mut self) -> Announcement {
        if !self.superblock.has_begun() {
            return Announcement::Needless;
        }
        let is_free = !self.tail.is_moving();
        // One in flight with a new tail may leave out which scattered logs were announced before;
        // it never leaves out a length.
        let may_shrink = self.superblock.on_disk().scattered.is_some();
        let mut superblock = self.superblock.on_disk().clone();
        let is_more = self.space.announce(&mut superblock, None);
        let is_more = self.leave_out_foreign(&mut superblock) || is_more;
        let forgets = is_free && may_shrink && units::fault!("scattered-not-announced");
        if forgets || !is_more && (is_free || !may_shrink) {
            return Announcement::Needless;
        }
        if !is_free {
            return Announcement::Waits(self.superblock.arrival());
        }
        self.tail.move_begins();
        Announcement::Begins(self.superblock.change(superblock))
    }
    /// The superblock is on disk, with the tail that it had.
    pub fn announced(&mut self, change: SuperblockChange) {
        self.tail.move_ends();
        self.superblock.arrived(change);
        self.note_width();
    }
    /// The superblock is in flight to the disk.
    pub fn is_moving(&self) -> bool {
        self.tail.is_moving()
    }
    pub fn superblock(&self) -> &LogSuperblock {
        &self.superblock
    }

    // The snapshot.

    /// A snapshot that this mount does not go on with counts no more. Whether it did.
    fn leave_out_foreign(&self, superblock: &mut JournalSuperblock) -> bool {
        let goes_on = self.snapshot.as_ref().is_some_and(|snapshot| !snapshot.ring().is_empty());
        let is_foreign = !goes_on && superblock.named_snapshot().is_some();
        if is_foreign {
            superblock.name_snapshot(None);
        }
        is_foreign
    }
    /// A restart would have to read more than it should.
    pub fn snapshot_is_due(&self) -> bool {
        let tail = self.tail.on_disk();
        self.superblock.has_begun()
            && self.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_due(tail))
    }
    /// Whether a snapshot records where runs lie.
    pub fn names_snapshot(&self) -> bool {
        self.superblock.on_disk().named_snapshot().is_some()
    }
    /// Returns the first transaction that is not covered, and most items of a piece.
    pub fn uncovered(&self) -> (TransactionId, usize) {
        let tail = self.tail.on_disk();
        self.snapshot.as_ref().map_or((tail, 0), |snapshot| {
            let ring = snapshot.ring();
            (ring.end(tail), ring.items_max())
        })
    }
    pub fn run_of(&self, transaction: TransactionId) -> Option<LogRun> {
        self.space.run_of(transaction)
    }
    /// Blocks that `transaction`, which is not covered yet, has revoked.
    pub fn revoked_by(&self, transaction: TransactionId) -> &[HomeBlock] {
        self.snapshot.as_ref().map_or(&[], |snapshot| snapshot.revoked_by(transaction))
    }
    /// The oldest transaction that replay of `block` begins with, if home lacks anything of it.
    pub fn oldest_needed(&self, block: HomeBlock) -> Option<TransactionId> {
        self.checkpoint.oldest(block)
    }
    /// Writes no more pieces while the tail is where it is.
    pub fn skip_piece(&mut self) {
        let tail = self.tail.on_disk();
        self.snapshot.iter_mut().for_each(|snapshot| snapshot.is_stuck(tail));
    }
    /// Whether the superblock names pieces that cover nothing behind the tail.
    pub fn may_give_up_pieces(&self) -> bool {
        let tail = self.tail.on_disk();
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.ring().has_passed_pieces(tail))
    }
    /// [`SnapshotRing::begin_piece`].
    pub fn begin_piece(
        &self,
        covered: Range<TransactionId>,
        committed: TransactionId,
        items: &[SnapshotItem],
    ) -> Option<NewPiece> {
        self.snapshot.as_ref()?.ring().begin_piece(covered, committed, items)
    }
    /// The superblock is to name `piece`, or none that covers nothing. `read_from`: from which
    /// transaction on a restart reads the log; `None`: no snapshot is to count. `ends_swap`: from
    /// then on the copies of the swap count.
    pub fn begin_snapshot_superblock(
        &mut self,
        piece: Option<&NewPiece>,
        read_from: Option<TransactionId>,
        ends_swap: bool,
    ) -> SnapshotSuperblockWrite {
        if self.tail.is_moving() {
            return SnapshotSuperblockWrite::Waits(self.superblock.arrival());
        }
        let (tail, mut superblock) = (self.tail.on_disk(), self.superblock.on_disk().clone());
        let named = self.snapshot.as_ref().zip(read_from).and_then(|(snapshot, read_from)| {
            let ring = snapshot.ring();
            let said = superblock.scattered.as_ref()?;
            let said = said.snapshot.as_ref().map_or(&said.active, |named| &named.since);
            let named = ring.name(tail, piece, read_from)?;
            let since = self.space.since(named.end, said);
            // As long as those that are covered now: later ones, which are not longer, need not be
            // announced.
            let longest = self.space.longest_from(ring.end(tail));
            Some(NamedSnapshot { since, longest, ..named })
        });
        superblock.name_snapshot(named.clone());
        if ends_swap {
            self.space.count_copies();
            superblock.set_moving(None);
        }
        self.tail.move_begins();
        SnapshotSuperblockWrite::Begins(Box::new(SnapshotChange {
            named,
            change: self.superblock.change(superblock),
        }))
    }
    /// The superblock is on disk. All up to `committed` was committed when it was issued.
    pub fn named(
        &mut self,
        done: SnapshotChange,
        piece: Option<NewPiece>,
        committed: TransactionId,
    ) {
        let SnapshotChange { named, change } = done;
        self.tail.move_ends();
        self.superblock.arrived(change);
        let Some(snapshot) = &mut self.snapshot else { return };
        match &named {
            Some(named) => snapshot.ring_mut().counts(named, piece),
            None => snapshot.ring_mut().forget(),
        }
        self.note_width();
        self.note_covered(committed);
    }
    fn note_width(&mut self) {
        let since = self.superblock.on_disk().named_snapshot().map(|named| &named.since);
        let is_wide = since.is_some_and(|since| self.space.are_many(since));
        self.snapshot.iter_mut().for_each(|snapshot| snapshot.set_wide(is_wide));
    }
    /// Counts transactions up to `committed` that the snapshot now covers as covered.
    pub(super) fn note_covered(&mut self, committed: TransactionId) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let end = snapshot.ring().end(self.tail.on_disk());
        let (mut left, mut at) = (Vec::new(), end);
        while let Some(run) = self.space.run_of(at).filter(|_| committed.is_at_or_after(at)) {
            left.push(run);
            at = at.next();
        }
        snapshot.covered_before(end, left.into_iter());
    }
}
