//! Which of the waiting requests and cached segments the medium serves next.

use super::EmulatedDisk;
use super::cache::Order;
use crate::medium::Direction;
use crate::model::Schedule;
use std::ops::Range;
use units::Instant;

#[derive(Clone, Debug)]
pub(super) enum Candidate {
    /// By index in the queue.
    Request(usize),
    /// By first sector.
    Destage(u64),
}

struct Choice {
    candidate: Candidate,
    order: Order,
    direction: Direction,
    sectors: Range<u64>,
}

impl EmulatedDisk {
    /// The next one, if any may go now.
    pub(super) fn choose(&self) -> Option<Candidate> {
        let choices = self.choices();
        let now = self.now();
        let best = match self.0.model.interface.schedule {
            Schedule::FirstInFirstOut => choices.into_iter().min_by_key(|choice| choice.order),
            Schedule::ShortestPositioning => {
                let medium = self.0.medium.borrow();
                choices.into_iter().min_by_key(|choice| {
                    let time = medium.positioning_ns(now, choice.direction, choice.sectors.start);
                    (time, choice.order)
                })
            }
            Schedule::Elevator => self.elevator(choices),
        };
        best.map(|choice| choice.candidate)
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

    fn choices(&self) -> Vec<Choice> {
        let in_service = self.0.in_service.borrow();
        let hosts = in_service.iter().filter(|service| !service.destages).count();
        let seen = (self.0.model.interface.queue_depth.get() as usize).saturating_sub(hosts);
        let queue = self.0.queue.borrow();
        let requests = queue.iter().take(seen).enumerate().map(|(index, waiting)| Choice {
            candidate: Candidate::Request(index),
            order: waiting.order,
            direction: waiting.direction,
            sectors: waiting.sectors.clone(),
        });
        let mut choices: Vec<Choice> = requests.collect();
        if self.must_destage() || (queue.is_empty() && self.0.world.now() >= self.idle_at()) {
            let cache = self.0.cache.borrow();
            choices.extend(cache.dirty().map(|dirty| Choice {
                candidate: Candidate::Destage(dirty.sectors.start),
                order: dirty.oldest,
                direction: Direction::Write,
                sectors: dirty.sectors.clone(),
            }));
        }
        // Two transfers of one sector at once would leave it open which is last.
        choices.retain(|choice| {
            in_service.iter().all(|service| {
                let apart = service.sectors.end <= choice.sectors.start
                    || choice.sectors.end <= service.sectors.start;
                apart || (service.direction == Direction::Read && choice.direction == Direction::Read)
            })
        });
        choices
    }

    /// Whether cached writes compete with the requests of the host.
    fn must_destage(&self) -> bool {
        let state = &self.0;
        let Some(cache) = &state.model.cache else { return false };
        let above = cache.destage_above.get() * f64::from(cache.write_segments.get());
        state.flushes_waiting.get() > 0
            || state.writers_waiting.get() > 0
            || !state.caching.get()
            || state.cache.borrow().dirty_count() as f64 > above
    }
    /// When the drive counts as idle.
    pub(super) fn idle_at(&self) -> Instant {
        let delay_ms = self.0.model.cache.as_ref().map_or(0.0, |cache| cache.destage_delay_ms.get());
        self.0.last_request.get().plus(std::time::Duration::from_nanos((delay_ms * 1e6) as u64))
    }
}
