//! Block volumes over memory disks in virtual time.

use blocks::{
    BlockParts, BlockVolume, BlocksError, BlocksFormatOptions, FlushZoneResult, GroupBytes,
    NewDisk, NewFlushZone, Persistence, find_flush_zones,
};
use device::{Buffer, Disk, Durability, LocalFuture, World};
use disks::{CrashPolicy, Image, Latency, MemoryDisk};
use engine::EngineOptions;
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern};
use runtime::{Either, VirtualWorld, race};
use std::rc::Rc;
use std::time::Duration;
use units::BlockSize;

pub const JOURNAL_UUID: [u8; 16] = [9; 16];

/// Parameters of a volume to make.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub disk_bytes: u64,
    pub block_size: u32,
    /// Size in bytes of the journal's device; `None` for an internal journal.
    pub journal_disk: Option<u64>,
    pub journal_bytes: u64,
    pub groups: Option<GroupBytes>,
    /// Writes of an eviction, where each disk has a flush zone.
    pub eviction: Option<EvictionWorkload>,
}

impl Default for Making {
    fn default() -> Making {
        let (disk_bytes, block_size) = (16 << 20, 4096);
        Making {
            disk_bytes,
            block_size,
            journal_disk: None,
            journal_bytes: 2 << 20,
            groups: None,
            eviction: None,
        }
    }
}

/// Disks, from life to life: the volume's, and the journal's.
pub type Images = Vec<Image>;

/// One life of the disks.
pub struct Life {
    pub world: VirtualWorld,
    pub disks: Vec<MemoryDisk>,
}

impl Life {
    pub fn new(seed: u64, images: &[Image]) -> Life {
        let world = VirtualWorld::new(seed);
        let latency =
            Latency { least: Duration::from_micros(20), spread: Duration::from_micros(300) };
        let disk = |image: &Image| {
            let disk = MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
            disk.set_latency(latency);
            disk
        };
        Life { disks: images.iter().map(disk).collect(), world }
    }

    pub fn parts(&self, options: &EngineOptions, persistence: Persistence) -> BlockParts {
        let disk = |at: usize| self.disks.get(at).map(|it| Rc::new(it.clone()) as Rc<dyn Disk>);
        let world: Rc<dyn World> = Rc::new(self.world.clone());
        let disk_of_volume = disk(0).expect("a disk");
        BlockParts {
            world,
            disk: disk_of_volume,
            journal: disk(1),
            options: options.clone(),
            persistence,
        }
    }

    /// Runs until `script` ends or the power of a disk does. What the disks hold then, by `policy`.
    pub fn run<T: 'static>(
        &self,
        policy: CrashPolicy,
        script: impl Future<Output = T> + 'static,
    ) -> (Option<T>, Images) {
        let disks = self.disks.clone();
        let ended = self.world.run(async move {
            let lost = disks.iter().map(|disk| -> LocalFuture<()> {
                let disk = disk.clone();
                Box::pin(async move { disk.power_lost().await })
            });
            match race(script, any_of(lost)).await {
                Either::Left(value) => Some(value),
                Either::Right(()) => None,
            }
        });
        let images = self.disks.iter().map(|disk| disk.crash(policy)).collect();
        self.world.end();
        (ended, images)
    }

    /// Plays `script` on disks where nothing fails and nothing is lost.
    pub fn play<T: 'static>(&self, script: impl Future<Output = T> + 'static) -> (T, Images) {
        let (ended, images) = self.run(CrashPolicy::KeepAll, script);
        (ended.expect("the power stays on"), images)
    }

    /// Opens the volume on such disks and runs `script`.
    pub fn on_volume<T: 'static>(
        &self,
        options: &EngineOptions,
        script: impl AsyncFnOnce(BlockVolume) -> T + 'static,
    ) -> (T, Images) {
        let parts = self.parts(options, Persistence::WriteBack);
        self.play(async move { script(open(parts).await).await })
    }
}

/// The first that ends.
fn any_of(all: impl Iterator<Item = LocalFuture<()>>) -> LocalFuture<()> {
    let never: LocalFuture<()> = Box::pin(std::future::pending());
    all.fold(never, |rest, next| {
        Box::pin(async move {
            race(rest, next).await;
        })
    })
}

pub fn options() -> EngineOptions {
    EngineOptions {
        commit: Duration::from_millis(5),
        writeback: Duration::from_millis(2),
        expire: Duration::from_millis(6),
        cache_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

/// Fresh disks with an empty volume.
pub fn make(making: &Making) -> Result<Images, BlocksError> {
    let mut images = vec![Image::new(making.disk_bytes)];
    images.extend(making.journal_disk.map(Image::new));
    let life = Life::new(1, &images);
    let making = *making;
    let parts = life.parts(&options(), Persistence::WriteBack);
    let (made, images) = life.play(async move {
        let mut options = BlocksFormatOptions {
            block_size: BlockSize::new(making.block_size).unwrap(),
            uuid: [7; 16],
            journal_uuid: None,
            journal_bytes: Some(making.journal_bytes),
            groups: making.groups,
            now: 1_700_000_000,
        };
        let zone = making.eviction.map(|workload| NewFlushZone {
            superblock: workload.superblock(),
            bytes: FlushZone::size(&workload, 4096),
        });
        options.journal_uuid = parts.journal.as_ref().map(|_| JOURNAL_UUID);
        let new = |disk| NewDisk { disk, zone: zone.as_ref() };
        let journal = parts.journal.as_deref().map(new);
        blocks::format(new(&*parts.disk), journal, &options).await
    });
    made.map(|_| images)
}

/// A write that replaces everything in a cache of `lines` lines, of which the longest unused goes.
pub fn eviction_of(lines: usize) -> EvictionWorkload {
    EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: lines as u64 * 4096 }
}

/// Makes the flush of each disk that has a flush zone an eviction.
pub async fn coerce(parts: BlockParts) -> BlockParts {
    let (home, journal) = find_flush_zones(&parts).await;
    let over = |disk: Rc<dyn Disk>, zone: FlushZoneResult| -> Rc<dyn Disk> {
        match zone.expect("a zone that can be read") {
            Some(zone) => {
                Rc::new(CoercedDisk::over(parts.world.clone(), disk, &zone).expect("a fit zone"))
            }
            None => disk,
        }
    };
    let disk = over(parts.disk.clone(), home);
    let journal = parts.journal.clone().map(|disk| over(disk, journal));
    BlockParts { disk, journal, ..parts }
}

pub async fn open(parts: BlockParts) -> BlockVolume {
    BlockVolume::open(parts).await.expect("a block volume opens")
}

pub fn filled(byte: u8, length: usize) -> Vec<Rc<Buffer>> {
    let mut buffer = Buffer::zeroed(length);
    buffer.fill(byte);
    vec![Rc::new(buffer)]
}

pub async fn write(volume: &BlockVolume, at: u64, byte: u8, length: usize) {
    volume.write(at, filled(byte, length), Durability::Cached).await.expect("a write");
}
