//! A world whose wall clock stands still, and whose random numbers are counted. So two equivalent
//! histories leave the same bytes, and only one of them need be explored.

use device::{LocalFuture, LongSteps, World};
use runtime::VirtualWorld;
use std::cell::Cell;
use units::{Instant, Timestamp};

pub(super) struct StoppedWorld {
    world: VirtualWorld,
    drawn: Cell<u64>,
}

/// 2020-01-01.
const NOW: Timestamp = Timestamp { seconds: 1_577_836_800, nanoseconds: 0 };
/// Bound of the random numbers that a life draws.
const DRAWN_A_LIFE: u64 = 1 << 16;

impl StoppedWorld {
    /// Creates the world. `life`: makes the numbers of two lives on one disk differ.
    pub fn new(world: VirtualWorld, life: u32) -> StoppedWorld {
        StoppedWorld { world, drawn: Cell::new((1 + u64::from(life)) * DRAWN_A_LIFE) }
    }
}

impl World for StoppedWorld {
    fn now(&self) -> Instant {
        self.world.now()
    }
    fn wall_clock(&self) -> Timestamp {
        NOW
    }
    fn sleep_until(&self, at: Instant) -> LocalFuture<()> {
        self.world.sleep_until(at)
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.world.spawn(task);
    }
    fn random(&self) -> u64 {
        self.drawn.replace(self.drawn.get() + 1)
    }
    fn name_task(&self, name: &'static str) {
        self.world.name_task(name);
    }
    fn long_steps(&self) -> Vec<LongSteps> {
        self.world.long_steps()
    }
}
