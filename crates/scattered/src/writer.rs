//! The writer: one task that turns waiting writes into records. While few records are in flight
//! each write gets its own at once; otherwise waiting writes share the next. And the flusher: one
//! task, too, so that callers that arrive while a flush is in flight share the next.
//!
//! Invariants: a flush is answered when everything completed before it was requested is durable,
//! drops included. A write for which no log has space is returned at once, so that it does not wait
//! for a checkpoint.

use crate::append::{Begun, Piece};
use crate::drops::Dropped;
use crate::record::MAX_ENTRIES;
use crate::state::State;
use device::{DeviceError, Durability};
use runtime::{Sender, oneshot};
use std::rc::Rc;

/// Drops recorded by records; a snapshot records more.
const DROPS_IN_RECORDS: usize = 2 * MAX_ENTRIES;
/// A disk's queue of 32 leaves space for reads; writes that arrive then share records.
const RECORDS_IN_FLIGHT: usize = 8;

pub struct QueuedWrite {
    pub piece: Piece,
    pub durability: Durability,
    pub answer: Sender<Result<Placed, DeviceError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    InLog,
    /// Every log is full.
    NoRoom,
}

/// The writes of one record.
struct Batch {
    log: u32,
    begun: Begun,
    blocks: usize,
    answers: Vec<Sender<Result<Placed, DeviceError>>>,
}

impl State {
    /// The piece is pending.
    pub async fn log(
        self: &Rc<Self>,
        piece: Piece,
        durability: Durability,
    ) -> Result<Placed, DeviceError> {
        let (answer, answered) = oneshot();
        let runs = {
            let mut inner = self.inner.borrow_mut();
            inner.queue.push_back(QueuedWrite { piece, durability, answer });
            std::mem::replace(&mut inner.writer_runs, true)
        };
        if !runs {
            self.world.spawn(Box::pin(self.clone().write_what_waits()));
        }
        // No answer: the world has ended.
        match answered.await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    async fn write_what_waits(self: Rc<Self>) {
        loop {
            let may_begin =
                || (self.inner.borrow().in_flight.count() < RECORDS_IN_FLIGHT).then_some(());
            self.advanced.until(may_begin).await;
            let appending = self.appending.read().await;
            if let Some(batch) = self.next_batch(appending) {
                self.world.spawn(Box::pin(self.clone().carry_out(batch)));
            }
            let mut inner = self.inner.borrow_mut();
            if inner.queue.is_empty() {
                inner.writer_runs = false;
                return;
            }
        }
    }

    /// Takes waiting writes, as far as they fit one record. `None`: all were returned.
    fn next_batch(&self, appending: runtime::sync::ReadGuard) -> Option<Batch> {
        let next = || self.inner.borrow_mut().queue.pop_front();
        let (mut pieces, mut answers) = (Vec::new(), Vec::new());
        let (mut log, mut blocks, mut free_blocks) = (None, 0, 0);
        let mut durable = false;
        while let Some(request) = next() {
            let count = request.piece.blocks.len();
            if log.is_none() {
                // With space for a gap in front, too, if there is such a log.
                let (blocks, gap) = (1 + count as u32, self.inner.borrow().gap.blocks());
                let with_gap = self.near_head(blocks + gap).map(|log| (log, gap as usize));
                let found = with_gap.or_else(|| Some((self.near_head(blocks)?, 0)));
                log = found.map(|(log, _)| log);
                let Some((log, gap)) = found else {
                    self.inner.borrow_mut().pending.forget(&request.piece);
                    request.answer.send(Ok(Placed::NoRoom));
                    continue;
                };
                let free =
                    self.inner.borrow().logs[log as usize].free_blocks(self.layout.log_blocks());
                free_blocks = self.layout.record_entries_max().min(free as usize - 1 - gap);
            }
            if blocks + count > free_blocks {
                self.inner.borrow_mut().queue.push_front(request);
                break;
            }
            blocks += count;
            durable |= request.durability == Durability::Durable;
            pieces.push(request.piece);
            answers.push(request.answer);
        }
        let log = log?;
        let durability = if durable { Durability::Durable } else { Durability::Cached };
        let begun = self.begin_record(appending, log, pieces, &[], durability);
        Some(Batch { log, begun, blocks, answers })
    }

    async fn carry_out(self: Rc<Self>, batch: Batch) {
        let Batch { log, begun, blocks, answers } = batch;
        let result = self.write_record(begun).await;
        if result.is_ok() {
            let mut inner = self.inner.borrow_mut();
            inner.note_hot(log, &self.layout, self.settings.swap_above);
            inner.statistics.records += 1;
            inner.statistics.logged_writes += answers.len() as u64;
            inner.statistics.logged_blocks += blocks as u64;
            inner.logged_since.0 += answers.len() as u64;
            inner.logged_since.1 += blocks as u64;
        }
        for answer in answers {
            answer.send(result.clone().map(|()| Placed::InLog));
        }
    }

    /// Everything that is complete is durable, what drops say included.
    pub async fn settle(self: &Rc<Self>) -> Result<(), DeviceError> {
        let (answer, answered) = oneshot();
        let runs = {
            let mut inner = self.inner.borrow_mut();
            inner.flushes.push(answer);
            std::mem::replace(&mut inner.flusher_runs, true)
        };
        if !runs {
            self.world.spawn(Box::pin(self.clone().flush_what_waits()));
        }
        match answered.await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    async fn flush_what_waits(self: Rc<Self>) {
        loop {
            let waiting = {
                let mut inner = self.inner.borrow_mut();
                inner.flusher_runs = !inner.flushes.is_empty();
                std::mem::take(&mut inner.flushes)
            };
            if waiting.is_empty() {
                return;
            }
            // A snapshot leaves out what was dropped. It waits for maintenance, so other flushes do
            // not wait for it.
            match self.flush_and_record().await {
                Ok(false) => {
                    let state = self.clone();
                    self.world.spawn(Box::pin(async move {
                        let result = state.snapshot().await;
                        waiting.into_iter().for_each(|answer| answer.send(result.clone()));
                    }));
                }
                recorded => {
                    let result = recorded.map(|_| ());
                    waiting.into_iter().for_each(|answer| answer.send(result.clone()));
                }
            }
        }
    }

    /// Returns false where records cannot hold the drops.
    async fn flush_and_record(&self) -> Result<bool, DeviceError> {
        self.check_failed()?;
        // Before the flush: a later one refers to a change at home that this flush need not cover.
        let drops = self.inner.borrow().drops.all();
        self.flush_records().await?;
        self.record_drops(&drops).await
    }

    /// Records drops whose changes are durable at home.
    async fn record_drops(&self, drops: &[Dropped]) -> Result<bool, DeviceError> {
        let Some(mark) = drops.last().map(|dropped| dropped.number) else { return Ok(true) };
        if drops.len() > DROPS_IN_RECORDS {
            return Ok(false);
        }
        for some in drops.chunks(MAX_ENTRIES / 2) {
            let appending = self.appending.read().await;
            let Some(log) = self.near_head(1) else { return Ok(false) };
            let begun = self.begin_record(appending, log, Vec::new(), some, Durability::Durable);
            self.write_record(begun).await?;
            self.inner.borrow_mut().statistics.drop_records += 1;
        }
        self.inner.borrow_mut().drops.recorded(mark);
        Ok(true)
    }
}
