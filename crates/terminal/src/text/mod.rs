//! Text for people: sizes and times, tables, progress, and standard output.

pub mod local_time;
pub mod notes;
pub mod output;
pub mod progress;
pub mod quantity;
pub mod shell;
pub mod table;
