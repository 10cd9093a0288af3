//! Values of options that several commands parse alike. Sizes, times and counts are those of
//! [`crate::text::quantity`].

use super::Refusal;
use crate::text::quantity::{exact_duration, parse_duration};
use std::time::Duration;

/// Returns the choice of this name.
pub fn choose<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, Refusal> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or(Refusal::Value)
}

/// Returns the name of a choice.
pub fn name_of<T: PartialEq>(choice: &T, choices: &[(&str, T)]) -> Option<String> {
    choices.iter().find(|(_, it)| it == choice).map(|(name, _)| (*name).to_owned())
}

/// Sets a field to a value that was parsed.
pub fn set<T>(field: &mut T, value: T) -> Result<(), Refusal> {
    *field = value;
    Ok(())
}

/// Whether a switch is on.
pub fn switch(value: &str) -> Result<bool, Refusal> {
    choose(value, &[("on", true), ("off", false)])
}

/// Returns the text of a switch.
pub fn on_off(is_on: bool) -> Option<String> {
    Some(if is_on { "on" } else { "off" }.to_owned())
}

/// Shortest time that a task may wait for again and again. Less would only keep a processor busy.
pub const PERIOD_MIN: Duration = Duration::from_millis(1);

/// Longest such time: more is a slip of the pen.
pub const PERIOD_MAX: Duration = Duration::from_secs(31_536_000);

/// Parses a time that a task waits for again and again.
///
/// # Errors
/// It is no time, or shorter than [`PERIOD_MIN`].
pub fn period(value: &str) -> Result<Duration, Refusal> {
    match parse_duration(value)? {
        time if time < PERIOD_MIN => Err(Refusal::Because("a time from 1ms on is needed".into())),
        time if time > PERIOD_MAX => Err(Refusal::Because("at most a year (8760h)".into())),
        time => Ok(time),
    }
}

/// Schedule by which everything that a log holds is written back (`checkpoint=`, `--checkpoint`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointWhen {
    Manual,
    Periodic(Duration),
    Idle(Duration),
    /// Written back from the first hour until the second begins.
    OffHours(u8, u8),
}

/// Parses `manual`, `periodic:60s`, `idle:5s`, `off-hours:22-6`.
pub fn checkpoint_when(text: &str) -> Result<CheckpointWhen, String> {
    let wrong =
        || format!("{text:?}: manual, periodic:TIME, idle:TIME or off-hours:HH-HH is needed");
    match text.split_once(':') {
        None if text == "manual" => Ok(CheckpointWhen::Manual),
        Some(("periodic", time)) => parse_duration(time).map(CheckpointWhen::Periodic),
        Some(("idle", time)) => parse_duration(time).map(CheckpointWhen::Idle),
        Some(("off-hours", hours)) => {
            let hour = |text: &str| text.parse().ok().filter(|hour| *hour < 24);
            let hours = hours.split_once('-').and_then(|(from, to)| hour(from).zip(hour(to)));
            hours.map(|(from, to)| CheckpointWhen::OffHours(from, to)).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

impl std::fmt::Display for CheckpointWhen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckpointWhen::Manual => f.write_str("manual"),
            CheckpointWhen::Periodic(time) => write!(f, "periodic:{}", exact_duration(*time)),
            CheckpointWhen::Idle(time) => write!(f, "idle:{}", exact_duration(*time)),
            CheckpointWhen::OffHours(from, to) => write!(f, "off-hours:{from}-{to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_times_are_read_and_nonsense_is_refused() {
        for (text, expected) in [
            ("manual", CheckpointWhen::Manual),
            ("periodic:60", CheckpointWhen::Periodic(Duration::from_secs(60))),
            ("periodic:2m", CheckpointWhen::Periodic(Duration::from_secs(120))),
            ("idle:200ms", CheckpointWhen::Idle(Duration::from_millis(200))),
            ("off-hours:22-6", CheckpointWhen::OffHours(22, 6)),
        ] {
            assert_eq!(checkpoint_when(text), Ok(expected), "{text}");
            assert_eq!(checkpoint_when(&expected.to_string()), Ok(expected), "{expected}");
        }
        for text in ["", "idle", "idle:", "periodic:-1", "manual:1", "hourly:3", "off-hours:24-3"] {
            assert!(checkpoint_when(text).is_err(), "{text}");
        }
        for hours in ["", "3", "22-", "-6", "6-24", "2-3-4", "a-b"] {
            assert!(checkpoint_when(&format!("off-hours:{hours}")).is_err(), "{hours}");
        }
    }
}
