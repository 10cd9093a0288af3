//! Workloads, and the proofs made with them.
//!
//! A workload is written against [`Files`]. So the same code runs on a directory in real time
//! ([`DirectoryFiles`]) and on emulated disks in virtual time (`testbeds::VirtualFiles`).

pub mod file_trace;
pub mod filebench;
mod files;
mod latency;
mod log_replay;
pub mod log_trace;
mod mpi_io;
mod periodic;
mod postmark;
mod random;
mod read_back;
mod record;
mod semaphore;
mod streams;
mod stress;
mod trace_text;
mod verify;

pub use file_trace::{FileOperation, FileTrace, TracedOperation};
pub use filebench::{FilebenchOptions, FilebenchReport, Personality, filebench, run_filebench};
pub use files::{Actor, DirectoryFile, DirectoryFiles, Files, SyncKind, at_once};
pub use latency::{Latencies, LatencySummary};
pub use log_replay::{ReplayOptions, ReplayReport, replay_log, run_replay};
pub use log_trace::{LogRecord, LogTrace, LogTraceError};
pub use mpi_io::{DATABASE, MpiIoOptions, MpiIoReport, ServerLink, mpi_io, run_mpi_io};
pub use periodic::{PeriodicOptions, PeriodicReport, periodic, periodic_byte, periodic_file};
pub use postmark::{PostmarkOptions, PostmarkReport, postmark, run_postmark};
pub use random::ActorRandom;
pub use read_back::{ReadBackReport, read_back, run_read_back};
pub use record::is_right;
pub use streams::{Acknowledged, Limit, StreamOptions, StreamReport, run_streams, streams};
pub use stress::{StressOptions, StressReport, check_stressed, stress};
pub use trace_text::TraceError;
pub use verify::{FileVerdict, verify};
