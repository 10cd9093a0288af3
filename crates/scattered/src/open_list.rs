//! The open list: which logs may hold records that the newest snapshot does not cover, by regions
//! of neighbouring logs.
//!
//! Invariants: a region is durably listed before the first record goes to a log of it. A list
//! counts for one snapshot only, whose header begins it. The two blocks are written alternately, so
//! a torn one leaves the list before it.

use crate::fields::{NUMBER_MAX, begin, put, seal, sealed, u32_at, u64_at};
use crate::{BLOCK, layout::Layout};
use std::collections::BTreeSet;

const MAGIC: [u8; 4] = *b"OKSO";
const REGIONS_AT: usize = 64;
/// Logs of one region.
pub const REGION_LOGS: u32 = 16;
/// Regions that a list names.
pub const REGIONS_MAX: usize = (BLOCK - REGIONS_AT) / 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenList {
    /// Number of the snapshot.
    pub snapshot: u64,
    /// Grows with each writing.
    pub counter: u64,
    pub regions: BTreeSet<u32>,
}

impl OpenList {
    pub fn serialize(&self, nonce: u128) -> Vec<u8> {
        let mut bytes = begin(MAGIC, nonce);
        put(&mut bytes, 24, &self.snapshot.to_le_bytes());
        put(&mut bytes, 32, &self.counter.to_le_bytes());
        put_regions(&mut bytes, 40, &self.regions);
        seal(bytes)
    }
    pub fn parse(bytes: &[u8], layout: &Layout) -> Option<OpenList> {
        let bytes = sealed(bytes, MAGIC, Some(layout.nonce()))?;
        let regions = regions_at(bytes, 40, layout)?;
        let list = OpenList { snapshot: u64_at(bytes, 24), counter: u64_at(bytes, 32), regions };
        (list.counter <= NUMBER_MAX).then_some(list)
    }
}

/// The count at `at`, the regions at the block's byte 64.
pub fn put_regions(bytes: &mut [u8], at: usize, regions: &BTreeSet<u32>) {
    assert!(regions.len() <= REGIONS_MAX, "{} regions", regions.len());
    put(bytes, at, &(regions.len() as u32).to_le_bytes());
    for (number, region) in regions.iter().enumerate() {
        put(bytes, REGIONS_AT + 4 * number, &region.to_le_bytes());
    }
}
pub fn regions_at(bytes: &[u8], at: usize, layout: &Layout) -> Option<BTreeSet<u32>> {
    let count = u32_at(bytes, at) as usize;
    let all = layout.logs.div_ceil(REGION_LOGS);
    let regions: BTreeSet<u32> =
        (0..count.min(REGIONS_MAX)).map(|number| u32_at(bytes, REGIONS_AT + 4 * number)).collect();
    (count <= REGIONS_MAX && regions.iter().all(|region| *region < all)).then_some(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sizes, Superblock};

    #[test]
    fn a_list_comes_back_and_one_that_names_no_log_does_not() {
        let sizes = Sizes { log: 64 << 10, group: 1 << 20 };
        let layout = Layout::new(Superblock::new(64 << 20, sizes, 3, false).unwrap()).unwrap();
        let list = OpenList { snapshot: 8, counter: 9, regions: [0, 3].into() };
        assert_eq!(OpenList::parse(&list.serialize(3), &layout), Some(list.clone()));
        assert_eq!(OpenList::parse(&list.serialize(4), &layout), None);
        let beyond = OpenList { regions: [4].into(), ..list };
        assert_eq!(OpenList::parse(&beyond.serialize(3), &layout), None);
    }
}
