//! Reading beyond a request while nothing else is to be done: sequential streams at the rate of the
//! medium.

use super::EmulatedDisk;
use super::clean::Origin;
use crate::SECTOR;
use crate::medium::Medium;
use crate::model::{CacheModel, ReadAheadAfter};
use crate::run::{Direction, Run};
use std::collections::VecDeque;
use std::ops::Range;
use units::Instant;

pub(super) struct ReadAhead {
    /// First sector.
    from: u64,
    /// Sectors from the first that is not known to be read up to the planned end.
    sectors: Range<u64>,
    /// Runs that have not ended.
    runs: VecDeque<Run>,
}

impl ReadAhead {
    /// The range read since the last call.
    fn take_read(&mut self, now: u64) -> Range<u64> {
        let start = self.sectors.start;
        while let Some(run) = self.runs.front() {
            self.sectors.start = run.sector + run.done(now);
            if run.done(now) < run.count || self.runs.len() == 1 {
                break;
            }
            self.runs.pop_front();
        }
        start..self.sectors.start
    }
    /// Time when all up to `end` is read.
    fn when(&self, end: u64) -> Option<Instant> {
        let run = self.runs.iter().find(|run| run.sector < end && end <= run.sector + run.count)?;
        let time = run.start_ns + (end - run.sector) as f64 * run.each_ns;
        // The next nanosecond, at which `done` agrees in spite of rounding.
        Some(Instant(time as u64 + 1))
    }
}

impl EmulatedDisk {
    /// Continues reading from the end of a read, where the head stands.
    pub(super) fn start_read_ahead(&self, now: u64, read: &Range<u64>) {
        let Some(cache) = &self.0.model.cache else { return };
        if !self.reads_ahead_now(cache) {
            return;
        }
        let (sector, end) = (read.end, self.read_ahead_end(cache, read));
        if let Medium::Platters(arm) = &mut *self.0.medium.borrow_mut() {
            if sector < end {
                let runs = arm.transfer(now as f64, Direction::Read, sector, end - sector);
                *self.0.read_ahead.borrow_mut() =
                    Some(ReadAhead { from: sector, sectors: sector..end, runs: runs.into() });
            }
        }
    }

    /// Time until which cached writes have to wait for the read-ahead, if they do; they are
    /// considered again then.
    pub(super) fn reads_ahead_until(&self) -> Option<Instant> {
        self.0
            .model
            .cache
            .as_ref()
            .filter(|cache| cache.read_ahead_first && self.0.is_reading.get())?;
        let end = self.0.read_ahead.borrow().as_ref()?.runs.back()?.end_ns();
        let until = Instant(end.ceil() as u64);
        (until > self.0.world.now()).then_some(until)
    }
    pub(super) fn wait_for_read_ahead(&self) {
        let state = &self.0;
        let Some(until) =
            self.reads_ahead_until().filter(|_| !state.read_ahead_timer.replace(true))
        else {
            return;
        };
        let disk = self.clone();
        state.world.spawn(Box::pin(async move {
            disk.0.world.sleep_until(until).await;
            disk.0.read_ahead_timer.set(false);
            disk.pump();
        }));
    }

