//! How long writes take, for a policy that learns from it. Where none does, nobody reads a clock.

use device::World;
use journal::{AutoThreshold, CommitCost, Plan, Took};
use units::Instant;

/// Times a commit: what goes home before it, and then its log.
pub(crate) struct CommitClock<'a> {
    auto: &'a AutoThreshold,
    world: &'a dyn World,
    since: Instant,
    cost: CommitCost,
}

impl CommitClock<'_> {
    /// `first`: the plan up to its last barrier but one.
    pub fn begin<'a>(auto: &'a AutoThreshold, world: &'a dyn World, first: &Plan) -> CommitClock<'a> {
        let (writes, bytes) = first.home_writes();
        let home = Took { writes, bytes, nanoseconds: 0 };
        CommitClock { auto, world, since: world.now(), cost: CommitCost { home, log: Took::default() } }
    }
    fn lap(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.since, self.world.now());
        self.since.since(before).as_nanos() as u64
    }
    pub fn home_is_done(&mut self) {
        self.cost.home.nanoseconds = self.lap();
    }
    /// What passes before `at` is another commit's: two were under way, and each counts for the time in which it was the oldest.
    pub fn begins_at(&mut self, at: Instant) {
        self.since = self.since.max(at);
    }
    pub fn log_is_done(mut self, bytes: u64) {
        self.cost.log = Took { writes: 1, bytes, nanoseconds: self.lap() };
        self.auto.committed(self.since, &self.cost);
    }
}

/// Times home writes that no commit waits for.
pub(crate) struct HomeClock<'a> {
    auto: &'a AutoThreshold,
    world: &'a dyn World,
    since: Instant,
    writes: usize,
}

impl HomeClock<'_> {
    pub fn begin<'a>(auto: &'a AutoThreshold, world: &'a dyn World, writes: usize) -> HomeClock<'a> {
        HomeClock { auto, world, since: world.now(), writes }
    }
    pub fn end(self, bytes: usize) {
        if bytes > 0 {
            let nanoseconds = self.world.now().since(self.since).as_nanos() as u64;
            self.auto.went_home(&Took { writes: self.writes as u64, bytes: bytes as u64, nanoseconds });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::VirtualWorld;
    use std::time::Duration;

    #[test]
    fn a_commit_counts_for_the_time_in_which_it_was_the_oldest() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        world.run(async move {
            let auto = AutoThreshold::default();
            for (before, counted) in [(0, 900), (400, 500)] {
                let mut clock = CommitClock::begin(&auto, &inner, &Plan::default());
                let begun = inner.now();
                inner.sleep_until(begun.plus(Duration::from_micros(900))).await;
                clock.begins_at(begun.plus(Duration::from_micros(before)));
                assert_eq!(clock.lap(), counted * 1000);
            }
        });
    }
}
