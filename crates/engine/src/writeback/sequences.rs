//! Selective mode: where each block stands in its update sequence.
//!
//! Invariants
//! 1. Once an update of a block is logged, all are, until the block is home and its records are out
//!    of the log.
//! 2. An entry whose sequence has ended says so when it is read. So it may stay for a while, and
//!    sweeps forget such entries a few at a time.
//! 3. The cache counts the memory of the table after every change of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{CompactMap, HomeBlock, TransactionId};

use journal::UpdateSequence;

/// Entries that a sweep looks at before other tasks run.
const SWEPT_AT_ONCE: usize = 1024;
/// Entries by which the table may grow beyond twice its size before a sweep.
const GROWTH_MIN: usize = 4096;

#[derive(Default)]
pub(crate) struct Sequences {
    states: RefCell<CompactMap<UpdateSequence>>,
    memory: Rc<Cell<usize>>,
    /// Maximum memory of the table, in bytes.
    memory_max: usize,
    /// Whether the tail has moved since the last sweep began.
    tail_moved: Cell<bool>,
    /// Entries that the last sweep left.
    left: Cell<usize>,
}

impl Sequences {
    /// A table that is to take `memory_max` bytes at most.
    pub fn new(memory_max: usize) -> Sequences {
        Sequences { memory_max, ..Sequences::default() }
    }
    /// The bytes of memory that it takes, at any time.
    pub fn memory_in_use(&self) -> Rc<Cell<usize>> {
        self.memory.clone()
    }

    /// Returns the update sequence of a block; `clean` if home has its latest version. `tail`: the
    /// first transaction of the log on disk.
    pub fn of(&self, at: HomeBlock, clean: bool, tail: TransactionId) -> UpdateSequence {
        self.states.borrow().get(at.get()).unwrap_or_default().current(clean, tail)
    }
    /// Whether the table takes more memory now.
    pub fn set(&self, at: HomeBlock, state: UpdateSequence) -> bool {
        let mut states = self.states.borrow_mut();
        if states.insert(at.get(), state).is_some() {
            return false;
        }
        let before = self.memory.replace(states.memory());
        self.memory.get() > before
    }
    /// Forgets the blocks, which are free.
    pub fn forget(&self, at: HomeBlock, count: u64) {
        let mut states = self.states.borrow_mut();
        if states.is_empty() {
            return;
        }
        let known: Vec<u64> =
            states.range(at.get(), at.plus(count).get()).map(|(block, _)| block).collect();
        for block in &known {
            states.remove(*block);
        }
        self.memory.set(states.memory());
    }
    /// Returns the number of blocks of the range that it knows.
    pub fn count_within(&self, at: HomeBlock, count: u64) -> u64 {
        self.states.borrow().range(at.get(), at.plus(count).get()).count() as u64
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.memory.get()
    }
    /// Returns whether the table takes more memory than it may: sequences must end.
    pub fn exceeds_memory_max(&self) -> bool {
        self.memory.get() > self.memory_max && !units::fault!("sequences-unbounded")
    }

    /// The log on disk begins with a later transaction: sequences may have ended.
    pub fn tail_moved(&self) {
        self.tail_moved.set(true);
    }
    /// Notes that a sweep may find something and is worthwhile.
    pub fn want_sweep(&self) -> bool {
        let length = self.states.borrow().len();
        self.tail_moved.get() && length > 2 * self.left.get() + GROWTH_MIN
    }
    /// Whether a sweep may find something.
    pub fn may_have_ended(&self) -> bool {
        self.tail_moved.get() && !self.states.borrow().is_empty()
    }
    pub fn begin_sweep(&self) {
        self.tail_moved.set(false);
    }
    /// Forgets blocks whose sequence has ended among some from `from` on. Where to go on; `None`:
    /// the sweep is over.
    pub fn sweep_some(
        &self,
        from: u64,
        tail: TransactionId,
        is_clean: impl Fn(HomeBlock) -> bool,
    ) -> Option<u64> {
        let mut states = self.states.borrow_mut();
        let some: Vec<_> = states.range(from, u64::MAX).take(SWEPT_AT_ONCE).collect();
        for (block, state) in &some {
            if state.current(is_clean(HomeBlock(*block)), tail) == UpdateSequence::None {
                states.remove(*block);
            }
        }
        self.memory.set(states.memory());
        self.left.set(states.len());
        some.last().filter(|_| some.len() == SWEPT_AT_ONCE).map(|(block, _)| block + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Decision;

    #[test]
    fn clean_block_outside_log_ends_its_sequence() {
        let (at, sequences) = (HomeBlock(5), Sequences::default());
        let logged = UpdateSequence::None.after(Decision::LogBlock, TransactionId(3));
        sequences.set(at, logged);
        assert!(sequences.memory() > 0);
        assert_eq!(sequences.sweep_some(0, TransactionId(3), |_| true), None);
        assert_eq!(sequences.of(at, false, TransactionId(3)), logged);
        assert_eq!(sequences.sweep_some(0, TransactionId(4), |_| false), None);
        assert_eq!(sequences.of(at, false, TransactionId(4)), logged);
        sequences.sweep_some(0, TransactionId(4), |_| true);
        assert_eq!(sequences.of(at, false, TransactionId(4)), UpdateSequence::None);
        assert_eq!(sequences.memory(), 0);
    }

    #[test]
    fn a_sweep_visits_a_bounded_number_at_once_and_all_in_the_end() {
        let sequences = Sequences::default();
        let count = 3 * SWEPT_AT_ONCE as u64 + 5;
        let logged = UpdateSequence::None.after(Decision::LogBlock, TransactionId(3));
        (0..count).for_each(|block| {
            sequences.set(HomeBlock(block * 7), logged);
        });
        let (mut from, mut pieces) = (Some(0), 0);
        while let Some(begin) = from {
            from = sequences.sweep_some(begin, TransactionId(4), |_| true);
            pieces += 1;
        }
        assert_eq!((pieces, sequences.states.borrow().len()), (4, 0));
    }

    #[test]
    fn freed_blocks_are_forgotten_by_range() {
        let sequences = Sequences::default();
        let logged = UpdateSequence::None.after(Decision::LogBlock, TransactionId(3));
        [3, 9, 10, 11].iter().for_each(|block| {
            sequences.set(HomeBlock(*block), logged);
        });
        assert_eq!(sequences.count_within(HomeBlock(4), 7), 2);
        sequences.forget(HomeBlock(4), 7);
        let known: Vec<u64> = sequences.states.borrow().iter().map(|(block, _)| block).collect();
        assert_eq!(known, [3, 11]);
    }
}
