//! A large file that is read or written in order, beside others that make small writes durable:
//! what the Manylogs paper measures.

mod filebench;
mod logs;
mod ready_workloads;
mod sequential_file;
mod updates;

pub use filebench::FilebenchWriters;
pub use logs::LogReplayWriters;
pub use sequential_file::SequentialFile;
pub use updates::{HomeOrder, Updates};

use crate::virtual_time::start_line::StartLine;
use crate::virtual_time::virtual_files::VirtualFiles;
use crate::virtual_time::{Stage, StageError};
use device::{LocalFuture, World};
use ext4::{Caller, Inode, Volume};
use ready_workloads::ReadyWorkloads;
use runtime::VirtualWorld;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, Instant};

/// The workload that shares the disk with the large file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SmallWriters {
    None,
    Updates(Updates),
    Filebench(FilebenchWriters),
    Logs(LogReplayWriters),
}

/// A large file, which should not fit into memory (its disk would get no requests), and small
/// writers.
#[derive(Clone, Debug)]
pub struct Interference {
    pub large: SequentialFile,
    pub small: SmallWriters,
    pub seconds: u64,
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SharedDisk {
    /// Sequential throughput of the large file.
    pub bytes_a_second: f64,
    /// Small writes that were waited for, and their average wait.
    pub waits: u64,
    pub mean_wait_ms: f64,
}

/// Waits for small writes.
#[derive(Clone, Copy, Default)]
struct Waits {
    count: u64,
    mean_ms: f64,
}

/// State shared by all parts.
#[derive(Clone)]
struct Scene {
    world: VirtualWorld,
    volume: Rc<Volume>,
    end: Instant,
    seed: u64,
}

impl Interference {
    pub fn play(self, stage: &Stage) -> Result<SharedDisk, StageError> {
        let (world, volume) = (stage.world().clone(), stage.volume().clone());
        stage.world().run(async move { self.run(world, volume).await })
    }

    async fn run(self, world: VirtualWorld, volume: Rc<Volume>) -> Result<SharedDisk, StageError> {
        let large = self.large.make(&volume).await?;
        let ready = match self.small {
            SmallWriters::None => Ready::None,
            SmallWriters::Updates(updates) => Ready::Updates(updates, updates.make(&volume).await?),
            SmallWriters::Filebench(filebench) => {
                Ready::Workloads(filebench.prepare(&world, &volume, self.seconds, self.seed).await?)
            }
            SmallWriters::Logs(logs) => {
                Ready::Workloads(logs.prepare(&world, &volume, self.seconds, self.seed).await?)
            }
        };
        volume.sync().await?;
        // The writes that made the files have ended, also for a policy that looks at earlier
        // writes.
        volume.engine().checkpoint().await.map_err(ext4::Error::from)?;
        let begin = world.now();
        let end = begin.plus(Duration::from_secs(self.seconds));
        let scene = Scene { world: world.clone(), volume, end, seed: self.seed };
        let large = self.large.begin(&scene, large);
        let waits = match ready {
            Ready::None => Waits::default(),
            Ready::Updates(updates, files) => updates.play(&scene, &files).await?,
            Ready::Workloads(others) => others.play().await?,
        };
        let bytes_a_second = large.rate(&scene, begin).await?;
        Ok(SharedDisk { bytes_a_second, waits: waits.count, mean_wait_ms: waits.mean_ms })
    }
}

/// The small writers, when the large file's process begins.
enum Ready {
    None,
    Updates(Updates, Vec<Rc<Inode>>),
    Workloads(ReadyWorkloads),
}

/// Brings tenants' workloads to the start line, each in a directory of its own and with a seed of
/// its own.
async fn line_up(
    world: &VirtualWorld,
    volume: &Rc<Volume>,
    (instances, seed): (u32, u64),
    workload: impl Fn(VirtualFiles, u64) -> LocalFuture<io::Result<Waits>>,
) -> Result<ReadyWorkloads, StageError> {
    let line = Rc::new(StartLine::default());
    let mut workloads = Vec::new();
    for number in 0..instances {
        let directory = tenant(volume, number).await?.number;
        let files = VirtualFiles::new(world.clone(), volume.clone(), directory).starting_at(&line);
        workloads.push(workload(files, seed + u64::from(number) * 1000));
    }
    Ok(ReadyWorkloads::new(world, line, workloads).await)
}

/// Makes the directory of one tenant: the allocator spreads directories of the root over the disk.
async fn tenant(volume: &Rc<Volume>, number: u32) -> Result<Rc<Inode>, ext4::Error> {
    let root = volume.inode(InodeNumber(2)).await?;
    let name = format!("tenant-{number}");
    Ok(volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await?.value)
}
