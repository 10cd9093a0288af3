use super::scan::check_size;
use super::{Pass, PassCounts, RecoverError, Scanned};
use crate::revoke::RevokeTable;
use format::jbd2::{LogLayout, RevokeBlock};
use std::collections::VecDeque;
use units::{LogBlock, TransactionId};

/// Second pass: gathers the revokes of all committed transactions. Reads nothing but revoke blocks.
pub struct RevokePass {
    layout: LogLayout,
    blocks: VecDeque<(TransactionId, LogBlock)>,
    table: RevokeTable,
    counts: PassCounts,
}

impl RevokePass {
    pub fn new(scanned: &Scanned) -> RevokePass {
        let of = |found: &super::scan::ScannedTransaction| {
            let id = found.id;
            found.revokes.clone().into_iter().map(move |at| (id, at))
        };
        RevokePass {
            layout: scanned.layout,
            blocks: scanned.transactions.iter().flat_map(of).collect(),
            table: RevokeTable::new(),
            counts: PassCounts { transactions: scanned.transactions.len() as u64, ..PassCounts::default() },
        }
    }
    pub fn finish(self) -> RevokeTable {
        assert!(self.blocks.is_empty(), "the revoke pass is not over");
        self.table
    }
}

impl Pass for RevokePass {
    fn wants(&self) -> Option<LogBlock> {
        self.blocks.front().map(|(_, at)| *at)
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let (transaction, at) = self.blocks.pop_front().expect("no block was wanted");
        check_size(block, &self.layout, at)?;
        let revoke = RevokeBlock::parse(block, &self.layout, at)?;
        if revoke.transaction != transaction || !self.layout.is_intact(block) {
            let what = "its revoke block is not what the scan read".to_owned();
            return Err(RecoverError::Damaged { at, transaction, what });
        }
        self.counts.log_blocks_read += 1;
        self.counts.revoke_blocks += 1;
        self.counts.revokes += revoke.blocks.len() as u64;
        revoke.blocks.into_iter().for_each(|home| self.table.revoke(home, transaction));
        Ok(())
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}
