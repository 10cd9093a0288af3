//! The text format of Prometheus, version 0.0.4. Every metric has HELP and TYPE, counters end in
//! `_total`, units are seconds and bytes, and the volume is a label. `docs/MONITORING.md` shows how
//! to collect it.

use super::{coerced, number, operations};
use serde_json::Value;
use std::fmt::Write;

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// Numbers of the engine, in the order of the page: name, kind, help, path in the statistics.
const OF_ENGINE: [(&str, &str, &str, &str); 25] = [
    (
        "payload_bytes_total",
        COUNTER,
        "Bytes of file data in committed transactions, as programs wrote them.",
        "/payload_bytes",
    ),
    ("commits_total", COUNTER, "Transactions committed.", "/commits"),
    ("handles_total", COUNTER, "Changes that were committed: several share a commit.", "/handles"),
    (
        "handles_per_commit_max",
        GAUGE,
        "Most changes that one commit carried.",
        "/handles_per_commit_max",
    ),
    ("flushes_total", COUNTER, "Flush commands to the disks.", "/flushes"),
    (
        "durable_writes_total",
        COUNTER,
        "Single writes made durable in place of a flush (FUA).",
        "/durable_writes",
    ),
    (
        "home_write_requests_total",
        COUNTER,
        "Disk requests of write-back and checkpoint.",
        "/home_writes",
    ),
    ("home_read_requests_total", COUNTER, "Disk requests that read blocks at home.", "/home_reads"),
    (
        "redirected_reads_total",
        COUNTER,
        "Blocks read from the journal, because they were not home yet and no longer in memory.",
        "/redirected_reads",
    ),
    (
        "log_swaps_total",
        COUNTER,
        "Scattered logs whose content moved to another one in idle time.",
        "/swaps",
    ),
    (
        "checkpoints_total",
        COUNTER,
        "Rounds in which blocks were written home to free log space.",
        "/checkpoints",
    ),
    ("tail_updates_total", COUNTER, "Times that the log tail moved.", "/tail_updates"),
    ("cache_hits_total", COUNTER, "Blocks found in memory.", "/cache/hits"),
    ("cache_misses_total", COUNTER, "Blocks not found in memory.", "/cache/misses"),
    ("cache_blocks", GAUGE, "Blocks in memory.", "/cache/blocks"),
    (
        "cache_dirty_blocks",
        GAUGE,
        "Blocks in memory that are newer than at home.",
        "/cache/dirty_blocks",
    ),
    ("cache_bytes", GAUGE, "Memory for blocks and what goes with them.", "/cache/bytes"),
    (
        "cache_limit_bytes",
        GAUGE,
        "Bound of that memory (mount option cache).",
        "/cache/limit_bytes",
    ),
    ("journal_blocks", GAUGE, "Blocks of the journal.", "/log/blocks"),
    ("journal_free_blocks", GAUGE, "Blocks of the journal that are free.", "/log/free_blocks"),
    (
        "journal_mapped_blocks",
        GAUGE,
        "Blocks that the journal alone holds as they are now.",
        "/log/mapped_blocks",
    ),
    ("requests_received_total", COUNTER, "Requests of the kernel.", "front_end/requests"),
    (
        "ring_requests_total",
        COUNTER,
        "Requests that came over io_uring.",
        "front_end/ring_requests",
    ),
    (
        "malformed_requests_total",
        COUNTER,
        "Requests that contradict themselves.",
        "front_end/malformed",
    ),
    ("interrupts_total", COUNTER, "Interrupts of requests.", "front_end/interrupts"),
];

/// Help of what a host, whose files the store has, does not know of itself.
const NEEDS_CHECK: &str =
    "Whether errors were found or a recovery left something out, and no checker has looked since.";

