//! One request of a trace.

use crate::SECTOR;
use crate::run::Direction;
use std::time::Duration;

/// Timing of the requests of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Each begins this time after the end of the one before.
    Gaps,
    /// Each begins at its time.
    Timestamps,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub is_write: bool,
    /// Start in bytes, at a sector.
    pub at: u64,
    pub length: u64,
    /// [`Timing::Gaps`]: time from this request to the next. [`Timing::Timestamps`]: start.
    pub time: Duration,
    /// Time on the real drive, if the trace has it.
    pub measured: Option<Duration>,
}

impl Recorded {
    pub(super) fn direction(&self) -> Direction {
        if self.is_write { Direction::Write } else { Direction::Read }
    }
    /// Creates a request, rounded outwards to whole sectors.
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

/// Longest request, in bytes: more than any kernel issues; a trace with more is broken.
const LENGTH_MAX: u64 = 1 << 30;
