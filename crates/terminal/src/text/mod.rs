//! What people read and write: sizes and times, tables, progress, and what goes to standard output.

pub mod moment;
pub mod notes;
pub mod output;
pub mod progress;
pub mod quantity;
pub mod table;
