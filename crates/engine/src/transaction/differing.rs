//! Bytes of a block that have changed.

use smallvec::SmallVec;
use units::{BlockRange, arrays};

/// Ranges expected of an inode that is stored anew: the size, the times and the checksums.
const FEW: usize = 8;
/// Ranges with no more bytes between them are one: in the log each takes two beside its own.
const GAP_MAX: u32 = 2;

/// Returns where in `range` the bytes of a block differ from `before`, the bytes that the range
/// had. A range begins and ends with bytes that differ.
pub(crate) fn differing(
    range: BlockRange,
    before: &[u8],
    bytes: &[u8],
) -> SmallVec<[BlockRange; FEW]> {
    // Words are compared faster than bytes, and few of them differ.
    const WORD: usize = size_of::<u64>();
    let mut parts = SmallVec::new();
    let (old, old_rest) = arrays::<WORD>(before);
    let (new, new_rest) = arrays::<WORD>(&bytes[range.as_usize()]);
    let mut at = range.start;
    for (old, new) in old.zip(new) {
        if old != new {
            note(&mut parts, at, u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new));
        }
        at += WORD as u32;
    }
    for (old, new) in old_rest.iter().zip(new_rest) {
        note(&mut parts, at, u64::from(old ^ new));
        at += 1;
    }
    parts
}

/// The bytes of `difference` that are not zero, the lowest at `at`.
fn note(parts: &mut SmallVec<[BlockRange; FEW]>, mut at: u32, mut difference: u64) {
    while difference != 0 {
        let same = difference.trailing_zeros() / u8::BITS;
        (at, difference) = (at + same, difference >> (same * u8::BITS));
        match parts.last_mut() {
            Some(part) if at - part.end <= GAP_MAX => part.end = at + 1,
            _ => parts.push(BlockRange::new(at, at + 1)),
        }
        (at, difference) = (at + 1, difference >> u8::BITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found_wherever_it_begins_and_ends() {
        let range = BlockRange::new(8, 48);
        let before = [7; 64];
        assert!(differing(range, &before[range.as_usize()], &before).is_empty());
        for first in 8..48 {
            for last in first + 1..48 {
                let mut after = before;
                (after[first as usize], after[last as usize]) = (1, 2);
                let parts = match last - first - 1 <= GAP_MAX {
                    true => vec![BlockRange::new(first, last + 1)],
                    false => {
                        vec![BlockRange::new(first, first + 1), BlockRange::new(last, last + 1)]
                    }
                };
                assert_eq!(differing(range, &before[range.as_usize()], &after)[..], parts);
            }
        }
        let mut after = before;
        after[10..20].fill(1);
        assert_eq!(
            differing(range, &before[range.as_usize()], &after)[..],
            [BlockRange::new(10, 20)]
        );
    }
}
