//! Options of a stage.

use crate::virtual_time::error::StageError;
use disks::HostScheduler;
use emulated::{CacheMode, Lies, Model, ModelChange};
use engine::{BarrierKind, DataMode, EngineOptions, LogKind, RecordFormat};
use eviction::EvictionWorkload;
use ext4::DurableOnly;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A disk of the stage.
#[derive(Clone, Debug)]
pub struct DiskChoice {
    /// Name of a built-in model, or the path of a model file.
    pub model: String,
    /// Drives of a RAID-0; 1: a single drive.
    pub drives: u32,
    /// Bytes of a RAID-0's chunk.
    pub chunk: u64,
    pub options: emulated::DriveOptions,
    /// Host's scheduler. If given, the host sorts waiting requests and gives a drive one at a time,
    /// as kernels did without command queueing. If not, a drive gets all requests as they come.
    pub elevator: Option<HostScheduler>,
    /// File to which its requests are written, if any.
    pub trace: Option<PathBuf>,
    /// Numbers of the model's file that are changed, to see what depends on them.
    pub changes: Vec<ModelChange>,
}

/// Tick length of Linux 2.6.18, which the Okeanos paper ran: 250 ticks a second unless configured
/// otherwise. Its commits waited for the tick.
const TICK: Duration = Duration::from_millis(4);

/// Layout of a volume, made by the real mke2fs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeLayout {
    /// Layout of the papers' volumes: `mke2fs -t ext3 -I 128`.
    Ext3Paper,
    /// Layout of today: `mke2fs -t ext4`.
    Ext4,
}

#[derive(Clone, Debug)]
pub struct StageOptions {
    pub home: DiskChoice,
    /// Journal's disk. `None`: a hidden inode of the volume.
    pub journal: Option<DiskChoice>,
    pub layout: VolumeLayout,
    /// Bytes of a block.
    pub block_size: u32,
    pub journal_size: u64,
    /// Data mode, barrier, and the times of commit and write-back.
    pub engine: EngineOptions,
    /// Tick length of the host's clock, for which commits wait, as those of Linux 2.6.18 did
    /// (`ticks`). Zero: no ticks, and a commit begins as soon as the one before is done.
    pub tick: Duration,
    /// See [`engine::CommitPacing::separates_barriers`].
    pub separate_barriers: bool,
    /// Least number of evictions for a sync of a file, those of its commit among them: what is
    /// missing is made before the sync returns. Only with `eviction`, and with one writer.
    pub evictions_a_sync: u64,
    /// Whether a writer whose file is in a transaction that is being committed waits until that is
    /// durable. So did, in ext3, a writer of a block under commit. (All of the commit is waited
    /// for, and not one block alone.)
    pub writers_wait: bool,
    /// Bytes of the read-ahead window of a sequential reader, as a kernel has. Zero: each read by
    /// itself.
    pub read_ahead: u64,
    /// `barrier=coerce`: the volume gets a flush zone, and every flush becomes an eviction by these
    /// writes. The journal must be in the volume.
    pub eviction: Option<EvictionWorkload>,
    /// Sizes of scattered logs. The journal must be in the volume, and the volume have extents.
    pub logs: Option<LogSizes>,
    /// Files that need durability alone.
    pub durable_only: Option<DurableOnly>,
    /// Whether workloads run in a directory of their own, whose place on the disk the seed alone
    /// decides, instead of in the root. Only with the journal in the volume.
    pub directory: bool,
    /// Seed of all random decisions.
    pub seed: u64,
}

/// Sizes of scattered logs, in bytes: each log, and from one to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSizes {
    pub log: u64,
    pub group: u64,
}

/// Treatment of a drive whose cache is not to be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// The cache is switched off.
    Off,
    /// The cache is on, and nothing is flushed: fast, and a power cut loses what it holds.
    Unsafe,
    /// The cache is on, the drive ignores flushes, and every barrier is an eviction by these
    /// writes.
    Discreet(EvictionWorkload),
}

impl StageOptions {
    /// Returns the setup of the Okeanos paper: two Cheetahs, and ext3 with 4 KiB blocks and 128 MiB
    /// of journal on a disk of its own. Write-back comes every 5 s, for blocks older than 30 s.
    /// Commits wait for ticks, as Linux 2.6.18's did. Of the 3 GiB of memory there the cache may
    /// have 2.
    pub fn of_paper(data: DataMode) -> StageOptions {
        let cheetah = DiskChoice {
            model: "cheetah-15k5-300".into(),
            drives: 1,
            chunk: 64 << 10,
            options: emulated::DriveOptions::default(),
            elevator: None,
            trace: None,
            changes: Vec::new(),
        };
        StageOptions {
            home: cheetah.clone(),
            journal: Some(cheetah),
            layout: VolumeLayout::Ext3Paper,
            block_size: 4096,
            journal_size: 128 << 20,
            engine: EngineOptions {
                data,
                barrier: BarrierKind::None,
                commit: Duration::from_secs(5),
                writeback: Duration::from_secs(5),
                expire: Duration::from_secs(30),
                cache_bytes: 2 << 30,
                records: Some(RecordFormat::Blocks),
                order_overwrites: true,
                past_cache_from: None,
                ..EngineOptions::default()
            },
            tick: TICK,
            separate_barriers: false,
            evictions_a_sync: 0,
            writers_wait: false,
            read_ahead: 0,
            eviction: None,
            logs: None,
            durable_only: None,
            directory: false,
            seed: 1,
        }
    }

