//! The exported disk.
//!
//! Invariants
//! 1. A request is checked, then carried out to its end even if its caller does not wait.
//! 2. A write is acknowledged when it belongs to a transaction; with [`Persistence::WriteThrough`],
//!    or if it is durable, when that transaction is committed. A flush commits all transactions
//!    with acknowledged writes.
//! 3. After a failed write or flush of the disk below every write, flush and discard fails.

use crate::layout::{BlocksLayout, CurrentLayout};
use crate::report::BlocksReport;
use crate::requests::BlockRequests;
use crate::shared::{Busy, Persistence, Shared};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use engine::{Engine, EngineError, Statistics};
use std::rc::Rc;

/// Sectors that clients may write. The engine changes parts of blocks atomically.
const SECTOR: u32 = 512;

/// A block volume that is open. Clones are the same disk.
#[derive(Clone)]
pub struct BlockVolume(pub(crate) Rc<Shared>);

impl BlockVolume {
    pub(crate) fn new(
        engine: Rc<Engine>,
        layout: CurrentLayout,
        disk: Rc<dyn Disk>,
        persistence: Persistence,
        report: BlocksReport,
    ) -> BlockVolume {
        BlockVolume(Rc::new(Shared::new(engine, layout, disk, persistence, report)))
    }

    pub fn report(&self) -> &BlocksReport {
        &self.0.report
    }
    /// Returns the places of the exported blocks; growing changes their number.
    pub fn layout(&self) -> Rc<BlocksLayout> {
        self.0.layout()
    }
    pub fn persistence(&self) -> Persistence {
        self.0.persistence
    }
    pub fn statistics(&self) -> Statistics {
        self.0.engine.statistics()
    }
    pub fn requests(&self) -> BlockRequests {
        self.0.requests.get()
    }
    /// Returns the first error that the disks below caused in a change or a flush.
    pub fn failure(&self) -> Option<String> {
        self.0.first_error.borrow().clone()
    }
    pub fn engine(&self) -> &Rc<Engine> {
        &self.0.engine
    }
    /// Returns the longest write, in bytes, that a crash leaves whole or not at all, in
    /// modes that log data.
    pub fn atomic_bytes(&self) -> u64 {
        self.0.atomic_blocks << self.layout().block_size().shift()
    }

    /// Writes everything back and empties the log. Changes wait until that is done, and are then
    /// logged again.
    ///
    /// # Errors
    /// The disk below failed, now or earlier.
    pub async fn drain(&self) -> Result<(), EngineError> {
        let _alone = self.0.changes.write().await;
        self.0.engine.quiesce().await?;
        self.0.engine.begin_writing().await
    }

    /// Waits for requests, writes everything back and empties the log. Later requests fail. Closing
    /// twice is harmless.
    ///
    /// # Errors
    /// The disk below failed, now or earlier: the log keeps what was committed.
    pub async fn close(&self) -> Result<(), EngineError> {
        let shared = &self.0;
        shared.closed.set(true);
        shared.idle.until(|| (shared.busy.get() == 0).then_some(())).await;
        shared.engine.shutdown().await
    }

    /// Carries out a request from its check to its answer.
    fn request<T: 'static, F: Future<Output = Result<T, EngineError>> + 'static>(
        &self,
        (operation, at, length): (Operation, u64, u64),
        work: impl FnOnce(Rc<Shared>) -> F + 'static,
    ) -> LocalFuture<Result<T, DeviceError>> {
        let volume = self.clone();
        Box::pin(async move {
            let shared = volume.0.clone();
            disks::check(&shared.name, volume.geometry(), operation, at, length)?;
            let failed = {
                let shared = shared.clone();
                move |error| shared.device_error(error, (operation, at, length))
            };
            if shared.closed.get() {
                return Err(failed(EngineError::ShutDown));
            }
            let world = shared.engine.world().clone();
            shared.note_request(operation, length);
            let busy = Busy::new(&shared);
            let work = async move {
                let result = work(shared).await;
                drop(busy);
                result
            };
            runtime::spawn_after_first_step(&*world, work).await.map_err(failed)
        })
    }
}

impl Disk for BlockVolume {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn geometry(&self) -> Geometry {
        let layout = self.layout();
        Geometry {
            size: layout.blocks() << layout.block_size().shift(),
            logical_sector: SECTOR,
            discard: true,
            forced_unit_access: true,
        }
    }
    fn physical_sector(&self) -> u32 {
        self.layout().block_size().bytes() as u32
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let about = (Operation::Read, at, length as u64);
        self.request(about, move |shared| async move { shared.read(at, length).await })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let about = (Operation::Write, at, length);
        self.request(about, move |shared| async move { shared.write(at, parts, durability).await })
    }
    /// Commits what was acknowledged before. Nothing is written if it is durable already.
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.request((Operation::Flush, 0, 0), |shared| async move {
            if units::fault!("blocks-flush-answered") {
                return Ok(());
            }
            shared.engine.sync().await
        })
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let about = (Operation::Discard, at, length);
        self.request(about, move |shared| async move { shared.discard(at, length).await })
    }
}
