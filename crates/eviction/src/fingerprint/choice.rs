//! Choice of the workload that a fingerprint recommends.

use super::{Cell, Threshold};

/// Costs nearer than this share are equal: means of a few trials differ by a revolution and a seek.
const ALIKE: f64 = 0.2;

/// Trials of each kind that a choice must have passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Trials of the paper's kind.
    pub trials: u32,
    /// Trials at once. 0 for the paper's choice, which ignores failures at once.
    pub at_once: u32,
}

impl Wanted {
    pub fn missing(self, cell: &Cell) -> u64 {
        let missing = |wanted: u32, made: u32| u64::from(wanted.saturating_sub(made));
        missing(self.trials, cell.trials()) + missing(self.at_once, cell.trials_at_once())
    }
    pub fn has_always_evicted(self, cell: &Cell, threshold: Threshold) -> bool {
        let at_once = self.at_once == 0 || cell.evicted_at_once(threshold) == cell.trials_at_once();
        at_once && cell.trials() > 0 && cell.evicted(threshold) == cell.trials()
    }
}

/// The cell to choose, or to try first. It has always evicted, and so has the same number of writes
/// with the next larger amount of data. A workload that evicts must still do so with more data,
/// since of many cells that fail one time in a hundred some pass by luck. Of those it is the
/// cheapest or, among equal costs, the one with the fewest writes and the least data.
pub(super) fn best(
    cells: &[Cell],
    columns: usize,
    threshold: Threshold,
    wanted: Wanted,
) -> Option<usize> {
    let cost = |index: &usize| cells[*index].mean_milliseconds();
    let larger = |index: usize| ((index + 1) % columns != 0).then_some(index + 1);
    let always = |index: usize| wanted.has_always_evicted(&cells[index], threshold);
    let untried = |index| {
        [Some(index), larger(index)]
            .into_iter()
            .flatten()
            .find(|index| wanted.missing(&cells[*index]) > 0)
    };
    let sure: Vec<usize> = (0..cells.len())
        .filter(|index| always(*index) && larger(*index).is_none_or(always))
        .collect();
    let cheapest = sure.iter().copied().min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
    if let Some(index) = untried(cheapest) {
        return Some(index);
    }
    let alike = sure.into_iter().filter(|index| cost(index) <= cost(&cheapest) * (1.0 + ALIKE));
    let simplest =
        alike.min_by_key(|index| (cells[*index].workload.writes, cells[*index].workload.bytes))?;
    untried(simplest).or(Some(simplest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EvictionWorkload, Pattern};

    const THRESHOLD: Threshold = Threshold(1000.0);

    /// Ten trials each: writes, evicted, milliseconds of one.
    fn cells(known: &[(u32, u32, f64)]) -> Vec<Cell> {
        let cell = |&(writes, evicted, cost): &(u32, u32, f64)| Cell {
            workload: EvictionWorkload { pattern: Pattern::Random, writes, bytes: 1_000_000 },
            at_once_us: Vec::new(),
            read_us: (0..10).map(|trial| if trial < evicted { 9000.0 } else { 100.0 }).collect(),
            milliseconds: cost * 10.0,
        };
        known.iter().map(cell).collect()
    }

    #[test]
    fn the_cheapest_that_always_evicted_is_best_and_fewer_writes_decide_what_costs_alike() {
        let best = |known, trials| best(&cells(known), 1, THRESHOLD, Wanted { trials, at_once: 0 });
        assert_eq!(best(&[(1, 9, 10.0), (16, 10, 30.0), (64, 10, 20.0)], 10), Some(2));
        assert_eq!(best(&[(1, 10, 31.0), (16, 10, 29.0), (64, 10, 30.0)], 10), Some(0));
        // The cheapest must pass its trials first.
        assert_eq!(best(&[(1, 10, 31.0), (16, 10, 29.0)], 50), Some(1));
        assert_eq!(best(&[(1, 9, 31.0)], 10), None);
    }

    #[test]
    fn more_data_must_evict_as_well() {
        let best = |known| best(&cells(known), 2, THRESHOLD, Wanted { trials: 10, at_once: 0 });
        assert_eq!(best(&[(1, 10, 10.0), (1, 9, 20.0), (16, 10, 30.0), (16, 10, 40.0)]), Some(2));
        // The largest amount has nothing above it.
        assert_eq!(best(&[(1, 9, 10.0), (1, 10, 20.0), (16, 10, 30.0), (16, 10, 40.0)]), Some(1));
    }

    #[test]
    fn what_failed_at_once_is_the_papers_choice_and_not_ours() {
        let mut cells = cells(&[(1, 10, 10.0), (16, 10, 30.0)]);
        let ours = Wanted { trials: 10, at_once: 10 };
        assert_eq!(best(&cells, 1, THRESHOLD, ours), Some(0), "it has yet to be tried at once");
        cells[0].at_once_us = vec![9000.0, 100.0];
        assert_eq!(best(&cells, 1, THRESHOLD, ours), Some(1));
        assert_eq!(best(&cells, 1, THRESHOLD, Wanted { at_once: 0, ..ours }), Some(0));
        cells[1].at_once_us = vec![100.0];
        assert_eq!(best(&cells, 1, THRESHOLD, ours), None);
    }
}
