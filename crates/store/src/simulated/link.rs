//! One direction of a link: contents pass one after the other.

use device::World;
use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// The end of its present use.
#[derive(Default)]
pub(super) struct Link(Cell<Instant>);

impl Link {
    /// Waits until content that takes the link `time` has passed.
    pub async fn pass(&self, world: &dyn World, time: Duration) {
        let done = self.0.get().max(world.now()).plus(time);
        self.0.set(done);
        world.sleep_until(done).await;
    }
}
