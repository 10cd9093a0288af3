//! Finding a run of free blocks in one group's bitmap.

use std::ops::Range;

/// The bitmap of a group, and which of its free blocks are withheld.
pub(crate) struct Free<'a, H> {
    /// Whole words of 64 bits, at least `count` bits.
    pub bits: &'a [u8],
    /// Number of blocks in the group.
    pub count: u32,
    /// The withheld blocks of a word, by the word's index.
    pub withheld: H,
}

impl<H: Fn(u32) -> u64> Free<'_, H> {
    /// The best run of free blocks, at most `wanted` long: at the goal if that is free (however
    /// short, as it continues the file), else the first that is long enough from the goal on
    /// (wrapping around), else the longest. `None` when nothing is free.
    pub fn find_run(&self, goal: u32, wanted: u32) -> Option<Range<u32>> {
        assert!(wanted > 0);
        let goal = if goal < self.count { goal } else { 0 };
        if goal > 0 {
            if let Some(run) =
                self.next_run(goal..self.count, wanted).filter(|run| run.start == goal)
            {
                return Some(run);
            }
        }
        let mut best: Option<Range<u32>> = None;
        for part in [goal..self.count, 0..goal] {
            let mut at = part.start;
            while let Some(run) = self.next_run(at..part.end, wanted) {
                at = run.end;
                if run.len() >= wanted as usize {
                    return Some(run);
                }
                if best.as_ref().is_none_or(|best| run.len() > best.len()) {
                    best = Some(run);
                }
            }
        }
        best
    }

    /// The next run of free blocks within `within`, or as much of it as is `wanted`.
    fn next_run(&self, within: Range<u32>, wanted: u32) -> Option<Range<u32>> {
        let start = self.next(within.clone(), false);
        let most = within.end.min(start.saturating_add(wanted));
        (start < within.end).then(|| start..self.next(start..most, true))
    }

    /// The first block of the range that is taken (or free, for `taken` false), or the range's end.
    fn next(&self, range: Range<u32>, taken: bool) -> u32 {
        let mut at = range.start;
        while at < range.end {
            let index = at / 64;
            let bytes = &self.bits[index as usize * 8..][..8];
            let used = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            // Where there are none, it does not matter what is withheld.
            let word = if used == u64::MAX { used } else { used | (self.withheld)(index) };
            let wanted = if taken { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return (at + wanted.trailing_zeros()).min(range.end);
            }
            at = (index + 1) * 64;
            if !taken {
                at += 64 * self.full_words(at / 64, range.end.div_ceil(64));
            }
        }
        range.end
    }

    /// The number of words, from the first of these on, that have no free block.
    fn full_words(&self, from: u32, to: u32) -> u32 {
        let words = self.bits.get(from as usize * 8..to as usize * 8).unwrap_or_default();
        let (words, _) = units::arrays::<8>(words);
        words.take_while(|word| **word == [0xff; 8]).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::ext4::bitmap;

    fn bits(used: &[Range<u32>]) -> Vec<u8> {
        let mut bits = vec![0; 16];
        used.iter().for_each(|range| bitmap::set(&mut bits, range.clone()));
        bits
    }

    fn find_run(bits: &[u8], count: u32, goal: u32, wanted: u32) -> Option<Range<u32>> {
        Free { bits, count, withheld: |_| 0 }.find_run(goal, wanted)
    }

    #[test]
    fn a_free_goal_is_taken_even_if_short() {
        assert_eq!(find_run(&bits(&[0..10, 12..20]), 128, 10, 8), Some(10..12));
    }

    #[test]
    fn from_a_used_goal_on_the_first_run_that_is_long_enough_is_taken() {
        let bits = bits(&[0..10, 12..20, 40..60]);
        assert_eq!(find_run(&bits, 128, 5, 8), Some(20..28));
        assert_eq!(find_run(&bits, 128, 50, 8), Some(60..68));
        assert_eq!(find_run(&bits, 64, 50, 8), Some(20..28));
    }

    #[test]
    fn without_a_run_long_enough_the_longest_is_taken() {
        assert_eq!(find_run(&bits(&[0..10, 12..20, 25..128]), 128, 0, 100), Some(20..25));
        assert_eq!(find_run(&bits(&[0..100, 100..128]), 128, 0, 1), None);
    }

    /// Treats withheld blocks as used ones, wherever they lie.
    #[test]
    fn what_is_withheld_is_not_found() {
        let used = [0..10, 12..20, 40..60];
        let cases: [&[(u32, u32)]; 5] = [
            &[(10, 12)],
            &[(20, 25), (25, 30), (33, 35)],
            &[(60, 128)],
            &[(0, 128)],
            &[(11, 45), (70, 71)],
        ];
        for held in cases {
            let held: Vec<Range<u32>> = held.iter().map(|(start, end)| *start..*end).collect();
            let of_word = bits(&held);
            let withheld = |word: u32| {
                u64::from_le_bytes(of_word[word as usize * 8..][..8].try_into().unwrap())
            };
            let (bits, both) = (bits(&used), bits(&[&used[..], &held].concat()));
            for goal in 0..128 {
                for wanted in [1, 2, 5, 8, 30, 200] {
                    let found = Free { bits: &bits, count: 120, withheld }.find_run(goal, wanted);
                    assert_eq!(
                        found,
                        find_run(&both, 120, goal, wanted),
                        "{held:?} {goal} {wanted}"
                    );
                }
            }
        }
    }
}
