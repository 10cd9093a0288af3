//! Test beds for workloads: in virtual time on emulated disks ([`Stage`]), and in real time, as
//! root, on mounts ([`RealStage`], [`compare`], [`demo`]).

mod real_time;
mod virtual_time;

pub use real_time::*;
pub use virtual_time::*;
