//! Carries plans out: addresses become places on disks, barriers become what the barrier kind makes
//! of them.
//!
//! Writes between two barriers go out together. At a barrier each disk that was written since the
//! last one is flushed. A single write is made durable by itself if that saves the flush.

use crate::claims::HomeClaims;
use crate::commit_error::CommitError;
use crate::durability::{DiskRole, Durability, HomeWrites};
use crate::log_area::{LogArea, LogDevice};
use crate::log_writes::LogWrites;
use crate::plan_disks::PlanDisks;
use crate::write_counts::WriteCounts;
use device::{Buffer, DeviceError, LocalFuture};
use format::run_table::TABLE_PAGE;
use journal::{Address, Barrier, BlockKind, Plan, Step, SuperblockImage, Write, plan_home_durable};
use runtime::{join_all, join_window};
use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock};

/// Maximum number of buffers of one disk write (Linux takes at most 1024 parts, IOV_MAX).
const BLOCKS_PER_WRITE_MAX: usize = 1024;
/// Maximum number of writes in flight at once.
const WRITES_IN_FLIGHT_MAX: usize = 32;

/// One write to one disk.
struct DiskWrite {
    place: DiskRole,
    /// Bytes `at..end` of the disk.
    at: u64,
    end: u64,
    /// Home block at `at`, for home writes.
    home: Option<HomeBlock>,
    parts: Vec<Rc<Buffer>>,
}

impl DiskWrite {
    fn at_home(&self, block_size: BlockSize) -> Option<Range<HomeBlock>> {
        self.home.map(|at| at..at.plus((self.end - self.at) >> block_size.shift()))
    }
}

pub struct PlanExecutor {
    disks: PlanDisks,
    /// Bytes of a log block.
    log_unit: Cell<usize>,
    claims: HomeClaims,
    log_writes: LogWrites,
    durability: Rc<Durability>,
    counts: RefCell<WriteCounts>,
}

impl PlanExecutor {
    /// Shares with its owner the claims and the durability of writes.
    pub fn new(disks: PlanDisks, claims: HomeClaims, durability: Rc<Durability>) -> PlanExecutor {
        let log_unit = Cell::new(disks.block_size.bytes());
        PlanExecutor {
            disks,
            log_unit,
            claims,
            log_writes: LogWrites::default(),
            durability,
            counts: RefCell::default(),
        }
    }

    /// Carries out plans of a log alone, each barrier kept. A log block has `unit` bytes.
    pub fn log_only(disks: PlanDisks, unit: usize) -> PlanExecutor {
        let durability = Rc::new(Durability::of(&disks, true));
        let executor = PlanExecutor::new(disks, HomeClaims::default(), durability);
        executor.count_log_in(unit);
        executor
    }

