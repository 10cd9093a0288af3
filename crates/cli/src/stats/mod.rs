//! `okeanos stats`: prints the daemon's counters, as a table, as rates, as JSON, or for Prometheus.

mod prometheus;
mod rates;
mod served_drives;

use crate::daemon::control::{Ask, Client, find_mount};
use crate::error::CliError;
use crate::text::output::{escaped, harmless, print, print_json};
use crate::text::quantity::{format_duration, format_size, parse_duration_in};
use crate::text::table::Table;
use device::{LongSteps, World};
use serde_json::Value;
use served_drives::ServedDrives;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  okeanos stats /mnt/a                      all counts since the mount
  okeanos stats --watch /mnt/a              one line a second: what happens now
  okeanos stats --watch=10 --count 6 /mnt/a
  okeanos stats --json /mnt/a | jq .engine.commits
  okeanos stats --prometheus /mnt/a         for the textfile collector of node_exporter

Columns of --watch: syncs a second, and how long they took (p50, p99); commits a second, and how many
changes went with one (group); bytes a second to the journal, to their home, and those that programs
wrote (payload); requests of the kernel a second. Rates are of the interval; --json and --prometheus count
from the mount.

Where the volume lies on what okeanos-lab disk serve serves, its drives' counts follow: how often the arm moved (seeks), and
over how many cylinders. With --json they are drives_beneath.

Of a host's journal: dirty bytes now, in memory alone and in the journal; bytes made durable at the store since the
mount, and a second; commits, and bytes written to the journal; bytes past it, to files that several hosts write; tokens
that the store took back.

Who may ask: the user who mounted it, root, and with the mount option allow_other (of root's mounts) everybody.";

/// Report what a mounted volume wrote where, and how fast its syncs are
///
/// All counts begin with the mount. "Journal bytes per payload byte" and "home bytes per payload
/// byte" are what a mode costs. The payload is what programs wrote in transactions that are
/// committed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsArguments {
    /// Print one JSON object (with --watch: one a line)
    #[arg(long)]
    pub json: bool,
    /// Print in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    pub prometheus: bool,
    /// Print a line of rates every second, or at this interval, until interrupted
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = parse_interval)]
    pub watch: Option<Duration>,
    /// With --watch: end after this number of lines
    #[arg(long, value_name = "LINES", requires = "watch",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Mount point of the volume, any path in it, or its image file or device
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    pub directory: PathBuf,
}

/// Parses `--watch=`: seconds, or with another unit behind the number.
fn parse_interval(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(100);
    match parse_duration_in(text, "s")? {
        time if time < LEAST => Err("at least 0.1 s".into()),
        time => Ok(time),
    }
}

/// Returns the hint for an interval that was written as a word of its own.
pub fn tip(arguments: &[OsString]) -> Option<String> {
    let is_stats = arguments.get(1).is_some_and(|command| command == "stats");
    let watch = arguments.iter().position(|word| word == "--watch").filter(|_| is_stats)?;
    let interval = arguments.get(watch + 1)?.to_str()?;
    parse_interval(interval).ok().map(|_| format!("write --watch={interval}"))
}

