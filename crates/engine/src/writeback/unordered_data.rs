//! Data that no commit waits for, by owner: all in `writeback`, overwrites in place elsewhere. And
//! with which transaction a sync last had such data written home.
//!
//! Invariant: a block that is unordered in the cache is in the set of its owner. One in the set
//! need not be unordered any more.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use units::{HomeBlock, Owner, TransactionId};

#[derive(Default)]
pub(crate) struct UnorderedData {
    blocks: RefCell<BTreeSet<(Owner, HomeBlock)>>,
    /// Transactions with which owners' data is ordered, as long as they may be uncommitted.
    ordered_with: RefCell<BTreeMap<Owner, TransactionId>>,
}

impl UnorderedData {
    pub fn insert(&self, owner: Owner, at: HomeBlock) {
        self.blocks.borrow_mut().insert((owner, at));
    }
    /// Removes the block. Returns whether it was there.
    pub fn remove(&self, owner: Owner, at: HomeBlock) -> bool {
        self.blocks.borrow_mut().remove(&(owner, at))
    }
    pub fn of(&self, owner: Owner) -> Vec<(Owner, HomeBlock)> {
        let all = self.blocks.borrow();
        all.range((owner, HomeBlock(0))..=(owner, HomeBlock(u64::MAX))).copied().collect()
    }
    pub fn all(&self) -> Vec<(Owner, HomeBlock)> {
        self.blocks.borrow().iter().copied().collect()
    }

    /// Notes that a sync has had unordered data of `owner` written home with `transaction`.
    pub fn note_ordered(&self, owner: Owner, transaction: TransactionId) {
        self.ordered_with.borrow_mut().insert(owner, transaction);
    }
    /// Notes that all transactions up to `transaction` are committed.
    pub fn committed(&self, transaction: TransactionId) {
        self.ordered_with.borrow_mut().retain(|_, with| with.is_after(transaction));
    }
    /// Returns the transaction that a sync of `owner`, or of all owners, must wait for if it finds
    /// no unordered data. Another sync may have ordered that data, and then it is durable with that
    /// commit.
    pub fn durable_with(&self, owner: Option<Owner>, transaction: TransactionId) -> TransactionId {
        let ordered_with = self.ordered_with.borrow();
        if units::fault!("sync-took-along") {
            return transaction;
        }
        let later = |one: TransactionId, other: &TransactionId| {
            if other.is_after(one) { *other } else { one }
        };
        match owner {
            Some(owner) => {
                ordered_with.get(&owner).map_or(transaction, |with| later(transaction, with))
            }
            None => ordered_with.values().fold(transaction, later),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_gets_his_own_blocks_and_no_others() {
        let unordered = UnorderedData::default();
        for (owner, at) in [(1, 9), (2, 0), (2, u64::MAX), (3, 5)] {
            unordered.insert(Owner(owner), HomeBlock(at));
        }
        let own = [0, u64::MAX].map(|at| (Owner(2), HomeBlock(at)));
        assert_eq!(unordered.of(Owner(2)), own);
        assert!(
            unordered.remove(Owner(2), HomeBlock(0)) && !unordered.remove(Owner(2), HomeBlock(0))
        );
        assert_eq!(unordered.all().len(), 3);
    }

    #[test]
    fn data_that_another_sync_took_along_is_durable_with_that_commit() {
        let unordered = UnorderedData::default();
        let (earlier, with, later) = (TransactionId(3), TransactionId(5), TransactionId(8));
        let (own, stranger) = (Some(Owner(1)), Some(Owner(2)));
        assert_eq!(unordered.durable_with(own, earlier), earlier);
        unordered.note_ordered(Owner(1), with);
        assert_eq!(
            [unordered.durable_with(own, earlier), unordered.durable_with(own, later)],
            [with, later]
        );
        assert_eq!(
            [unordered.durable_with(stranger, earlier), unordered.durable_with(None, earlier)],
            [earlier, with]
        );
        unordered.committed(with);
        assert_eq!(unordered.durable_with(own, earlier), earlier);
    }
}