/// Numbers of a host's journal in front of a shared store.
const OF_HOST: [(&str, &str, &str, &str); 15] = [
    ("commits_total", COUNTER, "Transactions committed.", "commits"),
    ("host_dirty_memory_bytes", GAUGE, "File data that only memory has.", "dirty_in_memory"),
    (
        "host_dirty_journal_bytes",
        GAUGE,
        "File data in the journal, and not durable at the store.",
        "dirty_in_journal",
    ),
    (
        "host_destaged_bytes_total",
        COUNTER,
        "File data made durable at the store.",
        "destaged_bytes",
    ),
    ("host_destaged_files_total", COUNTER, "Files made durable at the store.", "destaged_files"),
    (
        "host_logged_anew_bytes_total",
        COUNTER,
        "File data logged once more, as the journal was short.",
        "logged_anew_bytes",
    ),
    (
        "host_shared_bytes_total",
        COUNTER,
        "Written past the journal, to shared files.",
        "shared_bytes",
    ),
    ("host_failed_files", GAUGE, "Files that the store refuses to take.", "failed_files"),
    ("host_held_bytes", GAUGE, "File data that the store buffers in memory.", "held_bytes"),
    (
        "host_set_aside_files_total",
        COUNTER,
        "Files of which something was set aside in okeanos-conflicts.",
        "set_aside_files",
    ),
    ("host_recalls_total", COUNTER, "Tokens that the store took back.", "recalls"),
    (
        "host_reconnections_total",
        COUNTER,
        "Connections that were lost and came back.",
        "reconnections",
    ),
    (
        "host_journal_written_bytes_total",
        COUNTER,
        "Bytes written to the journal.",
        "log_bytes_written",
    ),
    ("host_journal_bytes", GAUGE, "Size of the journal.", "log_capacity"),
    ("host_journal_used_bytes", GAUGE, "Of it, what is in use.", "log_used"),
];

/// Numbers of the daemon's ring.
const OF_RING: [(&str, &str, &str); 7] = [
    ("ring_operations_total", "Operations given to io_uring.", "operations"),
    ("ring_enters_total", "System calls for them.", "enters"),
    ("ring_failed_sends_total", "Answers that the kernel did not take.", "failed_sends"),
    ("ring_full_queues_total", "Times that the submission queue was full.", "full_queues"),
    ("polls_total", "Times that the daemon stayed awake for the next request.", "polls"),
    ("polls_in_vain_total", "Times that none came.", "polls_in_vain"),
    (
        "keeps_awake_total",
        "Times that the processors of others were kept awake from then on.",
        "keeps_awake",
    ),
];

const OF_EVICTIONS: [(&str, &str, &str); 4] = [
    ("evictions_total", "Evictions of a disk's cache that stood for a flush.", "evictions"),
    ("eviction_barriers_total", "Barriers that asked for an eviction.", "barriers"),
    ("eviction_bytes_total", "Bytes written to evict.", "bytes"),
    ("eviction_seconds_total", "Time that evictions took.", "nanoseconds"),
];

