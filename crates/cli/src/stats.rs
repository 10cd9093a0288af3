//! `okeanos stats`: what the daemon counted, as a table, as JSON, or for Prometheus.

use crate::daemon::control::{Ask, Client, find_mount};
use crate::error::CliError;
use crate::text::quantity::{format_duration, format_size};
use crate::text::table::Table;
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Tell what a mounted volume wrote where, and how fast its syncs are
///
/// All counts begin with the mount. "Journal bytes per payload byte" and "home bytes per payload byte" are what a mode costs:
/// the payload is what programs wrote in transactions that are committed.
#[derive(clap::Args)]
pub struct StatsArguments {
    /// Print one JSON object (with --watch: one a line)
    #[arg(long)]
    pub json: bool,
    /// Print in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Print again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    pub watch: Option<f64>,
    /// Where the volume is mounted, or any place in it
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: StatsArguments) -> Result<(), CliError> {
    let mount = find_mount(&arguments.directory)?;
    let system = |error| CliError::system(format!("statistics of {}", arguments.directory.display()), error);
    let pause = match arguments.watch.map(Duration::try_from_secs_f64) {
        Some(Err(_)) => return Err(CliError::new("--watch wants a positive number of seconds")),
        Some(Ok(pause)) => Some(pause.max(Duration::from_millis(100))),
        None => None,
    };
    let mut client = Client::connect(&mount)?;
    loop {
        let statistics: Value = client.ask(Ask::Stats).map_err(system)?;
        let text = match (arguments.json, arguments.prometheus) {
            (true, _) if pause.is_some() => format!("{statistics}\n"),
            (true, _) => format!("{statistics:#}\n"),
            (_, true) => prometheus(&statistics),
            _ => tables(&statistics),
        };
        let mut out = std::io::stdout().lock();
        // To the upper left corner, and nothing below.
        let again = if pause.is_some() && !arguments.json && out.is_terminal() { "\x1b[H\x1b[J" } else { "" };
        match write!(out, "{again}{text}").and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            result => result.map_err(system)?,
        }
        match pause {
            Some(pause) => std::thread::sleep(pause),
            None => return Ok(()),
        }
    }
}

/// A line for each count, a column for each drive of a RAID-0.
fn counts_of(drives: &[Value]) -> String {
    let heads = (1..=drives.len()).map(|number| format!("drive {number}"));
    let mut table = Table::new(std::iter::once("count".to_owned()).chain(heads));
    for name in drives.iter().filter_map(Value::as_object).take(1).flat_map(|drive| drive.keys()) {
        let counts = drives.iter().map(|drive| drive[name].to_string());
        table.row(std::iter::once(name.replace('_', " ")).chain(counts));
    }
    table.to_string()
}

fn tables(statistics: &Value) -> String {
    if let Some(drives) = statistics["drives"].as_array() {
        return counts_of(drives);
    }
    if let Some(host) = statistics["host"].as_object() {
        let mut table = Table::new(["host journal", "count"]);
        host.iter().for_each(|(name, count)| table.row([name.replace('_', " "), count.to_string()]));
        return table.to_string();
    }
    let engine = &statistics["engine"];
    let about = &statistics["about"];
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut out = format!(
        "{} on {}, data={}, {} transport\n\n",
        text(&about["source"]),
        text(&about["directory"]),
        text(&about["data"]),
        text(&statistics["transport"]),
    );
    let mut written = Table::new(["written", "blocks", "bytes"]);
    for (place, kinds) in [("journal", &engine["log_written"]), ("home", &engine["home_written"])] {
        for (kind, count) in kinds.as_object().into_iter().flatten() {
            let bytes = format_size(number(&count["bytes"]));
            written.row([
                format!("{place}: {}", kind.replace('_', " ")),
                number(&count["blocks"]).to_string(),
                bytes,
            ]);
        }
    }
    out += &format!("{written}\n");
    let mut counts = Table::new(["", "count"]);
    for (name, value) in facts(engine).into_iter().chain(evictions(statistics)) {
        counts.row([name, value]);
    }
    let mut requests = Table::new(["requests of the kernel", "count"]);
    for (name, count) in operations(statistics) {
        requests.row([name.clone(), number(count).to_string()]);
    }
    format!("{out}{counts}\n{requests}")
}

/// What the kernel asked for, by its names.
fn operations(statistics: &Value) -> impl Iterator<Item = (&String, &Value)> {
    statistics["door"]["by_operation"].as_object().into_iter().flatten()
}

