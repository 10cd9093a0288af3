//! The medium at work: one transfer after another (flash: several at once), then read-ahead, then rest.

use super::cache::{Content, Order};
use super::choose::Candidate;
use super::{EmulatedDisk, Service, Waiting};
use crate::SECTOR;
use crate::medium::Direction;
use device::Buffer;
use std::ops::Range;
use std::rc::Rc;
use units::Instant;

impl EmulatedDisk {
    /// Gives the medium what it can take. Called whenever something came, went, or became due.
    pub(super) fn pump(&self) {
        if self.is_off() {
            return;
        }
        let width = self.0.medium.borrow().width();
        while self.0.in_service.borrow().len() < width {
            let Some(candidate) = self.choose() else { break };
            self.stop_read_ahead();
            self.start(candidate);
        }
        self.wait_for_idleness();
    }

    fn start(&self, candidate: Candidate) {
        let (request, destages) = match candidate {
            Candidate::Request(index) => {
                (self.0.queue.borrow_mut().remove(index).expect("chosen just now"), false)
            }
            Candidate::Destage(start) => {
                let (dirty, contents) = self.0.cache.borrow_mut().take(start);
                let (order, direction) = (self.next_order(), Direction::Write);
                (Waiting { order, direction, sectors: dirty.sectors, contents, done: None }, true)
            }
        };
        let Waiting { order, direction, sectors, contents, done } = request;
        let interface = &self.0.model.interface;
        let overhead_ms = match direction {
            Direction::Read => interface.read_ms,
            Direction::Write => interface.write_ms,
        };
        let begin = self.now() + (overhead_ms.get() * 1e6) as u64;
        let count = sectors.end - sectors.start;
        let runs = self.0.medium.borrow_mut().transfer(begin, direction, sectors.start, count);
        let end = runs.iter().map(|run| run.end_ns()).fold(0.0, f64::max).ceil() as u64;
        self.0.position.set(sectors.end);
        self.0.in_service.borrow_mut().push(Service {
            order,
            direction,
            sectors,
            contents,
            runs,
            destages,
            done,
        });
        let disk = self.clone();
        self.0.world.spawn(Box::pin(async move {
            disk.0.world.sleep_until(Instant(end)).await;
            disk.hang_if_off().await;
            disk.complete(order);
        }));
    }

    fn complete(&self, order: Order) {
        let service = {
            let mut in_service = self.0.in_service.borrow_mut();
            let index =
                in_service.iter().position(|service| service.order == order).expect("it is in service");
            in_service.remove(index)
        };
        let Service { direction, sectors, contents, destages, done, .. } = service;
        if direction == Direction::Write {
            let (mut image, mut cache) = (self.0.image.borrow_mut(), self.0.cache.borrow_mut());
            let mut unreadable = self.0.unreadable.borrow_mut();
            for (sector, content) in sectors.clone().zip(&contents) {
                image.write(sector * SECTOR, content.bytes());
                unreadable.remove(&sector);
                cache.settle(sector, content.order);
            }
            if destages {
                cache.taken_is_over(&sectors);
                self.count(|statistics| statistics.destages += 1);
            } else {
                cache.drop_settled(sectors.clone());
            }
        }
        if let Some(model) = self.0.model.cache.as_ref().filter(|_| destages || direction == Direction::Read)
        {
            self.0.cache.borrow_mut().keep(model, sectors.clone(), || self.0.world.random());
        }
        self.pump();
        if direction == Direction::Read && self.0.in_service.borrow().is_empty() {
            self.start_read_ahead(&sectors);
        }
        if let Some(done) = done {
            done.send(());
        }
        self.0.progress.notify();
    }

    /// Looks again when the drive will have been idle for long enough to destage.
    fn wait_for_idleness(&self) {
        let state = &self.0;
        if state.destage_timer.get() || state.cache.borrow().dirty().next().is_none() {
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

    /// Has the medium do this and waits for it.
    pub(super) async fn through_medium(
        &self,
        direction: Direction,
        sectors: Range<u64>,
        parts: &[Rc<Buffer>],
    ) {
        let order = self.next_order();
        let (sender, receiver) = runtime::oneshot();
        let contents = Content::of(parts, order);
        let waiting = Waiting { order, direction, sectors, contents, done: Some(sender) };
        self.0.queue.borrow_mut().push_back(waiting);
        self.pump();
        receiver.await;
        self.hang_if_off().await;
    }
}
