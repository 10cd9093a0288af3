//! The byte ranges of a file that the store may lack. A byte that is overwritten counts once, as
//! the store buffers it once.

use std::collections::BTreeMap;
use std::ops::Range;

/// Memory that one range takes, here and at the store. Counting it keeps many small ranges within
/// the bound.
const RANGE_BYTES: u64 = 64;

/// Disjoint ranges by their start; ranges that touch are merged.
#[derive(Default)]
pub(crate) struct DirtyRanges {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl DirtyRanges {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Returns the bytes that count against the bound of memory.
    pub fn held_bytes(&self) -> u64 {
        self.bytes + self.ranges.len() as u64 * RANGE_BYTES
    }
    /// Returns the ranges in order, cut into pieces of at most `most` bytes.
    pub fn pieces(&self, most: u64) -> Vec<Range<u64>> {
        let cut = |(start, end): (&u64, &u64)| {
            let (start, end) = (*start, *end);
            (start..end).step_by(most as usize).map(move |at| at..end.min(at + most))
        };
        self.ranges.iter().flat_map(cut).collect()
    }
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end
            || self.ranges.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
        {
            return;
        }
        self.bytes += end - start;
        // From the last range that it touches backwards.
        while let Some((&at, &last)) =
            self.ranges.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            self.ranges.remove(&at);
            self.bytes -= last.min(end) - at.max(start);
            (start, end) = (start.min(at), end.max(last));
        }
        self.ranges.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SplitMix;

    #[test]
    fn bytes_written_more_than_once_count_once() {
        for seed in 0..200 {
            let random = SplitMix::new(seed);
            let (mut ranges, mut file) = (DirtyRanges::default(), [false; 200]);
            for step in 0..60 {
                let start = random.next() % 180;
                let end = start + random.next() % 20;
                ranges.insert(start..end);
                file[start as usize..end as usize].fill(true);
                let own: Vec<bool> = (0..200)
                    .map(|at| ranges.ranges.iter().any(|(start, end)| (*start..*end).contains(&at)))
                    .collect();
                assert_eq!(own, file, "seed {seed} step {step}");
                assert_eq!(
                    ranges.bytes(),
                    file.iter().filter(|is_dirty| **is_dirty).count() as u64
                );
                let runs = file.chunk_by(|a, b| a == b).filter(|run| run[0]).count() as u64;
                assert_eq!(
                    ranges.held_bytes() - ranges.bytes(),
                    runs * RANGE_BYTES,
                    "seed {seed} step {step}"
                );
            }
        }
    }
}
