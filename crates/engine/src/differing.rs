//! Which bytes of a block have changed.

use units::BlockRange;

/// Where in `range` the bytes of a block differ from `before`, the bytes that the range had.
pub(crate) fn differing(range: BlockRange, before: &[u8], bytes: &[u8]) -> Vec<BlockRange> {
    // Slices are compared faster than bytes, and few of them differ.
    const TOGETHER: usize = 32;
    let mut parts: Vec<BlockRange> = Vec::new();
    let pairs = before.chunks(TOGETHER).zip(bytes[range.as_usize()].chunks(TOGETHER));
    for (index, (old, new)) in pairs.enumerate().filter(|(_, (old, new))| old != new) {
        let first = range.start + (index * TOGETHER) as u32;
        for (at, _) in (first..).zip(old.iter().zip(new)).filter(|(_, (old, new))| old != new) {
            match parts.last_mut() {
                Some(part) if part.end == at => part.end += 1,
                _ => parts.push(BlockRange::new(at, at + 1)),
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found_wherever_it_begins_and_ends() {
        let range = BlockRange::new(8, 48);
        let before = [7; 64];
        assert_eq!(differing(range, &before[range.as_usize()], &before), []);
        for first in 8..48 {
            for last in first + 2..48 {
                let mut after = before;
                (after[first as usize], after[last as usize]) = (1, 2);
                let parts = [first, last].map(|at| BlockRange::new(at, at + 1));
                assert_eq!(differing(range, &before[range.as_usize()], &after), parts);
            }
        }
        let mut after = before;
        after[10..20].fill(1);
        assert_eq!(differing(range, &before[range.as_usize()], &after), [BlockRange::new(10, 20)]);
    }
}
