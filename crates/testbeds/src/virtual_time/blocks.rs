//! Block requests with the times of a trace on one drive with an arm, behind a choice of layers.
//! The Manylogs paper measures this below file systems.

use crate::virtual_time::StageError;
use blocks::{
    BlockParts, BlockVolume, BlocksError, BlocksFormatOptions, GroupBytes, Persistence,
    format_volume,
};
use device::{DeviceError, Disk, World};
use disks::MemoryDisk;
use emulated::replay::{self, Recorded, Timing, Trace};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, ModelChange, ShingledDisk, Shingles};
use engine::{
    CheckpointTimes, DataMode, DurableMemory, EngineError, EngineOptions, LogKind, RecordFormat,
    WriteThreshold,
};
use format::run_table::TABLE_BYTES;
use runtime::VirtualWorld;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use units::BlockSize;

/// The paper's logs: 10 MB in every 100 MB.
const LOGS: GroupBytes = GroupBytes { log: 10 << 20, group: 100 << 20 };
/// Time of the first request: logs are open.
const BEGIN: Duration = Duration::from_secs(5);

/// The layer between the requests and the platters. The drive's write cache is off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BlockLayer {
    /// Direct path: each request is written home.
    Nothing,
    /// A block volume whose scattered logs take writes of at most `logged` bytes: the paper's MLB.
    Scattered { logged: u64 },
    /// A shingled drive.
    Shingled(Shingles),
}

/// Requests, and whether everything is written back afterwards.
#[derive(Clone, Debug)]
pub struct BlockRun {
    /// Name of a built-in model.
    pub model: &'static str,
    /// Numbers of the model that are changed.
    pub changes: Vec<ModelChange>,
    pub layer: BlockLayer,
    /// Requests, sorted by time since the beginning of the run.
    pub requests: Arc<[Recorded]>,
    pub checkpoint: bool,
}

#[derive(Clone, Debug, Default)]
pub struct BlocksServed {
    /// Latency of each request in milliseconds, in the order of the requests.
    pub latency_ms: Vec<f64>,
    pub swaps: u64,
    /// Bytes of the mapping table before the checkpoint: 16 for each block that is logged and not
    /// home, as in a snapshot; on a shingled drive for each range.
    pub table_bytes: u64,
    pub checkpoint: Option<WritebackCost>,
}

/// Cost of writing everything back.
#[derive(Clone, Copy, Debug, Default)]
pub struct WritebackCost {
    pub took: Duration,
    /// Shares of logged writes that were merged with neighbours or superseded, and of logged blocks
    /// that were overwritten before.
    pub reduced: Option<(f64, f64)>,
}

#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    #[error("{0}")]
    Stage(#[from] StageError),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Volume(#[from] BlocksError),
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0} cannot be shingled so")]
    NotShingled(&'static str),
}

/// The disk that requests see.
enum Layered {
    Plain(Rc<dyn Disk>),
    Volume(BlockVolume),
    Shingled(ShingledDisk),
}

impl BlockRun {
    pub fn play(&self, seed: u64) -> Result<BlocksServed, BlockError> {
        let world = VirtualWorld::new(seed);
        let served = self.play_in(&world);
        world.end();
        served
    }

