//! Watches over the disks of a simulated cluster and of its client.

use device::{Operation, World};
use disks::Watch;
use runtime::VirtualWorld;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Time during which a disk was busy.
#[derive(Clone)]
pub(super) struct Meter(Rc<Busy>);
struct Busy {
    world: VirtualWorld,
    under_way: Cell<u64>,
    since: Cell<Instant>,
    total: Cell<Duration>,
}

impl Meter {
    pub fn of(world: &VirtualWorld) -> Meter {
        Meter(Rc::new(Busy {
            world: world.clone(),
            under_way: Cell::default(),
            since: Cell::default(),
            total: Cell::default(),
        }))
    }
    pub fn total(&self) -> Duration {
        self.0.total.get()
    }
}

impl Watch for Meter {
    fn watch<T: 'static>(
        &self,
        _operation: Operation,
        _place: Range<u64>,
        request: device::LocalFuture<T>,
    ) -> device::LocalFuture<T> {
        let busy = self.0.clone();
        Box::pin(async move {
            if busy.under_way.replace(busy.under_way.get() + 1) == 0 {
                busy.since.set(busy.world.now());
            }
            let result = request.await;
            busy.under_way.set(busy.under_way.get() - 1);
            if busy.under_way.get() == 0 {
                busy.total.set(busy.total.get() + busy.world.now().since(busy.since.get()));
            }
            result
        })
    }
}

/// The power of a machine: without it no request to its disk begins, nor ends for who made it.
#[derive(Clone, Default)]
pub(super) struct Power(Rc<Cell<bool>>);

impl Power {
    pub fn cut(&self) {
        self.0.set(true);
    }
}

impl Watch for Power {
    fn watch<T: 'static>(
        &self,
        _operation: Operation,
        _place: Range<u64>,
        request: device::LocalFuture<T>,
    ) -> device::LocalFuture<T> {
        let is_off = self.0.clone();
        Box::pin(async move {
            if is_off.get() {
                std::future::pending::<()>().await;
            }
            let result = request.await;
            if is_off.get() {
                std::future::pending::<()>().await;
            }
            result
        })
    }
}