    /// The end of the read-ahead: not so far that the segment would lose the blocks the host is
    /// reading, if they fit.
    fn read_ahead_end(&self, cache: &CacheModel, read: &Range<u64>) -> u64 {
        let most = u64::from(cache.read_segment_size()) / SECTOR;
        let end = read.end + u64::from(cache.read_ahead) / SECTOR;
        let fits = if read.end - read.start < most { end.min(read.start + most) } else { end };
        let track = self.0.medium.borrow().track(read.end - 1);
        let is_bound = cache.read_ahead_within_track && !self.0.read_continues.get();
        let bound = track.filter(|_| is_bound);
        bound.map_or(fits, |track| fits.min(track.end)).min(self.0.size / SECTOR)
    }
    /// Reads ahead for a stream whose read was in the cache, if the medium has nothing to do.
    pub(super) fn read_on(&self, read: &Range<u64>) {
        let Some(cache) = self.0.model.cache.as_ref().filter(|cache| cache.read_ahead_on_hits)
        else {
            return;
        };
        let is_idle = self.0.in_service.borrow().is_empty()
            && self.0.queue.borrow().is_empty()
            && !self.0.cache.borrow().is_dirty()
            && !self.is_reading_ahead();
        if !self.0.read_continues.get() || !is_idle {
            return;
        }
        self.stop_read_ahead();
        let reached = self.0.cache.borrow().end_around(read.end);
        let end = self.read_ahead_end(cache, read);
        if let Medium::Platters(arm) = &mut *self.0.medium.borrow_mut() {
            if reached < end {
                let now = self.now() as f64;
                let runs = arm.transfer(now, Direction::Read, reached, end - reached);
                *self.0.read_ahead.borrow_mut() =
                    Some(ReadAhead { from: reached, sectors: reached..end, runs: runs.into() });
            }
        }
    }
    /// Whether the drive reads beyond the last read.
    fn reads_ahead_now(&self, cache: &CacheModel) -> bool {
        match cache.read_ahead_after {
            ReadAheadAfter::AnyRead => true,
            ReadAheadAfter::SequentialRead => self.0.read_continues.get(),
        }
    }
    /// The range that the cache keeps after the medium has read this.
    pub(super) fn kept_of_read(
        &self,
        cache: &CacheModel,
        sectors: &Range<u64>,
    ) -> Option<Range<u64>> {
        let before = u64::from(cache.read_before) / SECTOR;
        let track = if self.reads_ahead_now(cache) && before > 0 {
            self.0.medium.borrow().track(sectors.start)
        } else {
            None
        };
        let start = track
            .map_or(sectors.start, |track| track.start.max(sectors.start.saturating_sub(before)));
        cache.keeps_reads.then_some(start..sectors.end)
    }
    /// Whether the medium is reading ahead now.
    pub(super) fn is_reading_ahead(&self) -> bool {
        let slot = self.0.read_ahead.borrow();
        let end = slot.as_ref().and_then(|ahead| ahead.runs.back()).map(|run| run.end_ns());
        end.is_some_and(|end| end > self.now() as f64)
    }
    /// Drops what the host has now read, where the drive does not keep it.
    pub(super) fn forget_read(&self, sectors: &Range<u64>) {
        if self.0.model.cache.as_ref().is_some_and(|cache| !cache.keeps_reads) {
            self.0.cache.borrow_mut().forget_read(sectors.end);
        }
    }

    /// Whether the read-ahead continues where the cache's part of this ends.
    pub(super) fn begins_in_cache(&self, sectors: &Range<u64>) -> bool {
        let slot = self.0.read_ahead.borrow();
        let Some(ahead) = &*slot else { return false };
        let reached = ahead.sectors.start.min(sectors.end);
        sectors.start >= reached || self.0.cache.borrow_mut().answers(&(sectors.start..reached))
    }
    /// Whether all of this has passed under the head in one read-ahead.
    pub(super) fn read_ahead_passed(&self, sectors: &Range<u64>) -> bool {
        let mut slot = self.0.read_ahead.borrow_mut();
        slot.as_mut().is_some_and(|ahead| {
            self.keep_read(ahead);
            ahead.from <= sectors.start && sectors.end <= ahead.sectors.start
        })
    }

    /// Stops the read-ahead for other work of the medium: sectors read by now are kept.
    pub(super) fn stop_read_ahead(&self) {
        let Some(mut ahead) = self.0.read_ahead.borrow_mut().take() else { return };
        self.keep_read(&mut ahead);
        if let Medium::Platters(arm) = &mut *self.0.medium.borrow_mut() {
            arm.stand_over(ahead.sectors.start.min(ahead.sectors.end - 1));
        }
    }

    /// Time when a read that continues or overlaps the read-ahead will have been read; the
    /// read-ahead then continues beyond it. `None` if the head must move for it.
    pub(super) fn read_ahead_has(&self, sectors: &Range<u64>) -> Option<Instant> {
        let (now, cache) = (self.now(), self.0.model.cache.as_ref()?);
        let mut slot = self.0.read_ahead.borrow_mut();
        let ahead = slot.as_mut()?;
        self.keep_read(ahead);
        let end = ahead.runs.back()?.end_ns();
        if sectors.start < ahead.from || sectors.start > ahead.sectors.end {
            return None;
        }
        if end < now as f64 {
            // It has stopped, and its sectors are in the cache.
            return None;
        }
        let wanted = self.read_ahead_end(cache, sectors);
        if let Medium::Platters(arm) = &mut *self.0.medium.borrow_mut() {
            if wanted > ahead.sectors.end {
                let more = arm.transfer(
                    end,
                    Direction::Read,
                    ahead.sectors.end,
                    wanted - ahead.sectors.end,
                );
                ahead.runs.extend(more);
                ahead.sectors.end = wanted;
            }
        }
        ahead.when(sectors.end)
    }

    /// Moves the sectors read by now into the cache's segments.
    fn keep_read(&self, ahead: &mut ReadAhead) {
        let read = ahead.take_read(self.now());
        if let Some(model) = &self.0.model.cache {
            if read.start < read.end {
                let chance = || self.0.world.random();
                self.0.cache.borrow_mut().keep(model, read, Origin::Read, chance);
            }
        }
    }
}
