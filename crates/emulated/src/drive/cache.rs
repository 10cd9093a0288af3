//! The drive's cache: writes that have not reached the medium, and clean segments that answer
//! reads.

use super::clean::{Clean, Origin};
use super::content::{Order, Piece, Pieces};
use crate::SECTOR;
use crate::model::{CacheModel, SegmentReplacement};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Contiguous dirty sectors that go to the medium together.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    pub sectors: Range<u64>,
    /// Order of the first write in it, for which a flush waits.
    pub oldest: Order,
    /// Time of the last write, as clean segments count it.
    used: u64,
    /// Whether it passes the buffer for streams: it takes no space of other segments, and leaves no
    /// trace.
    pub streams: bool,
}

/// Whether a write is admitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// Admitted later: as much waits for the medium as may.
    Later,
    /// Admitted in the space of a dirty segment, once that is on the medium.
    AfterDestage,
}

#[derive(Default)]
pub(super) struct Cache {
    /// Newest content of each sector that is dirty or in flight to the medium.
    contents: Pieces,
    /// Dirty segments by first sector; they do not overlap.
    dirty: BTreeMap<u64, Dirty>,
    /// Dirty segments by `oldest` and first sector.
    by_age: BTreeSet<(Order, u64)>,
    /// Segments taken for destaging and not yet on the medium.
    destaging: Vec<Dirty>,
    /// Number of segments in the stream buffer, and of their sectors.
    streaming: (usize, u64),
    /// Sectors that the other dirty segments take beyond their own.
    unused: u64,
    clean: Clean,
    uses: u64,
}

