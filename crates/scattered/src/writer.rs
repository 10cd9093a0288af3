//! The writer: one task that turns what waits into records. What came while a record was under way shares the next.
//!
//! Invariants: a flush is answered when everything completed before it was asked for is durable, drops included; a write that no log has
//! room for is given back at once, so that nobody waits for a checkpoint.

use crate::BLOCK;
use crate::append::Piece;
use crate::drops::Dropped;
use crate::record::MAX_ENTRIES;
use crate::state::State;
use device::{DeviceError, Durability};
use runtime::sync::WriteGuard;
use runtime::{Sender, oneshot};
use std::rc::Rc;

/// Drops that are told by records; more are told by a snapshot.
const DROPS_IN_RECORDS: usize = 2 * MAX_ENTRIES;

pub enum Request {
    Log { piece: Piece, durability: Durability, answer: Sender<Result<Placed, DeviceError>> },
    Flush { answer: Sender<Result<(), DeviceError>> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    InLog,
    /// Every log is full.
    NoRoom,
}

#[derive(Default)]
struct Batch {
    log: Option<u32>,
    pieces: Vec<Piece>,
    durable: bool,
    writes: Vec<(Durability, Sender<Result<Placed, DeviceError>>)>,
    flushes: Vec<Sender<Result<(), DeviceError>>>,
    no_room: Vec<Sender<Result<Placed, DeviceError>>>,
}

impl State {
    pub async fn log(self: &Rc<Self>, piece: Piece, durability: Durability) -> Result<Placed, DeviceError> {
        let (answer, answered) = oneshot();
        self.ask(Request::Log { piece, durability, answer });
        // No answer: the world has ended.
        match answered.await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
    pub async fn settle(self: &Rc<Self>) -> Result<(), DeviceError> {
        let (answer, answered) = oneshot();
        self.ask(Request::Flush { answer });
        match answered.await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
    fn ask(self: &Rc<Self>, request: Request) {
        let mut inner = self.inner.borrow_mut();
        inner.queue.push_back(request);
        if !inner.writer_runs {
            inner.writer_runs = true;
            self.world.spawn(Box::pin(self.clone().write_what_waits()));
        }
    }

    async fn write_what_waits(self: Rc<Self>) {
        loop {
            let appending = self.appending.write().await;
            let Some(batch) = self.next_batch() else {
                self.inner.borrow_mut().writer_runs = false;
                return;
            };
            self.carry_out(&appending, batch).await;
        }
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut batch = Batch::default();
        let (mut blocks, mut room) = (0, 0);
        loop {
            let request = self.inner.borrow_mut().queue.pop_front();
            match request {
                None => break,
                Some(Request::Flush { answer }) => batch.flushes.push(answer),
                Some(Request::Log { piece, durability, answer }) => {
                    let count = piece.blocks.len();
                    if batch.log.is_none() {
                        batch.log = self.near_head(1 + count as u32);
                        room = self.layout.record_entries_max();
                        if let Some(log) = batch.log {
                            let free = self.inner.borrow().logs[log as usize].room(self.layout.log_blocks());
                            room = room.min(free as usize - 1);
                        }
                    }
                    if batch.log.is_none() {
                        batch.no_room.push(answer);
                    } else if blocks + count > room {
                        self.inner.borrow_mut().queue.push_front(Request::Log { piece, durability, answer });
                        break;
                    } else {
                        blocks += count;
                        batch.durable |= durability == Durability::Durable;
                        batch.pieces.push(piece);
                        batch.writes.push((durability, answer));
                    }
                }
            }
        }
        let empty = batch.writes.is_empty() && batch.flushes.is_empty() && batch.no_room.is_empty();
        (!empty).then_some(batch)
    }

    async fn carry_out(self: &Rc<Self>, appending: &WriteGuard, batch: Batch) {
        for answer in batch.no_room {
            answer.send(Ok(Placed::NoRoom));
        }
        let mut result = self.check_failed();
        if let (Ok(()), Some(log)) = (&result, batch.log) {
            let will_flush = !batch.flushes.is_empty();
            let durability =
                if batch.durable && !will_flush { Durability::Durable } else { Durability::Cached };
            result = self.append(appending, log, &batch.pieces, &[], durability).await;
            if result.is_ok() {
                let mut inner = self.inner.borrow_mut();
                inner.logs[log as usize].hot = true;
                let blocks: usize = batch.pieces.iter().map(|piece| piece.content.len() / BLOCK).sum();
                inner.statistics.records += 1;
                inner.statistics.logged_writes += batch.writes.len() as u64;
                inner.statistics.logged_blocks += blocks as u64;
                inner.logged_since.0 += batch.writes.len() as u64;
                inner.logged_since.1 += blocks as u64;
            }
        }
        // Before the flush: one that comes meanwhile speaks of a change at home that this flush need not cover.
        let drops = self.inner.borrow().drops.all();
        if !batch.flushes.is_empty() && result.is_ok() {
            result = self.flush_records(appending).await;
        }
        for (_, answer) in batch.writes {
            answer.send(result.clone().map(|()| Placed::InLog));
        }
        if batch.flushes.is_empty() {
            return;
        }
        let told = match result {
            Ok(()) => self.tell_drops(appending, &drops).await,
            Err(error) => Err(error),
        };
        match told {
            Ok(true) => batch.flushes.into_iter().for_each(|answer| answer.send(Ok(()))),
            Err(error) => batch.flushes.into_iter().for_each(|answer| answer.send(Err(error.clone()))),
            // A snapshot leaves out what was dropped. It waits for whoever maintains, so the writer does not.
            Ok(false) => {
                let state = self.clone();
                let flushes = batch.flushes;
                self.world.spawn(Box::pin(async move {
                    let result = state.snapshot().await;
                    flushes.into_iter().for_each(|answer| answer.send(result.clone()));
                }));
            }
        }
    }

    /// What these drops speak of is durable at home. False where records cannot tell them.
    async fn tell_drops(&self, appending: &WriteGuard, drops: &[Dropped]) -> Result<bool, DeviceError> {
        let Some(mark) = drops.last().map(|dropped| dropped.number) else { return Ok(true) };
        if drops.len() > DROPS_IN_RECORDS {
            return Ok(false);
        }
        for some in drops.chunks(MAX_ENTRIES / 2) {
            let Some(log) = self.near_head(1) else { return Ok(false) };
            self.append(appending, log, &[], some, Durability::Durable).await?;
            self.inner.borrow_mut().statistics.drop_records += 1;
        }
        self.inner.borrow_mut().drops.told(mark);
        Ok(true)
    }
}
