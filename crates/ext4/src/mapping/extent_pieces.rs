//! Cutting and joining extents: the new entries of a leaf. No I/O.

use super::extent_tree::end_of;
use crate::{Error, Inode, Result};
use format::ext4::extent::{self, Extent, ExtentEntry};
use smallvec::SmallVec;
use std::ops::Range;
use units::{FileBlock, HomeBlock};

/// The new extents of one change: a file that grows, or is freed, has one or none.
pub(super) type Pieces = SmallVec<[Extent; 4]>;

/// Joins `pieces` with each other and with the entries beside `range` where they are contiguous.
/// Returns the range to replace and its new entries: a neighbour that stays unchanged is left out.
pub(super) fn join(
    inode: &Inode,
    entries: &[ExtentEntry],
    range: Range<usize>,
    pieces: Pieces,
) -> Result<(Range<usize>, Pieces)> {
    let extent = |entry: &ExtentEntry| match entry {
        ExtentEntry::Extent(extent) => Ok(*extent),
        ExtentEntry::Index(_) => {
            Err(Error::corrupt_inode(inode.number, "a leaf of extents has indices"))
        }
    };
    if range.end > entries.len() {
        return Err(Error::corrupt_inode(
            inode.number,
            "an extent node belongs to another tree as well",
        ));
    }
    let left = range.start.checked_sub(1).map(|index| extent(&entries[index])).transpose()?;
    let right = entries.get(range.end).map(extent).transpose()?;
    let mut joined = Pieces::new();
    for piece in left.into_iter().chain(pieces).chain(right) {
        match joined.last_mut().filter(|last| can_join(last, &piece)) {
            Some(last) => last.count += piece.count,
            None => joined.push(piece),
        }
    }
    let (mut start, mut end) = (range.start, range.end);
    if left.is_some() && joined.first() == left.as_ref() {
        joined.remove(0);
    } else if left.is_some() {
        start -= 1;
    }
    if right.is_some() && joined.last() == right.as_ref() {
        joined.pop();
    } else if right.is_some() {
        end += 1;
    }
    Ok((start..end, joined))
}

fn can_join(left: &Extent, right: &Extent) -> bool {
    let limit = if left.unwritten { extent::UNWRITTEN_MAX } else { extent::WRITTEN_MAX };
    end_of(left) == u64::from(right.at.get())
        && left.home.plus(left.count.into()) == right.home
        && left.unwritten == right.unwritten
        && left.count + right.count <= limit
}

/// The extent with its part `begin .. end` made unwritten or written, or left out for `None`.
pub(super) fn split(whole: &Extent, begin: u64, end: u64, middle: Option<bool>) -> Pieces {
    let part = |from: u64, to: u64, unwritten: bool| {
        let skipped = from - u64::from(whole.at.get());
        let home = whole.home.plus(skipped);
        Extent { at: FileBlock(from as u32), count: (to - from) as u32, home, unwritten }
    };
    let mut parts = Pieces::new();
    if begin > whole.at.get().into() {
        parts.push(part(whole.at.get().into(), begin, whole.unwritten));
    }
    if let Some(unwritten) = middle {
        // A written extent of full length is too long for an unwritten one.
        let border =
            if unwritten { end.min(begin + u64::from(extent::UNWRITTEN_MAX)) } else { end };
        parts.push(part(begin, border, unwritten));
        if border < end {
            parts.push(part(border, end, unwritten));
        }
    }
    if end < end_of(whole) {
        parts.push(part(end, end_of(whole), whole.unwritten));
    }
    parts
}

/// Goal for a block, as if the file were laid out in one piece with its neighbour.
pub(super) fn goal(
    at: FileBlock,
    before: Option<Extent>,
    next: Option<Extent>,
) -> Option<HomeBlock> {
    if let Some(before) = before {
        // Behind a long hole the distance is meaningless.
        let distance = u64::from(at.get() - before.at.get());
        let count = u64::from(before.count);
        let near = distance < count + u64::from(extent::WRITTEN_MAX);
        return Some(before.home.plus(if near { distance } else { count }));
    }
    let next = next?;
    next.home.get().checked_sub(u64::from(next.at.get() - at.get())).map(HomeBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(at: u32, count: u32, home: u64, unwritten: bool) -> Extent {
        Extent { at: FileBlock(at), count, home: HomeBlock(home), unwritten }
    }

    #[test]
    fn the_middle_of_an_extent_changes_alone() {
        let whole = extent(10, 10, 100, true);
        let expect =
            [extent(10, 3, 100, true), extent(13, 2, 103, false), extent(15, 5, 105, true)];
        assert_eq!(split(&whole, 13, 15, Some(false))[..], expect);
        assert_eq!(split(&whole, 10, 20, None)[..], []);
        assert_eq!(split(&whole, 10, 12, None)[..], [extent(12, 8, 102, true)]);
    }

    #[test]
    fn the_longest_written_extent_becomes_two_unwritten_ones() {
        let parts = split(&extent(0, 32768, 100, false), 0, 32768, Some(true));
        assert_eq!(parts[..], [extent(0, 32767, 100, true), extent(32767, 1, 32867, true)]);
    }

    #[test]
    fn extents_join_only_when_contiguous_alike_and_short_enough() {
        let left = extent(0, 10, 100, false);
        assert!(can_join(&left, &extent(10, 5, 110, false)));
        assert!(!can_join(&left, &extent(10, 5, 111, false)));
        assert!(!can_join(&left, &extent(11, 5, 110, false)));
        assert!(!can_join(&left, &extent(10, 5, 110, true)));
        assert!(!can_join(&left, &extent(10, 32759, 110, false)));
    }
}
