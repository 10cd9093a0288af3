//! Clients of a volume: random requests, several of them in flight.

use super::case::Case;
use super::content::{content, ids};
use super::model::{Kind, Model, SECTOR, What};
use blocks::{BlockVolume, Persistence};
use device::{Buffer, Disk, Durability, LocalFuture, Operation, World};
use disks::{Fault, MemoryDisk};
use runtime::{SplitMix, VirtualWorld, join_all};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The journal records an error by one durable write.
const RECORDED_WITHIN: Duration = Duration::from_millis(200);

pub type Shared = Rc<RefCell<Model>>;

/// Makes a write or flush fail, one of the next `within` of its kind.
pub fn fail(disk: &MemoryDisk, random: &SplitMix, within: u64) {
    let operation = [Operation::Flush, Operation::Write][(random.next() % 2) as usize];
    disk.inject(Fault { after: random.next() % within, ..Fault::once(operation) });
}

#[derive(Clone)]
pub struct Client {
    pub world: VirtualWorld,
    pub volume: BlockVolume,
    /// The volume's, whose power fails where a script says so.
    pub disk: MemoryDisk,
    pub model: Shared,
    pub case: Rc<Case>,
    pub random: Rc<SplitMix>,
}

impl Client {
    fn below(&self, end: u64) -> u64 {
        self.random.next() % end
    }

    fn range(&self) -> Range<u64> {
        let (sectors, block) = (self.volume.geometry().size / SECTOR, self.case.block_sectors());
        let places = self.case.places(sectors);
        let from = places[self.below(places.len() as u64) as usize];
        let from = if self.below(4) > 0 { from / block * block } else { from };
        let length = match (self.below(8), self.case.reuses) {
            (0 | 1, _) => 1 + self.below(7),
            (2..=6, true) => block * (1 + self.below(2)),
            (2..=5, false) => block * (1 + self.below(4)),
            (6, false) => 1 + self.below(160),
            (_, false) if self.below(6) == 0 => self.volume.atomic_bytes() / SECTOR,
            _ => block * (1 + self.below(64)),
        };
        from..(from + length).min(sectors)
    }

    /// Random requests, one after the other or some at once.
    pub async fn run(self) {
        for _ in 0..80 {
            match self.case.reuses {
                true => self.reuse().await,
                false => self.one_of_all().await,
            }
        }
        if self.case.reuses {
            self.flush().await;
        }
    }

    async fn one_of_all(&self) {
        let range = self.range();
        match self.below(40) {
            0..=24 => self.write(range).await,
            25..=30 => self.flush().await,
            31..=34 => self.read(range).await,
            35 | 36 => self.discard(range).await,
            37 if self.below(4) == 0 => self.drain().await,
            38 => self.several_at_once().await,
            _ => self.pause(12_000).await,
        }
    }

    /// Writes a block, has it written back, discards it and writes it again.
    async fn reuse(&self) {
        let range = self.range();
        match self.below(40) {
            0..=12 => self.write(range).await,
            13..=20 => self.flush().await,
            21..=24 => self.read(range).await,
            25..=31 => self.discard(range).await,
            32 if self.below(4) == 0 => self.drain().await,
            33 | 34 => self.several_at_once().await,
            35..=37 => self.write_discard_and_write().await,
            _ => self.pause(40_000).await,
        }
    }

    /// Writes, discards and writes again, with each step or most of them. A later write may need of
    /// a block what home has of it, which a power cut now and then takes away or brings.
    async fn write_discard_and_write(&self) {
        let (sectors, block) = (self.volume.geometry().size / SECTOR, self.case.block_sectors());
        let places = self.case.places(sectors);
        let place = |number: u64| {
            let start = places[number as usize % places.len()] / block * block;
            start..start + block
        };
        let number = self.below(3);
        let (range, other) = (place(number), place(number + 1));
        let mostly = || self.below(8) > 0;
        if self.below(2) == 0 {
            self.write_as(range.clone(), Kind::Fresh, Durability::Cached).await;
            self.drain().await;
        }
        if self.below(2) == 0 {
            self.write_as(range.clone(), Kind::Fresh, Durability::Cached).await;
            self.pause(60_000).await;
            // This one holds the log's tail when the other is written back.
            self.write_as(other, Kind::Fresh, Durability::Cached).await;
        }
        self.write_as(range.clone(), Kind::Fresh, Durability::Cached).await;
        self.flush().await;
        self.pause(160_000).await;
        if mostly() {
            self.discard(range.clone()).await;
        }
        if mostly() {
            self.flush().await;
        }
        if mostly() {
            self.read(range.clone()).await;
        }
        let part = range.start + self.below(block)..range.end;
        let again = if self.below(4) == 0 { part } else { range };
        self.write_as(again, Kind::NearEqual(self.below(2) as usize), Durability::Cached).await;
        self.flush().await;
        if self.below(3) == 0 {
            self.pause(20_000).await;
        }
        if self.below(12) == 0 {
            self.disk.power_off();
            std::future::pending::<()>().await;
        }
    }

    /// Issues enough writes that some wait for room in the log.
    async fn several_at_once(&self) {
        let place = self.range();
        let requests = (0..2 + self.below(12)).map(|_| -> LocalFuture<()> {
            let range = if self.below(3) > 0 { place.clone() } else { self.range() };
            let (client, kind) = (self.clone(), self.below(8));
            Box::pin(async move {
                match kind {
                    0..=3 => client.write(range).await,
                    4 => client.read(range).await,
                    _ => client.discard(range).await,
                }
            })
        });
        join_all(requests.collect()).await;
    }

