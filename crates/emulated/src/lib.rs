//! Emulated disks, in the time of any [`device::World`]. They take as long as the drive that the
//! data file describes, and keep the content that it would keep when the power fails. They use
//! memory only for written content.
//!
//! A [`Model`] is the data file; an [`EmulatedDisk`] is one drive of that model; [`replay`]
//! compares a model with measured requests. `docs/DISKS.md` lists the effects modelled and the
//! agreement.
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
    CacheModel, Change, DelayByChance, Flash, Interface, Mechanics, Model, ModelChange, ModelError,
    NEAR_CYLINDERS, NetworkVolume, Overheads, PhysicalSector, ReadAheadAfter, Schedule, SeekCurve,
    SegmentReplacement, TrackLayout, Zone, shipped,
};

pub use shingled::{Cleaned, LogChoice, ShingledDisk, ShingledLogs, ShingledStatistics, Shingles};

/// Bytes of a sector, the unit of every address inside this crate.
pub const SECTOR: u64 = 512;
