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

/// Time when a bus that moves a sector in `bus_ns` has sent all these sectors: it sends one while
/// the next ones are read.
pub(crate) fn sent_ns(runs: &[Run], bus_ns: f64) -> f64 {
    runs.iter().fold(0.0, |free: f64, run| {
        let sent = free.max(run.start_ns + run.each_ns) + run.count as f64 * bus_ns;
        sent.max(run.end_ns() + bus_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_bus_and_medium_paces_a_read() {
        let run = |start_ns, count| Run { start_ns, each_ns: 10.0, sector: 0, count };
        assert_eq!(sent_ns(&[run(100.0, 4)], 50.0), 110.0 + 4.0 * 50.0);
        assert_eq!(sent_ns(&[run(100.0, 4)], 5.0), 140.0 + 5.0);
        // A slow bus is behind at the next track, a fast one waits for it.
        let tracks = [run(100.0, 4), run(200.0, 2)];
        assert_eq!(sent_ns(&tracks, 50.0), 110.0 + 6.0 * 50.0);
        assert_eq!(sent_ns(&tracks, 5.0), 220.0 + 5.0);
    }
}
