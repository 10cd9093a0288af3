//! One way of a link: content passes it one message after the other.

use device::World;
use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Until when it is occupied.
#[derive(Default)]
pub(super) struct Link(Cell<Instant>);

impl Link {
    /// What takes the link `time` is over it when this returns.
    pub async fn pass(&self, world: &dyn World, time: Duration) {
        let done = self.0.get().max(world.now()).plus(time);
        self.0.set(done);
        world.sleep_until(done).await;
    }
}
