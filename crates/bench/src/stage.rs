//! Emulated disks with a volume on them, in virtual time: where a workload is played as the papers played theirs.

use crate::VirtualFiles;
use engine::{BarrierKind, DataMode, EngineOptions};
use std::future::Future;
use std::time::Duration;

/// A disk of the stage.
#[derive(Clone, Debug)]
pub struct DiskChoice {
    /// A model that comes with the program, or the path of a model file.
    pub model: String,
    /// Drives of a RAID-0; 1: the drive itself.
    pub drives: u32,
    /// Bytes of a RAID-0's chunk.
    pub chunk: u64,
    pub options: emulated::Options,
}

/// How the volume is made, by the real mke2fs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `mke2fs -t ext3 -I 128`: as the papers' volumes were.
    Ext3Paper,
    /// `mke2fs -t ext4`, as today.
    Ext4,
}

#[derive(Clone, Debug)]
pub struct StageOptions {
    pub home: DiskChoice,
    /// `None`: the journal is a hidden inode of the volume.
    pub journal: Option<DiskChoice>,
    pub layout: Layout,
    /// Bytes.
    pub block_size: u32,
    pub journal_size: u64,
    /// Data mode, barrier, and the times of commit and write-back.
    pub engine: EngineOptions,
    /// Decides everything that chance decides.
    pub seed: u64,
}

impl StageOptions {
    /// What the Okeanos paper measured on: two Cheetahs, ext3 with 4 KiB blocks, 128 MiB of journal on a disk of its own,
    /// write-back every 5 s of what is older than 30 s.
    pub fn of_paper(data: DataMode) -> StageOptions {
        let cheetah = DiskChoice {
            model: "cheetah-15k5-300".into(),
            drives: 1,
            chunk: 64 << 10,
            options: emulated::Options::default(),
        };
        StageOptions {
            home: cheetah.clone(),
            journal: Some(cheetah),
            layout: Layout::Ext3Paper,
            block_size: 4096,
            journal_size: 128 << 20,
            engine: EngineOptions {
                data,
                barrier: BarrierKind::None,
                commit: Duration::from_secs(5),
                writeback: Duration::from_secs(5),
                expire: Duration::from_secs(30),
                ..EngineOptions::default()
            },
            seed: 1,
        }
    }
}

/// What the host asked of the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// An open volume on emulated disks.
pub struct Stage {}

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("{0}")]
    Model(#[from] emulated::ModelError),
    #[error("cannot make the volume: {0}")]
    Make(#[from] std::io::Error),
    #[error("{0}")]
    Volume(#[from] ext4::Error),
}

impl Stage {
    /// Makes the disks and a fresh volume, and opens it. The clock stands at zero.
    pub fn build(_options: &StageOptions) -> Result<Stage, StageError> {
        todo!()
    }
    /// Plays a workload to its end; virtual time goes on as far as it takes.
    pub fn run<T: 'static, W: Future<Output = T> + 'static>(
        &self,
        _workload: impl FnOnce(VirtualFiles) -> W,
    ) -> T {
        todo!()
    }
    /// Since the stage was built or [`Stage::restart_counting`] was called.
    pub fn journal_traffic(&self) -> Traffic {
        todo!()
    }
    pub fn home_traffic(&self) -> Traffic {
        todo!()
    }
    pub fn restart_counting(&self) {
        todo!()
    }
    pub fn statistics(&self) -> engine::Statistics {
        todo!()
    }
    /// Unmounts and mounts again: everything is home, and the caches (ours, not the drives') are cold.
    pub fn remount(&mut self) -> Result<(), StageError> {
        todo!()
    }
    /// Cuts the power, and recovers what the drives kept. The volume is open again afterwards.
    pub fn crash_and_recover(&mut self) -> Result<engine::RecoveryReport, StageError> {
        todo!()
    }
    /// Writes everything home; what the disks then hold is given to `e2fsck -fn`.
    pub fn close_and_check(self) -> Result<(), StageError> {
        todo!()
    }
}
