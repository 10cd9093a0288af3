//! Transactions that hold space in a log, oldest first: consecutive ids, and the first is not
//! released.

use std::collections::VecDeque;
use units::TransactionId;

#[derive(Clone, Debug)]
pub struct HeldInOrder<T>(VecDeque<Kept<T>>);

#[derive(Clone, Debug)]
struct Kept<T> {
    transaction: TransactionId,
    room: T,
    released: bool,
}

impl<T> HeldInOrder<T> {
    pub fn new() -> HeldInOrder<T> {
        HeldInOrder(VecDeque::new())
    }

    /// Adds `transaction`, which follows the last one.
    pub fn push(&mut self, transaction: TransactionId, room: T) {
        assert!(
            self.is_next(transaction),
            "{transaction} after {:?}",
            self.0.back().map(|last| last.transaction)
        );
        self.0.push_back(Kept { transaction, room, released: false });
    }
    /// Whether `transaction` follows the last one. True for any while none is held.
    pub fn is_next(&self, transaction: TransactionId) -> bool {
        self.0.back().is_none_or(|last| last.transaction.next() == transaction)
    }

    fn position(&self, transaction: TransactionId) -> Option<usize> {
        let oldest = self.oldest()?;
        let index = transaction.0.wrapping_sub(oldest.0) as usize;
        (index < self.0.len()).then_some(index)
    }
    pub fn get(&self, transaction: TransactionId) -> Option<&T> {
        self.position(transaction).map(|index| &self.0[index].room)
    }
    pub fn get_mut(&mut self, transaction: TransactionId) -> Option<&mut T> {
        self.position(transaction).map(|index| &mut self.0[index].room)
    }
    pub fn oldest(&self) -> Option<TransactionId> {
        self.0.front().map(|held| held.transaction)
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (TransactionId, &T)> {
        self.0.iter().map(|held| (held.transaction, &held.room))
    }

    /// Releases `transaction`, once, and removes those that no older transaction keeps, passing
    /// each to `gone`.
    pub fn release(&mut self, transaction: TransactionId, mut gone: impl FnMut(T)) {
        let index = self.position(transaction).expect("a transaction in the log is released once");
        self.0[index].released = true;
        while self.0.front().is_some_and(|held| held.released) {
            gone(self.0.pop_front().expect("a front").room);
        }
    }
}
