//! Recovery and restart: what a mount does with a log that is not empty.

pub(crate) mod log_reader;
pub(crate) mod passes;
pub(crate) mod replay_preview;
pub(crate) mod report;
pub(crate) mod restart;
pub(crate) mod retained_log;
