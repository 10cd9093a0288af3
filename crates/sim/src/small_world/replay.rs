//! Line that reproduces a failure of a small world.

use super::cut::SurvivingWrites;
use super::operation::SmallOperation;
use super::world::{SmallWorld, find};
use std::fmt;
use std::str::FromStr;

/// A cut of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The write, flush or discard that starts then, counted from 0; behind the last one, the end.
    pub change: u64,
    pub left: SurvivingWrites,
}

/// One or two lives of a small world, and where they are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub world: &'static SmallWorld,
    pub script: Vec<SmallOperation>,
    /// Changes that others overtake.
    pub delayed: Vec<u64>,
    pub cut: Option<PowerCut>,
    /// The script of the second life; empty if there is none.
    pub second: Vec<SmallOperation>,
    pub cut_again: Option<PowerCut>,
}

/// Formats as `scattered: near rest; delayed 7; cut 12 0b101; then near; cut 3 0b0/0<2`.
impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |script: &[SmallOperation]| {
            script.iter().map(SmallOperation::to_string).collect::<Vec<_>>().join(" ")
        };
        write!(f, "{}: {}", self.world, words(&self.script))?;
        for change in &self.delayed {
            write!(f, "; delayed {change}")?;
        }
        if let Some(PowerCut { change, left }) = self.cut {
            write!(f, "; cut {change} {left}")?;
        }
        if !self.second.is_empty() {
            write!(f, "; then {}", words(&self.second))?;
        }
        match self.cut_again {
            Some(PowerCut { change, left }) => write!(f, "; cut {change} {left}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Replay {
    type Err = String;
    fn from_str(text: &str) -> Result<Replay, String> {
        let (world, rest) = text.split_once(": ").ok_or("the name of a small world is missing")?;
        let world = find(world).ok_or_else(|| format!("{world}: no small world"))?;
        let words = |text: &str| -> Result<Vec<SmallOperation>, String> {
            text.split_whitespace().map(str::parse).collect()
        };
        let mut parts = rest.split("; ");
        let script = words(parts.next().unwrap_or_default())?;
        let (delayed, second) = (Vec::new(), Vec::new());
        let mut replay = Replay { world, script, delayed, cut: None, second, cut_again: None };
        for part in parts {
            let wrong = || format!("{part}: no part of a replay");
            match part.split_once(' ').ok_or_else(wrong)? {
                ("delayed", change) => {
                    replay.delayed.push(change.parse().map_err(|_| wrong())?);
                }
                ("then", script) => replay.second = words(script)?,
                ("cut", cut) => {
                    let (change, left) = cut.split_once(' ').ok_or_else(wrong)?;
                    let change = change.parse().map_err(|_| wrong())?;
                    let cut = Some(PowerCut { change, left: left.parse()? });
                    match replay.second.is_empty() {
                        true => replay.cut = cut,
                        false => replay.cut_again = cut,
                    }
                }
                _ => return Err(wrong()),
            }
        }
        Ok(replay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_can_be_written_down_and_read_again() {
        for text in [
            "circular: near",
            "scattered: near rest; delayed 7; cut 12 0b101; then near far; cut 3 0b0/0<2",
            "scattered-swaps: burst rest far rest far-large; cut 31 0b0/0>=3",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
        for text in ["near", "nowhere: near", "circular: nothing", "circular: near; cut 5"] {
            assert!(text.parse::<Replay>().is_err(), "{text}");
        }
    }
}