    /// Returns the setup of the Manylogs paper: one Cheetah of 146 GB. Extents replace ext3's block
    /// maps, since scattered logs need them, and nothing is written back within an hour: its
    /// checkpoints waited for off-hours. The drive's write cache is off: a sync is on the medium.
    /// Linux 3.4's basic elevator, `noop`, serves requests in order of arrival.
    pub fn of_manylogs(data: DataMode, log: LogKind) -> StageOptions {
        const LOGS: LogSizes = LogSizes { log: 10 << 20, group: 100 << 20 };
        let of_paper = StageOptions::of_paper(data);
        let hour = Duration::from_secs(3600);
        StageOptions {
            home: DiskChoice {
                model: "cheetah-15k5".into(),
                options: emulated::DriveOptions { cache: CacheMode::Off, ..of_paper.home.options },
                elevator: Some(HostScheduler::NOOP),
                ..of_paper.home
            },
            journal: None,
            layout: VolumeLayout::Ext4,
            journal_size: 512 << 20,
            engine: EngineOptions {
                log,
                writeback: hour,
                expire: hour,
                cache_bytes: 256 << 20,
                ..of_paper.engine
            },
            tick: Duration::ZERO,
            logs: (log == LogKind::Scattered).then_some(LOGS),
            ..of_paper
        }
    }

    /// Traces the requests of its disks to `PREFIX-home.csv` and `PREFIX-journal.csv`.
    pub fn trace_to(&mut self, prefix: &Path) {
        let path = |disk: &str| PathBuf::from(format!("{}-{disk}.csv", prefix.display()));
        self.home.trace = Some(path("home"));
        if let Some(journal) = &mut self.journal {
            journal.trace = Some(path("journal"));
        }
    }

    /// Returns the setup of the Discreet paper: one Hitachi of 80 GB, ext3 with the journal inside,
    /// Linux 2.6.23 without command queueing. The kernel's barriers were off. Of the 1 GiB of
    /// memory there the cache may have two thirds, as in [`StageOptions::of_paper`].
    pub fn of_discreet(data: DataMode, caching: Caching) -> StageOptions {
        let of_paper = StageOptions::of_paper(data);
        let (cache, ignores_flush, barrier, eviction) = match caching {
            Caching::Off => (CacheMode::Off, false, BarrierKind::None, None),
            Caching::Unsafe => (CacheMode::On, false, BarrierKind::None, None),
            Caching::Discreet(workload) => {
                (CacheMode::On, true, BarrierKind::Flush, Some(workload))
            }
        };
        let lies = Lies { ignores_flush, ..Lies::default() };
        StageOptions {
            home: DiskChoice {
                model: "hitachi-7k80".into(),
                options: emulated::DriveOptions { cache, lies, size: None },
                elevator: Some(HostScheduler::COMPLETE_FAIR_QUEUEING),
                ..of_paper.home
            },
            journal: None,
            engine: EngineOptions { barrier, cache_bytes: (1 << 30) / 3 * 2, ..of_paper.engine },
            tick: Duration::ZERO,
            eviction,
            directory: true,
            ..of_paper
        }
    }
}

impl DiskChoice {
    /// Returns the model, with its changed numbers.
    pub fn find_model(&self) -> Result<Model, StageError> {
        let name = self.model.clone();
        let text = match emulated::shipped().find(|(shipped, _)| *shipped == name) {
            Some((_, text)) => text.to_owned(),
            None => match std::fs::read_to_string(&name) {
                Ok(text) => text,
                Err(error) => return Err(StageError::NoModel { name, error }),
            },
        };
        Model::parse_changed(&text, &self.changes)
            .map_err(|error| StageError::Model { name, error })
    }
    /// Returns the bytes of one drive.
    fn drive_size(&self, model: &Model) -> u64 {
        self.options.size.unwrap_or(model.size.get())
    }
    /// Returns the bytes of all drives.
    pub(crate) fn size(&self, model: &Model) -> u64 {
        match self.drives {
            0 | 1 => self.drive_size(model),
            drives => self.drive_size(model) / self.chunk * self.chunk * u64::from(drives),
        }
    }
}
