//! Choice of the waiting request or cached segment that the medium serves next.

use super::EmulatedDisk;
use super::cache::Dirty;
use super::content::Order;
use crate::model::Schedule;
use crate::run::Direction;
use std::ops::Range;
use std::time::Duration;
use units::Instant;

/// Cached segments that are compared on each side of the head: the others are farther away.
const NEAREST: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) enum Candidate {
    /// A request, by its index in the queue.
    Request(usize),
    /// A destage, by its first sector.
    Destage(u64),
}

struct Choice {
    candidate: Candidate,
    order: Order,
    direction: Direction,
    sectors: Range<u64>,
    /// Whether the drive could prepare it beforehand.
    is_known: bool,
}

impl EmulatedDisk {
    /// The next one, if any may start, for a medium that is free from `now` on.
    pub(super) fn choose(&self, now: u64) -> Option<Candidate> {
        let by_order =
            || self.choices(now, Segments::Oldest).into_iter().min_by_key(|choice| choice.order);
        let best = match self.0.model.interface.schedule {
            Schedule::FirstInFirstOut => by_order(),
            _ if !self.0.medium.borrow().has_arm() => by_order(),
            Schedule::ShortestPositioning => {
                self.shortest(now, self.choices(now, Segments::Nearest))
            }
            Schedule::Elevator => self.elevator(self.choices(now, Segments::Nearest)),
        };
        best.map(|choice| choice.candidate)
    }

    /// Serves the oldest request at intervals, so that requests near the head cannot delay a
    /// distant one for ever.
    fn shortest(&self, now: u64, choices: Vec<Choice>) -> Option<Choice> {
        let number = self.0.choices_since_oldest.get() + 1;
        let is_oldest = number >= self.0.model.interface.oldest_every.get() && choices.len() > 1;
        if choices.len() > 1 {
            self.0.choices_since_oldest.set(if is_oldest { 0 } else { number });
        }
        let medium = self.0.medium.borrow();
        choices.into_iter().min_by_key(|choice| {
            // A cached segment that continues the one before belongs to it: streams are not split.
            let continues = matches!(choice.candidate,
                    Candidate::Destage(start) if start == self.0.position.get());
            // The arm starts after the overhead: a sector that passes before then costs a
            // revolution.
            let position = || {
                let begin = now
                    + self.overhead(now, choice.is_known, choice.direction, choice.sectors.start);
                begin - now + medium.positioning_ns(begin, choice.direction, choice.sectors.start)
            };
            (if is_oldest || continues { 0 } else { position() }, choice.order)
        })
    }

    fn elevator(&self, choices: Vec<Choice>) -> Option<Choice> {
        let position = self.0.position.get();
        let is_ahead = |choice: &Choice, upwards: bool| {
            if upwards { choice.sectors.start >= position } else { choice.sectors.start < position }
        };
        if !choices.iter().any(|choice| is_ahead(choice, self.0.upwards.get())) {
            self.0.upwards.set(!self.0.upwards.get());
        }
        let upwards = self.0.upwards.get();
        let ahead = choices.into_iter().filter(|choice| is_ahead(choice, upwards));
        ahead.min_by_key(|choice| (choice.sectors.start.abs_diff(position), choice.order))
    }

    fn choices(&self, now: u64, segments: Segments) -> Vec<Choice> {
        let in_service = self.0.in_service.borrow();
        // Two transfers of one sector at once would leave their order open.
        let may_start = |direction: Direction, sectors: &Range<u64>| {
            in_service.iter().all(|service| {
                let apart =
                    service.sectors.end <= sectors.start || sectors.end <= service.sectors.start;
                apart || (service.direction == Direction::Read && direction == Direction::Read)
            })
        };
        let hosts = in_service.iter().filter(|service| !service.destages).count();
        let seen = (self.0.model.interface.queue_depth.get() as usize).saturating_sub(hosts);
        let queue = self.0.queue.borrow();
        let requests = queue.iter().take(seen).enumerate();
        let medium = self.0.medium.borrow();
        let requests = requests.filter(|(_, waiting)| {
            waiting.places.is_some() || may_start(waiting.direction, &waiting.sectors)
        });
        let requests = requests.map(|(index, waiting)| Choice {
            candidate: Candidate::Request(index),
            order: waiting.order,
            direction: waiting.direction,
            is_known: waiting.places.is_some() && self.ended_at(now),
            sectors: match &waiting.places {
                None => waiting.sectors.clone(),
                Some(places) => {
                    let at = places.propose(&self.head(&medium, now));
                    at..at + (waiting.sectors.end - waiting.sectors.start)
                }
            },
        });
        let mut choices: Vec<Choice> = match segments {
            Segments::Oldest => requests.take(1).collect(),
            Segments::Nearest => requests.collect(),
        };
        let reads_on = !self.is_waited_for() && self.reads_ahead_until().is_some();
        if !reads_on
            && (self.must_destage() || queue.is_empty() && self.0.world.now() >= self.idle_at())
        {
            let cache = self.0.cache.borrow();
            let can_go = |dirty: &&Dirty| may_start(Direction::Write, &dirty.sectors);
            let oldest = cache.dirty_by_age().find(can_go);
            match segments {
                Segments::Oldest => choices.extend(oldest.map(Choice::destage)),
                Segments::Nearest => {
                    let near = cache
                        .dirty_near(self.0.position.get(), NEAREST, self.is_seamless())
                        .filter(can_go);
                    choices.extend(near.chain(oldest).map(Choice::destage));
                }
            }
        }
        choices
    }

    /// Whether cached writes compete with the requests of the host.
    fn must_destage(&self) -> bool {
        let state = &self.0;
        let Some(cache) = &state.model.cache else { return false };
        let is_above = |held: u64, most: u64| held as f64 > cache.destage_above.get() * most as f64;
        let held = state.cache.borrow();
        self.is_waited_for()
            || !state.caching.get()
            || held.is_streaming()
            || is_above(held.dirty_count() as u64, cache.write_segments.get().into())
            || is_above(held.dirty_bytes(), cache.dirty_size().get())
    }
    pub(super) fn is_seamless(&self) -> bool {
        self.0.model.cache.as_ref().is_some_and(|cache| cache.seamless_destaging)
    }
    /// Whether a write or a flush waits for cached writes to reach the medium.
    fn is_waited_for(&self) -> bool {
        !self.0.flushes.borrow().is_empty() || !self.0.writers.borrow().is_empty()
    }
    /// Time from which on the drive counts as idle.
    pub(super) fn idle_at(&self) -> Instant {
        let delay_ms =
            self.0.model.cache.as_ref().map_or(0.0, |cache| cache.destage_delay_ms.get());
        self.0.last_request.get().plus(Duration::from_nanos((delay_ms * 1e6) as u64))
    }
}

impl Choice {
    fn destage(dirty: &Dirty) -> Choice {
        Choice {
            candidate: Candidate::Destage(dirty.sectors.start),
            order: dirty.oldest,
            direction: Direction::Write,
            sectors: dirty.sectors.clone(),
            is_known: true,
        }
    }
}

/// Candidates to compare.
#[derive(Clone, Copy)]
enum Segments {
    /// The oldest only.
    Oldest,
    /// Destages near the head, and the oldest one.
    Nearest,
}
