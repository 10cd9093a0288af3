//! Measurements in real time, as root: file systems side by side, the demonstration, and mounts on
//! disks that are emulated in real time.

mod block_volume;
mod compare;
mod contender;
mod demo;
mod disk;
mod growth;
mod installed;
mod mixed;
mod programs;
mod real_stage;
mod rig;
mod volume;

pub use compare::{CompareOptions, ComparedRun, Comparison, compare};
pub use contender::Contender;
pub use demo::{DemoOptions, DemoRow, KERNEL, demo};
pub use disk::Ground;
pub use growth::{
    GrowthOptions, GrowthQuantity, GrowthRow, GrowthSeries, GrowthUnit, GrowthWork, growth,
};
pub use installed::Programs;
pub use mixed::{MixedCase, MixedMeasure, MixedOptions, MixedRow, mixed};
pub use programs::{ProgramsOptions, ProgramsRow, WORKS, programs};
pub use real_stage::{RealStage, RealStageOptions};
pub use rig::RigError;
