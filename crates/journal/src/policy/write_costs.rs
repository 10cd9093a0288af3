//! What writes cost on this disk: learnt from how long they took.
//!
//! A write takes time for its bytes, and a time beside. Home writes differ in the time beside; log writes tell what a byte
//! takes.

/// Each observation leaves this part of the weight of those before.
const KEPT: f64 = 3.0 / 4.0;
/// Writes of so many bytes tell how long a byte takes.
const STREAM: u64 = 256 << 10;
/// Nanoseconds that a byte takes as long as nobody knows: few, so that long requests are logged once, which tells.
const BYTE_AT_FIRST: f64 = 1.0;
/// A byte may take longer than it did at best: so much with each long write.
const BYTE_FORGETS: f64 = 1.0 + 1.0 / 256.0;
const BYTE_MIN: f64 = 0.05;
/// The weight of the latest log write among those before. And how far they must differ, squared, to tell what a byte takes.
const SLOPE_FORGETS: f64 = 1.0 / 64.0;
const SLOPE_MIN: f64 = 0.01;
/// Home writes that nobody waits for are sorted and many. They take such a part of one in a commit, as long as nothing is known.
const LATER_AT_FIRST: f64 = 0.5;

/// Writes of one kind, and the time from the first one's start to the last one's end, with the barrier behind them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Took {
    /// Each of neighbouring blocks.
    pub writes: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
}

/// What a commit took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommitCost {
    /// Data that bypassed the log, before the commit.
    pub home: Took,
    pub log: Took,
}

/// How long a write takes beside its bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Beside {
    writes: f64,
    nanoseconds: f64,
}

impl Beside {
    fn add(&mut self, took: &Took, byte: f64) {
        let beside = (took.nanoseconds as f64 - took.bytes as f64 * byte).max(0.0);
        self.writes = self.writes * KEPT + took.writes as f64;
        self.nanoseconds = self.nanoseconds * KEPT + beside;
    }
    fn each(&self) -> Option<f64> {
        (self.writes > 0.0).then(|| self.nanoseconds / self.writes)
    }
}

/// How the time of log writes grows with their bytes: means, and how both differ from them together.
#[derive(Clone, Copy, Default, Debug)]
struct Slope {
    count: f64,
    bytes: f64,
    nanoseconds: f64,
    square: f64,
    product: f64,
}

#[derive(Debug, Default)]
pub(super) struct WriteCosts {
    home: Beside,
    later: Beside,
    log: Slope,
    /// At most so many nanoseconds for a byte.
    byte_max: Option<f64>,
}

impl WriteCosts {
    /// Nanoseconds that a home write in a commit takes beside its bytes; `None`: there was none.
    pub fn home(&self) -> Option<f64> {
        self.home.each()
    }
    /// The same of a home write that nobody waits for.
    pub fn later(&self) -> Option<f64> {
        let home = self.home()?;
        Some(self.later.each().unwrap_or(home * LATER_AT_FIRST))
    }
    /// Nanoseconds for a byte.
    pub fn byte(&self) -> f64 {
        let slope = self.log.each().or(self.byte_max).unwrap_or(BYTE_AT_FIRST);
        slope.clamp(BYTE_MIN, self.byte_max.unwrap_or(f64::MAX).max(BYTE_MIN))
    }

    /// Blocks that were committed before went home.
    pub fn went_home(&mut self, took: &Took) {
        self.streamed(took);
        let byte = self.byte();
        self.later.add(took, byte);
    }
    pub fn committed(&mut self, cost: &CommitCost) {
        self.streamed(&cost.home);
        self.streamed(&cost.log);
        self.log.add(cost.log.bytes as f64, cost.log.nanoseconds as f64);
        if cost.home.writes > 0 {
            let byte = self.byte();
            self.home.add(&cost.home, byte);
        }
    }
    /// A long write takes what its bytes take, and something beside: the shortest time is the best guess.
    fn streamed(&mut self, took: &Took) {
        if took.bytes >= STREAM {
            let each = took.nanoseconds as f64 / took.bytes as f64;
            self.byte_max = Some(self.byte_max.map_or(each, |byte| (byte * BYTE_FORGETS).min(each)));
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
    /// How much longer a write takes for each byte; `None` where all are as long.
    fn each(&self) -> Option<f64> {
        let differ = self.square > self.bytes * self.bytes * SLOPE_MIN;
        (differ && self.product.is_finite()).then(|| self.product / self.square)
    }
}
