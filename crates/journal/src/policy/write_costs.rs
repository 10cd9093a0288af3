//! What writes cost on this disk: learnt from how long they took.
//!
//! A write takes time for its bytes, and a time beside. Home writes differ in the time beside; log
//! writes tell what a byte takes.

use std::time::Duration;
use units::Instant;

/// Each observation leaves this part of the weight of those before.
const KEPT: f64 = 3.0 / 4.0;
/// The same of commits, for who waits.
const WAITED_KEPT: f64 = 15.0 / 16.0;
/// Writes of so many bytes tell how long a byte takes.
const STREAM: u64 = 256 << 10;
/// Nanoseconds that a byte takes as long as nobody knows: few, so that long requests are logged
/// once, which tells.
const BYTE_AT_FIRST: f64 = 1.0;
/// A byte may take longer than it did at best: so much with each long write.
const BYTE_FORGETS: f64 = 1.0 + 1.0 / 256.0;
const BYTE_MIN: f64 = 0.05;
/// The weight of the latest log write among those before. And how far they must differ, squared, to
/// tell what a byte takes.
const SLOPE_FORGETS: f64 = 1.0 / 64.0;
const SLOPE_MIN: f64 = 0.01;

/// Home writes that someone waits for, over those that nobody waits for.
const UNSORTED: f64 = 2.0;
/// Nanoseconds after which the work before counts half.
const BUSY_REMEMBERED: f64 = 4e9;

/// Writes of one kind, and the time from the first one's start to the last one's end, with the
/// barrier behind them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedWrites {
    /// Each of neighbouring blocks.
    pub writes: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
}

/// What a commit took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommitCost {
    /// Data that bypassed the log, before the commit.
    pub home: TimedWrites,
    pub log: TimedWrites,
    /// Whether anyone waited for it.
    pub waited: bool,
    /// Whether barriers were kept.
    pub durable: bool,
}

/// How long a write takes beside its bytes.
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

/// How the time of log writes grows with their bytes: means, and how both differ from them
/// together.
#[derive(Clone, Copy, Default, Debug)]
struct Slope {
    count: f64,
    bytes: f64,
    nanoseconds: f64,
    square: f64,
    product: f64,
}

/// Which part of the time the disk was at work.
#[derive(Debug, Default)]
struct Busy {
    /// When this was last asked, and for how long it had been at work until then.
    at: Instant,
    total: Duration,
    /// Of late, in nanoseconds.
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
    /// At most so many nanoseconds for a byte.
    byte_max: Option<f64>,
}

impl WriteCosts {
    /// Nanoseconds that a home write takes beside its bytes that someone waits for; `None`: there
    /// was none yet.
    ///
    /// Without barriers the cache of a drive takes a few writes at once, and many wait for those
    /// before them. So it is not believed that one takes less than twice as long as those that
    /// nobody waits for, which are sorted and many.
    pub fn home(&self) -> Option<f64> {
        let home = self.home.each()?;
        Some(if self.durable { home } else { home.max(self.later().unwrap_or(0.0) * UNSORTED) })
    }
    /// The same of a home write that nobody waits for.
    pub fn later(&self) -> Option<f64> {
        self.later.each()
    }
    /// What a commit's log takes beside its bytes.
    pub fn commit(&self) -> f64 {
        self.log.beside(self.byte())
    }
    /// Which part of the time the disk of home is at work.
    pub fn busy(&self) -> f64 {
        self.busy.part()
    }
    /// Which part of what is written someone waits for.
    pub fn waited(&self) -> f64 {
        if self.written > 0.0 { self.waited / self.written } else { 1.0 }
    }
    /// So many of those make `bytes` go home, of so many requests. They are fewer where neighbours
    /// were changed by several.
    pub fn later_writes(&self, requests: f64, bytes: f64) -> f64 {
        let Beside { writes, bytes: of_writes, .. } = self.later;
        if of_writes > 0.0 { requests.min(bytes * writes / of_writes) } else { requests }
    }
    /// Nanoseconds for a byte.
    pub fn byte(&self) -> f64 {
        let slope = self.log.each().or(self.byte_max).unwrap_or(BYTE_AT_FIRST);
        slope.clamp(BYTE_MIN, self.byte_max.unwrap_or(f64::MAX).max(BYTE_MIN))
    }

    /// Data went home that no commit waited for. `waited`: a sync did.
    pub fn note_home_writes(&mut self, took: &TimedWrites, waited: bool) {
        self.streamed(took);
        self.add(took, waited);
    }
    /// `busy`: for how long the disk of home has been at work, in all.
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
    /// A long write takes what its bytes take, and something beside: the shortest time is the best
    /// guess.
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
    /// What the mean write takes beside its bytes, if each takes so long.
    fn beside(&self, byte: f64) -> f64 {
        (self.nanoseconds - self.bytes * byte).max(0.0)
    }
    /// How much longer a write takes for each byte; `None` where all are as long.
    fn each(&self) -> Option<f64> {
        let differ = self.square > self.bytes * self.bytes * SLOPE_MIN;
        (differ && self.product.is_finite()).then(|| self.product / self.square)
    }
}
