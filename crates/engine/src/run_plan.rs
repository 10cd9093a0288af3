//! Carries plans out: addresses become places on disks, barriers become what the barrier kind makes of them.
//!
//! Writes between two barriers go out together. At a barrier each disk that was written since the last one is
//! flushed; where that was a single write, the write is made durable by itself if that saves the flush.

use crate::error::EngineError;
use crate::home_claims::HomeClaims;
use crate::options::{BarrierKind, LogArea, LogPlace};
use crate::stats::Counters;
use crate::whose::Home;
use device::{Buffer, DeviceError, Durability, LocalFuture};
use journal::{Address, Barrier, BlockKind, Plan, Step, Write};
use runtime::{join_all, join_window};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock};

/// Most blocks of one disk write (Linux takes at most 1024 parts, IOV_MAX).
const BLOCKS_PER_WRITE_MAX: usize = 1024;
/// Most writes under way at once.
const WRITES_IN_FLIGHT_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Home,
    Log,
}

/// One write to one disk.
struct DiskWrite {
    place: Place,
    /// Bytes `at..end` of the disk.
    at: u64,
    end: u64,
    /// For home writes: the home block at `at`.
    home: Option<HomeBlock>,
    parts: Vec<Rc<Buffer>>,
}

pub(crate) struct Runner {
    home: Rc<dyn Home>,
    log: Option<LogArea>,
    /// Whether the log has a disk of its own.
    separate: bool,
    /// Of the disk of each place.
    forced_unit_access: [bool; 2],
    barrier: BarrierKind,
    block_size: BlockSize,
    /// Bytes of a log block.
    log_unit: Cell<usize>,
    pub claims: HomeClaims,
    pub counters: Rc<RefCell<Counters>>,
    /// How many home writes of write-back have completed; how many of those a later flush has made durable; and
    /// up to which one some held data that is in no transaction, or that must be durable before a commit. Counts and not
    /// flags, because a flush that has begun has not yet made anything durable.
    home_written: Cell<u64>,
    home_durable: Cell<u64>,
    loose_written: Cell<u64>,
    early_written: Cell<u64>,
    /// Why nothing is written any more. After a failed write or flush a later flush proves nothing, so a tail
    /// update that is under way must not go on.
    failure: RefCell<Option<String>>,
}

