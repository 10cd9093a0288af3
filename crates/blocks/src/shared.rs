//! The state that requests of an open volume share.

use crate::freed::FreedRuns;
use crate::layout::{BlocksLayout, CurrentLayout};
use crate::report::BlocksReport;
use crate::requests::BlockRequests;
use crate::writing::BlocksWritten;
use device::{DeviceError, Disk, Operation};
use engine::{Credits, Engine, EngineError};
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::Owner;

/// The one owner of all data of the exported disk: a flush is of the whole disk.
pub(crate) const OWNER: Owner = Owner(1);
/// The longest write that is one handle, in bytes, where the log has room for it.
const ATOMIC_MAX: usize = 1 << 20;
/// errno
const EIO: i32 = 5;
const EROFS: i32 = 30;
const ESHUTDOWN: i32 = 108;

/// Point at which a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Persistence {
    /// Acknowledged from memory: the disk has a volatile cache, which a flush makes durable.
    #[default]
    WriteBack,
    /// Acknowledged when durable: the disk has no volatile cache.
    WriteThrough,
}

pub(crate) struct Shared {
    pub engine: Rc<Engine>,
    pub disk: Rc<dyn Disk>,
    layout: CurrentLayout,
    pub persistence: Persistence,
    pub freed: FreedRuns,
    pub writing: BlocksWritten,
    /// Blocks of the longest write that is one handle wherever it begins: one more than these.
    pub atomic_blocks: u64,
    /// Lock held shared by changes, and exclusively while the log is emptied or the volume grows.
    pub changes: Rc<RwLock>,
    pub name: String,
    pub report: BlocksReport,
    pub requests: Cell<BlockRequests>,
    /// Requests that are being carried out.
    pub busy: Cell<u64>,
    pub idle: Event,
    pub closed: Cell<bool>,
    pub first_error: RefCell<Option<String>>,
}

impl Shared {
    pub fn new(
        engine: Rc<Engine>,
        layout: CurrentLayout,
        disk: Rc<dyn Disk>,
        persistence: Persistence,
        report: BlocksReport,
    ) -> Shared {
        let most = (ATOMIC_MAX >> layout.get().block_size().shift()) as u32;
        let halves = std::iter::successors(Some(most), |blocks| Some(blocks / 2));
        // A write that begins within a block ends within another.
        let fits = |blocks: &u32| *blocks <= 1 || engine.fits_handle(Credits(0), *blocks + 1);
        let atomic_blocks = halves.into_iter().find(fits).unwrap_or(1).max(1);
        Shared {
            engine,
            name: disk.name().to_owned(),
            disk,
            layout,
            persistence,
            freed: FreedRuns::default(),
            writing: BlocksWritten::default(),
            atomic_blocks: atomic_blocks.into(),
            changes: Rc::default(),
            report,
            requests: Cell::default(),
            busy: Cell::default(),
            idle: Event::default(),
            closed: Cell::default(),
            first_error: RefCell::default(),
        }
    }
    pub fn layout(&self) -> Rc<BlocksLayout> {
        self.layout.get()
    }
    pub fn set_layout(&self, layout: BlocksLayout) {
        self.layout.set(layout);
    }
    pub fn note_request(&self, operation: Operation, length: u64) {
        let mut counts = self.requests.get();
        let (count, bytes) = match operation {
            Operation::Read => (&mut counts.reads, Some(&mut counts.read_bytes)),
            Operation::Write => (&mut counts.writes, Some(&mut counts.written_bytes)),
            Operation::Flush => (&mut counts.flushes, None),
            Operation::Discard => (&mut counts.discards, Some(&mut counts.discarded_bytes)),
        };
        *count += 1;
        bytes.into_iter().for_each(|bytes| *bytes += length);
        self.requests.set(counts);
    }
    pub fn note_durable_write(&self) {
        let counts = self.requests.get();
        let durable_writes = counts.durable_writes + 1;
        self.requests.set(BlockRequests { durable_writes, ..counts });
    }

    /// Returns the error of a device that a client of the exported disk sees for an error of the
    /// engine.
    pub fn device_error(
        &self,
        error: EngineError,
        (operation, at, length): (Operation, u64, u64),
    ) -> DeviceError {
        let code = match &error {
            EngineError::ReadOnly => EROFS,
            EngineError::ShutDown => ESHUTDOWN,
            EngineError::Device(DeviceError::Failed { code, .. }) => *code,
            _ => EIO,
        };
        if operation != Operation::Read && code != EROFS {
            self.first_error.borrow_mut().get_or_insert_with(|| error.to_string());
        }
        DeviceError::Failed { disk: self.name.clone(), operation, at, length, code }
    }
}

/// Keeps the volume from being closed.
pub(crate) struct Busy(Rc<Shared>);
impl Busy {
    pub fn new(shared: &Rc<Shared>) -> Busy {
        shared.busy.set(shared.busy.get() + 1);
        Busy(shared.clone())
    }
}
impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
        self.0.idle.notify();
    }
}
