//! Areas of the home that have blocks in a table: a coarse index beside a [`BlockMap`].
//!
//! A long range of blocks, such as that of a large file that is freed, mostly holds few blocks of a
//! table. They are found by a look-up for each area of [`AREA_BLOCKS`] blocks instead of each
//! block. The table updates the index only when a block is added or removed.

use crate::{BlockMap, HomeBlock};

/// Blocks of an area: 4 MiB of blocks of 4 KiB.
pub const AREA_BLOCKS: u64 = 1024;

/// Number of a table's blocks in each area. Areas without one take no memory.
#[derive(Clone, Default, Debug)]
pub struct BlockAreas {
    counts: BlockMap<u32>,
}

impl BlockAreas {
    /// Adds `block`, which the table did not have.
    pub fn add(&mut self, block: HomeBlock) {
        *self.counts.entry(area_of(block)).or_default() += 1;
    }

    /// Removes `block`, which the table had.
    ///
    /// # Panics
    /// If the area has none.
    pub fn remove(&mut self, block: HomeBlock) {
        let area = area_of(block);
        let count = self.counts.get_mut(&area).expect("a block of this area");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&area);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Areas that have a block.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// The parts of the `count` blocks from `at` on that lie in areas with a block of the table, in
    /// order: first block and count.
    pub fn parts(&self, at: HomeBlock, count: u64) -> impl Iterator<Item = (HomeBlock, u64)> + '_ {
        let (start, end) = (at.get(), at.get().saturating_add(count));
        let areas = match self.is_empty() || count == 0 {
            true => 0..0,
            false => start / AREA_BLOCKS..end.div_ceil(AREA_BLOCKS),
        };
        let has_one = |area: &u64| {
            self.counts.contains_key(&HomeBlock(*area)) || crate::fault!("freed-visits-each-block")
        };
        areas.filter(has_one).map(move |area| {
            let from = start.max(area * AREA_BLOCKS);
            let to = end.min((area + 1).saturating_mul(AREA_BLOCKS));
            (HomeBlock(from), to - from)
        })
    }

    /// Number of blocks in all [`BlockAreas::parts`] of the range.
    pub fn visits(&self, at: HomeBlock, count: u64) -> u64 {
        self.parts(at, count).map(|(_, count)| count).sum()
    }
}

/// The number of an area, as the key of the table.
fn area_of(block: HomeBlock) -> HomeBlock {
    HomeBlock(block.get() / AREA_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_areas_with_blocks_are_visited() {
        let mut areas = BlockAreas::default();
        let parts = |areas: &BlockAreas, at, count| {
            areas.parts(HomeBlock(at), count).map(|(at, count)| (at.get(), count)).collect()
        };
        let none: Vec<(u64, u64)> = parts(&areas, 0, u64::MAX);
        assert!(none.is_empty());
        let far = 1_000_000 * AREA_BLOCKS;
        for block in [5, 6, 3 * AREA_BLOCKS, far] {
            areas.add(HomeBlock(block));
        }
        let first: Vec<(u64, u64)> = parts(&areas, 100, 3 * AREA_BLOCKS);
        assert_eq!(first, [(100, AREA_BLOCKS - 100), (3 * AREA_BLOCKS, 100)]);
        areas.remove(HomeBlock(5));
        let one: Vec<(u64, u64)> = parts(&areas, 0, 2 * AREA_BLOCKS);
        assert_eq!(one, [(0, AREA_BLOCKS)], "one of its two blocks is left");
        areas.remove(HomeBlock(6));
        let last: Vec<(u64, u64)> = parts(&areas, 4 * AREA_BLOCKS, far);
        assert_eq!((last, areas.len()), (vec![(far, AREA_BLOCKS)], 2));
    }
}
