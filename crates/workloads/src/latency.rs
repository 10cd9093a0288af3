use hdrhistogram::Histogram;
use std::time::Duration;

/// Latencies of operations. Bounded memory, three significant digits, up to an hour.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

/// The mean and the percentiles people ask for, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct LatencySummary {
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

const LONGEST: Duration = Duration::from_secs(3600);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(
            Histogram::new_with_max(LONGEST.as_nanos() as u64, 3)
                .expect("the bounds are constants"),
        )
    }
}

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }
    pub fn count(&self) -> u64 {
        self.0.len()
    }
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile| self.0.value_at_quantile(quantile);
        LatencySummary {
            mean_ns: self.0.mean() as u64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: self.0.max(),
        }
    }
}
