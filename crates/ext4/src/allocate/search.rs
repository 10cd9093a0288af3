//! Finding a run of free blocks in one group's bitmap.

use format::ext4::bitmap;
use std::ops::Range;

/// The best run of free blocks among the first `count`, at most `wanted` long: at the goal if that is free
/// (however short: it continues the file), else the first that is long enough from the goal on (wrapping
/// around), else the longest. `None` when nothing is free.
pub(crate) fn find_run(bits: &[u8], count: u32, goal: u32, wanted: u32) -> Option<Range<u32>> {
    assert!(wanted > 0);
    let cut = |run: Range<u32>| run.start..run.end.min(run.start.saturating_add(wanted));
    let goal = if goal < count { goal } else { 0 };
    if goal > 0 && !bitmap::is_set(bits, goal) {
        return bitmap::next_clear_run(bits, goal..count).map(cut);
    }
    let mut best: Option<Range<u32>> = None;
    for part in [goal..count, 0..goal] {
        let mut at = part.start;
        while let Some(run) = bitmap::next_clear_run(bits, at..part.end) {
            at = run.end;
            if run.len() >= wanted as usize {
                return Some(cut(run));
            }
            if best.as_ref().is_none_or(|best| run.len() > best.len()) {
                best = Some(run);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(used: &[Range<u32>]) -> Vec<u8> {
        let mut bits = vec![0; 16];
        used.iter().for_each(|range| bitmap::set(&mut bits, range.clone()));
        bits
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
}
