//! Sectors that pass under a head without interruption.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Sectors that are consecutive on the medium and in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub start_ns: f64,
    pub each_ns: f64,
    pub sector: u64,
    pub count: u64,
}

impl Run {
    pub fn end_ns(&self) -> f64 {
        self.start_ns + self.each_ns * self.count as f64
    }
    /// Number of its sectors that have passed at `now`.
    pub fn done(&self, now: u64) -> u64 {
        (((now as f64 - self.start_ns) / self.each_ns).max(0.0) as u64).min(self.count)
    }
}