impl Runner {
    pub fn new(
        home: Rc<dyn Home>,
        log: Option<LogArea>,
        barrier: BarrierKind,
        block_size: BlockSize,
    ) -> Runner {
        let separate = log.as_ref().is_some_and(LogArea::is_separate);
        let of_home = home.has_durable_writes();
        let of_log = match log.as_ref().map(|log| &log.place) {
            Some(LogPlace::Own(disk)) => disk.geometry().forced_unit_access,
            _ => of_home,
        };
        let forced_unit_access = [of_home, of_log];
        Runner {
            home,
            log,
            separate,
            forced_unit_access,
            barrier,
            block_size,
            log_unit: Cell::new(block_size.bytes()),
            claims: HomeClaims::default(),
            counters: Rc::default(),
            home_written: Cell::new(0),
            home_durable: Cell::new(0),
            loose_written: Cell::new(0),
            early_written: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// Plans count the log in blocks of so many bytes, which need not be those of home.
    pub fn count_log_in(&self, bytes: usize) {
        self.log_unit.set(bytes);
    }

    /// When it returns, every step is done, and every barrier kept.
    pub async fn run(&self, plan: Plan) -> Result<(), EngineError> {
        let mut phase = Vec::new();
        for step in plan.steps {
            match step {
                Step::Write(write) => self.translate(write, &mut phase)?,
                Step::Barrier(reason) => self.end_phase(std::mem::take(&mut phase), Some(reason)).await?,
            }
        }
        self.end_phase(phase, None).await
    }

    /// Writes of write-back and checkpoint: ordered by the next [`Barrier::HomeBeforeLogTail`] alone.
    pub async fn write_home(
        &self,
        at: HomeBlock,
        kinds: &[BlockKind],
        parts: Vec<Rc<Buffer>>,
    ) -> Result<(), EngineError> {
        self.check_home(at, parts.len() as u64)?;
        let bytes = self.block_size.bytes() as u64;
        kinds.iter().for_each(|kind| self.counters.borrow_mut().wrote(*kind, bytes));
        self.check()?;
        let written = self.home.write(at, parts, Durability::Cached).await;
        self.note(written.map_err(EngineError::from))?;
        self.home_written.set(self.home_written.get() + 1);
        Ok(())
    }

    /// The last [`Runner::write_home`] held data that is in no transaction.
    pub fn note_loose(&self) {
        self.loose_written.set(self.home_written.get());
    }

    /// The last [`Runner::write_home`] held data that must be durable before the running transaction commits.
    pub fn note_early(&self) {
        self.early_written.set(self.home_written.get());
    }

    /// Makes all data durable that write-back sent home and no log holds.
    pub async fn flush_loose(&self) -> Result<(), EngineError> {
        if self.barrier == BarrierKind::Flush && self.home_durable.get() < self.loose_written.get() {
            self.flush(Place::Home).await?;
        }
        Ok(())
    }

    /// Whether the flush of a commit makes what is home durable, too: there is one disk, and no cheaper way to make a commit durable.
    pub fn commits_cover_home(&self) -> bool {
        let at_no_cost = self.barrier == BarrierKind::None || !self.forced_unit_access[Place::Home as usize];
        !self.separate && at_no_cost
    }

    /// How many writes of [`Runner::write_home`] have completed.
    pub fn home_written(&self) -> u64 {
        self.home_written.get()
    }

    /// Whether the first `count` of them are durable, as far as barriers are wanted.
    pub fn is_home_durable(&self, count: u64) -> bool {
        self.barrier == BarrierKind::None || self.home_durable.get() >= count
    }

    fn check(&self) -> Result<(), EngineError> {
        match &*self.failure.borrow() {
            Some(cause) => Err(EngineError::Aborted { cause: cause.clone() }),
            None => Ok(()),
        }
    }
    fn note(&self, result: Result<(), EngineError>) -> Result<(), EngineError> {
        if let Err(error) = &result {
            self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
        }
        result
    }

    async fn flush(&self, place: Place) -> Result<(), EngineError> {
        self.check()?;
        let written = self.home_written.get();
        self.counters.borrow_mut().flushes += 1;
        let flush = match (place, self.log.as_ref().map(|log| &log.place)) {
            (Place::Log, Some(LogPlace::Own(disk))) => disk.flush(),
            _ => self.home.make_durable(),
        };
        self.note(flush.await.map_err(EngineError::from))?;
        if place == Place::Home {
            self.home_durable.set(self.home_durable.get().max(written));
        }
        Ok(())
    }

    /// A last block of the log, durably, though nothing else is written any more.
    pub fn write_after_failure(
        &self,
        at: LogBlock,
        image: Rc<Buffer>,
    ) -> Result<LocalFuture<Result<(), DeviceError>>, EngineError> {
        let (at, _) = self.locate(self.byte_of(at))?;
        Ok(self.log()?.write(&*self.home, at, vec![image], Durability::Durable))
    }

    fn check_home(&self, at: HomeBlock, count: u64) -> Result<(), EngineError> {
        if self.home.contains(at, count) {
            return Ok(());
        }
        Err(EngineError::OutOfRange { at, blocks: self.home.end() })
    }

    /// Appends the disk writes of `write`; those that continue the one before join it.
    fn translate(&self, write: Write, phase: &mut Vec<DiskWrite>) -> Result<(), EngineError> {
        {
            let mut counters = self.counters.borrow_mut();
            write.blocks.iter().for_each(|(kind, block)| counters.wrote(*kind, block.len() as u64));
        }
        if let Address::Home(at) = write.at {
            self.check_home(at, write.blocks.len() as u64)?;
        }
        let mut parts = write.blocks.into_iter().map(|(_, buffer)| buffer).peekable();
        let mut done = 0;
        while parts.peek().is_some() {
            let (place, at, home, room) = match write.at {
                Address::Home(at) => {
                    let at = at.plus(done >> self.block_size.shift());
                    (Place::Home, at.get() << self.block_size.shift(), Some(at), u64::MAX - done)
                }
                Address::Log(at) => {
                    let (at, room) = self.locate(self.byte_of(at) + done)?;
                    (Place::Log, at, None, room)
                }
                Address::Slot(slot) => unreachable!("{slot:?} was not bound before its plan was issued"),
            };
            let (mut taken, mut length) = (Vec::new(), 0);
            while taken.len() < BLOCKS_PER_WRITE_MAX
                && let Some(part) = parts.next_if(|part| length + part.len() as u64 <= room)
            {
                length += part.len() as u64;
                taken.push(part);
            }
            assert!(length > 0, "no block of the log lies in two extents");
            let end = at + length;
            done += length;
            match phase.last_mut() {
                Some(last)
                    if last.place == place
                        && last.end == at
                        && last.parts.len() + taken.len() <= BLOCKS_PER_WRITE_MAX =>
                {
                    last.parts.extend(taken);
                    last.end = end;
                }
                _ => phase.push(DiskWrite { place, at, end, home, parts: taken }),
            }
        }
        Ok(())
    }

    fn byte_of(&self, at: LogBlock) -> u64 {
        u64::from(at.get()) * self.log_unit.get() as u64
    }
    fn locate(&self, byte: u64) -> Result<(u64, u64), EngineError> {
        self.log()?.locate_byte(byte, self.block_size)
    }

    fn log(&self) -> Result<&LogArea, EngineError> {
        self.log.as_ref().ok_or(EngineError::BadJournal { why: "there is none".into() })
    }

    async fn end_phase(&self, phase: Vec<DiskWrite>, barrier: Option<Barrier>) -> Result<(), EngineError> {
        self.check()?;
        let ordered = barrier.is_some() && self.barrier == BarrierKind::Flush;
        // The disk of a place; both places are one disk unless the log has its own.
        let disk_of = |place: Place| if self.separate { place } else { Place::Home };
        let mut writes = [0usize; 2];
        phase.iter().for_each(|write| writes[disk_of(write.place) as usize] += 1);
        let mut flush = [false; 2];
        if ordered {
            flush = std::array::from_fn(|disk| writes[disk] > usize::from(self.forced_unit_access[disk]));
            let written = match barrier {
                Some(Barrier::HomeBeforeLogTail | Barrier::HomeBeforeReply) => self.home_written.get(),
                Some(Barrier::DataBeforeCommit) => self.early_written.get(),
                _ => 0,
            };
            flush[Place::Home as usize] |= self.home_durable.get() < written;
        }
        let mut pending = Vec::with_capacity(phase.len());
        for write in phase {
            let single = ordered && !flush[disk_of(write.place) as usize];
            pending.push(self.write(write, if single { Durability::Durable } else { Durability::Cached }));
        }
        self.note(join_window(pending, WRITES_IN_FLIGHT_MAX).await.map(drop))?;
        match flush {
            [false, false] => Ok(()),
            [true, false] => self.flush(Place::Home).await,
            [false, true] => self.flush(Place::Log).await,
            [true, true] => {
                let both: Vec<Pin<Box<dyn Future<Output = _> + '_>>> =
                    vec![Box::pin(self.flush(Place::Home)), Box::pin(self.flush(Place::Log))];
                join_all(both).await.into_iter().collect()
            }
        }
    }

    fn write(&self, write: DiskWrite, durability: Durability) -> LocalFuture<Result<(), EngineError>> {
        if durability == Durability::Durable {
            self.counters.borrow_mut().durable_writes += 1;
        }
        let DiskWrite { at, home: claimed, parts, .. } = write;
        let Some(claimed) = claimed else {
            let log = self.log.as_ref().expect("only a log has log blocks");
            let write = log.write(&*self.home, at, parts, durability);
            return Box::pin(async move { Ok(write.await?) });
        };
        // The same block may be on its way home for write-back: the two writes must not pass each other.
        let (home, claims) = (self.home.clone(), self.claims.clone());
        Box::pin(async move {
            let _claim = claims.claim(claimed, parts.len() as u64).await;
            Ok(home.write(claimed, parts, durability).await?)
        })
    }
}