pub fn run(arguments: StatsArguments) -> Result<(), CliError> {
    let mount = find_mount(&arguments.directory)?;
    let mut served_drives: Option<ServedDrives> = None;
    let mut ask = || {
        let mut statistics = Client::look::<Value>(&mount, Ask::Stats)?;
        served_drives.get_or_insert_with(|| ServedDrives::of(&statistics)).add_to(&mut statistics);
        Ok::<_, CliError>(statistics)
    };
    let Some(pause) = arguments.watch else {
        let statistics = ask()?;
        return match (arguments.json, arguments.prometheus) {
            (true, _) => print_json(&statistics),
            (_, true) => print(&prometheus::exposition(&statistics)),
            _ => print(&tables(&statistics)),
        };
    };
    let mut rates = rates::Rates::new();
    let lines = arguments.count.unwrap_or(u64::MAX);
    let mut printed = 0;
    while printed < lines {
        let statistics = ask()?;
        let text = match (arguments.json, statistics["drives"].as_array()) {
            (true, _) => Some(format!("{statistics}\n")),
            (_, Some(drives)) => Some(counts_of(drives)),
            _ => rates.line(Instant::now(), &statistics),
        };
        let mut out = std::io::stdout().lock();
        let safe = if arguments.json { escaped } else { harmless };
        let text = text.as_deref().map(safe);
        match write!(out, "{}", text.as_deref().unwrap_or_default()).and_then(|()| out.flush()) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            result => result.map_err(|error| CliError::system("standard output", error))?,
        }
        printed += u64::from(text.is_some());
        if printed < lines {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// Formats a line for each count, a column for each drive of a RAID-0.
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
        for (name, count) in host {
            let shown =
                if is_in_bytes(name) { format_size(number(count)) } else { count.to_string() };
            table.row([name.replace('_', " "), shown]);
        }
        let heading = heading(statistics, "");
        return format!("{heading}{table}\n{}", requests_of(statistics));
    }
    let engine = &statistics["engine"];
    let data = statistics["about"]["data"].as_str().unwrap_or("?");
    let mut out = heading(statistics, &format!("data={data}, {}, ", journal_of(&engine["log"])));
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
    let drives = statistics["drives_beneath"].as_array();
    let drives = drives.map(|drives| format!("\n{}", counts_of(drives))).unwrap_or_default();
    format!("{out}{counts}\n{}{drives}", requests_of(statistics))
}

/// Names what is mounted where. `how`: the mode and the journal, with a comma behind each.
fn heading(statistics: &Value, how: &str) -> String {
    let about = &statistics["about"];
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!(
        "{} on {}, {how}{} transport{}{}\n\n",
        text(&about["source"]),
        text(&about["directory"]),
        text(&statistics["transport"]),
        match statistics["io"]["why"].as_str() {
            Some(why) => format!(", without io_uring ({why})"),
            None => String::new(),
        },
        match statistics["failed"].as_str() {
            Some(why) => format!("\nIt has stopped writing: {why}"),
            None => String::new(),
        },
    )
}

/// Whether a count of a host is a number of bytes.
fn is_in_bytes(name: &str) -> bool {
    name.contains("bytes") || name.starts_with("dirty_in_") || name.starts_with("log_")
}

fn requests_of(statistics: &Value) -> String {
    let mut requests = Table::new(["requests of the kernel", "count"]);
    for (name, count) in operations(statistics) {
        requests.row([name.clone(), number(count).to_string()]);
    }
    let long = statistics["long_steps"].as_array().filter(|long| !long.is_empty());
    let long = long.map(|long| format!("\n{}", table_of_steps(long))).unwrap_or_default();
    format!("{requests}{long}")
}

/// Formats steps for which everything else had to wait, the longest first.
fn table_of_steps(long: &[Value]) -> Table {
    let mut table = Table::new(["steps of 2 ms or more", "count", "longest"]);
    for steps in long {
        let longest = Duration::from_nanos(number(&steps["longest_nanoseconds"]));
        let task = steps["task"].as_str().unwrap_or("?").to_owned();
        table.row([task, number(&steps["count"]).to_string(), format_duration(longest)]);
    }
    table
}

/// Returns a world's steps that kept the processor for long.
pub fn long_steps(world: &dyn World) -> Value {
    let of_task = |steps: &LongSteps| {
        let longest = steps.longest.as_nanos() as u64;
        serde_json::json!({
            "task": steps.task, "count": steps.count, "longest_nanoseconds": longest
        })
    };
    world.long_steps().iter().map(of_task).collect()
}

/// Describes how the journal is written.
fn journal_of(log: &Value) -> String {
    match (log["records"].as_str(), number(&log["block_bytes"])) {
        (None | Some(""), _) => "no journal".into(),
        (Some(records), bytes) => {
            let auto = if log["threshold_is_learnt"] == true { ", threshold=auto" } else { "" };
            let small = log["threshold_bytes"]
                .as_u64()
                .map(|below| format!("{auto}, requests below {below} bytes are small"));
            let gap = match number(&log["gap_bytes"]) {
                0 => String::new(),
                gap => format!(", {} free between commits", format_size(gap)),
            };
            format!("records={records} of {bytes} bytes{}{gap}", small.unwrap_or_default())
        }
    }
}