fn facts(engine: &Value) -> Vec<(String, String)> {
    let payload = number(&engine["payload_bytes"]);
    let per_payload = |place: &str| match payload {
        0 => "-".into(),
        _ => format!("{:.2}", sum_of_bytes(&engine[place]) as f64 / payload as f64),
    };
    let time = |value: &Value| format_duration(Duration::from_nanos(number(value)));
    let count = |name: &str| number(&engine[name]).to_string();
    let (sync, cache, log) = (&engine["sync"], &engine["cache"], &engine["log"]);
    let rows = [
        ("payload", format_size(payload)),
        ("journal bytes per payload byte", per_payload("log_written")),
        ("home bytes per payload byte", per_payload("home_written")),
        ("syncs", number(&sync["count"]).to_string()),
        ("sync latency p50", time(&sync["p50_nanoseconds"])),
        ("sync latency p90", time(&sync["p90_nanoseconds"])),
        ("sync latency p99", time(&sync["p99_nanoseconds"])),
        ("sync latency max", time(&sync["max_nanoseconds"])),
        ("commits", count("commits")),
        ("handles per commit", format!("{:.1}", engine["handles_per_commit"].as_f64().unwrap_or(0.0))),
        ("flushes", count("flushes")),
        ("durable writes", count("durable_writes")),
        ("home writes", count("home_writes")),
        ("home reads", count("home_reads")),
        ("checkpoints", count("checkpoints")),
        ("journal blocks free", format!("{} of {}", number(&log["free_blocks"]), number(&log["blocks"]))),
        (
            "cache",
            format!(
                "{} of {}",
                format_size(number(&cache["bytes"])),
                format_size(number(&cache["limit_bytes"]))
            ),
        ),
        ("cache blocks dirty", number(&cache["dirty_blocks"]).to_string()),
        ("cache hits", number(&cache["hits"]).to_string()),
        ("cache misses", number(&cache["misses"]).to_string()),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The disks whose flush is an eviction, home first, by name.
fn coerced(statistics: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["home", "journal"].into_iter().zip(statistics["coerced"].as_array().into_iter().flatten())
}

fn evictions(statistics: &Value) -> impl Iterator<Item = (String, String)> {
    coerced(statistics).map(|(disk, counts)| {
        let [evictions, barriers, bytes, time] =
            ["evictions", "barriers", "bytes", "nanoseconds"].map(|name| number(&counts[name]));
        let (bytes, time) = (format_size(bytes), format_duration(Duration::from_nanos(time)));
        (format!("evictions, {disk} disk"), format!("{evictions} for {barriers} barriers: {bytes}, {time}"))
    })
}

/// Every number becomes `okeanos_` and its path; kinds of blocks become a label.
fn prometheus(statistics: &Value) -> String {
    let mut out = String::new();
    for place in ["log_written", "home_written"] {
        for unit in ["blocks", "bytes"] {
            for (kind, count) in statistics["engine"][place].as_object().into_iter().flatten() {
                out += &format!("okeanos_{place}_{unit}{{kind=\"{kind}\"}} {}\n", count[unit]);
            }
        }
    }
    for (disk, counts) in coerced(statistics) {
        for (name, count) in counts.as_object().into_iter().flatten() {
            out += &format!("okeanos_coerced_{name}{{disk=\"{disk}\"}} {count}\n");
        }
    }
    for (name, count) in operations(statistics) {
        out += &format!("okeanos_door_operations{{operation=\"{name}\"}} {count}\n");
    }
    for room in ["engine", "door", "ring"] {
        plain_numbers(&format!("okeanos_{room}"), &statistics[room], &mut out);
    }
    out
}

/// Whether it is told under one name, with labels.
fn is_labelled(field: &str) -> bool {
    field.ends_with("_written") || field == "by_operation"
}

fn plain_numbers(name: &str, value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => *out += &format!("{name} {number}\n"),
        Value::Object(fields) => {
            for (field, value) in fields.iter().filter(|(field, _)| !is_labelled(field)) {
                plain_numbers(&format!("{name}_{field}"), value, out);
            }
        }
        _ => {}
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn sum_of_bytes(kinds: &Value) -> u64 {
    kinds.as_object().into_iter().flatten().map(|(_, count)| number(&count["bytes"])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        serde_json::json!({
            "about": { "source": "/dev/loop0", "directory": "/mnt", "data": "wasteless" },
            "transport": "classic",
            "engine": {
                "log_written": { "multiwrite": { "blocks": 2, "bytes": 8192 } },
                "home_written": { "data": { "blocks": 1, "bytes": 4096 } },
                "payload_bytes": 4096,
                "commits": 3,
                "sync": { "count": 7, "p50_nanoseconds": 150_000 },
            },
            "coerced": [{ "barriers": 9, "evictions": 5, "bytes": 8192, "nanoseconds": 2_000_000 }],
            "door": { "requests": 12, "by_operation": { "write": 9, "lookup": 3 } },
        })
    }

    #[test]
    fn the_table_tells_what_a_payload_byte_costs() {
        let text = tables(&sample());
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("journal bytes per payload byte").ends_with("2.00"));
        assert!(line("home bytes per payload byte").ends_with("1.00"));
        assert!(line("journal: multiwrite").ends_with("8.0 KiB"));
        assert!(line("sync latency p50").ends_with("150.0 us"));
        assert!(line("evictions, home disk").ends_with("5 for 9 barriers: 8.0 KiB, 2.00 ms"), "{text}");
        assert!(line("write ").ends_with(" 9"), "{text}");
    }

    #[test]
    fn numbers_reach_prometheus_under_their_names() {
        let text = prometheus(&sample());
        for line in [
            "okeanos_log_written_bytes{kind=\"multiwrite\"} 8192",
            "okeanos_engine_sync_count 7",
            "okeanos_coerced_evictions{disk=\"home\"} 5",
            "okeanos_door_requests 12",
            "okeanos_door_operations{operation=\"write\"} 9",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
