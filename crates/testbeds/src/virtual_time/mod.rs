//! Test beds in virtual time: emulated disks with a volume on them ([`Stage`]), and placements to
//! compare it with.
#![forbid(unsafe_code)]

mod blocks;
mod drives;
mod error;
mod file_replay;
mod interference;
mod log_structured;
mod mounted;
mod options;
mod read_ahead;
mod shared_files;
mod stage;
mod start_line;
mod ticks;
mod virtual_files;
mod volumes;

pub use blocks::{BlockError, BlockLayer, BlockRun, BlocksServed, WritebackCost};
pub use drives::Traffic;
pub use error::StageError;
pub use file_replay::{FileReplayReport, PhaseLength, replay_files};
pub use interference::{
    FilebenchWriters, HomeOrder, Interference, LogReplayWriters, SequentialFile, SharedDisk,
    SmallWriters, Updates,
};
pub use log_structured::{LogStructuredFile, LogStructuredFiles};
pub use mounted::{Mounted, MountedFile};
pub use options::{Caching, DiskChoice, LogSizes, StageOptions, VolumeLayout};
pub use shared_files::{SharedClient, SharedFile, SharedFiles, SharedOptions, SharedStage};
pub use stage::Stage;
pub use store::MetadataTimes;
pub use virtual_files::{VirtualFile, VirtualFiles};
