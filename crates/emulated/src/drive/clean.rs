//! Segments whose content the medium has too: they answer reads until their room is wanted.

use crate::model::SegmentReplacement;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Whose share of the cache a segment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Read,
    /// Destaged.
    Written,
}

struct Segment {
    end: u64,
    origin: Origin,
    /// Higher is later.
    used: u64,
}

/// They do not overlap.
#[derive(Default)]
pub(super) struct Clean {
    by_start: BTreeMap<u64, Segment>,
    /// For each origin: when used last, and start.
    recent: [BTreeSet<(u64, u64)>; 2],
    room: [u64; 2],
    /// Sectors of which a segment takes whole multiples.
    unit: u64,
}

impl Clean {
    pub fn new(unit: u64) -> Clean {
        Clean { unit, ..Clean::default() }
    }
    pub fn count(&self, origin: Origin) -> usize {
        self.recent[origin as usize].len()
    }
    /// Sectors that they take.
    pub fn room(&self, origin: Origin) -> u64 {
        self.room[origin as usize]
    }
    /// Sectors that a segment of these takes.
    pub fn room_of(&self, sectors: &Range<u64>) -> u64 {
        (sectors.end - sectors.start).next_multiple_of(self.unit)
    }

    /// The end of the segment that holds this sector.
    pub fn end_around(&self, sector: u64) -> Option<u64> {
        let (_, segment) = self.by_start.range(..=sector).next_back()?;
        (sector < segment.end).then_some(segment.end)
    }
    pub fn touch(&mut self, sector: u64, used: u64) {
        if let Some((start, segment)) = self.by_start.range_mut(..=sector).next_back() {
            let recent = &mut self.recent[segment.origin as usize];
            recent.remove(&(segment.used, *start));
            segment.used = used;
            recent.insert((used, *start));
        }
    }

    /// Takes a segment in, joined with the one of its kind that it continues, together at most
    /// `most` sectors. What else it overlaps is cut.
    pub fn add(&mut self, mut sectors: Range<u64>, origin: Origin, used: u64, most: u64) {
        let found: Vec<u64> = self
            .by_start
            .range(..=sectors.end)
            .rev()
            .map(|(start, segment)| (*start, segment.end))
            .take_while(|(_, end)| *end >= sectors.start)
            .map(|(start, _)| start)
            .collect();
        for start in found {
            let old = self.remove(start);
            // A stream that is read keeps its end; what was written stays whole.
            let joins = origin == Origin::Read || sectors.end.max(old.end) - start <= most;
            let rest = if old.origin == origin && start <= sectors.start && joins {
                sectors = start..sectors.end.max(old.end);
                0..0
            } else if start < sectors.start {
                start..sectors.start.min(old.end)
            } else {
                sectors.end.max(start)..old.end
            };
            if rest.start < rest.end {
                self.insert(rest, old.origin, old.used);
            }
        }
        sectors.start = sectors.start.max(sectors.end.saturating_sub(most));
        self.insert(sectors, origin, used);
    }

    /// Gives one segment of this origin up, chosen by the drive's rule, but not that used at
    /// `newest`.
    pub fn evict(
        &mut self,
        origin: Origin,
        replacement: SegmentReplacement,
        newest: Option<u64>,
        chance: impl Fn() -> u64,
    ) -> bool {
        let recent = &self.recent[origin as usize];
        // That used at `newest` is the last, if it is here.
        let kept = recent.last().is_some_and(|(used, _)| Some(*used) == newest);
        let count = recent.len() - usize::from(kept);
        if count == 0 {
            return false;
        }
        let index = match replacement {
            SegmentReplacement::LeastRecentlyUsed => 0,
            SegmentReplacement::Random => (chance() % count as u64) as usize,
        };
        let (_, start) = *recent.iter().nth(index).expect("it is below the count");
        self.remove(start);
        true
    }

    fn insert(&mut self, sectors: Range<u64>, origin: Origin, used: u64) {
        self.room[origin as usize] += self.room_of(&sectors);
        self.recent[origin as usize].insert((used, sectors.start));
        self.by_start.insert(sectors.start, Segment { end: sectors.end, origin, used });
    }
    fn remove(&mut self, start: u64) -> Segment {
        let old = self.by_start.remove(&start).expect("it was found");
        self.recent[old.origin as usize].remove(&(old.used, start));
        self.room[old.origin as usize] -= self.room_of(&(start..old.end));
        old
    }
}
