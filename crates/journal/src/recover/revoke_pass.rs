use super::replay_walk::ReplayWalk;
use super::{Bounds, Pass, PassCounts, RecoverError, Scanned};
use crate::records::Decoded;
use crate::revoke::RevokeTable;
use units::LogBlock;

/// Second pass: gathers the revokes of all committed transactions. Reads nothing but what holds
/// revokes.
pub struct RevokePass {
    reading: ReplayWalk,
    table: RevokeTable,
    bounds: Option<Box<dyn Bounds>>,
    transactions: u64,
    revokes: u64,
}

impl RevokePass {
    pub fn new(scanned: &Scanned) -> RevokePass {
        let spans = scanned.transactions.iter();
        let spans =
            spans.flat_map(|found| found.revokes.iter().map(|span| (found.id, *span))).collect();
        RevokePass {
            reading: ReplayWalk::new(scanned, spans),
            table: RevokeTable::new(),
            bounds: None,
            transactions: scanned.transactions.len() as u64,
            revokes: 0,
        }
    }
    /// Drops revokes of blocks that no record may name: they hide nothing, and a forged log may
    /// hold any number of them.
    pub fn within(mut self, bounds: impl Bounds + 'static) -> RevokePass {
        self.bounds = Some(Box::new(bounds));
        self
    }
    pub fn finish(self) -> RevokeTable {
        assert!(self.reading.wants().is_none(), "the revoke pass is not over");
        self.table
    }
}

impl Pass for RevokePass {
    fn wants(&self) -> Option<LogBlock> {
        self.reading.wants()
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let (transaction, _) = self.reading.current();
        self.reading.give(block, &mut |decoded| {
            if let Decoded::Revoke(home) = decoded {
                self.revokes += 1;
                if self.bounds.as_ref().is_none_or(|bounds| bounds.refuses(home).is_none()) {
                    self.table.revoke(home, transaction);
                }
            }
            Ok(())
        })
    }

    fn counts(&self) -> PassCounts {
        PassCounts {
            transactions: self.transactions,
            revokes: self.revokes,
            ..self.reading.counts()
        }
    }
}
