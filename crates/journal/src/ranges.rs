use smallvec::{SmallVec, smallvec};
use units::BlockRange;

/// Disjoint byte ranges of one block, sorted; ranges that touch are one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeSet {
    /// Sorted ranges, few in practice: appends extend the last one. Two take no more memory than a
    /// `Vec` does.
    ranges: SmallVec<[BlockRange; 2]>,
}

impl RangeSet {
    pub fn new() -> RangeSet {
        RangeSet::default()
    }
    pub fn of(range: BlockRange) -> RangeSet {
        RangeSet { ranges: smallvec![range] }
    }
    pub fn as_slice(&self) -> &[BlockRange] {
        &self.ranges
    }
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
    /// Returns the number of bytes in all ranges.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|range| range.len()).sum()
    }
    pub fn covers(&self, range: BlockRange) -> bool {
        range.is_empty() || self.ranges.iter().any(|own| own.covers(range))
    }

    /// Adds `range`, merging all ranges that it touches.
    pub fn insert(&mut self, range: BlockRange) {
        if range.is_empty() {
            return;
        }
        if self.ranges.last().is_none_or(|last| last.end < range.start) {
            self.ranges.push(range);
            return;
        }
        let from = self.ranges.partition_point(|own| own.end < range.start);
        // Most were changed by this transaction before.
        if self.ranges[from].covers(range) {
            return;
        }
        let touched = self.ranges[from..].iter().take_while(|own| own.start <= range.end);
        let to = from + touched.count();
        if from == to {
            self.ranges.insert(from, range);
            return;
        }
        let start = range.start.min(self.ranges[from].start);
        let end = range.end.max(self.ranges[to - 1].end);
        self.ranges.drain(from + 1..to);
        self.ranges[from] = BlockRange { start, end };
    }

    /// Removes `range`.
    pub fn remove(&mut self, range: BlockRange) {
        if range.is_empty() {
            return;
        }
        let mut kept = SmallVec::with_capacity(self.ranges.len() + 1);
        for own in &self.ranges {
            let before = BlockRange { start: own.start, end: own.end.min(range.start) };
            let after = BlockRange { start: own.start.max(range.end), end: own.end };
            kept.extend([before, after].into_iter().filter(|piece| piece.start < piece.end));
        }
        self.ranges = kept;
    }

    /// Returns the part of `whole` that is not in the set.
    pub fn missing(&self, whole: BlockRange) -> RangeSet {
        let mut missing = RangeSet::of(whole);
        self.ranges.iter().for_each(|&range| missing.remove(range));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block of 16 bytes as bits.
    fn bits(set: &RangeSet) -> u16 {
        set.as_slice().iter().flat_map(|range| range.as_usize()).fold(0, |bits, at| bits | 1 << at)
    }
    fn is_canonical(set: &RangeSet) -> bool {
        set.as_slice().iter().all(|range| range.start < range.end)
            && set.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start)
    }

    #[test]
    fn inserting_and_removing_any_two_ranges_equals_bit_arithmetic() {
        let all =
            || (0..=16).flat_map(|start| (start..=16).map(move |end| BlockRange { start, end }));
        for base in [0b0u16, 0b1111_0000_1111, 0b1010_1010_1010_1010, 0b1000_0000_0000_0001] {
            for range in all() {
                let mut set = RangeSet::new();
                (0..16)
                    .filter(|at| base >> at & 1 == 1)
                    .for_each(|at| set.insert(BlockRange::new(at, at + 1)));
                let mut with = set.clone();
                with.insert(range);
                set.remove(range);
                let mask = bits(&RangeSet { ranges: smallvec![range] });
                assert!(is_canonical(&with) && is_canonical(&set), "{base:b} {range:?}");
                assert_eq!((bits(&with), bits(&set)), (base | mask, base & !mask), "{range:?}");
                assert_eq!(bits(&with.missing(BlockRange::new(0, 16))), !(base | mask));
            }
        }
    }
}
