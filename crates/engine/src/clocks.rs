//! How long writes take, for those who learn from it: the policy and the log.

use device::World;
use journal::{AutoThreshold, Plan, Took};
use std::time::Duration;
use units::Instant;

/// Times a commit: what goes home before it, and then its log.
pub(crate) struct CommitClock {
    since: Instant,
    home: Took,
}

impl CommitClock {
    /// `first`: the plan up to its last barrier but one.
    pub fn begin(now: Instant, first: &Plan) -> CommitClock {
        let (writes, bytes) = first.home_writes();
        CommitClock { since: now, home: Took { writes, bytes, nanoseconds: 0 } }
    }
    pub fn home_is_done(&mut self, now: Instant) {
        self.home.nanoseconds = now.since(self.since).as_nanos() as u64;
        self.since = now;
    }
    /// `before`: when the commit ahead of it was done. What passes until then is that one's: two were under way, and each
    /// counts for the time in which it was the oldest.
    pub fn log_is_done(self, now: Instant, before: Instant) -> CommitTook {
        let idle = self.since.since(before.min(self.since));
        CommitTook { home: self.home, idle, log: now.since(self.since.max(before)) }
    }
}

pub(crate) struct CommitTook {
    pub home: Took,
    /// From the commit ahead of it to the first write of its log.
    pub idle: Duration,
    pub log: Duration,
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

    #[test]
    fn a_commit_counts_for_the_time_in_which_it_was_the_oldest() {
        let at = |micros| Instant::default().plus(Duration::from_micros(micros));
        for (before, idle, counted) in [(100, 0, 900), (500, 0, 500), (40, 60, 900)] {
            let took = CommitClock::begin(at(100), &Plan::default()).log_is_done(at(1000), at(before));
            assert_eq!((took.idle, took.log), (Duration::from_micros(idle), Duration::from_micros(counted)));
        }
    }
}
