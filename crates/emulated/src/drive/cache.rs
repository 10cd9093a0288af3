//! The drive's cache: writes that have not reached the medium, and clean segments that answer reads.

use super::clean::{Clean, Origin};
use super::content::{Order, Piece, Pieces};
use crate::SECTOR;
use crate::model::{CacheModel, Replacement};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Neighbouring dirty sectors that go to the medium together.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    pub sectors: Range<u64>,
    /// Of the write in it that came first: a flush waits for it.
    pub oldest: Order,
    /// When it was written last, as clean segments count it.
    used: u64,
}

#[derive(Default)]
pub(super) struct Cache {
    /// Newest content of each sector that is dirty or on its way to the medium.
    contents: Pieces,
    /// By first sector; they do not overlap.
    dirty: BTreeMap<u64, Dirty>,
    /// The same by `oldest` and first sector.
    by_age: BTreeSet<(Order, u64)>,
    /// Taken for destaging and not yet on the medium.
    destaging: Vec<Dirty>,
    clean: Clean,
    uses: u64,
}

impl Cache {
    pub fn dirty_count(&self) -> usize {
        self.dirty.len() + self.destaging.len()
    }
    pub fn dirty_bytes(&self) -> u64 {
        self.contents.sectors() * SECTOR
    }
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
    /// From the oldest on.
    pub fn dirty_by_age(&self) -> impl Iterator<Item = &Dirty> {
        self.by_age.iter().map(|(_, start)| &self.dirty[start])
    }
    /// The dirty segments nearest to a sector, at most `count` on each side.
    pub fn dirty_near(&self, sector: u64, count: usize) -> impl Iterator<Item = &Dirty> {
        let above = self.dirty.range(sector..).take(count);
        let below = self.dirty.range(..sector).rev().take(count);
        above.chain(below).map(|(_, dirty)| dirty)
    }
    pub fn contents(&self, sectors: Range<u64>) -> impl Iterator<Item = Piece> {
        self.contents.within(sectors)
    }
    /// Of everything that is not on the medium, what came first.
    pub fn oldest(&self) -> Option<Order> {
        let waiting = self.by_age.first().map(|(oldest, _)| *oldest);
        let moving = self.destaging.iter().map(|dirty| dirty.oldest).min();
        waiting.into_iter().chain(moving).min()
    }

