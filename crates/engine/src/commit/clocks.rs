//! Write durations, from which the policy and the log learn.

use crate::interface::update::Contents;
use device::World;
use journal::{AutoThreshold, TimedWrites};
use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Times a commit: what is written home before it, and then its log.
pub(crate) struct CommitClock {
    since: Instant,
    home: TimedWrites,
}

impl CommitClock {
    /// Starts the clock; the pair is the writes and bytes of the plan up to its last barrier but
    /// one.
    pub fn begin(now: Instant, (writes, bytes): (u64, u64)) -> CommitClock {
        CommitClock { since: now, home: TimedWrites { writes, bytes, nanoseconds: 0 } }
    }
    pub fn home_is_done(&mut self, now: Instant) {
        self.home.nanoseconds = now.since(self.since).as_nanos() as u64;
        self.since = now;
    }
    /// Returns the times of a commit whose log is done; `before` is when the commit ahead of it was
    /// done. What passes until then is that one's: two were in flight, and each counts for the time
    /// in which it was the oldest.
    pub fn log_is_done(self, now: Instant, before: Instant) -> CommitTimes {
        let idle = self.since.since(before.min(self.since));
        CommitTimes { home: self.home, idle, log: now.since(self.since.max(before)) }
    }
}

pub(crate) struct CommitTimes {
    pub home: TimedWrites,
    /// Time from the commit ahead of it to the first write of its log.
    pub idle: Duration,
    pub log: Duration,
}

/// Times home writes that no commit waits for: those of data alone, since their like is what a
/// policy decides about.
pub(crate) struct HomeClock<'a> {
    auto: &'a AutoThreshold,
    world: &'a dyn World,
    since: Instant,
    /// A sync waits for them.
    waited: bool,
    /// Metadata included.
    writes: Cell<u64>,
    data: Cell<TimedWrites>,
}

impl HomeClock<'_> {
    pub fn begin<'a>(auto: &'a AutoThreshold, world: &'a dyn World, waited: bool) -> HomeClock<'a> {
        let (writes, data) = Default::default();
        HomeClock { auto, world, since: world.now(), waited, writes, data }
    }
    /// Counts one write of `bytes` bytes that has arrived.
    pub fn wrote(&self, contents: Contents, bytes: u64) {
        self.writes.set(self.writes.get() + 1);
        if contents == Contents::Data {
            let before = self.data.get();
            self.data.set(TimedWrites {
                writes: before.writes + 1,
                bytes: before.bytes + bytes,
                ..before
            });
        }
    }
    /// Ends the measurement, and gives each write an equal part of the time.
    pub fn end(self) {
        let (data, all) = (self.data.get(), self.world.now().since(self.since).as_nanos() as u64);
        if data.writes > 0 {
            let nanoseconds = all / self.writes.get() * data.writes;
            self.auto.note_home_writes(&TimedWrites { nanoseconds, ..data }, self.waited);
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
            let took = CommitClock::begin(at(100), (0, 0)).log_is_done(at(1000), at(before));
            assert_eq!(
                (took.idle, took.log),
                (Duration::from_micros(idle), Duration::from_micros(counted))
            );
        }
    }
}
