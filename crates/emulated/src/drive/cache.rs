//! The drive's cache: writes that have not reached the medium, and clean segments that answer reads.

use crate::SECTOR;
use crate::model::{CacheModel, Replacement};
use device::Buffer;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The place of a write among all writes of the drive.
pub(super) type Order = u64;

/// The new bytes of one sector.
#[derive(Clone)]
pub(super) struct Content {
    buffer: Rc<Buffer>,
    offset: usize,
    pub order: Order,
}

impl Content {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.offset..self.offset + SECTOR as usize]
    }
    /// One for each sector of a write.
    pub fn of(parts: &[Rc<Buffer>], order: Order) -> Vec<Content> {
        let sector = SECTOR as usize;
        let pieces = parts.iter().flat_map(|part| {
            (0..part.len()).step_by(sector).map(|offset| Content { buffer: part.clone(), offset, order })
        });
        pieces.collect()
    }
}

/// Neighbouring dirty sectors that go to the medium together.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    pub sectors: Range<u64>,
    /// Of the write in it that came first: a flush waits for it.
    pub oldest: Order,
}

#[derive(Default)]
pub(super) struct Cache {
    /// Newest content of each sector that is dirty or on its way to the medium.
    contents: BTreeMap<u64, Content>,
    /// By first sector; they do not overlap.
    dirty: BTreeMap<u64, Dirty>,
    /// Taken for destaging and not yet on the medium.
    destaging: Vec<Dirty>,
    /// Least recently used first.
    clean: Vec<Range<u64>>,
}

impl Cache {
    pub fn dirty(&self) -> impl Iterator<Item = &Dirty> {
        self.dirty.values()
    }
    pub fn dirty_count(&self) -> usize {
        self.dirty.len() + self.destaging.len()
    }
    pub fn contents(&self, sectors: Range<u64>) -> impl Iterator<Item = (&u64, &Content)> {
        self.contents.range(sectors)
    }
    /// Whether anything up to `mark` is still not on the medium.
    pub fn holds_before(&self, mark: Order) -> bool {
        self.dirty.values().chain(&self.destaging).any(|dirty| dirty.oldest <= mark)
    }

    /// Whether a write finds its place among the dirty segments: beside or over one of them, or in a new one.
    pub fn has_room(&self, model: &CacheModel, sectors: &Range<u64>) -> bool {
        self.dirty_count() < model.write_segments.get() as usize || self.partner(model, sectors)
    }
    fn partner(&self, model: &CacheModel, sectors: &Range<u64>) -> bool {
        let touching = self.touching(sectors);
        let Some(first) = touching.first() else { return false };
        let last = touching.last().expect("at least one");
        let whole = first.sectors.start.min(sectors.start)..last.sectors.end.max(sectors.end);
        whole.end - whole.start <= u64::from(model.segment_size.get()) / SECTOR
    }
    /// Dirty segments that overlap `sectors` or lie right beside them, in order.
    fn touching(&self, sectors: &Range<u64>) -> Vec<Dirty> {
        let before = self.dirty.range(..=sectors.end).rev();
        let mut found: Vec<Dirty> = before
            .map(|(_, dirty)| dirty)
            .take_while(|dirty| dirty.sectors.end >= sectors.start)
            .cloned()
            .collect();
        found.reverse();
        found
    }

    /// Takes a write in. With its neighbours it becomes one segment if that is not too long; otherwise what it
    /// overwrites leaves the old segments, and their age passes to the new one, so that a flush waits for it.
    pub fn insert(&mut self, model: &CacheModel, start: u64, contents: Vec<Content>) {
        let mut sectors = start..start + contents.len() as u64;
        let mut oldest = contents.first().map_or(Order::MAX, |content| content.order);
        let join = self.partner(model, &sectors);
        for old in self.touching(&sectors) {
            let overlaps = old.sectors.start < sectors.end && sectors.start < old.sectors.end;
            if !join && !overlaps {
                continue;
            }
            self.dirty.remove(&old.sectors.start);
            oldest = oldest.min(old.oldest);
            if join {
                sectors = sectors.start.min(old.sectors.start)..sectors.end.max(old.sectors.end);
            } else {
                for rest in [old.sectors.start..sectors.start, sectors.end..old.sectors.end] {
                    if rest.start < rest.end {
                        self.dirty.insert(rest.start, Dirty { sectors: rest, oldest: old.oldest });
                    }
                }
            }
        }
        self.dirty.insert(sectors.start, Dirty { sectors, oldest });
        self.contents.extend((start..).zip(contents));
    }

