use super::Trace;
use serde::Serialize;

/// Service times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceTimes {
    pub requests: usize,
    pub mean_ms: f64,
    /// Standard deviation.
    pub sd_ms: f64,
    pub p1_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// The model's times beside the measured ones.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub measured: ServiceTimes,
    /// Error of the mean, in percent of the measured one.
    pub mean_error_percent: f64,
    /// Root mean square distance of the sorted times.
    pub demerit_ms: f64,
    pub demerit_percent: f64,
    /// Root mean square difference of each request from its own measured time.
    pub request_error_ms: f64,
    /// Reads and writes apart, if there are both.
    pub reads: Option<KindComparison>,
    pub writes: Option<KindComparison>,
}

/// Reads, or writes, beside the measured ones, as [`Comparison`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KindComparison {
    pub mean_error_percent: f64,
    pub demerit_ms: f64,
    pub demerit_percent: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    pub all: ServiceTimes,
    /// Times of reads, if there are any.
    pub reads: Option<ServiceTimes>,
    pub writes: Option<ServiceTimes>,
    /// The comparison; `None` if the trace has no times of the real drive.
    pub comparison: Option<Comparison>,
}

impl TraceReport {
    /// Creates a report from the result of [`super::run`] for `trace`.
    pub fn new(trace: &Trace, times_ns: &[u64]) -> TraceReport {
        let modelled: Vec<f64> = times_ns.iter().map(|time| *time as f64 / 1e6).collect();
        let of_kind = |is_write| {
            let kind = trace
                .requests
                .iter()
                .zip(&modelled)
                .filter(|(request, _)| request.is_write == is_write);
            let times: Vec<f64> = kind.map(|(_, time)| *time).collect();
            (!times.is_empty()).then(|| ServiceTimes::of(&times))
        };
        let measured: Option<Vec<f64>> = trace
            .requests
            .iter()
            .map(|request| request.measured.map(|time| time.as_secs_f64() * 1e3))
            .collect();
        TraceReport {
            all: ServiceTimes::of(&modelled),
            reads: of_kind(false),
            writes: of_kind(true),
            comparison: measured.map(|measured| {
                let kinds: Vec<bool> =
                    trace.requests.iter().map(|request| request.is_write).collect();
                Comparison::of(&modelled, &measured, &kinds)
            }),
        }
    }
}

impl ServiceTimes {
    fn of(times: &[f64]) -> ServiceTimes {
        let sorted = sorted(times);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
        let percentile =
            |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
        ServiceTimes {
            requests: sorted.len(),
            mean_ms: mean,
            sd_ms: variance.sqrt(),
            p1_ms: percentile(1),
            p50_ms: percentile(50),
            p90_ms: percentile(90),
            p99_ms: percentile(99),
            max_ms: percentile(100),
        }
    }
}

impl Comparison {
    /// `writes`: which requests are writes.
    fn of(modelled: &[f64], measured: &[f64], writes: &[bool]) -> Comparison {
        let has_both = writes.contains(&true) && writes.contains(&false);
        let of_kind = |is_write| {
            let select = |times: &[f64]| -> Vec<f64> {
                let kind = times.iter().zip(writes).filter(|(_, write)| **write == is_write);
                kind.map(|(time, _)| *time).collect()
            };
            has_both.then(|| KindComparison::of(&select(modelled), &select(measured)))
        };
        let KindComparison { mean_error_percent, demerit_ms, demerit_percent } =
            KindComparison::of(modelled, measured);
        Comparison {
            mean_error_percent,
            demerit_ms,
            demerit_percent,
            request_error_ms: distance(modelled, measured),
            measured: ServiceTimes::of(measured),
            reads: of_kind(false),
            writes: of_kind(true),
        }
    }
}

impl KindComparison {
    fn of(modelled: &[f64], measured: &[f64]) -> KindComparison {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let demerit_ms = distance(&sorted(modelled), &sorted(measured));
        KindComparison {
            mean_error_percent: (mean(modelled) / mean(measured) - 1.0) * 100.0,
            demerit_ms,
            demerit_percent: demerit_ms / mean(measured) * 100.0,
        }
    }
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times
}

/// Root mean square difference.
fn distance(these: &[f64], those: &[f64]) -> f64 {
    let sum: f64 = these.iter().zip(those).map(|(this, that)| (this - that).powi(2)).sum();
    (sum / these.len() as f64).sqrt()
}
