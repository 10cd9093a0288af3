//! The part of the log that the snapshot of the mapping table does not cover yet, and when to write
//! the next piece.
//!
//! Invariants
//! 1. Pieces record committed transactions, in their order and without a gap.
//! 2. Revokes are kept until a piece records them, or the tail on disk has passed them. A swap
//!    writes a piece also where no others are written, as long as any counts.
//! 3. The uncovered part is counted in bytes that a restart would have to read.

use journal::{CommittedTransaction, LogRun, SnapshotPiece, SnapshotRing};
use std::collections::VecDeque;
use units::{HomeBlock, LogBlock, TransactionId};

/// Bytes that a disk with an arm could read during a seek.
const SEEK_BYTES: u64 = 512 << 10;

pub(crate) struct Snapshot {
    ring: SnapshotRing,
    /// Bytes of a log block.
    unit: u64,
    /// Bytes that a restart may have to read before the next piece is due; `None`: none is ever
    /// due.
    most: Option<u64>,
    revoked: VecDeque<(TransactionId, Vec<HomeBlock>)>,
    /// Bytes of the log that a restart would have to read besides the snapshot, and the end of the
    /// last run.
    uncovered: u64,
    last_end: LogBlock,
    /// A restart would have to look into more logs than it should.
    is_wide: bool,
    /// Tail at which no piece could be written.
    stuck_at: Option<TransactionId>,
}

impl Snapshot {
    pub fn new(ring: SnapshotRing, unit: usize, most: Option<u64>) -> Snapshot {
        Snapshot {
            ring,
            unit: unit as u64,
            most,
            revoked: VecDeque::new(),
            uncovered: 0,
            last_end: LogBlock(0),
            is_wide: false,
            stuck_at: None,
        }
    }
    /// Continues the ring behind these pieces.
    #[must_use]
    pub fn behind(mut self, pieces: Vec<SnapshotPiece>) -> Snapshot {
        self.ring = self.ring.behind(pieces);
        self
    }
    pub fn ring(&self) -> &SnapshotRing {
        &self.ring
    }
    pub fn ring_mut(&mut self) -> &mut SnapshotRing {
        &mut self.ring
    }
    /// Notes that `transaction` is committed and lies in `run`.
    pub fn committed(&mut self, transaction: &CommittedTransaction, run: LogRun) {
        self.add_run(run);
        let may_be_recorded = self.most.is_some()
            || !self.ring.is_empty() && !units::fault!("snapshot-revoke-not-kept");
        if may_be_recorded && !transaction.revoked.is_empty() {
            self.revoked.push_back((transaction.id, transaction.revoked.clone()));
        }
    }
    /// Counts a run that no piece covers.
    fn add_run(&mut self, run: LogRun) {
        // A header stands in front of it.
        let goes_on = run.start == self.last_end.plus(1);
        let seek = if goes_on { 0 } else { SEEK_BYTES };
        self.uncovered += seek + u64::from(run.count + 1) * self.unit;
        self.last_end = run.start.plus(run.count);
    }
    /// Blocks that `transaction` has revoked.
    pub fn revoked_by(&self, transaction: TransactionId) -> &[HomeBlock] {
        let at = self.revoked.partition_point(|(by, _)| transaction.is_after(*by));
        let found = self.revoked.get(at).filter(|(by, _)| *by == transaction);
        found.map_or(&[], |(_, blocks)| blocks)
    }
    /// A restart would have to read more than it should. `tail`: on disk.
    pub fn is_due(&self, tail: TransactionId) -> bool {
        self.most.is_some_and(|most| self.uncovered >= most || self.is_wide)
            && self.stuck_at != Some(tail)
    }
    /// Whether a restart would have to look into more logs than it should.
    pub fn set_wide(&mut self, is_wide: bool) {
        self.is_wide = is_wide;
    }
    /// Notes that no piece can be written while the tail is there.
    pub fn is_stuck(&mut self, tail: TransactionId) {
        self.stuck_at = Some(tail);
    }
    /// Notes that all transactions before `end` are covered, or home. `left`: the runs of those
    /// committed from `end` on.
    pub fn covered_before(&mut self, end: TransactionId, left: impl Iterator<Item = LogRun>) {
        self.forget_revokes_before(end);
        (self.uncovered, self.last_end) = (0, LogBlock(0));
        left.for_each(|run| self.add_run(run));
    }
    /// Notes that the log is empty, so that nothing is to be covered.
    pub fn emptied(&mut self) {
        self.ring.forget();
        self.revoked.clear();
        (self.uncovered, self.last_end, self.stuck_at) = (0, LogBlock(0), None);
        self.is_wide = false;
    }
    /// The tail on disk has moved there.
    pub fn tail_moved(&mut self, tail: TransactionId) {
        self.forget_revokes_before(tail);
    }
    fn forget_revokes_before(&mut self, end: TransactionId) {
        while self.revoked.front().is_some_and(|(by, _)| end.is_after(*by)) {
            self.revoked.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::jbd2::JournalSuperblock;
    use units::BlockSize;

    fn snapshot(most: Option<u64>) -> Snapshot {
        let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [7; 16]);
        superblock.set_scattered(5);
        Snapshot::new(SnapshotRing::new(&superblock), 1024, most)
    }
    fn commit(snapshot: &mut Snapshot, id: u32, start: u32, revoked: &[u64]) {
        let revoked = revoked.iter().copied().map(HomeBlock).collect();
        let transaction = CommittedTransaction {
            id: TransactionId(id),
            log_blocks: 4,
            records: Vec::new(),
            revoked,
        };
        snapshot.committed(&transaction, LogRun { start: LogBlock(start), count: 3 });
    }
    const TAIL: TransactionId = TransactionId(1);

    #[test]
    fn runs_behind_one_another_are_nearer_to_a_restart_than_runs_apart() {
        let mut together = snapshot(Some(2 * SEEK_BYTES));
        (0..20).for_each(|number| commit(&mut together, number, 65 + 4 * number, &[]));
        assert!(!together.is_due(TAIL));
        let mut apart = snapshot(Some(2 * SEEK_BYTES));
        (0..2).for_each(|number| commit(&mut apart, number, 65 + 400 * number, &[]));
        assert!(apart.is_due(TAIL));
        apart.covered_before(TransactionId(2), std::iter::empty());
        assert!(!apart.is_due(TAIL));
        assert!(!snapshot(None).is_due(TAIL));
    }

    #[test]
    fn a_piece_that_did_not_fit_is_retried_when_the_tail_moves() {
        let mut snapshot = snapshot(Some(1));
        commit(&mut snapshot, 1, 65, &[]);
        snapshot.is_stuck(TAIL);
        assert!(!snapshot.is_due(TAIL) && snapshot.is_due(TAIL.next()));
    }

    #[test]
    fn revokes_are_kept_until_recorded_or_behind_the_tail() {
        let mut snapshot = snapshot(Some(1));
        for id in 1..5 {
            commit(&mut snapshot, id, 65, &[u64::from(id)]);
        }
        snapshot.tail_moved(TransactionId(2));
        assert_eq!(
            (snapshot.revoked_by(TAIL), snapshot.revoked_by(TransactionId(2))),
            (&[][..], &[HomeBlock(2)][..])
        );
        snapshot.covered_before(TransactionId(4), std::iter::empty());
        assert_eq!((snapshot.revoked_by(TransactionId(3)), snapshot.revoked.len()), (&[][..], 1));
    }
}
