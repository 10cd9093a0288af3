//! Schedules on which all that is committed is written home though neither log nor memory is short
//! (`checkpoint=`). Also what was saved by waiting: neighbours that were written home together, and
//! versions of blocks that never did.
//!
//! Invariants
//! 1. Between the ends of two checkpoints everything is counted that was logged, and everything
//!    that were written home from the log, by any task. Blocks of files of which durability is
//!    enough are not: no checkpoint brings them home.

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::time::Duration;
use units::{HomeBlock, Instant};

/// The `checkpoint=` option of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointTimes {
    /// Writes each block back by itself, when it is old enough (`writeback=`, `expire=`).
    #[default]
    ByAge,
    /// Writes everything back this long after the first change or the last checkpoint.
    Periodic(Duration),
    /// Writes everything back when nothing was committed or read from home for this long.
    Idle(Duration),
    /// Writes everything back within these hours.
    OffHours(OffHours),
    /// Writes back on request only.
    Manual,
}

/// Hours of the day from `from` until `to` begins, perhaps over midnight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffHours {
    from: i64,
    to: i64,
    /// Offset of the hours' clock.
    seconds_east: i64,
}

impl OffHours {
    /// Hours of UTC. `None`: they are equal, or not hours of the day.
    pub fn between(from: u8, to: u8) -> Option<OffHours> {
        let are_hours = from < 24 && to < 24 && from != to;
        are_hours.then(|| OffHours { from: from.into(), to: to.into(), seconds_east: 0 })
    }
    /// Returns the hour in which they begin, and the hour before which they end.
    pub fn hours(self) -> (i64, i64) {
        (self.from, self.to)
    }
    /// The hours of a clock that is so far ahead of UTC.
    #[must_use]
    pub fn of_clock(self, seconds_east: i64) -> OffHours {
        OffHours { seconds_east, ..self }
    }
    fn holds(self, wall_clock: i64) -> bool {
        let hour = (wall_clock + self.seconds_east).rem_euclid(24 * 3600) / 3600;
        match self.from < self.to {
            true => (self.from..self.to).contains(&hour),
            false => hour >= self.from || hour < self.to,
        }
    }
}

impl CheckpointTimes {
    /// Returns the interval at which to check the schedule. `writeback`: how often write-back
    /// looks.
    pub(crate) fn pause(self, writeback: Duration) -> Duration {
        match self {
            CheckpointTimes::Periodic(time) | CheckpointTimes::Idle(time) => time.min(writeback),
            _ => writeback,
        }
    }
}

/// Result of a checkpoint, and the writes saved since the one before.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Blocks of transactions that are to be written home, and the writes that they would have
    /// taken one by one: neighbours of one transaction are one.
    pub blocks_logged: u64,
    pub writes_logged: u64,
    /// Blocks among these that were written back.
    pub blocks_written: u64,
    pub writes: u64,
    /// Percent: blocks that later ones overwrote, and writes that were merged.
    pub blocks_skipped: f64,
    pub writes_merged: f64,
    /// Duration of this checkpoint.
    pub nanoseconds: u64,
}

/// Progress of a checkpoint.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct CheckpointProgress {
    pub is_under_way: bool,
    /// Blocks that were to be written home when it began, and those that still are.
    pub blocks: u64,
    pub blocks_left: u64,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    blocks_logged: u64,
    writes_logged: u64,
    blocks_written: u64,
    writes: u64,
}

/// State of checkpoints.
#[derive(Default)]
pub(crate) struct Checkpoints {
    counted: Cell<Counted>,
    /// Counts at the end of the last checkpoint.
    before: Cell<Counted>,
    last: Cell<CheckpointReport>,
    progress: Cell<CheckpointProgress>,
    /// Time since when there is work that the last checkpoint did not do.
    waits_since: Cell<Option<Instant>>,
    /// Amount of other activity, and the time since when it has not grown.
    activity: Cell<Option<(u64, Instant)>>,
    /// Amount of activity at the last round of write-back.
    last_round: Cell<Option<u64>>,
}

impl Checkpoints {
    /// A transaction is committed that has these blocks.
    pub fn logged(&self, blocks: impl Iterator<Item = HomeBlock>) {
        let (mut counted, mut last) = (self.counted.get(), None);
        for block in blocks {
            counted.blocks_logged += 1;
            counted.writes_logged +=
                u64::from(last.is_none_or(|last: HomeBlock| last.plus(1) != block));
            last = Some(block);
        }
        self.counted.set(counted);
    }
    /// Counts blocks of the log that one write has written back.
    pub fn written(&self, blocks: u64) {
        let mut counted = self.counted.get();
        counted.blocks_written += blocks;
        counted.writes += u64::from(blocks > 0);
        self.counted.set(counted);
        let mut progress = self.progress.get();
        progress.blocks_left = progress.blocks_left.saturating_sub(blocks);
        self.progress.set(progress);
    }

