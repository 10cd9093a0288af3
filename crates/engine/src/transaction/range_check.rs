//! Check of the promise of a change: it changes nothing outside of the ranges that it declares.
//! Debug builds look, and count for each caller how much of what it declared it changed. Release
//! builds keep nothing.
//!
//! Invariant: of the bytes of a block, what lies outside of the declared ranges is as it was. A log
//! of only the declared ranges would lose the rest.

use crate::cache::block::Block;
use journal::RangeSet;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use units::{BlockRange, HomeBlock};

/// Bytes that one line of code declared in all its calls, and how many of them it changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Declared {
    pub calls: u64,
    pub declared_bytes: u64,
    pub changed_bytes: u64,
}

impl Declared {
    fn and(self, declared: usize, changed: usize) -> Declared {
        Declared {
            calls: self.calls + 1,
            declared_bytes: self.declared_bytes + declared as u64,
            changed_bytes: self.changed_bytes + changed as u64,
        }
    }
}

/// The bytes of a block before a change; empty in release builds.
pub(crate) struct Before(Vec<u8>);

#[derive(Default)]
pub(crate) struct RangeChecks {
    of_callers: RefCell<BTreeMap<&'static Location<'static>, Declared>>,
}

impl RangeChecks {
    /// Returns the declared changes by caller.
    pub fn declared(&self) -> BTreeMap<&'static Location<'static>, Declared> {
        self.of_callers.borrow().clone()
    }

    // Inlined, so that each change pays nothing for them in release builds.
    #[inline(always)]
    pub fn before(&self, block: &Block) -> Before {
        Before(if cfg!(debug_assertions) { block.bytes().to_vec() } else { Vec::new() })
    }
    /// Checks that `caller` has changed the block as it declared.
    #[inline(always)]
    pub fn check(
        &self,
        caller: &'static Location<'static>,
        block: &Block,
        ranges: &[BlockRange],
        Before(before): Before,
    ) {
        if cfg!(debug_assertions) {
            let changed = check(block.number(), ranges, &before, &block.bytes());
            self.note(caller, ranges, changed);
        }
    }
    /// Records that `caller` declared these ranges, and changed `changed` bytes.
    pub fn note(&self, caller: &'static Location<'static>, ranges: &[BlockRange], changed: usize) {
        if cfg!(debug_assertions) {
            let declared = ranges.iter().map(|range| range.len()).sum();
            let mut of_callers = self.of_callers.borrow_mut();
            let entry = of_callers.entry(caller).or_default();
            *entry = entry.and(declared, changed);
        }
    }
}

/// Returns the number of bytes that differ; panics if one does outside of `ranges`.
fn check(at: HomeBlock, ranges: &[BlockRange], before: &[u8], after: &[u8]) -> usize {
    let mut others = RangeSet::of(BlockRange::new(0, after.len() as u32));
    ranges.iter().for_each(|range| others.remove(*range));
    for gap in others.as_slice().iter().map(|gap| gap.as_usize()) {
        if before[gap.clone()] != after[gap.clone()] {
            let first =
                gap.clone().find(|offset| before[*offset] != after[*offset]).expect("they differ");
            panic!("{at}: byte {first} changed outside of the declared {ranges:?}");
        }
    }
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: [BlockRange; 2] =
        [BlockRange { start: 0, end: 4 }, BlockRange { start: 8, end: 12 }];

    #[track_caller]
    fn change(range_checks: &RangeChecks, after: &[u8; 16]) {
        let changed = check(HomeBlock(1), &RANGES, &[0; 16], after);
        range_checks.note(Location::caller(), &RANGES, changed);
    }

    #[test]
    fn changes_within_the_declared_ranges_are_right_and_counted_by_caller() {
        let (range_checks, mut after) = (RangeChecks::default(), [0; 16]);
        (after[0], after[3], after[11]) = (1, 1, 1);
        for _ in 0..2 {
            change(&range_checks, &after);
        }
        change(&range_checks, &[0; 16]);
        let declared: Vec<_> = range_checks.declared().into_values().collect();
        let of =
            |calls, changed_bytes| Declared { calls, declared_bytes: 8 * calls, changed_bytes };
        assert_eq!(declared, [of(2, 6), of(1, 0)]);
    }

    #[should_panic(expected = "block 1: byte 12 changed outside of the declared")]
    #[test]
    fn a_change_beyond_the_declared_ranges_is_found() {
        let mut after = [0; 16];
        after[8..14].fill(1);
        change(&RangeChecks::default(), &after);
    }
}
