//! Segments whose content the medium has too: they answer reads until their space is needed.

use crate::model::SegmentReplacement;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Share of the cache to which a segment belongs.
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

/// The clean segments, which do not overlap.
#[derive(Default)]
pub(super) struct Clean {
    by_start: BTreeMap<u64, Segment>,
    /// Time of the last use and start of each segment, by origin.
    recent: [BTreeSet<(u64, u64)>; 2],
    sectors: [u64; 2],
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
    /// Sectors that the segments of this origin take.
    pub fn sectors(&self, origin: Origin) -> u64 {
        self.sectors[origin as usize]
    }
    /// Sectors that a segment of this range takes.
    pub fn sectors_taken(&self, sectors: &Range<u64>) -> u64 {
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

    /// Adds a segment, joined with the one of its kind that it continues, together at most `most`
    /// sectors. Other segments that it overlaps are cut.
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
            // A stream that is read keeps its end; a written segment stays whole.
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

    /// Evicts one segment of this origin, chosen by the drive's rule, but not that used at
    /// `newest`.
    pub fn evict(
        &mut self,
        origin: Origin,
        replacement: SegmentReplacement,
        newest: Option<u64>,
        chance: impl Fn() -> u64,
    ) -> bool {
        let recent = &self.recent[origin as usize];
        // The one used at `newest` is the last, if it is here.
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

    /// Cuts the segment that was read and holds the sector before `end`: it begins there.
    pub fn cut_read(&mut self, end: u64) {
        let Some((start, segment)) = self.by_start.range(..end).next_back() else { return };
        if segment.origin == Origin::Written || segment.end < end {
            return;
        }
        let start = *start;
        let old = self.remove(start);
        if end < old.end {
            self.insert(end..old.end, old.origin, old.used);
        }
    }

    fn insert(&mut self, sectors: Range<u64>, origin: Origin, used: u64) {
        self.sectors[origin as usize] += self.sectors_taken(&sectors);
        self.recent[origin as usize].insert((used, sectors.start));
        self.by_start.insert(sectors.start, Segment { end: sectors.end, origin, used });
    }
    fn remove(&mut self, start: u64) -> Segment {
        let old = self.by_start.remove(&start).expect("it was found");
        self.recent[old.origin as usize].remove(&(old.used, start));
        self.sectors[old.origin as usize] -= self.sectors_taken(&(start..old.end));
        old
    }
}