    /// Notes that there is work to do, where there was none before.
    pub fn begins_to_wait(&self, now: Instant) {
        self.waits_since.set(Some(now));
        self.activity.set(None);
    }
    /// Whether a checkpoint is scheduled for now; `activity` counts whatever keeps the disk from
    /// being idle.
    pub fn is_due(
        &self,
        times: CheckpointTimes,
        now: Instant,
        wall_clock: i64,
        activity: u64,
    ) -> bool {
        match times {
            CheckpointTimes::ByAge | CheckpointTimes::Manual => false,
            CheckpointTimes::Periodic(time) => match self.waits_since.get() {
                Some(since) => since.plus(time) <= now,
                None => {
                    self.waits_since.set(Some(now));
                    false
                }
            },
            CheckpointTimes::Idle(time) => match self.activity.get() {
                Some((seen, since)) if seen == activity => since.plus(time) <= now,
                _ => {
                    self.activity.set(Some((activity, now)));
                    false
                }
            },
            CheckpointTimes::OffHours(hours) => hours.holds(wall_clock),
        }
    }

    /// Whether nothing else was done since the last round.
    pub fn is_idle_round(&self, activity: u64) -> bool {
        self.last_round.replace(Some(activity)) == Some(activity)
    }

    pub fn begin(&self, blocks: u64) {
        self.progress.set(CheckpointProgress { is_under_way: true, blocks, blocks_left: blocks });
    }
    pub fn end(&self, began: Instant, now: Instant) {
        let (counted, before) = (self.counted.get(), self.before.replace(self.counted.get()));
        let (blocks_logged, writes_logged) = (
            counted.blocks_logged - before.blocks_logged,
            counted.writes_logged - before.writes_logged,
        );
        let (blocks_written, writes) =
            (counted.blocks_written - before.blocks_written, counted.writes - before.writes);
        let spared = |of: u64, done: u64| of.saturating_sub(done) as f64 * 100.0 / of.max(1) as f64;
        self.last.set(CheckpointReport {
            blocks_logged,
            writes_logged,
            blocks_written,
            writes,
            blocks_skipped: spared(blocks_logged, blocks_written),
            writes_merged: spared(writes_logged, writes),
            nanoseconds: now.since(began).as_nanos() as u64,
        });
        self.progress.set(CheckpointProgress { is_under_way: false, ..self.progress.get() });
        self.begins_to_wait(now);
    }

    pub fn last(&self) -> CheckpointReport {
        self.last.get()
    }
    pub fn progress(&self) -> CheckpointProgress {
        self.progress.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn off_hours_are_two_different_hours_of_the_day() {
        for (from, to, are_hours) in
            [(22, 6, true), (0, 23, true), (24, 6, false), (6, 24, false), (6, 6, false)]
        {
            assert_eq!(OffHours::between(from, to).is_some(), are_hours, "{from}-{to}");
        }
    }

    #[test]
    fn off_hours_may_pass_midnight_and_are_of_their_own_clock() {
        let night = OffHours::between(22, 6).unwrap();
        let holds = |hours: OffHours| {
            (0..24).filter(|hour| hours.holds(hour * 3600 + 1800)).collect::<Vec<_>>()
        };
        assert_eq!(holds(night), [0, 1, 2, 3, 4, 5, 22, 23]);
        assert_eq!(holds(OffHours { seconds_east: 7200, ..night }), [0, 1, 2, 3, 20, 21, 22, 23]);
        assert!(night.holds(-3600), "before 1970 is no reason to panic");
        assert_eq!(holds(OffHours::between(9, 11).unwrap()), [9, 10]);
    }

    #[test]
    fn a_period_begins_with_the_first_block_and_rest_with_the_last_activity() {
        let checkpoints = Checkpoints::default();
        let due = |times: CheckpointTimes, at: u64, activity: u64| {
            checkpoints.is_due(times, Instant(at * SECOND), 0, activity)
        };
        let ten = Duration::from_secs(10);
        let (periodic, idle) = (CheckpointTimes::Periodic(ten), CheckpointTimes::Idle(ten));
        checkpoints.begins_to_wait(Instant(100 * SECOND));
        assert!(!due(periodic, 109, 0) && due(periodic, 110, 0));
        checkpoints.end(Instant(0), Instant(110 * SECOND));
        assert!(!due(periodic, 119, 0) && due(periodic, 120, 0));
        assert!(!due(idle, 120, 1) && !due(idle, 129, 1) && due(idle, 130, 1));
        assert!(!due(idle, 131, 2) && !due(idle, 140, 2) && due(idle, 141, 2));
        assert!(!due(CheckpointTimes::Manual, 1000, 2));
    }

    #[test]
    fn shares_are_of_what_was_logged_since_the_last_checkpoint() {
        let checkpoints = Checkpoints::default();
        let log = |blocks: &[u64]| checkpoints.logged(blocks.iter().copied().map(HomeBlock));
        checkpoints.begin(0);
        checkpoints.end(Instant(0), Instant(0));
        log(&[1, 2, 9]);
        log(&[1, 2, 3]);
        checkpoints.begin(4);
        checkpoints.written(3);
        let progress = CheckpointProgress { is_under_way: true, blocks: 4, blocks_left: 1 };
        assert_eq!(checkpoints.progress(), progress);
        checkpoints.written(1);
        checkpoints.end(Instant(0), Instant(SECOND));
        let report = checkpoints.last();
        assert_eq!((report.blocks_logged, report.blocks_written), (6, 4));
        assert_eq!((report.writes_logged, report.writes), (3, 2));
        assert!((report.blocks_skipped - 100.0 / 3.0).abs() < 1e-9, "{report:?}");
        assert!((report.writes_merged - 100.0 / 3.0).abs() < 1e-9, "{report:?}");
    }
}
