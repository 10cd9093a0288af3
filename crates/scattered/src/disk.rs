//! The disk that callers see.

use crate::checkpoint::ScatteredCheckpointReport;
use crate::claims::Change;
use crate::home::blocks_of;
use crate::inspect::{LogsState, inspect};
use crate::layout::{Layout, Sizes};
use crate::policy::{self, Settings};
use crate::restart::{self, OpenError, RestartReport};
use crate::state::State;
use crate::statistics::ScatteredStatistics;
use crate::swap::SwapTime;
use crate::writer::Placed;
use crate::{BLOCK, SECTOR};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use std::rc::Rc;

pub type DeviceResult<T> = Result<T, DeviceError>;

/// Scattered logs in front of a disk. Clones are the same disk.
#[derive(Clone)]
pub struct ScatteredDisk(Rc<State>);

impl ScatteredDisk {
    /// Makes empty logs on `main`, with the mapping table there or on `table`, memory that survives
    /// power loss.
    pub async fn format(
        world: &Rc<dyn World>,
        main: &Rc<dyn Disk>,
        table: Option<&Rc<dyn Disk>>,
        sizes: Sizes,
    ) -> Result<Layout, OpenError> {
        restart::format(world, main, table, sizes).await
    }

    pub async fn open(
        world: Rc<dyn World>,
        main: Rc<dyn Disk>,
        table: Option<Rc<dyn Disk>>,
        settings: Settings,
    ) -> Result<(ScatteredDisk, RestartReport), OpenError> {
        restart::open(world, main, table, settings).await
    }

    /// Returns what the logs hold. Writes nothing; the disk may be open elsewhere.
    pub async fn inspect(
        main: &Rc<dyn Disk>,
        table: Option<&Rc<dyn Disk>>,
    ) -> Result<LogsState, OpenError> {
        inspect(main, table).await
    }

    pub(crate) fn new(state: State) -> ScatteredDisk {
        let (world, state) = (state.world.clone(), Rc::new(state));
        world.spawn(Box::pin(policy::mind(Rc::downgrade(&state), world.clone())));
        ScatteredDisk(state)
    }

    /// Copies everything home that is logged now.
    pub async fn checkpoint(&self) -> DeviceResult<ScatteredCheckpointReport> {
        self.0.checkpoint_all().await
    }
    /// Saves the table, so that a restart reads no log.
    pub async fn snapshot(&self) -> DeviceResult<()> {
        self.0.snapshot().await
    }
    /// Moves what a log holds to a cold one, as idle time would. False: no log is full enough, or
    /// none is cold.
    pub async fn swap(&self) -> DeviceResult<bool> {
        let Some(log) = self.0.log_to_swap() else { return Ok(false) };
        while !self.0.swap_step(log, SwapTime::Now).await? {}
        Ok(true)
    }
    pub fn layout(&self) -> Layout {
        self.0.layout
    }
    pub fn statistics(&self) -> ScatteredStatistics {
        let inner = self.0.inner.borrow();
        let blocks = self.0.layout.log_blocks();
        ScatteredStatistics {
            table_entries: inner.table.len() as u64,
            table_memory: inner.table.memory() as u64,
            logs: self.0.layout.logs,
            logs_in_use: inner.logs.iter().filter(|log| log.fill > 0).count() as u32,
            log_blocks_free: inner.logs.iter().map(|log| u64::from(log.free_blocks(blocks))).sum(),
            ..inner.statistics
        }
    }

    fn check(&self, operation: Operation, at: u64, length: u64) -> DeviceResult<()> {
        let Geometry { size, logical_sector: sector, .. } = self.geometry();
        let disk = self.0.name.clone();
        if at.checked_add(length).is_none_or(|end| end > size) {
            return Err(DeviceError::OutOfRange { disk, operation, at, length, size });
        }
        if at % u64::from(sector) != 0 || length % u64::from(sector) != 0 {
            return Err(DeviceError::Unaligned { disk, operation, at, length, sector });
        }
        Ok(())
    }

    /// Carries out a request from its check to its answer, even if its caller does not wait.
    fn request<T: 'static, F: Future<Output = DeviceResult<T>> + 'static>(
        &self,
        (operation, at, length): (Operation, u64, u64),
        work: impl FnOnce(Rc<State>) -> F + 'static,
    ) -> LocalFuture<DeviceResult<T>> {
        let disk = self.clone();
        Box::pin(async move {
            disk.check(operation, at, length)?;
            if operation != Operation::Read {
                disk.0.check_failed()?;
            }
            let state = disk.0.clone();
            let world = state.world.clone();
            let work = async move {
                let _busy = Busy::new(state.clone());
                work(state).await
            };
            runtime::complete_anyway(&*world, work).await
        })
    }
}

/// While it lives, the disk is not idle.
struct Busy(Rc<State>);
impl Busy {
    fn new(state: Rc<State>) -> Busy {
        state.request_begins();
        Busy(state)
    }
}
impl Drop for Busy {
    fn drop(&mut self) {
        self.0.request_ends();
    }
}

impl State {
    async fn write(
        self: Rc<Self>,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> DeviceResult<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let homes = blocks_of(at, length);
        let blocks = (homes.end - homes.start) as usize;
        let small = length <= self.settings.logged_write_size && blocks <= self.logged_blocks();
        if small && self.home_is_near(&homes) {
            self.inner.borrow_mut().statistics.near_home_writes += 1;
        } else if small {
            let sectors = at / SECTOR as u64..(at + length) / SECTOR as u64;
            let _claim = self.claims.claim(Change::Logged, sectors).await;
            if let Some(piece) = self.piece(at, &parts).await? {
                if self.log(piece, durability).await? == Placed::InLog {
                    return Ok(());
                }
            }
            self.inner.borrow_mut().statistics.bypassed_writes += 1;
        } else {
            self.inner.borrow_mut().statistics.home_writes += 1;
        }
        let claim = self.claim_home(at, length).await;
        self.write_home(at, parts, durability).await?;
        drop(claim);
        // Until the drop is durable, a restart would believe an older record.
        if durability == Durability::Durable && self.is_dropped(&homes) {
            self.settle().await?;
        }
        Ok(())
    }
}

impl Disk for ScatteredDisk {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn geometry(&self) -> Geometry {
        let beneath = self.0.main.geometry();
        Geometry { size: self.0.layout.homes() * BLOCK as u64, discard: true, ..beneath }
    }
    fn physical_sector(&self) -> u32 {
        self.0.main.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<DeviceResult<Buffer>> {
        self.request((Operation::Read, at, length as u64), move |state| state.read(at, length))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<DeviceResult<()>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.request((Operation::Write, at, length), move |state| {
            state.write(at, parts, durability)
        })
    }
    fn flush(&self) -> LocalFuture<DeviceResult<()>> {
        self.request((Operation::Flush, 0, 0), |state| async move {
            state.inner.borrow_mut().statistics.flushes += 1;
            state.settle().await
        })
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<DeviceResult<()>> {
        self.request((Operation::Discard, at, length), move |state| async move {
            state.inner.borrow_mut().statistics.trims += 1;
            state.trim(at, length).await
        })
    }
}
