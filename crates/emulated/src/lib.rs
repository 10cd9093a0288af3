//! Emulated disks, in the time of any [`device::World`]. They take as long as the drive whose data
//! file they were given, and keep what it would keep when the power fails. They cost memory only
//! for what was written.
//!
//! A [`Model`] is the data file; an [`EmulatedDisk`] is one drive of that model; [`replay`] holds a
//! model against measured requests. What is modelled and how well it agrees: `docs/DISKS.md`.
#![forbid(unsafe_code)]

mod drive;
mod mechanics;
mod medium;
mod model;
pub mod replay;
mod run;
mod shingled;

pub use drive::{CacheMode, CrashImage, DriveOptions, DriveStatistics, EmulatedDisk, Lies};
pub use model::{
    CacheModel, Flash, Interface, Mechanics, Model, ModelError, NetworkVolume, PhysicalSector,
    Schedule, SeekCurve, SegmentReplacement, TrackLayout, Zone, shipped,
};

pub use shingled::{Cleaned, LogChoice, ShingledDisk, ShingledLogs, ShingledStatistics, Shingles};

/// Bytes of a sector, the unit of every address inside this crate.
pub const SECTOR: u64 = 512;
