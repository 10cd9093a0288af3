//! Options for when changes reach the disk.

use super::Row;
use crate::options::Refusal;
use crate::options::values::{CheckpointWhen, PERIOD_MIN, checkpoint_when, period, set};
use crate::text::local_time;
use crate::text::quantity::{exact_duration, parse_count, parse_duration};
use engine::{BarrierKind, CheckpointTimes, EngineOptions, OffHours};
use std::time::Duration;

/// Longest time between checkpoints.
const CHECKPOINT_MAX: Duration = Duration::from_secs(31_536_000);

pub const ROWS: &[Row] = &[
    Row {
        name: "barrier",
        value: "none|flush|coerce",
        hidden: &[("barrier", "flush"), ("nobarrier", "none")],
        parse: |value, it| {
            (it.engine.barrier, it.journal.coerces) = match value {
                "none" | "0" => (BarrierKind::None, false),
                "flush" | "1" => (BarrierKind::Flush, false),
                // The flush of a coerced disk is an eviction.
                "coerce" => (BarrierKind::Flush, true),
                _ => return Err(Refusal::Value),
            };
            Ok(())
        },
        text: |it| {
            let name = match (it.engine.barrier, it.journal.coerces) {
                (BarrierKind::None, _) => "none",
                (BarrierKind::Flush, false) => "flush",
                (BarrierKind::Flush, true) => "coerce",
            };
            Some(name.to_owned())
        },
        help: "none only where the disk keeps its cache over a power cut; coerce for drives that \
               ignore flushes: it needs a flush zone (okeanos mkfs --flush-zone). barrier=0, \
               barrier=1 and nobarrier are taken as in ext4",
        is_live: true,
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "commit",
        value: "TIME",
        parse: |value, it| set(&mut it.engine.commit, interval(value, |engine| engine.commit)?),
        text: |it| Some(exact_duration(it.engine.commit)),
        help: "a change is durable after TIME at the latest; 0 is the default, as in ext4",
        is_live: true,
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "writeback",
        value: "TIME",
        parse: |value, it| {
            set(&mut it.engine.writeback, interval(value, |engine| engine.writeback)?)
        },
        text: |it| Some(exact_duration(it.engine.writeback)),
        help: "how often write-back looks for old dirty blocks",
        ..Row::BASE
    },
    Row {
        name: "expire",
        value: "TIME",
        parse: |value, it| set(&mut it.engine.expire, interval(value, |engine| engine.expire)?),
        text: |it| Some(exact_duration(it.engine.expire)),
        help: "the age from which dirty blocks are written home",
        ..Row::BASE
    },
    Row {
        name: "checkpoint",
        value: "periodic:TIME|idle:TIME|off-hours:HH-HH|manual",
        parse: |value, it| set(&mut it.engine.checkpoint, checkpoint(value)?),
        text: |it| match it.engine.checkpoint {
            CheckpointTimes::ByAge => None,
            CheckpointTimes::Manual => Some(CheckpointWhen::Manual.to_string()),
            CheckpointTimes::Periodic(time) => Some(CheckpointWhen::Periodic(time).to_string()),
            CheckpointTimes::Idle(time) => Some(CheckpointWhen::Idle(time).to_string()),
            CheckpointTimes::OffHours(hours) => {
                let (from, to) = hours.hours();
                Some(CheckpointWhen::OffHours(from as u8, to as u8).to_string())
            }
        },
        default: "each block by its age: expire=",
        help: "when everything that the journal holds is written home, in place of expire=: once \
               each TIME; when the disk was idle for TIME; between two hours of the day (local \
               time, as in 22-6); or when okeanos checkpoint requests it. In any case when journal \
               or cache are short, and at unmount",
        ..Row::BASE
    },
    Row {
        name: "swap_above",
        value: "off|PERCENT",
        parse: |value, it| {
            it.engine.swap_above =
                match value {
                    "off" => None,
                    percent => Some(parse_count(percent, 1..=99).map_err(|_| {
                        "the value must be off, or from 1 to 99 (percent)".to_owned()
                    })? as u32),
                };
            Ok(())
        },
        text: |it| Some(it.engine.swap_above.map_or("off".to_owned(), |it| it.to_string())),
        help: "log=scattered: in idle time a log that is fuller than PERCENT moves to a cold one \
               far from where the disk works",
        ..Row::BASE
    },
    Row {
        name: "mtl",
        value: "PATH",
        parse: |value, it| set(&mut it.journal.run_table, Some(value.into())),
        text: |it| it.journal.run_table.as_ref().map(|path| path.display().to_string()),
        default: "none: the logs are searched",
        help: "log=scattered: a file or device on memory that survives a power cut, for a table of \
               where the log's transactions lie, written before they are. After a crash the next \
               mount with the same PATH reads it instead of searching the logs, if it matches \
               (8 MiB; a file is made)",
        more: "Memory that survives a power cut",
        ..Row::BASE
    },
];

/// Parses a period; as in ext4, zero means the default.
fn interval(value: &str, of: fn(&EngineOptions) -> Duration) -> Result<Duration, Refusal> {
    match parse_duration(value)?.is_zero() {
        true => Ok(of(&EngineOptions::default())),
        false => period(value),
    }
}

/// Parses hours of the current local time.
fn checkpoint(value: &str) -> Result<CheckpointTimes, Refusal> {
    let limited = |time: Duration| match (PERIOD_MIN..=CHECKPOINT_MAX).contains(&time) {
        true => Ok(time),
        false => Err(format!("{value}: a time from 1ms to a year is needed")),
    };
    Ok(match checkpoint_when(value)? {
        CheckpointWhen::Manual => CheckpointTimes::Manual,
        CheckpointWhen::Periodic(time) => CheckpointTimes::Periodic(limited(time)?),
        CheckpointWhen::Idle(time) => CheckpointTimes::Idle(limited(time)?),
        CheckpointWhen::OffHours(from, to) => {
            let hours = OffHours::between(from, to).ok_or(
                "two different hours of the day are needed, as in off-hours:22-6".to_owned(),
            )?;
            CheckpointTimes::OffHours(hours.of_clock(local_time::seconds_east()))
        }
    })
}
