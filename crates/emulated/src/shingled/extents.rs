//! Sectors of the logical disk that lie in a log, and their addresses: ranges that do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// End, in sectors.
    pub end: u64,
    /// Address of its first sector on the drive.
    pub place: u64,
    /// Later writes have higher orders.
    pub order: u64,
}

/// Extents by first sector.
pub(super) type Parts = Vec<(u64, Extent)>;

#[derive(Default)]
pub(super) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    pub fn first(&self) -> Option<(u64, Extent)> {
        self.0.first_key_value().map(|(start, extent)| (*start, *extent))
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.0.iter().map(|(start, extent)| (*start, *extent))
    }
    /// The extents in the range, cut to it, ascending.
    pub fn within(&self, range: Range<u64>) -> Parts {
        let before =
            self.0.range(..range.start).next_back().filter(|(_, extent)| extent.end > range.start);
        let rest = self.0.range(range.clone());
        let cut = |(start, extent): (&u64, &Extent)| {
            let from = (*start).max(range.start);
            let place = extent.place + (from - start);
            (from, Extent { end: extent.end.min(range.end), place, ..*extent })
        };
        before.into_iter().chain(rest).map(cut).collect()
    }
    /// Removes the extents in the range with at most this order, and returns them.
    pub fn remove(&mut self, range: Range<u64>, order: u64) -> Parts {
        let old: Vec<(u64, Extent)> = self
            .within(range.clone())
            .into_iter()
            .filter(|(_, extent)| extent.order <= order)
            .collect();
        for (from, part) in &old {
            let (start, whole) = self
                .0
                .range(..=*from)
                .next_back()
                .map(|(at, extent)| (*at, *extent))
                .expect("it is there");
            self.0.remove(&start);
            if start < *from {
                self.0.insert(start, Extent { end: *from, ..whole });
            }
            if part.end < whole.end {
                let place = whole.place + (part.end - start);
                self.0.insert(part.end, Extent { place, ..whole });
            }
        }
        old
    }
    /// Removes the parts that are unchanged.
    pub fn remove_same(&mut self, start: u64, was: Extent) -> Parts {
        let same = self.within(start..was.end).into_iter();
        let same = same.filter(|(from, part)| {
            part.order == was.order && part.place == was.place + (from - start)
        });
        let same: Vec<_> = same.collect();
        same.into_iter().flat_map(|(from, part)| self.remove(from..part.end, part.order)).collect()
    }
    /// Inserts an extent where nothing newer is there. Returns the parts inserted and those
    /// replaced.
    pub fn insert(&mut self, range: Range<u64>, place: u64, order: u64) -> (Parts, Parts) {
        let gone = self.remove(range.clone(), order);
        let mut come = Vec::new();
        let mut from = range.start;
        for (start, newer) in self
            .within(range.clone())
            .into_iter()
            .chain([(range.end, Extent { end: range.end, place: 0, order })])
        {
            if from < start {
                come.push((
                    from,
                    Extent { end: start, place: place + (from - range.start), order },
                ));
            }
            from = newer.end;
        }
        self.0.extend(come.iter().copied());
        (come, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SplitMix;

    #[test]
    fn every_sector_lies_where_the_newest_write_put_it() {
        for seed in 0..100 {
            let random = SplitMix::new(seed);
            let (mut extents, mut plain) = (Extents::default(), vec![None; 60]);
            for step in 1..60u64 {
                let from = random.next() % 60;
                let range = from..from + 1 + random.next() % (60 - from);
                // Sometimes an older write completes after a newer one.
                let order =
                    if random.next() % 4 == 0 { 1 + random.next() % step } else { step * 2 };
                if random.next() % 5 == 0 {
                    extents.remove(range.clone(), order);
                    for at in range {
                        plain[at as usize] = plain[at as usize].filter(|(_, of)| *of > order);
                    }
                } else {
                    extents.insert(range.clone(), 1000 * step, order);
                    for at in range.clone() {
                        let old: &mut Option<(u64, u64)> = &mut plain[at as usize];
                        if old.is_none_or(|(_, of)| of <= order) {
                            *old = Some((1000 * step + at - range.start, order));
                        }
                    }
                }
                let mut found = vec![None; 60];
                for (start, extent) in extents.iter() {
                    for at in start..extent.end {
                        found[at as usize] = Some((extent.place + at - start, extent.order));
                    }
                }
                assert_eq!(found, plain, "seed {seed}");
            }
        }
    }
}
