use super::replay_walk::ReplayWalk;
use super::{Bounds, Pass, PassCounts, RecoverError, Scanned};
use crate::records::{Decoded, WholeBlockLocation};
use crate::revoke::RevokeTable;
use units::{BlockRange, HomeBlock, LogBlock, TransactionId};

/// One record to replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayAction {
    WriteWhole { home: HomeBlock, bytes: Vec<u8> },
    Merge { home: HomeBlock, range: BlockRange, bytes: Vec<u8>, base_zero: bool },
}

impl ReplayAction {
    pub fn home(&self) -> HomeBlock {
        match self {
            ReplayAction::WriteWhole { home, .. } | ReplayAction::Merge { home, .. } => *home,
        }
    }
}

/// A record to replay, and its origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayedRecord {
    pub by: TransactionId,
    /// Place at which a contiguous log holds the whole block, if known.
    pub place: Option<WholeBlockLocation>,
    /// Durability is enough for the block's file.
    pub durable_only: bool,
    pub action: ReplayAction,
}

/// Third pass: the records of all committed transactions in order, without those that a revoke
/// hides.
pub struct ReplayPass {
    reading: ReplayWalk,
    outcome: ReplayOutcome,
    transactions: u64,
}

/// Outcome of records.
struct ReplayOutcome {
    revokes: RevokeTable,
    bounds: Box<dyn Bounds>,
    records: Vec<ReplayedRecord>,
    counts: PassCounts,
}

impl ReplayPass {
    pub fn new(
        scanned: &Scanned,
        revokes: RevokeTable,
        bounds: impl Bounds + 'static,
    ) -> ReplayPass {
        let spans = scanned.transactions.iter();
        let mut spans: Vec<_> =
            spans.flat_map(|found| found.records.iter().map(|span| (found.id, *span))).collect();
        if units::fault!("replay-order") {
            spans.sort_by_key(|(id, _)| std::cmp::Reverse(id.0));
        }
        ReplayPass {
            reading: ReplayWalk::new(scanned, spans),
            outcome: ReplayOutcome {
                revokes,
                bounds: Box::new(bounds),
                records: Vec::new(),
                counts: PassCounts::default(),
            },
            transactions: scanned.transactions.len() as u64,
        }
    }

    /// Returns the records read since the last call, in log order. Take them after each `give`.
    pub fn take_records(&mut self) -> Vec<ReplayedRecord> {
        std::mem::take(&mut self.outcome.records)
    }
    /// Returns only the actions of these records.
    pub fn take_actions(&mut self) -> impl Iterator<Item = ReplayAction> {
        self.take_records().into_iter().map(|record| record.action)
    }
}

impl ReplayOutcome {
    fn record(
        &mut self,
        decoded: Decoded,
        transaction: TransactionId,
        at: LogBlock,
    ) -> Result<(), RecoverError> {
        let home = match decoded {
            Decoded::Whole { home, .. } | Decoded::Part { home, .. } => home,
            Decoded::Revoke(_) => return Ok(()),
        };
        if let Some(why) = self.bounds.refuses(home) {
            return Err(RecoverError::ForbiddenHome { at, transaction, home, why });
        }
        // The block may have been freed and now hold other data. An old copy, or an old fragment,
        // would overwrite it.
        if self.revokes.hides(home, transaction) {
            self.counts.revokes += 1;
            return Ok(());
        }
        let (place, durable_only, action) = match decoded {
            Decoded::Part { range, bytes, base_zero, .. } => {
                self.counts.fragment_records += 1;
                (None, false, ReplayAction::Merge { home, range, bytes: bytes.to_vec(), base_zero })
            }
            Decoded::Whole { durable_only, bytes, place, .. } => {
                self.counts.whole_records += 1;
                (place, durable_only, ReplayAction::WriteWhole { home, bytes: bytes.to_vec() })
            }
            Decoded::Revoke(_) => return Ok(()),
        };
        self.records.push(ReplayedRecord { by: transaction, place, durable_only, action });
        Ok(())
    }
}

impl Pass for ReplayPass {
    fn wants(&self) -> Option<LogBlock> {
        self.reading.wants()
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let ((transaction, at), outcome) = (self.reading.current(), &mut self.outcome);
        self.reading.give(block, &mut |decoded| outcome.record(decoded, transaction, at))
    }

    fn counts(&self) -> PassCounts {
        let mut counts = PassCounts { transactions: self.transactions, ..self.reading.counts() };
        counts.add(&self.outcome.counts);
        counts
    }
}
