//! Block traces for figures 6 to 8: given ones, or synthetic ones where none is given; and mixes of
//! them.

use crate::{Context, FigureError};
use emulated::replay::{Recorded, Timing, Trace};
use std::path::Path;
use std::time::Duration;
use workloads::ActorRandom;

/// Requests of one tenant.
pub struct Tenant {
    pub name: String,
    /// Requests, sorted by time since the first.
    pub requests: Vec<Recorded>,
}

/// Returns the traces in the given directory, sorted by name; otherwise synthetic ones, an hour
/// each.
pub fn tenants(context: &Context) -> Result<Vec<Tenant>, FigureError> {
    let Some(directory) = &context.block_traces else {
        let seconds = if context.quick { 20 } else { 3600 };
        return Ok(KINDS.iter().map(|kind| kind.of(context).make(context.seed, seconds)).collect());
    };
    let mut paths: Vec<_> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    if paths.is_empty() {
        return Err(FigureError::Other(format!("{}: no trace is in it", directory.display())));
    }
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Tenant, FigureError> {
    let wrong = |why: String| FigureError::Other(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let trace = Trace::parse(&text, u64::MAX).map_err(|error| wrong(error.to_string()))?;
    if trace.timing != Timing::Timestamps {
        return Err(wrong("its requests have no times".into()));
    }
    let mut requests = trace.requests;
    let begin = requests.first().map_or(Duration::ZERO, |request| request.time);
    requests.iter_mut().for_each(|request| request.time -= begin);
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Tenant { name, requests })
}

/// The kind of server that a synthetic trace is modelled after. The numbers are chosen.
struct ServerKind {
    name: &'static str,
    /// Average requests per second; each minute has another rate.
    per_second: f64,
    /// Share of reads among the requests.
    reads: f64,
    /// Sizes in KiB, each equally likely.
    sizes: &'static [u64],
    /// Average number of requests in a sequential stream.
    row: f64,
    /// GiB of the disk that are used, and the share of sequential streams that begin in the first
    /// hundredth of it.
    span: u64,
    hot: f64,
}

const KINDS: [ServerKind; 5] = [
    ServerKind {
        name: "maps",
        per_second: 20.0,
        reads: 0.85,
        sizes: &[16, 64, 64, 128],
        row: 8.0,
        span: 150,
        hot: 0.1,
    },
    ServerKind {
        name: "mail",
        per_second: 15.0,
        reads: 0.45,
        sizes: &[8, 8, 16, 32],
        row: 1.3,
        span: 100,
        hot: 0.4,
    },
    ServerKind {
        name: "build",
        per_second: 20.0,
        reads: 0.25,
        sizes: &[4, 8, 16, 64],
        row: 3.0,
        span: 60,
        hot: 0.3,
    },
    ServerKind {
        name: "directory",
        per_second: 8.0,
        reads: 0.3,
        sizes: &[4, 4, 8],
        row: 1.1,
        span: 20,
        hot: 0.7,
    },
    ServerKind {
        name: "database",
        per_second: 12.0,
        reads: 0.5,
        sizes: &[8, 8, 8, 64],
        row: 2.0,
        span: 100,
        hot: 0.5,
    },
];

impl ServerKind {
    /// Returns the kind with the numbers of a run.
    fn of(&self, context: &Context) -> ServerKind {
        let number = |name, chosen| context.overrides.number("blocks", name, chosen);
        ServerKind {
            per_second: number("per_second", self.per_second),
            reads: number("reads", self.reads),
            row: number("row", self.row),
            span: context.overrides.whole("blocks", "span", self.span),
            hot: number("hot", self.hot),
            ..*self
        }
    }
    fn make(&self, seed: u64, seconds: u32) -> Tenant {
        let number = KINDS.iter().position(|kind| kind.name == self.name).unwrap_or_default();
        let random = ActorRandom::new(seed, number as u64);
        let (mut time, mut requests, mut at, mut left, mut is_write) =
            (0.0, Vec::new(), 0, 0u64, false);
        let (mut minute, mut rate) = (u64::MAX, self.per_second);
        let blocks = self.span << 18;
        while time < f64::from(seconds) {
            if time as u64 / 60 != minute {
                minute = time as u64 / 60;
                // From a third to three times the average.
                rate = self.per_second * 3f64.powf(2.0 * random.fraction() - 1.0);
            }
            if left == 0 {
                left = 1 + random.size_around(((self.row - 1.0) * 1000.0) as u64) / 1000;
                is_write = random.fraction() >= self.reads;
                let within = if random.fraction() < self.hot { blocks / 100 } else { blocks };
                at = random.below(within) << 12;
            }
            let length = self.sizes[random.below(self.sizes.len() as u64) as usize] << 10;
            requests.push(Recorded {
                is_write,
                at,
                length,
                time: Duration::from_secs_f64(time),
                measured: None,
            });
            (at, left) = (at + length, left - 1);
            time -= (1.0 - random.fraction()).ln() / rate;
        }
        Tenant { name: self.name.into(), requests }
    }
}

/// Part of a trace that a tenant of a mix plays.
#[derive(Clone, Copy, PartialEq)]
pub enum Window {
    MostWrites,
    MostReads,
    Random,
}

/// The paper's five: Table Ib has one kind of window for the first trace of a mix, and another for
/// the four others.
pub const MIXES: [(&str, Window, Window); 5] = [
    ("W1", Window::MostWrites, Window::MostReads),
    ("W2", Window::MostReads, Window::MostWrites),
    ("W3", Window::MostReads, Window::Random),
    ("W4", Window::MostWrites, Window::MostReads),
    ("W5", Window::MostReads, Window::Random),
];
const TENANTS: usize = 5;
/// Upper bound of a mix's average requests per second: half of what such a disk does at random.
/// Faster mixes are slowed down.
const PER_SECOND: f64 = 40.0;

impl Window {
    /// Finds the beginning among the tenths of the trace's length, overlapping no taken window if
    /// possible.
    fn find(
        self,
        requests: &[Recorded],
        length: Duration,
        random: &ActorRandom,
        taken: &[Duration],
    ) -> Duration {
        let last =
            requests.last().map_or(Duration::ZERO, |request| request.time).saturating_sub(length);
        let count = (last.as_nanos() / (length.as_nanos() / 10).max(1)) as u32 + 1;
        let all: Vec<Duration> = (0..count).map(|number| length / 10 * number).collect();
        let is_free =
            |begin: &&Duration| taken.iter().all(|other| begin.abs_diff(*other) >= length);
        let free: Vec<Duration> = all.iter().filter(is_free).copied().collect();
        let begins = if free.is_empty() { all } else { free };
        if self == Window::Random {
            return begins[random.below(begins.len() as u64) as usize];
        }
        let wanted = |begin: &Duration| {
            let from = requests.partition_point(|request| request.time < *begin);
            let until = requests.partition_point(|request| request.time < *begin + length);
            let wanted = |request: &&Recorded| request.is_write == (self == Window::MostWrites);
            requests[from..until].iter().filter(wanted).count()
        };
        // The first of the windows with the maximum.
        begins.into_iter().rev().max_by_key(wanted).unwrap_or_default()
    }
}

/// Mixes five tenants' windows, each in its own fifth of the disk, slowed down together if they are
/// too many. Also returns the factor.
pub fn mix(
    number: usize,
    tenants: &[Tenant],
    context: &Context,
    size: u64,
    seconds: u64,
) -> (Vec<Recorded>, f64) {
    let (_, first, others) = MIXES[number];
    let length = Duration::from_secs(seconds);
    let random = ActorRandom::new(context.seed, number as u64);
    let mut mixed: Vec<Recorded> = Vec::new();
    let mut taken = vec![Vec::new(); tenants.len()];
    for place in 0..TENANTS {
        // Each mix begins with another tenant.
        let tenant = (number + place) % tenants.len();
        let requests = &tenants[tenant].requests;
        let window = if place == 0 { first } else { others };
        let begin = window.find(requests, length, &random, &taken[tenant]);
        taken[tenant].push(begin);
        let from = requests.partition_point(|request| request.time < begin);
        let until = requests.partition_point(|request| request.time < begin + length);
        let fifth = size / TENANTS as u64 / 4096 * 4096;
        mixed.extend(requests[from..until].iter().map(|request| Recorded {
            at: request.at % (fifth - request.length.min(fifth)).max(1) / 512 * 512
                + place as u64 * fifth,
            time: request.time - begin,
            measured: None,
            ..request.clone()
        }));
    }
    mixed.sort_by_key(|request| request.time);
    // A slowed trace does not reach its end: after a burst at the beginning more remains than on
    // average.
    let count =
        |slower: f64| mixed.partition_point(|request| request.time.mul_f64(slower) < length);
    let mut slower = 1.0;
    let per_second = context.overrides.number("blocks", "PER_SECOND", PER_SECOND);
    while count(slower) as f64 > per_second * seconds as f64 {
        slower *= 1.05;
    }
    mixed.truncate(count(slower));
    mixed.iter_mut().for_each(|request| request.time = request.time.mul_f64(slower));
    (mixed, slower)
}

/// Returns the hour with the most writes.
pub fn busiest_hour(tenant: &Tenant) -> Vec<Recorded> {
    let hour = Duration::from_secs(3600);
    let begin = Window::MostWrites.find(&tenant.requests, hour, &ActorRandom::new(0, 0), &[]);
    let inside = |request: &&Recorded| (begin..begin + hour).contains(&request.time);
    let of_hour = tenant.requests.iter().filter(inside);
    of_hour.map(|request| Recorded { time: request.time - begin, ..request.clone() }).collect()
}

/// Returns what the names of rows of given traces begin with; nothing for made ones, whose rows are
/// not counted.
pub fn given(context: &Context) -> &'static str {
    if context.block_traces.is_some() { "given-" } else { "" }
}