    /// Makes room for a write: beside or over a dirty segment, or in a new one, for which clean ones give way.
    /// False: it must wait for a segment on its way to the medium.
    pub fn make_room(&mut self, model: &CacheModel, sectors: &Range<u64>, chance: impl Fn() -> u64) -> bool {
        let joins = self.partner(model, sectors);
        loop {
            let (dirty, clean) = (self.dirty_count(), self.clean.count(Origin::Written));
            let held = self.contents.sectors() + self.clean.sectors(Origin::Written);
            let most = model.write_segments.get() as usize;
            if self.contents.sectors() + length(sectors) > model.dirty_size().get() / SECTOR {
                return false;
            }
            if (joins || dirty + clean < most) && held + length(sectors) <= write_sectors(model) {
                return true;
            }
            // Drives that replace at random take any segment, also one that must be destaged before.
            let is_clean = match model.replacement {
                Replacement::LeastRecentlyUsed => true,
                Replacement::Random => chance() % ((dirty + clean).max(1) as u64) < clean as u64,
            };
            if !is_clean || !self.clean.evict(Origin::Written, model.replacement, None, &chance) {
                return false;
            }
        }
    }
    fn partner(&self, model: &CacheModel, sectors: &Range<u64>) -> bool {
        let touching = self.touching(sectors);
        let (Some(first), Some(last)) = (touching.first(), touching.last()) else { return false };
        let whole = first.sectors.start.min(sectors.start)..last.sectors.end.max(sectors.end);
        length(&whole) <= segment_sectors(model)
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
    pub fn insert(
        &mut self,
        model: &CacheModel,
        sectors: Range<u64>,
        pieces: Vec<Piece>,
        chance: impl Fn() -> u64,
    ) {
        self.uses += 1;
        let oldest = pieces.first().map_or(Order::MAX, |piece| piece.order);
        let mut new = Dirty { sectors, oldest, used: self.uses };
        let join = self.partner(model, &new.sectors);
        for old in self.touching(&new.sectors) {
            let overlaps = old.sectors.start < new.sectors.end && new.sectors.start < old.sectors.end;
            if !join && !overlaps {
                continue;
            }
            self.remove(old.sectors.start);
            new.oldest = new.oldest.min(old.oldest);
            if join {
                new.sectors = new.sectors.start.min(old.sectors.start)..new.sectors.end.max(old.sectors.end);
            } else {
                for rest in [old.sectors.start..new.sectors.start, new.sectors.end..old.sectors.end] {
                    self.add(Dirty { sectors: rest, ..old.clone() });
                }
            }
        }
        self.add(new);
        pieces.into_iter().for_each(|piece| self.contents.put(piece));
        self.fit(model, None, chance);
    }
    fn add(&mut self, dirty: Dirty) {
        if dirty.sectors.start < dirty.sectors.end {
            self.by_age.insert((dirty.oldest, dirty.sectors.start));
            self.dirty.insert(dirty.sectors.start, dirty);
        }
    }
    fn remove(&mut self, start: u64) -> Dirty {
        let dirty = self.dirty.remove(&start).expect("the segment was found just now");
        self.by_age.remove(&(dirty.oldest, start));
        dirty
    }

    /// The segment at `start` is on its way to the medium, as it is now.
    pub fn take(&mut self, start: u64) -> (Dirty, Vec<Piece>) {
        let dirty = self.remove(start);
        let pieces = self.contents.within(dirty.sectors.clone()).collect();
        self.destaging.push(dirty.clone());
        (dirty, pieces)
    }
    /// What was taken is on the medium. It stays as a clean segment if `keep`.
    pub fn taken_is_over(&mut self, model: &CacheModel, sectors: &Range<u64>, keep: bool) {
        let index = self.destaging.iter().position(|dirty| dirty.sectors == *sectors).expect("it was taken");
        let used = self.destaging.swap_remove(index).used;
        if keep {
            self.clean.add(sectors.clone(), Origin::Written, used, segment_sectors(model));
        }
    }
    /// The medium holds this: content that is not newer is of no use any more.
    pub fn settle(&mut self, piece: &Piece) {
        self.contents.remove(&piece.sectors, piece.order);
    }
    /// After [`Cache::settle`] by a write around the cache: segments without content are dropped.
    pub fn drop_settled(&mut self, sectors: Range<u64>) {
        for old in self.touching(&sectors) {
            self.remove(old.sectors.start);
            let held: Vec<Piece> = self.contents.within(old.sectors.clone()).collect();
            for part in held.chunk_by(|left, right| left.sectors.end == right.sectors.start) {
                let sectors = part[0].sectors.start..part[part.len() - 1].sectors.end;
                self.add(Dirty { sectors, ..old.clone() });
            }
        }
    }

    /// Whether a read needs no medium.
    pub fn answers(&mut self, sectors: &Range<u64>) -> bool {
        let (mut reach, mut used) = (sectors.start, Vec::new());
        while reach < sectors.end {
            let dirty = self.contents.reach(reach);
            match self.clean.end_around(reach) {
                _ if dirty > reach => reach = dirty,
                Some(end) => {
                    used.push(reach);
                    reach = end;
                }
                None => return false,
            }
        }
        self.uses += 1;
        used.into_iter().for_each(|sector| self.clean.touch(sector, self.uses));
        true
    }

    /// What was read or written around the cache stays until its segment is needed. `chance` picks where the
    /// model says so.
    pub fn keep(
        &mut self,
        model: &CacheModel,
        sectors: Range<u64>,
        origin: Origin,
        chance: impl Fn() -> u64,
    ) {
        let most = match origin {
            Origin::Read => u64::from(model.read_segment_size()) / SECTOR,
            Origin::Written => segment_sectors(model),
        };
        let sectors = sectors.end.saturating_sub(most).max(sectors.start)..sectors.end;
        if origin == Origin::Written && !self.make_room(model, &sectors, &chance) {
            return;
        }
        self.uses += 1;
        self.clean.add(sectors, origin, self.uses, most);
        self.fit(model, Some(self.uses), chance);
    }
    /// Gives up clean segments until everything fits.
    fn fit(&mut self, model: &CacheModel, newest: Option<u64>, chance: impl Fn() -> u64) {
        loop {
            let [reads, writes] = [Origin::Read, Origin::Written];
            let count = self.clean.count(reads) + self.clean.count(writes) + self.dirty_count();
            let sectors = self.clean.sectors(reads) + self.clean.sectors(writes) + self.contents.sectors();
            if count <= model.segments.get() as usize && sectors <= model.size.get() / SECTOR {
                return;
            }
            let mut evict = |origin| self.clean.evict(origin, model.replacement, newest, &chance);
            if !evict(reads) && !evict(writes) {
                return;
            }
        }
    }

    /// Dirty and clean content of the range is without worth.
    pub fn discard(&mut self, sectors: Range<u64>) {
        self.contents.remove(&sectors, Order::MAX);
        self.drop_settled(sectors);
    }
}

fn length(sectors: &Range<u64>) -> u64 {
    sectors.end - sectors.start
}
fn segment_sectors(model: &CacheModel) -> u64 {
    u64::from(model.segment_size.get()) / SECTOR
}
fn write_sectors(model: &CacheModel) -> u64 {
    model.write_size().get() / SECTOR
}
