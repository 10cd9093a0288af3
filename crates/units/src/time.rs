use std::time::Duration;

/// Nanoseconds since the world began (real: since the program started; virtual: since the run
/// began).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(pub u64);

impl Instant {
    pub const fn plus(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(time.as_nanos() as u64))
    }
    /// Duration since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A point of civil time, as inodes keep it: seconds since 1970 (may be negative) and nanoseconds
/// 0..1e9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}
