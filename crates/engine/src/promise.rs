//! What a change of a block promises: it changes nothing outside of the ranges that it declares. Debug builds look.

use journal::RangeSet;
use units::{BlockRange, HomeBlock};

/// What lies outside of `ranges` is as it was: whoever logs only what was declared would lose the rest.
pub(crate) fn check_promise(at: HomeBlock, ranges: &[BlockRange], before: &[u8], after: &[u8]) {
    let mut others = RangeSet::of(BlockRange::new(0, after.len() as u32));
    ranges.iter().for_each(|range| others.remove(*range));
    for gap in others.as_slice().iter().map(|gap| gap.as_usize()) {
        if before[gap.clone()] != after[gap.clone()] {
            let first = gap.clone().find(|offset| before[*offset] != after[*offset]).expect("they differ");
            panic!("{at}: byte {first} changed outside of the declared {ranges:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: [BlockRange; 2] = [BlockRange { start: 0, end: 4 }, BlockRange { start: 8, end: 12 }];

    #[test]
    fn changes_within_the_declared_ranges_are_right() {
        let mut after = [0; 16];
        (after[0], after[3], after[11]) = (1, 1, 1);
        check_promise(HomeBlock(1), &RANGES, &[0; 16], &after);
    }

    #[test]
    #[should_panic(expected = "block 1: byte 12 changed outside of the declared")]
    fn a_change_beyond_the_declared_ranges_is_found() {
        let mut after = [0; 16];
        after[8..14].fill(1);
        check_promise(HomeBlock(1), &RANGES, &[0; 16], &after);
    }
}
