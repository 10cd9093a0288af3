//! The medium at work: one transfer after another (flash: several at once), then read-ahead, then
//! idle.

use super::choose::Candidate;
use super::clean::Origin;
use super::content::Piece;
use super::places::{Queued, placed};
use super::{EmulatedDisk, Service, Waiting, Way};
use crate::SECTOR;
use crate::medium::moving_ns;
use crate::model::SegmentReplacement;
use crate::run::{Direction, Run, sent_ns};
use device::Buffer;
use std::ops::Range;
use std::rc::Rc;
use units::Instant;

fn end_of(runs: &[Run]) -> f64 {
    runs.iter().map(|run| run.end_ns()).fold(0.0, f64::max)
}

impl EmulatedDisk {
    /// Gives the medium the work that it can take. Called whenever a request arrives, ends, or
    /// expires.
    pub(super) fn pump(&self) {
        self.pump_at(self.now());
    }
    /// Serves the queue; `now` is when the medium became free. A world of real time wakes this task
    /// later, but the drive keeps rotating. Had it waited, the next sectors of its track would have
    /// passed by.
    fn pump_at(&self, now: u64) {
        if self.is_off() {
            return;
        }
        let width = self.0.medium.borrow().width();
        while self.0.in_service.borrow().len() < width {
            let Some(candidate) = self.choose(now) else { break };
            self.stop_read_ahead();
            self.start(now, candidate);
        }
        self.wait_for_idleness();
        self.wait_for_read_ahead();
    }

    /// Nanoseconds between the choice of a transfer and the start of the arm. `is_known`: the drive
    /// could prepare a write before.
    pub(super) fn overhead(
        &self,
        now: u64,
        is_known: bool,
        direction: Direction,
        start: u64,
    ) -> u64 {
        let interface = &self.0.model.interface;
        let ms = match direction {
            // The drive knows the next request: one that continues the write before loses no
            // revolution.
            Direction::Write if is_known && start == self.0.position.get() => 0.0,
            Direction::Read if self.reads_on(now, start) => 0.0,
            Direction::Write => interface.write_ms.get(),
            Direction::Read => {
                let seeks = || self.0.medium.borrow().distance(start) > 0;
                let after_write = self.0.after_write.get();
                interface.overheads.read_ms(interface.read_ms.get(), after_write, seeks)
            }
        };
        (ms * 1e6) as u64
    }

    /// Whether a read from `start` on waited while the medium read the sectors before it: the drive
    /// continues at once.
    fn reads_on(&self, now: u64, start: u64) -> bool {
        self.0.ended_reading.get() && start == self.0.position.get() && self.ended_at(now)
    }
    /// Whether the transfer before ended just now: the next one has waited.
    pub(super) fn ended_at(&self, now: u64) -> bool {
        self.0.ended.get().ceil() as u64 == now
    }

    fn start(&self, now: u64, candidate: Candidate) {
        let (request, destages, is_seamless) = match candidate {
            Candidate::Request(index) => {
                (self.0.queue.borrow_mut().remove(index).expect("chosen just now"), false, false)
            }
            Candidate::Destage(start) => {
                let (dirty, pieces) =
                    self.0.cache.borrow_mut().take(start, self.0.model.together());
                let (order, direction, keep) = (self.next_order(), Direction::Write, true);
                let request = Waiting {
                    order,
                    direction,
                    sectors: dirty.sectors,
                    pieces,
                    done: None,
                    keep,
                    places: None,
                };
                (request, true, dirty.streams || self.is_seamless())
            }
        };
        let Waiting { order, direction, mut sectors, mut pieces, done, keep, places } = request;
        let has_place = places.is_none();
        if let Some(places) = places {
            sectors = places.take(&self.head(&self.0.medium.borrow(), now));
            pieces = placed(pieces, &sectors);
        }
        let ended = self.0.ended.get();
        let continues = (is_seamless || !has_place)
            && sectors.start == self.0.position.get()
            && self.ended_at(now)
            || direction == Direction::Read && self.reads_on(now, sectors.start);
        let mut begin = match continues {
            // Rounded up each time, it would soon miss its next sector.
            true => ended,
            false => (now + self.overhead(now, destages, direction, sectors.start)) as f64,
        };
        if direction == Direction::Write {
            begin = self.read_rests(begin, &sectors);
        }
        let count = sectors.end - sectors.start;
        let runs = self.0.medium.borrow_mut().transfer(begin, direction, sectors.start, count);
        let ended = end_of(&runs);
        let end = ended.ceil() as u64;
        let sent = self.sent(direction, &runs, ended);
        self.0.ended.set(ended);
        self.0.ended_reading.set(direction == Direction::Read);
        self.0.position.set(sectors.end);
        self.0.in_service.borrow_mut().push(Service {
            order,
            direction,
            sectors,
            pieces,
            runs,
            sent,
            destages,
            done,
            keep,
        });
        let disk = self.clone();
        self.0.world.spawn(Box::pin(async move {
            disk.0.world.sleep_until(Instant(end)).await;
            disk.hang_if_off().await;
            disk.complete(order, end);
        }));
    }