impl Cache {
    /// Creates a cache. `unit`: segments take multiples of this many sectors.
    pub fn new(unit: u64) -> Cache {
        Cache { clean: Clean::new(unit), ..Cache::default() }
    }
    /// Number of dirty segments, without streams.
    pub fn dirty_count(&self) -> usize {
        self.dirty.len() + self.destaging.len() - self.streaming.0
    }
    /// Bytes of dirty segments, without streams.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_sectors() * SECTOR
    }
    fn dirty_sectors(&self) -> u64 {
        // A sector that is written again while it goes to the medium streams twice and is held
        // once.
        self.contents.sectors().saturating_sub(self.streaming.1) + self.unused
    }
    pub fn is_streaming(&self) -> bool {
        self.streaming.0 > 0
    }
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
    /// Returns dirty segments from the oldest on.
    pub fn dirty_by_age(&self) -> impl Iterator<Item = &Dirty> {
        self.by_age.iter().map(|(_, start)| &self.dirty[start])
    }
    /// The dirty segments nearest to a sector, at most `count` on each side; only those that
    /// continue no other if `firsts`.
    pub fn dirty_near(
        &self,
        sector: u64,
        count: usize,
        firsts: bool,
    ) -> impl Iterator<Item = &Dirty> {
        let continues = |dirty: &Dirty| {
            let before = self.dirty.range(..dirty.sectors.start).next_back();
            before.is_some_and(|(_, before)| before.sectors.end == dirty.sectors.start)
        };
        let may_go = move |(_, dirty): &(&u64, &Dirty)| !firsts || !continues(dirty);
        let above = self.dirty.range(sector..).filter(may_go).take(count);
        let below = self.dirty.range(..sector).rev().filter(may_go).take(count);
        above.chain(below).map(|(_, dirty)| dirty)
    }
    pub fn contents(&self, sectors: Range<u64>) -> impl Iterator<Item = Piece> {
        self.contents.within(sectors)
    }
    /// Order of the first write that is not on the medium.
    pub fn oldest(&self) -> Option<Order> {
        let waiting = self.by_age.first().map(|(oldest, _)| *oldest);
        let moving = self.destaging.iter().map(|dirty| dirty.oldest).min();
        waiting.into_iter().chain(moving).min()
    }

    /// Makes space for a write: beside or over a dirty segment, or in a new one, for which clean
    /// ones are evicted.
    pub fn admit(
        &mut self,
        model: &CacheModel,
        sectors: &Range<u64>,
        chance: impl Fn() -> u64,
    ) -> Admission {
        let joins = self.partner(model, sectors);
        let needed = if joins { length(sectors) } else { self.clean.sectors_taken(sectors) };
        loop {
            let (dirty, clean) = (self.dirty_count(), self.clean.count(Origin::Written));
            let held = self.dirty_sectors() + self.clean.sectors(Origin::Written);
            let most = model.write_segments.get() as usize;
            if self.dirty_sectors() + needed > model.dirty_size().get() / SECTOR {
                return Admission::Later;
            }
            if (joins || dirty + clean < most) && held + needed <= write_sectors(model) {
                return Admission::Now;
            }
            // Drives that replace at random take any segment, also one that must be destaged first.
            let is_clean = match model.replacement {
                SegmentReplacement::LeastRecentlyUsed => true,
                SegmentReplacement::Random => {
                    chance() % ((dirty + clean).max(1) as u64) < clean as u64
                }
            };
            if !is_clean || !self.clean.evict(Origin::Written, model.replacement, None, &chance) {
                return Admission::AfterDestage;
            }
        }
    }
    /// Whether the stream buffer has space for a write around the segments.
    pub fn has_stream_space(&self, model: &CacheModel, sectors: &Range<u64>) -> bool {
        self.streaming.1 + length(sectors) <= stream_sectors(model)
    }
    fn partner(&self, model: &CacheModel, sectors: &Range<u64>) -> bool {
        let mut touching = self.touching(sectors);
        touching.retain(|dirty| !dirty.streams);
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

    /// Adds a write. With adjacent segments it becomes one segment if that is not too long.
    /// Otherwise the sectors that it overwrites leave the old segments, and their age passes to the
    /// new one, so that a flush waits for it.
    pub fn insert(
        &mut self,
        model: &CacheModel,
        sectors: Range<u64>,
        pieces: Vec<Piece>,
        chance: impl Fn() -> u64,
    ) {
        let join = self.partner(model, &sectors);
        self.put(sectors, pieces, false, join);
        self.fit(model, None, chance);
    }
    /// Adds a write that goes around the segments.
    pub fn insert_stream(&mut self, sectors: Range<u64>, pieces: Vec<Piece>) {
        self.put(sectors, pieces, true, false);
    }
    fn put(&mut self, sectors: Range<u64>, pieces: Vec<Piece>, streams: bool, join: bool) {
        self.uses += 1;
        let oldest = pieces.first().map_or(Order::MAX, |piece| piece.order);
        let mut new = Dirty { sectors, oldest, used: self.uses, streams };
        for old in self.touching(&new.sectors) {
            let overlaps =
                old.sectors.start < new.sectors.end && new.sectors.start < old.sectors.end;
            let joins = old.streams == streams && (join || streams);
            if !joins && !overlaps {
                continue;
            }
            self.remove(old.sectors.start);
            new.oldest = new.oldest.min(old.oldest);
            if joins {
                new.sectors =
                    new.sectors.start.min(old.sectors.start)..new.sectors.end.max(old.sectors.end);
            } else {
                for rest in [old.sectors.start..new.sectors.start, new.sectors.end..old.sectors.end]
                {
                    self.add(Dirty { sectors: rest, ..old.clone() });
                }
            }
        }
        self.add(new);
        pieces.into_iter().for_each(|piece| self.contents.put(piece));
    }
    fn add(&mut self, dirty: Dirty) {
        if dirty.sectors.start < dirty.sectors.end {
            self.enter(&dirty);
            self.by_age.insert((dirty.oldest, dirty.sectors.start));
            self.dirty.insert(dirty.sectors.start, dirty);
        }
    }
    fn remove(&mut self, start: u64) -> Dirty {
        let dirty = self.dirty.remove(&start).expect("the segment was found just now");
        self.by_age.remove(&(dirty.oldest, start));
        self.leave(&dirty);
        dirty
    }
    fn enter(&mut self, dirty: &Dirty) {
        let sectors = length(&dirty.sectors);
        match dirty.streams {
            true => self.streaming = (self.streaming.0 + 1, self.streaming.1 + sectors),
            false => self.unused += self.clean.sectors_taken(&dirty.sectors) - sectors,
        }
    }
    fn leave(&mut self, dirty: &Dirty) {
        let sectors = length(&dirty.sectors);
        match dirty.streams {
            true => self.streaming = (self.streaming.0 - 1, self.streaming.1 - sectors),
            false => self.unused -= self.clean.sectors_taken(&dirty.sectors) - sectors,
        }
    }

    /// Takes the segment at `start` for the medium, as it is now. A stream's last sectors wait for
    /// the rest of their physical sector (`physical` sectors), unless it has no others.
    pub fn take(&mut self, start: u64, physical: u64) -> (Dirty, Vec<Piece>) {
        let mut dirty = self.remove(start);
        let cut = dirty.sectors.end / physical * physical;
        if dirty.streams && dirty.sectors.start < cut && cut < dirty.sectors.end {
            self.add(Dirty { sectors: cut..dirty.sectors.end, ..dirty.clone() });
            dirty.sectors.end = cut;
        }
        self.enter(&dirty);
        let pieces = self.contents.within(dirty.sectors.clone()).collect();
        self.destaging.push(dirty.clone());
        (dirty, pieces)
    }
    /// Whether the segment taken is a stream.
    pub fn streams(&self, sectors: &Range<u64>) -> bool {
        self.destaging.iter().any(|dirty| dirty.sectors == *sectors && dirty.streams)
    }
    /// Completes a destage: the segment stays as a clean one if `keep`, unless it is a stream.
    pub fn taken_is_destaged(&mut self, model: &CacheModel, sectors: &Range<u64>, keep: bool) {
        let index = self
            .destaging
            .iter()
            .position(|dirty| dirty.sectors == *sectors)
            .expect("it was taken");
        let taken = self.destaging.swap_remove(index);
        self.leave(&taken);
        if keep && !taken.streams {
            self.clean.add(sectors.clone(), Origin::Written, taken.used, segment_sectors(model));
        }
    }
    /// Drops content that is not newer than this piece, which the medium holds.
    pub fn settle(&mut self, piece: &Piece) {
        self.contents.remove(&piece.sectors, piece.order);
    }
    /// Drops segments without content, after [`Cache::settle`] by a write around the cache.
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
        let Some(used) = self.holding(sectors) else { return false };
        self.uses += 1;
        used.into_iter().for_each(|sector| self.clean.touch(sector, self.uses));
        true
    }
    pub fn holds(&self, sectors: &Range<u64>) -> bool {
        self.holding(sectors).is_some()
    }
    /// A sector of each clean segment that has a part of the range, if all of it is here.
    fn holding(&self, sectors: &Range<u64>) -> Option<Vec<u64>> {
        let (mut reach, mut used) = (sectors.start, Vec::new());
        while reach < sectors.end {
            let dirty = self.contents.reach(reach);
            match self.clean.end_around(reach) {
                _ if dirty > reach => reach = dirty,
                Some(end) => {
                    used.push(reach);
                    reach = end;
                }
                None => return None,
            }
        }
        Some(used)
    }

    /// Keeps a range that was read or written around the cache, until its segment is needed.
    /// `chance` chooses where the model says so.
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
        if origin == Origin::Written && self.admit(model, &sectors, &chance) != Admission::Now {
            return;
        }
        self.uses += 1;
        self.clean.add(sectors, origin, self.uses, most);
        self.fit(model, Some(self.uses), chance);
    }
    /// Evicts clean segments until everything fits.
    fn fit(&mut self, model: &CacheModel, newest: Option<u64>, chance: impl Fn() -> u64) {
        loop {
            let [reads, writes] = [Origin::Read, Origin::Written];
            let count = self.clean.count(reads) + self.clean.count(writes) + self.dirty_count();
            let held =
                self.clean.sectors(reads) + self.clean.sectors(writes) + self.dirty_sectors();
            if count <= model.segments.get() as usize && held <= model.size.get() / SECTOR {
                return;
            }
            let mut evict = |origin| self.clean.evict(origin, model.replacement, newest, &chance);
            if !evict(reads) && !evict(writes) {
                return;
            }
        }
    }

    /// End of the clean segment that goes on at `sector`, or `sector`.
    pub fn end_around(&self, sector: u64) -> u64 {
        self.clean.end_around(sector).unwrap_or(sector)
    }

    /// Drops what was read up to `end` in the segment that reaches there.
    pub fn forget_read(&mut self, end: u64) {
        self.clean.cut_read(end);
    }

    /// Drops dirty and clean content of the range.
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
fn stream_sectors(model: &CacheModel) -> u64 {
    model.stream_buffer.map_or(0, |bytes| u64::from(bytes.get()) / SECTOR)
}
fn write_sectors(model: &CacheModel) -> u64 {
    model.write_size().get() / SECTOR
}
