//! One request of a trace.

use crate::SECTOR;
use crate::run::Direction;
use std::time::Duration;

/// How the requests of a trace follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each begins so long after the end of the one before.
    Gaps,
    /// Each begins at its time.
    Timestamps,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub is_write: bool,
    /// Bytes, whole sectors.
    pub at: u64,
    pub length: u64,
    /// [`Pace::Gaps`]: until the next request, after this one. [`Pace::Timestamps`]: when it began.
    pub time: Duration,
    /// How long the real drive took, if the trace tells.
    pub measured: Option<Duration>,
}

impl Recorded {
    pub(super) fn direction(&self) -> Direction {
        if self.is_write { Direction::Write } else { Direction::Read }
    }
    /// Rounded outwards to whole sectors.
    pub(super) fn new(is_write: bool, at: u64, length: u64) -> Result<Recorded, String> {
        let start = at - at % SECTOR;
        let end = at.checked_add(length).and_then(|end| end.checked_next_multiple_of(SECTOR));
        let end = end.ok_or("the request reaches beyond all addresses")?;
        if length == 0 || length > LENGTH_MAX {
            return Err(format!("a request of {length} bytes (1 to {LENGTH_MAX} are read)"));
        }
        Ok(Recorded {
            is_write,
            at: start,
            length: end - start,
            time: Duration::ZERO,
            measured: None,
        })
    }
}

/// More than any kernel puts into one request; a trace that says more is broken.
const LENGTH_MAX: u64 = 1 << 30;
