//! Decides what must be written, in what order and why. Touches no disk: plans are data.
#![forbid(unsafe_code)]

mod plan;

pub use plan::{Address, Barrier, BlockKind, Plan, Step, Write};