pub fn exposition(statistics: &Value) -> String {
    let about = &statistics["about"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut page = Page { text: String::new(), volume: word(&about["directory"]) };
    if let Some(drives) = statistics["drives"].as_array() {
        drives_of(drives, &mut page);
        return page.text;
    }
    page.head("info", GAUGE, "What is mounted, by labels; always 1.");
    let info = [("source", word(&about["source"])), ("data", word(&about["data"]))];
    let more =
        [("transport", word(&statistics["transport"])), ("version", word(&about["version"]))];
    let labels: Vec<(&str, &str)> =
        info.iter().chain(&more).map(|(name, value)| (*name, value.as_str())).collect();
    page.sample("info", &labels, "1");
    let yes_no = |value: bool| u8::from(value).to_string();
    page.head(
        "failed",
        GAUGE,
        "Whether an error has stopped the volume: nothing is written any more.",
    );
    page.sample("failed", &[], &yes_no(statistics["failed"].is_string()));
    page.head("read_only", GAUGE, "Whether the volume is read-only.");
    page.sample("read_only", &[], &yes_no(statistics["read_only"].as_bool().unwrap_or(false)));
    if let Some(needs_check) = statistics["needs_check"].as_bool() {
        page.head("needs_check", GAUGE, NEEDS_CHECK);
        page.sample("needs_check", &[], &yes_no(needs_check));
    }
    if statistics["engine"].is_object() {
        engine(statistics, &mut page);
    }
    if let Some(host) = statistics["host"].as_object() {
        for (name, kind, help, field) in OF_HOST {
            page.head(name, kind, help);
            page.sample(name, &[], &number(&host[field]).to_string());
        }
    }
    long_steps(statistics, &mut page);
    page.head("operations_total", COUNTER, "Requests of the kernel, by operation.");
    for (operation, count) in operations(statistics) {
        page.sample("operations_total", &[("operation", operation)], &number(count).to_string());
    }
    page.text
}

/// Adds a volume's counters: its engine, its front end, the daemon's ring, and the cost of cache
/// evictions.
fn engine(statistics: &Value, page: &mut Page) {
    for (place, name) in [("journal", "log_written"), ("home", "home_written")] {
        for (unit, help) in [("bytes", "Bytes"), ("blocks", "Blocks")] {
            let metric = format!("{place}_written_{unit}_total");
            page.head(
                &metric,
                COUNTER,
                &format!("{help} written to the {place}, by kind of block."),
            );
            for (kind, count) in statistics["engine"][name].as_object().into_iter().flatten() {
                page.sample(&metric, &[("kind", kind)], &number(&count[unit]).to_string());
            }
        }
    }
    for (name, kind, help, place) in OF_ENGINE {
        let found = match place.strip_prefix("front_end/") {
            Some(field) => statistics["front_end"].get(field),
            None => statistics["engine"].pointer(place),
        };
        if let Some(value) = found {
            page.head(name, kind, help);
            page.sample(name, &[], &number(value).to_string());
        }
    }
    syncs(&statistics["engine"]["sync"], page);
    for (name, help, field) in OF_RING {
        page.head(name, COUNTER, help);
        page.sample(name, &[], &number(&statistics["ring"][field]).to_string());
    }
    if coerced(statistics).next().is_some() {
        for (name, help, field) in OF_EVICTIONS {
            page.head(name, COUNTER, help);
            for (disk, counts) in coerced(statistics) {
                let value = match field {
                    "nanoseconds" => seconds(number(&counts[field])),
                    _ => number(&counts[field]).to_string(),
                };
                page.sample(name, &[("disk", disk)], &value);
            }
        }
    }
}

/// Adds steps for which all other requests of the daemon waited, by task.
fn long_steps(statistics: &Value, page: &mut Page) {
    let long = statistics["long_steps"].as_array().filter(|long| !long.is_empty());
    let Some(long) = long else { return };
    let mut sample = |name: &str, kind, help, value: &dyn Fn(&Value) -> String| {
        page.head(name, kind, help);
        for steps in long {
            let task = steps["task"].as_str().unwrap_or_default();
            page.sample(name, &[("task", task)], &value(steps));
        }
    };
    let help = "Steps of a task that took 2 ms of processor time or more: all others waited.";
    sample("long_steps_total", COUNTER, help, &|steps| number(&steps["count"]).to_string());
    let help = "Processor time of the longest of them.";
    sample("long_step_seconds_max", GAUGE, help, &|steps| {
        seconds(number(&steps["longest_nanoseconds"]))
    });
}

/// Adds buckets at 1, 2 and 5 of each power of ten: the daemon counts in finer classes.
fn syncs(sync: &Value, page: &mut Page) {
    const NAME: &str = "sync_duration_seconds";
    page.head(NAME, "histogram", "How long syncs took, from asking to durable.");
    let mut below = 0;
    for class in sync["classes"].as_array().into_iter().flatten() {
        below += number(&class["count"]);
        let most = number(&class["nanoseconds_max"]);
        let leading = most / 10_u64.pow(most.max(1).ilog10());
        if matches!(leading, 1 | 2 | 5) && most == leading * 10_u64.pow(most.max(1).ilog10()) {
            page.sample(&format!("{NAME}_bucket"), &[("le", &seconds(most))], &below.to_string());
        }
    }
    let count = number(&sync["count"]).to_string();
    page.sample(&format!("{NAME}_bucket"), &[("le", "+Inf")], &count);
    page.sample(&format!("{NAME}_sum"), &[], &seconds(number(&sync["sum_nanoseconds"])));
    page.sample(&format!("{NAME}_count"), &[], &count);
}

/// Adds every counter of each drive of a striped disk.
fn drives_of(drives: &[Value], page: &mut Page) {
    for name in drives.iter().filter_map(Value::as_object).take(1).flat_map(|drive| drive.keys()) {
        let metric = format!("drive_{name}_total");
        page.head(&metric, COUNTER, "A count of each drive of a striped disk.");
        for (at, drive) in drives.iter().enumerate() {
            page.sample(
                &metric,
                &[("drive", &(at + 1).to_string())],
                &number(&drive[name]).to_string(),
            );
        }
    }
}

/// Formats without rounding: `Display` of a floating-point number gives as many digits as it has,
/// and no exponent.
fn seconds(nanoseconds: u64) -> String {
    (nanoseconds as f64 / 1e9).to_string()
}

struct Page {
    text: String,
    volume: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP okeanos_{name} {help}\n# TYPE okeanos_{name} {kind}");
    }
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let more = labels.iter().map(|(name, value)| format!(",{name}=\"{}\"", escaped(value)));
        let labels = format!("volume=\"{}\"{}", escaped(&self.volume), more.collect::<String>());
        let _ = writeln!(self.text, "okeanos_{name}{{{labels}}} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn numbers_reach_prometheus_by_its_conventions() {
        let mut sample = sample();
        sample["failed"] = "a write failed".into();
        sample["about"]["directory"] = "/mnt/\"a\"".into();
        let text = exposition(&sample);
        let volume = r#"volume="/mnt/\"a\"""#;
        for line in [
            "# TYPE okeanos_commits_total counter".to_owned(),
            format!("okeanos_commits_total{{{volume}}} 3"),
            format!("okeanos_journal_written_bytes_total{{{volume},kind=\"multiwrite\"}} 8192"),
            format!("okeanos_sync_duration_seconds_bucket{{{volume},le=\"0.0001\"}} 2"),
            format!("okeanos_sync_duration_seconds_bucket{{{volume},le=\"0.0002\"}} 7"),
            format!("okeanos_sync_duration_seconds_bucket{{{volume},le=\"+Inf\"}} 7"),
            format!("okeanos_sync_duration_seconds_sum{{{volume}}} 1.5"),
            format!("okeanos_evictions_total{{{volume},disk=\"home\"}} 5"),
            format!("okeanos_eviction_seconds_total{{{volume},disk=\"home\"}} 0.002"),
            format!("okeanos_operations_total{{{volume},operation=\"write\"}} 9"),
            format!("okeanos_failed{{{volume}}} 1"),
            format!("okeanos_read_only{{{volume}}} 0"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("le=\"0.00015\""), "{text}");
    }

    #[test]
    fn a_host_has_its_own_numbers_and_nothing_without_a_sample() {
        let host: serde_json::Map<String, Value> =
            OF_HOST.iter().map(|(.., field)| ((*field).to_owned(), 7.into())).collect();
        let text = exposition(&serde_json::json!({
            "about": { "directory": "/mnt/h" }, "host": host,
            "front_end": { "by_operation": { "read": 2 } }
        }));
        assert!(
            text.contains("okeanos_host_destaged_bytes_total{volume=\"/mnt/h\"} 7\n"),
            "{text}"
        );
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap();
            assert!(text.contains(&format!("\n{name}{{")), "{name} has no sample\n{text}");
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_exist() {
        let dashboard = include_str!("../../../../docs/grafana-okeanos.json");
        let parsed: Value = serde_json::from_str(dashboard).unwrap();
        assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() >= 6));
        let text = exposition(&sample());
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let asked = dashboard.match_indices("okeanos_").map(|(at, _)| {
            let rest = &dashboard[at..];
            &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]
        });
        let asked: Vec<&str> = asked.collect();
        assert!(asked.len() > 8);
        for name in asked {
            assert!(text.contains(&format!("\n{name}{{")), "the dashboard asks for {name}");
        }
    }
}
