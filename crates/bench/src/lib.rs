//! Workloads, and the proofs and comparisons made with them.
//!
//! A workload is written against [`Files`], so that the same code runs on a directory in real time and, later,
//! on an emulated disk in virtual time.

mod compare;
mod demo;
mod files;
mod latency;
pub mod log_trace;
mod record;
mod rig;
mod streams;
mod stress;
mod verify;

pub use compare::{CompareOptions, Comparison, Contender, compare};
pub use demo::{DemoOptions, DemoRow, demo};
pub use files::{DirectoryFiles, Files, SyncKind};
pub use latency::Latency;
pub use log_trace::{LogRecord, LogTrace, LogTraceError};
pub use rig::RigError;
pub use streams::{Acknowledged, Limit, StreamOptions, StreamReport, run_streams};
pub use stress::{StressOptions, StressReport, check_stressed, stress};
pub use verify::{Verdict, verify};
