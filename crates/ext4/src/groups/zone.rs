//! Blocks of the file system itself: superblocks, descriptors, bitmaps, inode tables, journal. No
//! file may own them; an extent that points here is corruption (kernel: `block_validity.c`).

use super::{GROUPS_AT_ONCE, Groups};
use crate::{Error, Result};
use format::ext4::{VolumeSuperblock, feature};
use runtime::WalkPace;
use std::ops::Range;
use units::{GroupNumber, HomeBlock};

/// Sorted ranges that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SystemZone {
    ranges: Vec<Range<u64>>,
}

impl SystemZone {
    /// Checks that no two groups have a bitmap or a block of inodes in one place: what one of them
    /// marks as used, the other would take for its own. Yields to other tasks now and then.
    pub async fn check_groups(superblock: &VolumeSuperblock, groups: &Groups) -> Result<()> {
        let mut by_kind: [Vec<(Range<u64>, GroupNumber)>; 3] = Default::default();
        let mut pace = WalkPace::new(GROUPS_AT_ONCE);
        for group in (0..groups.count()).map(GroupNumber) {
            let places = places(superblock, groups, group);
            by_kind.iter_mut().zip(places).for_each(|(kind, range)| kind.push((range, group)));
            pace.visited(1).await;
        }
        // Those of one kind are in order on most volumes, which makes sorting them little work.
        let mut ranges = by_kind.concat();
        ranges.sort_by_key(|(range, _)| range.start);
        runtime::yield_now().await;
        match ranges.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
            None => Ok(()),
            Some(pair) => Err(Error::Corrupt {
                what: format!("the descriptor of {}", pair[1].1),
                why: "a bitmap or the inode table overlaps that of another group".into(),
            }),
        }
    }

    /// `journal`: start and length of each run of the hidden journal inode. Yields to other tasks
    /// now and then.
    pub async fn new(
        superblock: &VolumeSuperblock,
        groups: &Groups,
        journal: &[(HomeBlock, u64)],
    ) -> SystemZone {
        let mut by_kind: [Vec<Range<u64>>; 4] = Default::default();
        let mut pace = WalkPace::new(GROUPS_AT_ONCE);
        for group in (0..groups.count()).map(GroupNumber) {
            let start = superblock.group_start(group).get();
            let own = start..start + u64::from(superblock.superblock_and_descriptors(group));
            let all = std::iter::once(own).chain(places(superblock, groups, group));
            by_kind.iter_mut().zip(all).for_each(|(kind, range)| kind.push(range));
            pace.visited(1).await;
        }
        let mut ranges = by_kind.concat();
        ranges.push(0..u64::from(superblock.first_data_block) + 1);
        if superblock.features.has(feature::MMP) {
            ranges.push(superblock.mmp_block..superblock.mmp_block.saturating_add(1));
        }
        ranges.extend(journal.iter().map(|(start, count)| start.get()..start.get() + count));
        SystemZone { ranges: merge(ranges) }
    }

    pub fn overlaps(&self, range: Range<u64>) -> bool {
        let first = self.ranges.partition_point(|zone| zone.end <= range.start);
        self.ranges.get(first).is_some_and(|zone| zone.start < range.end)
    }

    /// The parts of the zone within `range`.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|zone| zone.end <= range.start);
        let cut = move |zone: &Range<u64>| zone.start.max(range.start)..zone.end.min(range.end);
        self.ranges[first..].iter().map(cut).take_while(|zone| zone.start < zone.end)
    }
}

/// The group's bitmaps and inode table.
fn places(superblock: &VolumeSuperblock, groups: &Groups, group: GroupNumber) -> [Range<u64>; 3] {
    let (descriptor, table) = (groups.descriptor(group), superblock.inode_table_blocks());
    [
        (descriptor.block_bitmap, 1),
        (descriptor.inode_bitmap, 1),
        (descriptor.inode_table, u64::from(table)),
    ]
    .map(|(start, count)| start.get()..start.get() + count)
}

fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_is_exact_to_the_block() {
        let zone = SystemZone { ranges: merge(vec![8..9, 0..3, 9..12, 20..21, 2..4]) };
        assert_eq!(zone.ranges, [0..4, 8..12, 20..21]);
        for start in 0..25u64 {
            for end in start + 1..25 {
                let inside = (start..end)
                    .any(|at| [0..4, 8..12, 20..21].iter().any(|zone| zone.contains(&at)));
                assert_eq!(zone.overlaps(start..end), inside, "{start}..{end}");
            }
        }
        assert_eq!(zone.within(3..9).collect::<Vec<_>>(), [3..4, 8..9]);
        assert_eq!(zone.within(12..20).count(), 0);
    }
}
