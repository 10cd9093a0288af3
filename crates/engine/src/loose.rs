//! Data mode `writeback`: data that no commit waits for, by owner; and with which transaction a sync last had such data go
//! home.
//!
//! Invariant: a block of whom the cache says that it is loose is in the set of its owner. One in the set may be loose no more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use units::{HomeBlock, Instant, Owner, TransactionId};

/// How long data that write-back sent home waits in a disk's cache for somebody else's flush.
const VOLATILE_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Loose {
    blocks: RefCell<BTreeSet<(Owner, HomeBlock)>>,
    ordered_with: Cell<Option<TransactionId>>,
    /// Since when some has been in a disk's cache, unless a flush has covered it.
    volatile_since: Cell<Instant>,
}

impl Loose {
    pub fn insert(&self, owner: Owner, at: HomeBlock) {
        self.blocks.borrow_mut().insert((owner, at));
    }
    /// True if it was there.
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

    /// The first that no flush has covered went home.
    pub fn went_home(&self, now: Instant) {
        self.volatile_since.set(now);
    }
    /// When what went home is to be flushed, if nobody else has done it.
    pub fn flush_at(&self) -> Instant {
        self.volatile_since.get().plus(VOLATILE_MAX)
    }

    /// A sync has had loose data go home with `transaction`.
    pub fn note_ordered(&self, transaction: TransactionId) {
        self.ordered_with.set(Some(transaction));
    }
    /// What a sync that finds no loose data must wait for: somebody else's may have taken it along, and then it is as durable
    /// as that commit.
    pub fn durable_with(&self, transaction: TransactionId) -> TransactionId {
        match self.ordered_with.get() {
            Some(ordered) if ordered.is_after(transaction) => ordered,
            _ => transaction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_gets_his_own_blocks_and_no_others() {
        let loose = Loose::default();
        for (owner, at) in [(1, 9), (2, 0), (2, u64::MAX), (3, 5)] {
            loose.insert(Owner(owner), HomeBlock(at));
        }
        let own = [0, u64::MAX].map(|at| (Owner(2), HomeBlock(at)));
        assert_eq!(loose.of(Owner(2)), own);
        assert!(loose.remove(Owner(2), HomeBlock(0)) && !loose.remove(Owner(2), HomeBlock(0)));
        assert_eq!(loose.all().len(), 3);
    }

    #[test]
    fn data_that_another_sync_took_along_is_durable_with_that_commit() {
        let loose = Loose::default();
        let (earlier, later) = (TransactionId(3), TransactionId(8));
        assert_eq!(loose.durable_with(earlier), earlier);
        loose.note_ordered(TransactionId(5));
        assert_eq!([loose.durable_with(earlier), loose.durable_with(later)], [TransactionId(5), later]);
    }
}
