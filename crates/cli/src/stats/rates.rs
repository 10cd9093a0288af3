//! Current rates: the difference of two samples of a daemon's counters, as one line.

use super::{number, sum_of_bytes};
use crate::text::quantity::{format_duration, format_size};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Number of lines under one head.
const LINES_A_HEAD: u64 = 20;

const HEAD: [&str; 9] = [
    "syncs/s",
    "p50",
    "p99",
    "commits/s",
    "group",
    "journal/s",
    "home/s",
    "payload/s",
    "requests/s",
];
/// Head for a host's journal: dirty bytes now, and bytes sent to the store since the mount.
const HOST_HEAD: [&str; 9] = [
    "in memory",
    "in journal",
    "at store",
    "to store/s",
    "commits/s",
    "journal/s",
    "shared/s",
    "recalls/s",
    "requests/s",
];
const WIDTH: usize = 11;

pub struct Rates {
    before: Option<(Instant, Value)>,
    lines: u64,
}

impl Rates {
    pub fn new() -> Rates {
        Rates { before: None, lines: 0 }
    }

    /// Formats a line, with a head where one is due. `None` for the first sample, which nothing
    /// precedes.
    pub fn line(&mut self, now: Instant, statistics: &Value) -> Option<String> {
        let before = self.before.replace((now, statistics.clone()));
        let (then, before) = before?;
        let (names, cells): (_, fn(Duration, &Value, &Value) -> _) =
            if statistics["host"].is_object() { (HOST_HEAD, host_cells) } else { (HEAD, cells) };
        let head = if self.lines % LINES_A_HEAD == 0 {
            row(names.map(String::from))
        } else {
            String::new()
        };
        self.lines += 1;
        Some(head + &row(cells(now - then, &before, statistics)))
    }
}

fn row(cells: [String; HEAD.len()]) -> String {
    let cells = cells.map(|cell| format!("{cell:>WIDTH$}"));
    format!("{}\n", cells.concat())
}

fn cells(time: Duration, before: &Value, after: &Value) -> [String; HEAD.len()] {
    let seconds = time.as_secs_f64().max(1e-9);
    let more = |of: &dyn Fn(&Value) -> u64| of(after).saturating_sub(of(before));
    let a_second = |count: u64| count as f64 / seconds;
    let bytes = |count: u64| format_size(a_second(count) as u64);
    let engine = |name: &'static str| more(&|all| number(&all["engine"][name]));
    let commits = engine("commits");
    let group = match commits {
        0 => "-".to_owned(),
        _ => format!("{:.1}", engine("handles") as f64 / commits as f64),
    };
    let latency = |part: f64| quantile(part, before, after).map_or("-".into(), format_duration);
    [
        format!("{:.0}", a_second(more(&|all| number(&all["engine"]["sync"]["count"])))),
        latency(0.5),
        latency(0.99),
        format!("{:.0}", a_second(commits)),
        group,
        bytes(more(&|all| sum_of_bytes(&all["engine"]["log_written"]))),
        bytes(more(&|all| sum_of_bytes(&all["engine"]["home_written"]))),
        bytes(engine("payload_bytes")),
        format!("{:.0}", a_second(more(&|all| number(&all["front_end"]["requests"])))),
    ]
}

fn host_cells(time: Duration, before: &Value, after: &Value) -> [String; HEAD.len()] {
    let seconds = time.as_secs_f64().max(1e-9);
    let now = |name: &str| number(&after["host"][name]);
    let a_second =
        |name: &str| now(name).saturating_sub(number(&before["host"][name])) as f64 / seconds;
    let bytes_a_second = |name: &str| format_size(a_second(name) as u64);
    let requests = |all: &Value| number(&all["front_end"]["requests"]);
    [
        format_size(now("dirty_in_memory")),
        format_size(now("dirty_in_journal")),
        format_size(now("destaged_bytes")),
        bytes_a_second("destaged_bytes"),
        format!("{:.0}", a_second("commits")),
        bytes_a_second("log_bytes_written"),
        bytes_a_second("shared_bytes"),
        format!("{:.0}", a_second("recalls")),
        format!("{:.0}", requests(after).saturating_sub(requests(before)) as f64 / seconds),
    ]
}

/// Returns the class of the quantile of the syncs between two samples.
fn quantile(part: f64, before: &Value, after: &Value) -> Option<Duration> {
    let classes = |all: &Value| {
        let classes = all["engine"]["sync"]["classes"].as_array().into_iter().flatten();
        classes
            .map(|class| (number(&class["nanoseconds_max"]), number(&class["count"])))
            .collect::<Vec<_>>()
    };
    let old = classes(before);
    let between: Vec<(u64, u64)> = classes(after)
        .into_iter()
        .enumerate()
        .map(|(at, (most, count))| {
            (most, count.saturating_sub(old.get(at).map_or(0, |(_, count)| *count)))
        })
        .collect();
    let all: u64 = between.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut seen = 0;
    let found = between.into_iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    found.filter(|_| all > 0).map(|(most, _)| Duration::from_nanos(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn a_line_has_what_happened_between_two_looks() {
        let before = sample();
        let mut after = before.clone();
        after["engine"]["commits"] = 13.into();
        after["engine"]["handles"] = 40.into();
        after["engine"]["sync"]["count"] = 27.into();
        after["engine"]["sync"]["classes"][2]["count"] = 21.into();
        after["engine"]["log_written"]["multiwrite"]["bytes"] = 28_672.into();
        after["front_end"]["requests"] = 32.into();
        let (start, mut rates) = (Instant::now(), Rates::new());
        assert_eq!(rates.line(start, &before), None, "nothing to compare with");
        let text = rates.line(start + Duration::from_secs(2), &after).unwrap();
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], HEAD);
        assert_eq!(
            words[1],
            [
                "10", "200.0", "us", "200.0", "us", "5", "3.4", "10.0", "KiB", "0", "B", "0", "B",
                "10"
            ]
        );
        let idle = rates.line(start + Duration::from_secs(3), &after).unwrap();
        assert_eq!(idle.lines().count(), 1, "one head for many lines");
        assert!(idle.contains('-'), "no sync, no latency: {idle}");
    }

    #[test]
    fn a_line_of_a_host_has_its_dirty_bytes() {
        let before = serde_json::json!({
            "host": {
                "dirty_in_memory": 9, "dirty_in_journal": 4096, "destaged_bytes": 1024, "commits": 2,
            },
            "front_end": { "requests": 1 },
        });
        let mut after = before.clone();
        (after["host"]["dirty_in_memory"], after["host"]["destaged_bytes"]) =
            (0.into(), 5120.into());
        (after["host"]["commits"], after["front_end"]["requests"]) = (12.into(), 41.into());
        let (start, mut rates) = (Instant::now(), Rates::new());
        assert_eq!(rates.line(start, &before), None, "nothing to compare with");
        let text = rates.line(start + Duration::from_secs(2), &after).unwrap();
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows[0], HOST_HEAD.join(" "));
        assert_eq!(rows[1], "0 B 4.0 KiB 5.0 KiB 2.0 KiB 5 0 B 0 B 0 20");
    }
}
