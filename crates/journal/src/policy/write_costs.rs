//! Costs of writes on this disk, learnt from how long they took.
//!
//! A write takes time for its transfer, and time beyond it. Home writes differ in the latter; log
//! writes show what a byte takes.

use std::time::Duration;
use units::Instant;

/// Share of the weight of earlier observations that each observation leaves.
const KEPT: f64 = 3.0 / 4.0;
/// The corresponding share for commits, for the share that is waited for.
const WAITED_KEPT: f64 = 15.0 / 16.0;
/// Writes of this many bytes show how long a byte takes.
const STREAM: u64 = 256 << 10;
/// Nanoseconds per byte while unknown: few, so that long requests are logged once, which measures
/// it.
const BYTE_AT_FIRST: f64 = 1.0;
/// Factor by which the best time per byte grows with each large write.
const BYTE_FORGETS: f64 = 1.0 + 1.0 / 256.0;
const BYTE_MIN: f64 = 0.05;
/// Weight of the latest log write among earlier ones, and the squared relative difference between
/// them needed to show what a byte takes.
const SLOPE_FORGETS: f64 = 1.0 / 64.0;
const SLOPE_MIN: f64 = 0.01;

/// Least cost of home writes that are waited for, relative to those that nobody waits for.
const UNSORTED: f64 = 2.0;
/// Nanoseconds after which earlier work counts half.
const BUSY_REMEMBERED: f64 = 4e9;

/// Writes of one kind, and the time from the first one's start to the last one's end, with the
/// barrier behind them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedWrites {
    /// Number of writes, each of neighbouring blocks.
    pub writes: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
}

/// Cost of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommitCost {
    /// Writes of data that bypassed the log, before the commit.
    pub home: TimedWrites,
    pub log: TimedWrites,
    /// Whether anyone waited for the commit.
    pub waited: bool,
    /// Whether barriers were kept.
    pub durable: bool,
}

/// Time of writes beyond their transfer.
#[derive(Clone, Copy, Default, Debug)]
struct Beside {
    writes: f64,
    bytes: f64,
    nanoseconds: f64,
}

impl Beside {
    fn add(&mut self, took: &TimedWrites, byte: f64) {
        let beside = (took.nanoseconds as f64 - took.bytes as f64 * byte).max(0.0);
        self.writes = self.writes * KEPT + took.writes as f64;
        self.bytes = self.bytes * KEPT + took.bytes as f64;
        self.nanoseconds = self.nanoseconds * KEPT + beside;
    }
    fn each(&self) -> Option<f64> {
        (self.writes > 0.0).then(|| self.nanoseconds / self.writes)
    }
}

/// Growth of the time of log writes with their bytes: the means, the variance of the bytes, and
/// their covariance with the time.
#[derive(Clone, Copy, Default, Debug)]
struct Slope {
    count: f64,
    bytes: f64,
    nanoseconds: f64,
    square: f64,
    product: f64,
}

/// Share of the time in which the disk was at work.
#[derive(Debug, Default)]
struct Busy {
    /// Time of the last observation, and total time at work until then.
    at: Instant,
    total: Duration,
    /// Recent work, in nanoseconds.
    work: f64,
    time: f64,
}

