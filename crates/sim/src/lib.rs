//! The crash tests of whole volumes: scripts of many writers, cut at every write, recovered, judged.
#![forbid(unsafe_code)]

pub mod case;
pub mod model;
pub mod script;
pub mod setup;

pub use case::{Case, Failure, Report, run};