    fn play_in(&self, world: &VirtualWorld) -> Result<BlocksServed, BlockError> {
        let layered = self.disk(world)?;
        let disk: Rc<dyn Disk> = match &layered {
            Layered::Plain(disk) => disk.clone(),
            Layered::Volume(volume) => Rc::new(volume.clone()),
            Layered::Shingled(disk) => Rc::new(disk.clone()),
        };
        let size = disk.geometry().size;
        // Times count from the first request: a read at the very beginning.
        let first =
            Recorded { is_write: false, at: 0, length: 4096, time: Duration::ZERO, measured: None };
        let of_trace = self.requests.iter().map(|request| {
            let length = request.length.min(size);
            Recorded {
                at: request.at.min(size - length),
                length,
                time: request.time + BEGIN,
                ..request.clone()
            }
        });
        let requests = std::iter::once(first).chain(of_trace).collect();
        let times =
            replay::run(world, &disk, Rc::new(Trace { timing: Timing::Timestamps, requests }))?;
        let latency_ms = times[1..].iter().map(|time| *time as f64 / 1e6).collect();
        let mut served = BlocksServed { latency_ms, ..BlocksServed::default() };
        match layered {
            Layered::Plain(_) => {}
            Layered::Volume(volume) => {
                served.swaps = volume.statistics().swaps;
                if self.checkpoint {
                    let report = world.run(async move { volume.engine().checkpoint().await })?;
                    served.table_bytes = report.blocks_written * 16;
                    let took = Duration::from_nanos(report.nanoseconds);
                    let shares = (report.writes_merged / 100.0, report.blocks_skipped / 100.0);
                    served.checkpoint = Some(WritebackCost { took, reduced: Some(shares) });
                }
            }
            Layered::Shingled(disk) => {
                let statistics = disk.statistics();
                (served.swaps, served.table_bytes) = (statistics.swaps, statistics.extents * 16);
                if self.checkpoint {
                    let cleaned = world.run(async move { disk.clean().await })?;
                    let took = cleaned.reading_logs + cleaned.rewriting;
                    served.checkpoint = Some(WritebackCost { took, reduced: None });
                }
            }
        }
        Ok(served)
    }

    fn find_model(&self) -> Result<Model, StageError> {
        let shipped = emulated::shipped().find(|(shipped, _)| *shipped == self.model);
        let (name, text) = shipped.expect("a model that comes with the program");
        Model::parse_changed(text, &self.changes)
            .map_err(|error| StageError::Model { name: name.into(), error })
    }

    fn disk(&self, world: &VirtualWorld) -> Result<Layered, BlockError> {
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        let model = self.find_model()?;
        if let BlockLayer::Shingled(shingles) = self.layer {
            let disk = ShingledDisk::new(in_world, model, shingles);
            return disk.map(Layered::Shingled).ok_or(BlockError::NotShingled(self.model));
        }
        let options = DriveOptions { cache: CacheMode::Off, ..DriveOptions::default() };
        let drive: Rc<dyn Disk> = Rc::new(EmulatedDisk::new(in_world.clone(), model, options));
        let BlockLayer::Scattered { logged } = self.layer else { return Ok(Layered::Plain(drive)) };
        let opened = world.run(scattered_volume(in_world, drive, logged));
        Ok(Layered::Volume(opened?))
    }
}

/// Makes a block volume as the paper has it: a write is durable when it is acknowledged, what is
/// logged stays in the logs until a checkpoint, and memory that survives power loss says where. A
/// write of a part of a block is logged without a read of the rest.
async fn scattered_volume(
    world: Rc<dyn World>,
    disk: Rc<dyn Disk>,
    logged: u64,
) -> Result<BlockVolume, BlocksError> {
    let format = BlocksFormatOptions {
        block_size: BlockSize::new(4096).expect("a power of two"),
        uuid: [7; 16],
        journal_uuid: None,
        journal_bytes: None,
        groups: Some(LOGS),
        now: 0,
    };
    format_volume(&*disk, &format).await?;
    let table = Rc::new(MemoryDisk::new(world.clone(), TABLE_BYTES));
    let options = EngineOptions {
        data: DataMode::Selective,
        threshold: WriteThreshold::Fixed(logged + 1),
        log: LogKind::Scattered,
        records: Some(RecordFormat::Packed),
        run_table: Some(DurableMemory(table)),
        checkpoint: CheckpointTimes::Manual,
        ..EngineOptions::default()
    };
    let persistence = Persistence::WriteThrough;
    BlockVolume::open(BlockParts { world, disk, journal: None, options, persistence }).await
}
