use std::collections::BTreeMap;
use units::{HomeBlock, TransactionId};

/// Latest transaction that revoked each revoked block. Records of the block in that transaction and
/// in all before it must not be replayed.
///
/// The block was freed and may now hold other data; an old copy, or an old fragment, would
/// overwrite it.
#[derive(Clone, Default, Debug)]
pub struct RevokeTable {
    latest: BTreeMap<HomeBlock, TransactionId>,
}

impl RevokeTable {
    pub fn new() -> RevokeTable {
        RevokeTable::default()
    }
    pub fn revoke(&mut self, block: HomeBlock, by: TransactionId) {
        let latest = self.latest.entry(block).or_insert(by);
        if by.is_after(*latest) {
            *latest = by;
        }
    }
    /// Whether a record of `block` in transaction `logged` is hidden.
    pub fn hides(&self, block: HomeBlock, logged: TransactionId) -> bool {
        self.latest.get(&block).is_some_and(|latest| {
            latest.is_at_or_after(logged) || units::fault!("revoke-hides-later")
        })
    }
    /// Returns each revoked block, and the latest transaction that revoked it.
    pub fn iter(&self) -> impl Iterator<Item = (HomeBlock, TransactionId)> {
        self.latest.iter().map(|(block, by)| (*block, *by))
    }
    pub fn len(&self) -> usize {
        self.latest.len()
    }
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoke_hides_its_own_and_earlier_transactions_across_the_wrap() {
        let (block, by) = (HomeBlock(9), TransactionId(0));
        let mut table = RevokeTable::new();
        table.revoke(block, by);
        table.revoke(block, by.previous());
        assert!(table.hides(block, by) && table.hides(block, TransactionId(u32::MAX)));
        assert!(!table.hides(block, by.next()));
        assert!(!table.hides(HomeBlock(8), by));
    }
}