    /// The segment at `start` is on its way to the medium, as it is now.
    pub fn take(&mut self, start: u64) -> (Dirty, Vec<Content>) {
        let dirty = self.dirty.remove(&start).expect("the segment was chosen just now");
        let contents =
            self.contents.range(dirty.sectors.clone()).map(|(_, content)| content.clone()).collect();
        self.destaging.push(dirty.clone());
        (dirty, contents)
    }
    pub fn taken_is_over(&mut self, sectors: &Range<u64>) {
        self.destaging.retain(|dirty| dirty.sectors != *sectors);
    }
    /// The medium holds content `order` of this sector: older content in the cache is of no use any more.
    pub fn settle(&mut self, sector: u64, order: Order) {
        if self.contents.get(&sector).is_some_and(|content| content.order <= order) {
            self.contents.remove(&sector);
        }
    }
    /// After [`Cache::settle`] by a write around the cache: segments without content are dropped.
    pub fn drop_settled(&mut self, sectors: Range<u64>) {
        for old in self.touching(&sectors) {
            self.dirty.remove(&old.sectors.start);
            let mut rest: Option<Range<u64>> = None;
            let held: Vec<u64> =
                self.contents.range(old.sectors.clone()).map(|(sector, _)| *sector).collect();
            for sector in held {
                match &mut rest {
                    Some(range) if range.end == sector => range.end += 1,
                    _ => {
                        self.add_rest(rest.take(), old.oldest);
                        rest = Some(sector..sector + 1);
                    }
                }
            }
            self.add_rest(rest, old.oldest);
        }
    }
    fn add_rest(&mut self, rest: Option<Range<u64>>, oldest: Order) {
        if let Some(sectors) = rest {
            self.dirty.insert(sectors.start, Dirty { sectors, oldest });
        }
    }

    /// Whether a read needs no medium.
    pub fn answers(&mut self, sectors: &Range<u64>) -> bool {
        if let Some(index) = self.clean_around(sectors) {
            let used = self.clean.remove(index);
            self.clean.push(used);
            return true;
        }
        self.contents.range(sectors.clone()).count() as u64 == sectors.end - sectors.start
    }
    fn clean_around(&self, sectors: &Range<u64>) -> Option<usize> {
        self.clean.iter().position(|clean| clean.start <= sectors.start && sectors.end <= clean.end)
    }

    /// What was read or destaged stays until its segment is needed. `chance` picks where the model says so.
    pub fn keep(&mut self, model: &CacheModel, sectors: Range<u64>, chance: impl Fn() -> u64) {
        let most = u64::from(model.segment_size.get()) / SECTOR;
        let mut sectors = sectors.end.saturating_sub(most).max(sectors.start)..sectors.end;
        self.clean.retain(|clean| {
            let joins = clean.start <= sectors.start && sectors.start <= clean.end;
            if joins {
                let end = clean.end.max(sectors.end);
                sectors = clean.start.max(end.saturating_sub(most))..end;
            }
            !joins
        });
        self.clean.push(sectors);
        while self.clean.len() > 1 && self.is_full(model) {
            let index = match model.replacement {
                Replacement::LeastRecentlyUsed => 0,
                Replacement::Random => (chance() % (self.clean.len() as u64 - 1)) as usize,
            };
            self.clean.remove(index);
        }
    }
    fn is_full(&self, model: &CacheModel) -> bool {
        let count = self.clean.len() + self.dirty_count();
        let clean: u64 = self.clean.iter().map(|clean| clean.end - clean.start).sum();
        let sectors = clean + self.contents.len() as u64;
        count > model.segments.get() as usize || sectors > model.size.get() / SECTOR
    }

    /// Dirty and clean content of the range is without worth.
    pub fn discard(&mut self, sectors: Range<u64>) {
        self.contents.retain(|sector, _| !sectors.contains(sector));
        self.drop_settled(sectors);
    }
}
