//! A home that measures for which part of the time it is at work, for a policy that learns what
//! home writes cost those who wait.

use commit::{DurabilityScope, Home};
use device::{Buffer, DeviceError, Durability, LocalFuture, World};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Instant};

/// Time for which at least one request was in flight.
pub(crate) struct Utilization {
    world: Rc<dyn World>,
    requests: Cell<u32>,
    /// Time at which the first request in flight was issued.
    since: Cell<Instant>,
    before: Cell<Duration>,
}

impl Utilization {
    pub fn new(world: Rc<dyn World>) -> Utilization {
        Utilization {
            world,
            requests: Cell::default(),
            since: Cell::default(),
            before: Cell::default(),
        }
    }
    /// Returns the time until now.
    pub fn total(&self) -> Duration {
        let now = if self.requests.get() > 0 {
            self.world.now().since(self.since.get())
        } else {
            Duration::ZERO
        };
        self.before.get() + now
    }
    fn begin(self: &Rc<Self>) -> Request {
        if self.requests.get() == 0 {
            self.since.set(self.world.now());
        }
        self.requests.set(self.requests.get() + 1);
        Request(self.clone())
    }
}

/// A request in flight. Dropped when it ends, or when nobody waits for it any more.
struct Request(Rc<Utilization>);

impl Drop for Request {
    fn drop(&mut self) {
        if self.0.requests.get() == 1 {
            self.0.before.set(self.0.total());
        }
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

pub(crate) struct MeasuredHome {
    pub home: Rc<dyn Home>,
    pub utilization: Rc<Utilization>,
}

impl MeasuredHome {
    fn timed<T: 'static>(&self, request: LocalFuture<T>) -> LocalFuture<T> {
        let begun = self.utilization.begin();
        Box::pin(async move {
            let result = request.await;
            drop(begun);
            result
        })
    }
}

impl Home for MeasuredHome {
    fn contains(&self, at: HomeBlock, count: u64) -> bool {
        self.home.contains(at, count)
    }
    fn end(&self) -> u64 {
        self.home.end()
    }
    fn read(&self, at: HomeBlock, count: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.timed(self.home.read(at, count))
    }
    fn write(
        &self,
        at: HomeBlock,
        blocks: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.timed(self.home.write(at, blocks, durability))
    }
    fn write_log(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        self.timed(self.home.write_log(at, parts, durability))
    }
    fn read_log(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.timed(self.home.read_log(at, length))
    }
    fn physical_sector(&self) -> u32 {
        self.home.physical_sector()
    }
    fn logical_sector(&self) -> u32 {
        self.home.logical_sector()
    }
    fn make_durable(&self, what: DurabilityScope) -> LocalFuture<Result<(), DeviceError>> {
        self.timed(self.home.make_durable(what))
    }
    fn head(&self) -> HomeBlock {
        self.home.head()
    }
    fn has_durable_writes(&self) -> bool {
        self.home.has_durable_writes()
    }
}
