//! Scripts of two hosts, as text that a failure prints and a replay reads.

use super::operation::Operation;
use super::world::{HostWorld, find};
use std::fmt;
use std::str::FromStr;
use store::Moment;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub host: usize,
    pub operation: Operation,
}

/// Point of a step at which a host dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutPlace {
    /// Message of the step, counted from 1; its sender dies.
    Message(u64, Moment),
    /// Write of a host's journal, counted from 0.
    Journal(usize, u64),
}

#[derive(Clone, Debug)]
pub struct Script {
    pub world: &'static HostWorld,
    pub steps: Vec<Step>,
    /// The step that is cut, and where.
    pub cut: Option<(usize, CutPlace)>,
}

const HOST_NAMES: [&str; 2] = ["A", "B"];

impl Script {
    pub fn with(&self, step: Step) -> Script {
        let steps = [&self.steps[..], &[step]].concat();
        Script { steps, ..self.clone() }
    }
    /// Cuts the last step.
    pub fn cut_at(&self, place: CutPlace) -> Script {
        Script { cut: Some((self.steps.len() - 1, place)), ..self.clone() }
    }
}

/// Formats as `content: A:write B:append-now cut=2:message-3-answer`.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.world.name)?;
        for step in &self.steps {
            write!(f, " {}:{}", HOST_NAMES[step.host], step.operation)?;
        }
        match self.cut {
            None => Ok(()),
            Some((step, CutPlace::Message(message, moment))) => {
                let moment = if moment == Moment::Request { "request" } else { "answer" };
                write!(f, " cut={}:message-{message}-{moment}", step + 1)
            }
            Some((step, CutPlace::Journal(host, write))) => {
                write!(f, " cut={}:journal-{}-{write}", step + 1, HOST_NAMES[host])
            }
        }
    }
}

impl FromStr for Script {
    type Err = String;
    fn from_str(text: &str) -> Result<Script, String> {
        let (world, rest) = text.split_once(": ").ok_or("no world")?;
        let world = find(world).ok_or_else(|| format!("{world}: no world"))?;
        let mut script = Script { world, steps: Vec::new(), cut: None };
        for word in rest.split_whitespace() {
            match word.strip_prefix("cut=") {
                Some(cut) => {
                    script.cut = Some(cut_of(cut).ok_or_else(|| format!("{cut}: no cut"))?)
                }
                None => {
                    let (host, operation) = word.split_once(':').ok_or("no host")?;
                    let host = host_of(host).ok_or("hosts are A and B")?;
                    script.steps.push(Step { host, operation: operation.parse()? });
                }
            }
        }
        Ok(script)
    }
}

fn host_of(name: &str) -> Option<usize> {
    HOST_NAMES.iter().position(|host| *host == name)
}
fn cut_of(text: &str) -> Option<(usize, CutPlace)> {
    let (step, place) = text.split_once(':')?;
    let step = step.parse::<usize>().ok()?.checked_sub(1)?;
    let mut parts = place.split('-');
    let place = match (parts.next()?, parts.next()?, parts.next()?) {
        ("message", message, "request") => {
            CutPlace::Message(message.parse().ok()?, Moment::Request)
        }
        ("message", message, "answer") => CutPlace::Message(message.parse().ok()?, Moment::Answer),
        ("journal", host, write) => CutPlace::Journal(host_of(host)?, write.parse().ok()?),
        _ => return None,
    };
    Some((step, place))
}
