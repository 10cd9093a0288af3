//! Record of one block of a transaction in the log.

use crate::ranges::RangeSet;

/// Record of a block in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The whole block.
    Whole,
    /// Byte ranges of the block. `base_zero`: all others are zeros, whatever home holds.
    Bytes { ranges: RangeSet, base_zero: bool },
}

/// Whether replaying a record needs any older one of the same block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// A whole block, or bytes on a base of zeros: older records no longer matter.
    Whole,
    Fragment,
}

impl Record {
    pub(crate) fn coverage(&self) -> Coverage {
        match self {
            Record::Whole | Record::Bytes { base_zero: true, .. } => Coverage::Whole,
            Record::Bytes { .. } if units::fault!("fragment-supersedes") => Coverage::Whole,
            Record::Bytes { .. } => Coverage::Fragment,
        }
    }
}
