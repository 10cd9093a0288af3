//! Counts of requests by kind.

use crate::abi::opcode::{self, OTHER};
use std::cell::Cell;

const NUMBERS: usize = 64;

/// Counts by operation code. Codes past the end count at 0.
pub(super) struct Counts([Cell<u64>; NUMBERS]);

impl Default for Counts {
    fn default() -> Counts {
        Counts(std::array::from_fn(|_| Cell::new(0)))
    }
}

impl Counts {
    pub fn count(&self, opcode: u32) {
        let count = self.0.get(opcode as usize).unwrap_or(&self.0[0]);
        count.set(count.get() + 1);
    }

    /// Returns the nonzero counts. Codes without a name count together, and come first.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = || {
            let numbered = self.0.iter().enumerate();
            numbered.map(|(number, count)| (opcode::name(number as u32), count.get()))
        };
        let is_other = |(name, _): &(&str, u64)| *name == OTHER;
        let others = all().filter(is_other).map(|(_, count)| count).sum();
        let named = all().filter(move |count| !is_other(count));
        std::iter::once((OTHER, others)).chain(named).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_counted_under_its_name() {
        let counts = Counts::default();
        let unnamed = [0, 63, 4711];
        assert!(unnamed.iter().all(|code| opcode::name(*code) == OTHER));
        let named = [opcode::WRITE, opcode::LOOKUP, opcode::WRITE];
        named.into_iter().chain(unnamed).for_each(|code| counts.count(code));
        let counted: Vec<_> = counts.by_name().collect();
        assert_eq!(counted, [("other", 3), ("lookup", 1), ("write", 2)]);
    }
}
