//! Which workload a fingerprint recommends.

use super::{Cell, Threshold};

/// Costs nearer than this share are alike: means of a few trials, which differ by a revolution and a seek, tell no more.
const ALIKE: f64 = 0.2;

/// The cell to choose, or to try before one can. It has always evicted, and so has the same number of writes with the next
/// larger amount of data: what evicts must still do so with more, and of many cells that fail one time in a hundred some
/// pass by luck. Of those the cheapest or, among those as cheap, that with the fewest writes and the least data.
pub(super) fn best(cells: &[Cell], columns: usize, threshold: Threshold, trials: u32) -> Option<usize> {
    let cost = |index: &usize| cells[*index].mean_milliseconds();
    let larger = |index: usize| (!(index + 1).is_multiple_of(columns)).then_some(index + 1);
    let always =
        |index: usize| cells[index].trials() > 0 && cells[index].evicted(threshold) == cells[index].trials();
    let untried = |index| {
        [Some(index), larger(index)].into_iter().flatten().find(|index| cells[*index].trials() < trials)
    };
    let sure: Vec<usize> =
        (0..cells.len()).filter(|index| always(*index) && larger(*index).is_none_or(always)).collect();
    let cheapest = sure.iter().copied().min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
    if let Some(index) = untried(cheapest) {
        return Some(index);
    }
    let alike = sure.into_iter().filter(|index| cost(index) <= cost(&cheapest) * (1.0 + ALIKE));
    let simplest = alike.min_by_key(|index| (cells[*index].workload.writes, cells[*index].workload.bytes))?;
    untried(simplest).or(Some(simplest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EvictionWorkload, Pattern};

    /// Ten trials each: writes, evicted, milliseconds of one.
    fn cells(known: &[(u32, u32, f64)]) -> Vec<Cell> {
        let cell = |&(writes, evicted, cost): &(u32, u32, f64)| Cell {
            workload: EvictionWorkload { pattern: Pattern::Random, writes, bytes: 1_000_000 },
            read_us: (0..10).map(|trial| if trial < evicted { 9000.0 } else { 100.0 }).collect(),
            milliseconds: cost * 10.0,
        };
        known.iter().map(cell).collect()
    }

    #[test]
    fn the_cheapest_that_always_evicted_is_best_and_fewer_writes_decide_what_costs_alike() {
        let best = |known, trials| best(&cells(known), 1, Threshold(1000.0), trials);
        assert_eq!(best(&[(1, 9, 10.0), (16, 10, 30.0), (64, 10, 20.0)], 10), Some(2));
        assert_eq!(best(&[(1, 10, 31.0), (16, 10, 29.0), (64, 10, 30.0)], 10), Some(0));
        // First the cheapest must prove itself.
        assert_eq!(best(&[(1, 10, 31.0), (16, 10, 29.0)], 50), Some(1));
        assert_eq!(best(&[(1, 9, 31.0)], 10), None);
    }

    #[test]
    fn more_data_must_evict_as_well() {
        let best = |known| best(&cells(known), 2, Threshold(1000.0), 10);
        assert_eq!(best(&[(1, 10, 10.0), (1, 9, 20.0), (16, 10, 30.0), (16, 10, 40.0)]), Some(2));
        // The largest amount has nothing above it.
        assert_eq!(best(&[(1, 9, 10.0), (1, 10, 20.0), (16, 10, 30.0), (16, 10, 40.0)]), Some(1));
    }
}
