//! What runs in real time, as root: file systems side by side, the demonstration, and mounts on disks that are emulated in real time.

mod compare;
mod demo;
mod real_stage;
mod rig;

pub use compare::{CompareOptions, Comparison, Contender, compare};
pub use demo::{DemoOptions, DemoRow, demo};
pub use real_stage::{RealStage, RealStageOptions};
pub use rig::RigError;