    async fn pause(&self, microseconds: u64) {
        let pause = Duration::from_micros(self.below(microseconds));
        self.world.sleep_until(self.world.now().plus(pause)).await;
    }

    /// Takes the answer to a request. An error ends the life where a fault was injected.
    async fn answer<T, E: std::fmt::Debug>(&self, result: Result<T, E>, what: &str) -> T {
        if self.case.has_faults && result.is_err() {
            self.live_on_and_end().await;
        }
        result.expect(what)
    }

    /// Reads go on after a failed write or flush of a disk, and every change and flush fails, until
    /// the power does.
    async fn live_on_and_end(&self) {
        let block = (self.case.block_sectors() * SECTOR) as usize;
        let zeros = vec![Rc::new(Buffer::zeroed(block))];
        let written = self.volume.write(0, zeros, Durability::Cached).await;
        assert!(written.is_err(), "a write after a failure: {:?}", self.case);
        let flushed = self.volume.flush().await;
        assert!(flushed.is_err(), "a flush after a failure: {:?}", self.case);
        self.read(self.range()).await;
        if self.case.records_error() {
            self.world.sleep_until(self.world.now().plus(RECORDED_WITHIN)).await;
            let mut model = self.model.borrow_mut();
            // An eviction that failed lets nothing more become durable.
            model.error_is_recorded |= !self.case.lies && !model.drain_failed;
        } else {
            self.pause(20_000).await;
        }
        self.disk.power_off();
        std::future::pending::<()>().await;
    }

    pub async fn flush(&self) {
        let since = self.model.borrow_mut().now();
        self.answer(self.volume.flush().await, "a flush").await;
        self.model.borrow_mut().flushed(since);
    }
    async fn drain(&self) {
        let since = self.model.borrow_mut().now();
        let drained = self.volume.drain().await;
        // It may be the flush with which changes begin again: all is home then, and the journal
        // records nothing.
        self.model.borrow_mut().drain_failed |= drained.is_err();
        self.answer(drained, "a drain").await;
        self.model.borrow_mut().flushed(since);
    }

    pub async fn close(&self) {
        let since = self.model.borrow_mut().now();
        self.answer(self.volume.close().await, "a close").await;
        self.model.borrow_mut().flushed(since);
    }

    /// The volume takes all of its disk, after a while. The disk may fail during that.
    pub async fn grow(&self) {
        self.pause(20_000).await;
        let before = self.volume.geometry().size / SECTOR;
        let all = (self.disk.geometry().size / SECTOR).max(before);
        // What the disk held there may be read.
        let change = self.model.borrow_mut().begin(before..all, Kind::Discard);
        if self.case.has_faults {
            fail(&self.disk, &self.random, 4);
        }
        let grown = self.volume.grow().await;
        let after = self.answer(grown, "a volume that grows").await / SECTOR;
        let mut model = self.model.borrow_mut();
        model.acknowledged(change, false);
        model.grown(after);
    }

    async fn write(&self, range: Range<u64>) {
        let kind = match self.below(12) {
            0 => Kind::Zeros,
            1..=5 => Kind::NearEqual(self.below(3) as usize),
            _ => Kind::Fresh,
        };
        let durability = match self.below(4) {
            0 if !self.case.reuses || self.below(4) == 0 => Durability::Durable,
            _ => Durability::Cached,
        };
        self.write_as(range, kind, durability).await;
    }
    pub async fn write_as(&self, range: Range<u64>, kind: Kind, durability: Durability) {
        let change = self.model.borrow_mut().begin(range.clone(), kind);
        let sectors = range.end - range.start;
        let bytes = match change.what {
            What::Written(id) if id != 0 => content(id, sectors),
            _ => vec![Rc::new(Buffer::zeroed((sectors * SECTOR) as usize))],
        };
        let written = self.volume.write(range.start * SECTOR, bytes, durability).await;
        self.answer(written, "a write").await;
        let is_durable =
            durability == Durability::Durable || self.case.persistence == Persistence::WriteThrough;
        self.model.borrow_mut().acknowledged(change, is_durable);
    }

    async fn read(&self, range: Range<u64>) {
        let since = self.model.borrow_mut().now();
        let length = ((range.end - range.start) * SECTOR) as usize;
        let read = self.volume.read(range.start * SECTOR, length).await.expect("a read");
        let block = self.case.block_sectors();
        let found = ids(&read);
        let checked = self.model.borrow().check_read(range.start, &found, since, block);
        let Err(error) = checked else { return };
        // A disk may have lost what a failed flush covers, and the engine no longer holds all of
        // it.
        let has_failed = self.case.has_faults && self.volume.flush().await.is_err();
        let left = self.model.borrow().check_unflushed(range.start, &found);
        assert!(has_failed && left.is_ok(), "a read of {range:?}, {:?}: {error}", self.case);
    }

    async fn discard(&self, range: Range<u64>) {
        let block = self.case.block_sectors();
        let whole = range.start.div_ceil(block) * block..range.end / block * block;
        if whole.is_empty() {
            return;
        }
        let change = self.model.borrow_mut().begin(whole.clone(), Kind::Discard);
        let length = (whole.end - whole.start) * SECTOR;
        let discarded = self.volume.discard(whole.start * SECTOR, length).await;
        self.answer(discarded, "a discard").await;
        self.model.borrow_mut().acknowledged(change, false);
    }
}
