//! A small volume without files: writers that keep a table of blocks each, a model of what they wrote, and the
//! question asked after every crash.
#![allow(dead_code)]

pub mod rig;
pub mod writer;

pub use rig::{Layout, Rig, Setup};
pub use writer::{History, Script, check, run_script};