    /// Time when the host has what the medium reads until `ended`.
    fn sent(&self, direction: Direction, runs: &[Run], ended: f64) -> Instant {
        let interface = &self.0.model.interface;
        let sent = match direction {
            Direction::Read if interface.bus_paces_reads => {
                sent_ns(runs, moving_ns(SECTOR, interface.bus_mb_s.get()))
            }
            _ => ended,
        };
        Instant(sent.ceil() as u64)
    }

    /// The ranges that must be read before a write, because it changes parts of physical sectors
    /// and the cache does not have the rest.
    pub(super) fn rests(&self, sectors: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let whole = self.0.model.physical(sectors);
        let rests = [whole.start..sectors.start, sectors.end..whole.end];
        rests.into_iter().filter(|rest| !rest.is_empty() && !self.0.cache.borrow().holds(rest))
    }
    /// Reads these ranges; the sectors to be written then have to pass again. Returns the time at
    /// which it is done.
    fn read_rests(&self, now: f64, sectors: &Range<u64>) -> f64 {
        let mut medium = self.0.medium.borrow_mut();
        self.rests(sectors).fold(now, |time, rest| {
            end_of(&medium.transfer(time, Direction::Read, rest.start, rest.end - rest.start))
        })
    }

    fn complete(&self, order: super::content::Order, end: u64) {
        let service = {
            let mut in_service = self.0.in_service.borrow_mut();
            let index = in_service
                .iter()
                .position(|service| service.order == order)
                .expect("it is in service");
            in_service.remove(index)
        };
        let Service { order, direction, sectors, pieces, sent, destages, done, keep, .. } = service;
        if direction == Direction::Write {
            self.write_medium(&pieces);
            let mut cache = self.0.cache.borrow_mut();
            pieces.iter().for_each(|piece| cache.settle(piece));
            if !destages {
                cache.drop_settled(sectors.clone());
            }
        }
        let mut admits = true;
        if let Some(model) = &self.0.model.cache {
            let mut cache = self.0.cache.borrow_mut();
            if destages {
                // At random, a writer may have chosen a dirty segment. It takes the first whose
                // destaging began since: else segments already in flight would be taken more often
                // than others.
                let first = self.0.writers.borrow().front().map(|writer| writer.way);
                let since = self.0.wants_dirty_since.get().filter(|_| {
                    model.replacement == SegmentReplacement::Random && first == Some(Way::Segments)
                });
                let taken = since.is_some_and(|since| order > since) && !cache.streams(&sectors);
                cache.taken_is_destaged(model, &sectors, !taken && model.keeps_writes);
                admits = since.is_none() || taken || cache.dirty_count() == 0;
                self.count(|statistics| statistics.destages += 1);
            } else if keep {
                let (kept, origin) = match direction {
                    Direction::Read => (self.kept_of_read(model, &sectors), Origin::Read),
                    Direction::Write => (Some(sectors.clone()), Origin::Written),
                };
                if let Some(kept) = kept {
                    cache.keep(model, kept, origin, || self.0.world.random());
                }
            }
        }
        if admits {
            self.admit_writers();
        }
        self.answer_flushes();
        let reads_on = direction == Direction::Read && self.0.queue.borrow().is_empty();
        let is_first = self.0.model.cache.as_ref().is_some_and(|cache| cache.read_ahead_first);
        if reads_on && is_first {
            self.start_read_ahead(end, &sectors);
        }
        self.pump_at(end);
        if direction == Direction::Read && !is_first && self.0.in_service.borrow().is_empty() {
            self.start_read_ahead(end, &sectors);
        }
        if let Some(done) = done {
            done.send(sent);
        }
    }

    fn write_medium(&self, pieces: &[Piece]) {
        if self.0.forgets.get() {
            return;
        }
        let mut image = self.0.image.borrow_mut();
        let mut unreadable = self.0.unreadable.borrow_mut();
        for piece in pieces {
            piece.write_to(&mut image);
            while let Some(sector) = unreadable.range(piece.sectors.clone()).next().copied() {
                unreadable.remove(&sector);
            }
        }
    }

    /// Checks again when the drive will have been idle for long enough to destage.
    fn wait_for_idleness(&self) {
        let state = &self.0;
        if state.destage_timer.get() || !state.cache.borrow().is_dirty() {
            return;
        }
        let due = self.idle_at();
        if due <= state.world.now() {
            return;
        }
        state.destage_timer.set(true);
        let disk = self.clone();
        state.world.spawn(Box::pin(async move {
            disk.0.world.sleep_until(due).await;
            disk.0.destage_timer.set(false);
            disk.pump();
        }));
    }

    /// Submits a request to the medium and waits for it. Returns when the host has what is read.
    pub(super) async fn through_medium(
        &self,
        Queued { direction, sectors, places }: Queued,
        parts: &[Rc<Buffer>],
        keep: bool,
    ) -> Instant {
        let order = self.next_order();
        let (sender, receiver) = runtime::oneshot();
        let pieces = Piece::of(parts, sectors.start, order);
        let waiting =
            Waiting { order, direction, sectors, pieces, done: Some(sender), keep, places };
        self.0.queue.borrow_mut().push_back(waiting);
        self.pump();
        let sent = receiver.await;
        self.hang_if_off().await;
        sent.unwrap_or_else(|| self.0.world.now())
    }
}
