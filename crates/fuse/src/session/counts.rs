//! How many requests of each kind have come.

use crate::abi::opcode;
use std::cell::Cell;

const NUMBERS: usize = 64;

/// By operation code; codes that nobody knows yet count together, at 0.
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

    /// Those that came at all.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts =
            self.0.iter().enumerate().map(|(number, count)| (opcode::name(number as u32), count.get()));
        counts.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_counted_under_its_name() {
        let counts = Counts::default();
        [opcode::WRITE, opcode::LOOKUP, opcode::WRITE, 4711].into_iter().for_each(|code| counts.count(code));
        let counted: Vec<_> = counts.by_name().collect();
        assert_eq!(counted, [("other", 1), ("lookup", 1), ("write", 2)]);
    }
}