impl Busy {
    fn note(&mut self, now: Instant, total: Duration) {
        self.work += total.saturating_sub(self.total).as_nanos() as f64;
        self.time += now.since(self.at.min(now)).as_nanos() as f64;
        (self.at, self.total) = (now, total);
        if self.time > BUSY_REMEMBERED {
            self.work /= 2.0;
            self.time /= 2.0;
        }
    }
    fn part(&self) -> f64 {
        if self.time > 0.0 { (self.work / self.time).min(1.0) } else { 1.0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct WriteCosts {
    home: Beside,
    later: Beside,
    log: Slope,
    busy: Busy,
    durable: bool,
    /// Bytes of commits, and of those that someone waited for.
    written: f64,
    waited: f64,
    /// Upper bound of the nanoseconds per byte.
    byte_max: Option<f64>,
}

impl WriteCosts {
    /// Returns the nanoseconds beyond its transfer of a home write that someone waits for; `None`
    /// if there was none yet.
    ///
    /// Without barriers the cache of a drive takes a few writes at once, and later ones wait for
    /// those before them. So the estimate is at least twice that of the writes that nobody waits
    /// for, which are sorted and numerous.
    pub fn home(&self) -> Option<f64> {
        let home = self.home.each()?;
        Some(if self.durable { home } else { home.max(self.later().unwrap_or(0.0) * UNSORTED) })
    }
    /// Returns the nanoseconds beyond its transfer of a home write that nobody waits for.
    pub fn later(&self) -> Option<f64> {
        self.later.each()
    }
    /// Returns the nanoseconds of a commit's log write beyond its transfer.
    pub fn commit(&self) -> f64 {
        self.log.beside(self.byte())
    }
    /// Returns the share of the time in which the home disk is at work.
    pub fn utilization(&self) -> f64 {
        self.busy.part()
    }
    /// Returns the share of written bytes that someone waits for.
    pub fn waited(&self) -> f64 {
        if self.written > 0.0 { self.waited / self.written } else { 1.0 }
    }
    /// Returns how many such writes take `bytes` of `requests` requests home: fewer than these
    /// where several changed neighbouring blocks.
    pub fn later_writes(&self, requests: f64, bytes: f64) -> f64 {
        let Beside { writes, bytes: of_writes, .. } = self.later;
        if of_writes > 0.0 { requests.min(bytes * writes / of_writes) } else { requests }
    }
    /// Returns the nanoseconds per byte.
    pub fn byte(&self) -> f64 {
        let slope = self.log.each().or(self.byte_max).unwrap_or(BYTE_AT_FIRST);
        slope.clamp(BYTE_MIN, self.byte_max.unwrap_or(f64::MAX).max(BYTE_MIN))
    }

    /// Records home writes that no commit waited for. `waited`: a sync did.
    pub fn note_home_writes(&mut self, took: &TimedWrites, waited: bool) {
        self.streamed(took);
        self.add(took, waited);
    }
    /// Records a commit. `busy`: total time that the home disk has been at work.
    pub fn committed(&mut self, now: Instant, busy: Duration, cost: &CommitCost) {
        self.busy.note(now, busy);
        self.durable = cost.durable;
        if cost.durable {
            self.streamed(&cost.home);
        }
        self.streamed(&cost.log);
        self.log.add(cost.log.bytes as f64, cost.log.nanoseconds as f64);
        self.add(&cost.home, cost.waited);
        let bytes = (cost.home.bytes + cost.log.bytes) as f64;
        self.written = self.written * WAITED_KEPT + bytes;
        self.waited = self.waited * WAITED_KEPT + if cost.waited { bytes } else { 0.0 };
    }
    fn add(&mut self, took: &TimedWrites, waited: bool) {
        if took.writes > 0 {
            let byte = self.byte();
            let sum = if waited { &mut self.home } else { &mut self.later };
            sum.add(took, byte);
        }
    }
    /// Updates the bound from a large write, which takes its transfer and some time beyond: the
    /// shortest time is the best estimate.
    fn streamed(&mut self, took: &TimedWrites) {
        if took.bytes >= STREAM {
            let each = took.nanoseconds as f64 / took.bytes as f64;
            self.byte_max =
                Some(self.byte_max.map_or(each, |byte| (byte * BYTE_FORGETS).min(each)));
        }
    }
}

impl Slope {
    fn add(&mut self, bytes: f64, nanoseconds: f64) {
        self.count += 1.0;
        let part = (1.0 / self.count).max(SLOPE_FORGETS);
        let (off, slower) = (bytes - self.bytes, nanoseconds - self.nanoseconds);
        self.bytes += part * off;
        self.nanoseconds += part * slower;
        self.square = (1.0 - part) * (self.square + part * off * off);
        self.product = (1.0 - part) * (self.product + part * off * slower);
    }
    /// Returns the time of the mean write beyond its transfer, at `byte` nanoseconds per byte.
    fn beside(&self, byte: f64) -> f64 {
        (self.nanoseconds - self.bytes * byte).max(0.0)
    }
    /// Returns the additional time per byte; `None` where all writes are equally long.
    fn each(&self) -> Option<f64> {
        let differ = self.square > self.bytes * self.bytes * SLOPE_MIN;
        (differ && self.product.is_finite()).then(|| self.product / self.square)
    }
}