/// Returns the title of a picture of traces; it says so if they were given.
pub fn titled(context: &Context, title: &str) -> String {
    match context.block_traces {
        Some(_) => format!("{title} (given traces)"),
        None => title.into(),
    }
}

/// Describes which traces were played.
pub fn note(context: &Context, tenants: &[Tenant]) -> String {
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    match context.block_traces {
        Some(_) => format!(
            "Given traces (--block-traces): {}. Rules were chosen on the recorded hour of CloudPhysics (docs/notes/figures.md), so rows judge other hours alone.",
            names.join(", ")
        ),
        None => format!(
            "No traces were given (--block-traces), so made ones stand in the place of the paper's ten Microsoft servers: {}. Their rates, \
             sizes and places are chosen after what such servers do (reproduce/figures/manylogs/block_traces).",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Vec<Tenant> {
        KINDS.iter().map(|kind| kind.make(3, 600)).collect()
    }

    #[test]
    fn mixes_keep_tenants_apart_and_to_the_rate() {
        let (tenants, size) = (made(), 1_000_000_000_000);
        for number in 0..MIXES.len() {
            let (mixed, slower) = mix(number, &tenants, &crate::test_figure::context(3), size, 60);
            assert!(
                slower >= 1.0 && mixed.len() as f64 <= 60.0 * PER_SECOND,
                "{slower}, {}",
                mixed.len()
            );
            assert!(mixed.is_sorted_by_key(|request| request.time));
            assert!(mixed.iter().all(|request| request.at + request.length <= size));
            assert!(
                mixed.iter().any(|request| request.is_write)
                    && mixed.iter().any(|request| !request.is_write)
            );
        }
    }

    #[test]
    fn the_window_with_the_most_writes_is_found() {
        let request = |second: u64| Recorded {
            is_write: second >= 50,
            at: 0,
            length: 512,
            time: Duration::from_secs(second),
            measured: None,
        };
        let requests: Vec<Recorded> = (0..100).map(request).collect();
        let length = Duration::from_secs(10);
        let find = |window: Window, taken: &[u64]| {
            let taken: Vec<_> = taken.iter().copied().map(Duration::from_secs).collect();
            window.find(&requests, length, &ActorRandom::new(1, 1), &taken).as_secs()
        };
        assert_eq!((find(Window::MostReads, &[]), find(Window::MostWrites, &[])), (0, 50));
        assert_eq!((find(Window::MostReads, &[0]), find(Window::MostWrites, &[55])), (10, 65));
    }
}
