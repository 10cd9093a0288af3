//! The journal's disk. A change that is in flight when its caller is dropped still reaches the
//! disk; the next recovery waits for its end.
//!
//! A recovery is dropped when its connection is lost. A write of it that came late would undo what
//! a later recovery, or the next log, has written in its place: a superblock that says that the log
//! is empty, or an older ledger.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture};
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

type Change = LocalFuture<Result<(), DeviceError>>;

/// Changes in flight whose callers were dropped.
#[derive(Default)]
pub(crate) struct AbandonedChanges(RefCell<Vec<Change>>);

pub(crate) struct JournalDisk {
    disk: Rc<dyn Disk>,
    abandoned: Rc<AbandonedChanges>,
}

/// A write, flush or discard. `change` is empty once it has ended.
struct WatchedChange {
    change: Option<Change>,
    has_begun: bool,
    abandoned: Rc<AbandonedChanges>,
}

impl AbandonedChanges {
    /// Waits until none is in flight. Meant for a caller that alone changes the journal.
    pub async fn until_ended(&self) {
        poll_fn(|context| {
            let mut left = self.0.take();
            left.retain_mut(|change| change.as_mut().poll(context).is_pending());
            let mut changes = self.0.borrow_mut();
            changes.extend(left);
            if changes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    }
}

impl JournalDisk {
    pub fn new(disk: Rc<dyn Disk>) -> (JournalDisk, Rc<AbandonedChanges>) {
        let abandoned = Rc::<AbandonedChanges>::default();
        (JournalDisk { disk, abandoned: abandoned.clone() }, abandoned)
    }
    fn watched(&self, change: Change) -> Change {
        let abandoned = self.abandoned.clone();
        Box::pin(WatchedChange { change: Some(change), has_begun: false, abandoned })
    }
}

impl Future for WatchedChange {
    type Output = Result<(), DeviceError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.has_begun = true;
        let change = self.change.as_mut().expect("it is not polled after its end");
        let result = change.as_mut().poll(context);
        if result.is_ready() {
            self.change = None;
        }
        result
    }
}
impl Drop for WatchedChange {
    fn drop(&mut self) {
        if let Some(change) = self.change.take().filter(|_| self.has_begun) {
            self.abandoned.0.borrow_mut().push(change);
        }
    }
}

impl Disk for JournalDisk {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn physical_sector(&self) -> u32 {
        self.disk.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.disk.read(at, length)
    }
    fn write(&self, at: u64, parts: Vec<Rc<Buffer>>, durability: Durability) -> Change {
        self.watched(self.disk.write(at, parts, durability))
    }
    fn flush(&self) -> Change {
        self.watched(self.disk.flush())
    }
    fn discard(&self, at: u64, length: u64) -> Change {
        self.watched(self.disk.discard(at, length))
    }
}
