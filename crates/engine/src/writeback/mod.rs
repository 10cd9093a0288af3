//! Write-back and checkpoints: committed blocks are written to their home.

pub(crate) mod bytes_in_flight;
pub(crate) mod checkpoints;
pub(crate) mod coalescing;
pub(crate) mod copies;
pub(crate) mod dirty_queue;
pub(crate) mod full_checkpoint;
pub(crate) mod home_writer;
pub(crate) mod range;
pub(crate) mod sequence_sweep;
pub(crate) mod sequences;
pub(crate) mod unordered_data;
pub(crate) mod utilization;
pub(crate) mod writeback_outcome;
pub(crate) mod writeback_task;