    /// Returns what was written since this was made.
    pub fn counts(&self) -> Ref<'_, WriteCounts> {
        self.counts.borrow()
    }

    /// Fails if a write has failed.
    pub fn check(&self) -> Result<(), CommitError> {
        self.durability.check()
    }
    /// Sets the bytes of the log blocks in which plans count; home's may have another length.
    pub fn count_log_in(&self, bytes: usize) {
        self.log_unit.set(bytes);
    }

    /// Carries out `plan`. On return every step is done, and every barrier kept.
    pub async fn run(&self, plan: Plan) -> Result<(), CommitError> {
        let mut phase = Vec::new();
        for step in plan.steps {
            match step {
                Step::Write(Write { at: Address::Table(page), blocks }) => {
                    self.write_table(page, blocks.into_iter().map(|(_, bytes)| bytes).collect())
                        .await?;
                }
                Step::Barrier(Barrier::TableBeforeRun) => self.flush_table().await?,
                Step::Write(write) => self.translate(write, &mut phase)?,
                Step::Barrier(reason) => {
                    self.end_phase(std::mem::take(&mut phase), Some(reason)).await?
                }
            }
        }
        self.end_phase(phase, None).await
    }

    /// Returns when all home writes that had completed are durable, as far as barriers are kept.
    pub async fn make_writes_durable(&self) -> Result<(), CommitError> {
        match self.durability.is_durable(self.durability.home_written()) {
            true => Ok(()),
            false => self.run(plan_home_durable()).await,
        }
    }

    /// Writes of write-back and checkpoint: ordered by the next [`Barrier::HomeBeforeLogTail`]
    /// alone. `kinds`: of each block; `parts`: their bytes, cut anyhow.
    pub async fn write_home(
        &self,
        at: HomeBlock,
        kinds: &[BlockKind],
        parts: Vec<Rc<Buffer>>,
    ) -> Result<HomeWrites, CommitError> {
        self.send_home(at, kinds, parts, device::Durability::Cached).await?;
        Ok(self.durability.home_write_completed(at..at.plus(kinds.len() as u64)))
    }

    /// Writes as [`PlanExecutor::write_home`] does, for a sync that waits. Returns `None` if the
    /// write is durable by itself.
    pub async fn sync_home(
        &self,
        at: HomeBlock,
        kinds: &[BlockKind],
        parts: Vec<Rc<Buffer>>,
    ) -> Result<Option<HomeWrites>, CommitError> {
        if !self.durability.is_home_write_durable() {
            return self.write_home(at, kinds, parts).await.map(Some);
        }
        self.counts.borrow_mut().wrote_durably();
        let durability = match units::fault!("synced-home-cached") {
            true => device::Durability::Cached,
            false => device::Durability::Durable,
        };
        self.send_home(at, kinds, parts, durability).await?;
        Ok(None)
    }

    async fn send_home(
        &self,
        at: HomeBlock,
        kinds: &[BlockKind],
        parts: Vec<Rc<Buffer>>,
        durability: device::Durability,
    ) -> Result<(), CommitError> {
        let count = kinds.len() as u64;
        self.check_home(at, count)?;
        let bytes = self.disks.block_size.bytes() as u64;
        kinds.iter().for_each(|kind| self.counts.borrow_mut().wrote(*kind, 1, bytes));
        self.durability.check()?;
        self.counts.borrow_mut().issued();
        let written = self.disks.home.write(at, parts, durability).await;
        self.durability.note(written.map_err(CommitError::from))
    }

    /// Writes a page of the table of runs. Its memory is not ordered with the disks: the page is
    /// durable before anything else is issued.
    async fn write_table(&self, page: u64, parts: Vec<Rc<Buffer>>) -> Result<(), CommitError> {
        let Some(table) = &self.disks.table else { return Ok(()) };
        self.durability.check()?;
        let written =
            table.write(page * TABLE_PAGE as u64, parts, device::Durability::Cached).await;
        self.durability.note(written.map_err(CommitError::from))
    }
    async fn flush_table(&self) -> Result<(), CommitError> {
        let Some(table) = &self.disks.table else { return Ok(()) };
        self.durability.check()?;
        self.durability.note(table.flush().await.map_err(CommitError::from))
    }

    /// Flushes the disks; `blocks` are those of home that a plan wrote.
    async fn flush(
        &self,
        place: DiskRole,
        blocks: Vec<Range<HomeBlock>>,
    ) -> Result<(), CommitError> {
        self.durability.check()?;
        let begun = self.durability.flush_begins(place).at(self.disks.now());
        self.counts.borrow_mut().flushed();
        let flush = match (place, self.disks.log.as_ref().map(|log| &log.device)) {
            (DiskRole::Log, Some(LogDevice::Own(disk))) => disk.flush(),
            _ => self.disks.home.make_durable(self.durability.volatile_home(blocks)),
        };
        let flushed = flush.await.map_err(CommitError::from);
        if !units::fault!("flush-failure-ignored") {
            self.durability.note(flushed)?;
        }
        // A concurrent flush may have failed, and lost what this one found no more.
        self.durability.check()?;
        self.durability.flush_completed(begun);
        Ok(())
    }

    /// Writes a last superblock, durably, though nothing else is written any more. It waits for an
    /// earlier one in flight, which a disk may carry out behind it.
    pub fn write_after_failure(
        &self,
        last: SuperblockImage,
    ) -> Result<LocalFuture<Result<(), DeviceError>>, CommitError> {
        let (at, _) = self.locate(self.byte_of(last.at))?;
        let (log, home) = (self.log()?.clone(), self.disks.home.clone());
        let log_writes = self.log_writes.clone();
        Ok(Box::pin(async move {
            if !units::fault!("failure-note-overtaken") {
                log_writes.until_none(at..at + last.image.len() as u64).await;
            }
            log.write(&*home, at, vec![last.image], device::Durability::Durable).await
        }))
    }

    fn check_home(&self, at: HomeBlock, count: u64) -> Result<(), CommitError> {
        if self.disks.home.contains(at, count) {
            return Ok(());
        }
        Err(CommitError::OutOfRange { at, blocks: self.disks.home.end() })
    }

    /// Appends the disk writes of `write`; those that continue the one before join it.
    fn translate(&self, write: Write, phase: &mut Vec<DiskWrite>) -> Result<(), CommitError> {
        {
            let mut counts = self.counts.borrow_mut();
            for (kind, buffer) in &write.blocks {
                counts.wrote(
                    *kind,
                    kind.blocks_in(buffer, self.log_unit.get()),
                    buffer.len() as u64,
                );
            }
        }
        if let Address::Home(at) = write.at {
            self.check_home(at, write.blocks.len() as u64)?;
        }
        let mut parts: VecDeque<_> = write.blocks.into_iter().map(|(_, buffer)| buffer).collect();
        let mut done = 0;
        while !parts.is_empty() {
            let (place, at, home, room) = match write.at {
                Address::Home(at) => {
                    let at = at.plus(done >> self.disks.block_size.shift());
                    (
                        DiskRole::Home,
                        at.get() << self.disks.block_size.shift(),
                        Some(at),
                        u64::MAX - done,
                    )
                }
                Address::Log(at) => {
                    let (at, room) = self.locate(self.byte_of(at) + done)?;
                    (DiskRole::Log, at, None, room)
                }
                Address::Slot(slot) => {
                    unreachable!("{slot:?} was not bound before its plan was issued")
                }
                Address::Table(page) => unreachable!("page {page} of the table lies on no disk"),
            };
            let (mut taken, mut length) = (Vec::new(), 0);
            while taken.len() < BLOCKS_PER_WRITE_MAX && length < room {
                let Some(mut part) = parts.pop_front() else { break };
                if part.len() as u64 > room - length {
                    let [before, behind] = part.cut((room - length) as usize).map(Rc::new);
                    parts.push_front(behind);
                    part = before;
                }
                length += part.len() as u64;
                taken.push(part);
            }
            assert!(length > 0, "an extent of the log holds a block or more");
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

    pub fn log_unit(&self) -> usize {
        self.log_unit.get()
    }
    /// Whether the log blocks `at..end` lie one behind the other on their disk.
    pub fn are_contiguous(&self, at: LogBlock, end: LogBlock) -> bool {
        let bytes = self.byte_of(end) - self.byte_of(at);
        self.locate(self.byte_of(at)).is_ok_and(|(_, together)| bytes <= together)
    }
    /// Reads `count` log blocks, which are adjacent.
    pub async fn read_log(&self, at: LogBlock, count: u32) -> Result<Buffer, CommitError> {
        let (length, shift) = (count as usize * self.log_unit.get(), self.disks.block_size.shift());
        let (begin, together) = self.locate(self.byte_of(at))?;
        if length as u64 > together {
            return Err(CommitError::BadJournal {
                why: format!("{at} and {count} more do not lie together"),
            });
        }
        let first = begin >> shift;
        let blocks = ((begin + length as u64).div_ceil(1 << shift) - first) as usize;
        let bytes = match &self.log()?.device {
            LogDevice::Inside => self.disks.home.read(HomeBlock(first), blocks).await?,
            LogDevice::Own(disk) => disk.read(first << shift, blocks << shift).await?,
        };
        let skip = (begin - (first << shift)) as usize;
        if (skip, length) == (0, bytes.len()) {
            return Ok(bytes);
        }
        Ok(Buffer::copy_of(&bytes[skip..skip + length]))
    }

    fn byte_of(&self, at: LogBlock) -> u64 {
        u64::from(at.get()) * self.log_unit.get() as u64
    }
    fn locate(&self, byte: u64) -> Result<(u64, u64), CommitError> {
        self.log()?.locate_byte(byte, self.disks.block_size)
    }

    fn log(&self) -> Result<&LogArea, CommitError> {
        self.disks.log.as_ref().ok_or(CommitError::BadJournal { why: "there is none".into() })
    }

    async fn end_phase(
        &self,
        phase: Vec<DiskWrite>,
        barrier: Option<Barrier>,
    ) -> Result<(), CommitError> {
        self.durability.check()?;
        let mut writes = [0; 2];
        phase.iter().for_each(|write| writes[write.place as usize] += 1);
        let end = self.durability.end_phase(writes, barrier);
        let at_home: Vec<_> = match end.flush[DiskRole::Home as usize] {
            true => phase.iter().filter_map(|write| write.at_home(self.disks.block_size)).collect(),
            false => Vec::new(),
        };
        let mut pending = Vec::with_capacity(phase.len());
        for write in phase {
            let durability = match end.durable[write.place as usize] {
                true => device::Durability::Durable,
                false => device::Durability::Cached,
            };
            pending.push(self.write(write, durability));
        }
        self.durability.note(join_window(pending, WRITES_IN_FLIGHT_MAX).await)?;
        match end.flush {
            // As in `flush`: a concurrent request may have got the report of a loss.
            [false, false] => self.durability.check(),
            [true, false] => self.flush(DiskRole::Home, at_home).await,
            [false, true] => self.flush(DiskRole::Log, vec![]).await,
            [true, true] => {
                let both: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = vec![
                    Box::pin(self.flush(DiskRole::Home, at_home)),
                    Box::pin(self.flush(DiskRole::Log, vec![])),
                ];
                join_all(both).await.into_iter().collect()
            }
        }
    }

    fn write(
        &self,
        write: DiskWrite,
        durability: device::Durability,
    ) -> LocalFuture<Result<(), CommitError>> {
        if durability == device::Durability::Durable {
            self.counts.borrow_mut().wrote_durably();
        }
        self.counts.borrow_mut().issued();
        let DiskWrite { at, end, home: claimed, parts, .. } = write;
        let Some(claimed) = claimed else {
            let log = self.disks.log.as_ref().expect("only a log has log blocks");
            let in_flight = self.log_writes.begin(at..end);
            let write = log.write(&*self.disks.home, at, parts, durability);
            return Box::pin(async move {
                let written = write.await;
                drop(in_flight);
                if !units::fault!("write-failure-ignored") {
                    written?;
                }
                Ok(())
            });
        };
        // The same block may be in flight to home for write-back: the two writes must not pass each
        // other.
        let (home, claims) = (self.disks.home.clone(), self.claims.clone());
        Box::pin(async move {
            let _claim = claims.claim(claimed, parts.len() as u64).await;
            Ok(home.write(claimed, parts, durability).await?)
        })
    }
}