/// Returns the kernel's requests, by its names.
fn operations(statistics: &Value) -> impl Iterator<Item = (&String, &Value)> {
    statistics["front_end"]["by_operation"].as_object().into_iter().flatten()
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
        (
            "handles per commit",
            format!("{:.1}", engine["handles_per_commit"].as_f64().unwrap_or(0.0)),
        ),
        ("flushes", count("flushes")),
        ("durable writes", count("durable_writes")),
        ("home writes", count("home_writes")),
        ("home reads", count("home_reads")),
        ("blocks read from the journal", count("redirected_reads")),
        ("logs swapped", count("swaps")),
        ("blocks of swapped logs", number(&engine["log_written"]["swapped"]["blocks"]).to_string()),
        ("checkpoints", count("checkpoints")),
        (
            "journal blocks free",
            format!("{} of {}", number(&log["free_blocks"]), number(&log["blocks"])),
        ),
        ("blocks in the journal alone", number(&log["mapped_blocks"]).to_string()),
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

/// Returns the disks whose flush is an eviction, home first, by name.
fn coerced(statistics: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["home", "journal"].into_iter().zip(statistics["coerced"].as_array().into_iter().flatten())
}

fn evictions(statistics: &Value) -> impl Iterator<Item = (String, String)> {
    coerced(statistics).map(|(disk, counts)| {
        let [evictions, barriers, bytes, time] =
            ["evictions", "barriers", "bytes", "nanoseconds"].map(|name| number(&counts[name]));
        let (bytes, time) = (format_size(bytes), format_duration(Duration::from_nanos(time)));
        (
            format!("evictions, {disk} disk"),
            format!("{evictions} for {barriers} barriers: {bytes}, {time}"),
        )
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn sum_of_bytes(kinds: &Value) -> u64 {
    kinds.as_object().into_iter().flatten().map(|(_, count)| number(&count["bytes"])).sum()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> Value {
        serde_json::json!({
            "about": { "source": "/dev/loop0", "directory": "/mnt", "data": "wasteless" },
            "transport": "classic",
            "engine": {
                "log_written": { "multiwrite": { "blocks": 2, "bytes": 8192 } },
                "home_written": { "data": { "blocks": 1, "bytes": 4096 } },
                "payload_bytes": 4096,
                "handles": 6,
                "cache": { "bytes": 1, "limit_bytes": 2 },
                "log": { "blocks": 8, "free_blocks": 4 },
                "commits": 3,
                "sync": {
                    "count": 7, "p50_nanoseconds": 150_000, "sum_nanoseconds": 1_500_000_000,
                    "classes": [
                        { "nanoseconds_max": 100_000, "count": 2 },
                        { "nanoseconds_max": 150_000, "count": 4 },
                        { "nanoseconds_max": 200_000, "count": 1 },
                    ],
                },
            },
            "coerced": [{ "barriers": 9, "evictions": 5, "bytes": 8192, "nanoseconds": 2_000_000 }],
            "front_end": { "requests": 12, "by_operation": { "write": 9, "lookup": 3 } },
        })
    }

    #[test]
    fn the_table_has_the_cost_of_a_payload_byte() {
        let text = tables(&sample());
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("journal bytes per payload byte").ends_with("2.00"));
        assert!(line("home bytes per payload byte").ends_with("1.00"));
        assert!(line("journal: multiwrite").ends_with("8.0 KiB"));
        assert!(line("sync latency p50").ends_with("150.0 us"));
        assert!(
            line("evictions, home disk").ends_with("5 for 9 barriers: 8.0 KiB, 2.00 ms"),
            "{text}"
        );
        assert!(line("write ").ends_with(" 9"), "{text}");
        assert!(!text.contains("longest"), "{text}");
    }

    #[test]
    fn long_steps_are_listed_by_task() {
        let mut sample = sample();
        sample["long_steps"] = serde_json::json!([
            { "task": "fallocate", "count": 3, "longest_nanoseconds": 12_000_000 },
        ]);
        let text = tables(&sample);
        let line = text.lines().find(|line| line.starts_with("fallocate")).unwrap();
        assert!(line.contains(" 3 ") && line.ends_with("12.00 ms"), "{line}");
        let page = prometheus::exposition(&sample);
        for metric in [
            r#"okeanos_long_steps_total{volume="/mnt",task="fallocate"} 3"#,
            r#"okeanos_long_step_seconds_max{volume="/mnt",task="fallocate"} 0.012"#,
        ] {
            assert!(page.contains(metric), "{page}");
        }
    }
}
