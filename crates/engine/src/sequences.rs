//! Selective mode: where each block stands in its update sequence.
//!
//! Invariant: once an update of a block is logged, all are, until the block is home and its records
//! are out of the log.

use std::cell::RefCell;
use units::{BlockMap, HomeBlock, TransactionId};

use journal::UpdateSequence;

#[derive(Default)]
pub(crate) struct Sequences(RefCell<BlockMap<UpdateSequence>>);

impl Sequences {
    /// `clean`: home has the block's latest version. `tail`: the first transaction of the log on
    /// disk.
    pub fn of(&self, at: HomeBlock, clean: bool, tail: TransactionId) -> UpdateSequence {
        self.0.borrow().get(&at).copied().unwrap_or_default().current(clean, tail)
    }
    pub fn set(&self, at: HomeBlock, state: UpdateSequence) {
        self.0.borrow_mut().insert(at, state);
    }
    /// The block is free.
    pub fn forget(&self, at: HomeBlock) {
        self.0.borrow_mut().remove(&at);
    }
    /// Forgets where blocks stood whose sequence has ended, now that the log on disk begins with
    /// `tail`.
    pub fn end(&self, tail: TransactionId, is_clean: impl Fn(HomeBlock) -> bool) {
        let ended = UpdateSequence::None;
        self.0.borrow_mut().retain(|at, state| state.current(is_clean(*at), tail) != ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Decision;

    #[test]
    fn a_sequence_is_forgotten_when_its_block_is_clean_and_out_of_the_log() {
        let (at, sequences) = (HomeBlock(5), Sequences::default());
        let logged = UpdateSequence::None.after(Decision::LogBlock, TransactionId(3));
        sequences.set(at, logged);
        sequences.end(TransactionId(3), |_| true);
        assert_eq!(sequences.of(at, false, TransactionId(3)), logged);
        sequences.end(TransactionId(4), |_| true);
        assert_eq!(sequences.of(at, false, TransactionId(4)), UpdateSequence::None);
    }
}
