use super::files::{FILE_BLOCKS, Files};
use device::{Buffer, World};
use disks::{Atomicity, CrashPolicy, Image, Latency, MemoryDisk};
use engine::{
    BarrierKind, Base, DiskHome, Engine, EngineOptions, EngineParts, FileUpdate, Home, LogArea,
    LogDevice, LogExtent, ScatteredLogMap,
};
use format::jbd2::JournalSuperblock;
use journal::records::RecordFormat;
use journal::{DataMode, WriteThreshold};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, BlockSize, HomeBlock, LogBlock, Owner, TransactionId};

/// Content of a home block before its first write, which must never show.
pub const STALE: u8 = 0xee;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// The log lies in two pieces on the home disk.
    Internal,
    Separate,
    /// The log has a disk of its own, and home is a store for tests: files of [`FILE_BLOCKS`]
    /// blocks.
    Files,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub mode: DataMode,
    pub layout: Layout,
    pub block_size: BlockSize,
    pub log_blocks: u32,
    pub home_blocks: u64,
    /// The number of the first transaction.
    pub first_transaction: TransactionId,
    /// Whether the disks have it: if not, and with the log inside, commits take the log's tail
    /// along.
    pub forced_unit_access: bool,
    pub options: EngineOptions,
}

impl Setup {
    pub fn new(mode: DataMode, layout: Layout, block_size: u32) -> Setup {
        let options = EngineOptions {
            data: mode,
            threshold: WriteThreshold::Fixed(600),
            barrier: BarrierKind::Flush,
            commit: Duration::from_millis(5),
            writeback: Duration::from_millis(2),
            expire: Duration::from_millis(6),
            cache_bytes: 4 << 20,
            records: Some(RecordFormat::Blocks),
            ..EngineOptions::default()
        };
        let block_size = BlockSize::new(block_size).unwrap();
        let first_transaction = TransactionId(1);
        Setup {
            mode,
            layout,
            block_size,
            log_blocks: 1024,
            home_blocks: 256,
            first_transaction,
            forced_unit_access: true,
            options,
        }
    }

    /// Returns every mode, layout and block size; with small blocks disks without FUA. Packed
    /// transactions, too, one and two at once.
    pub fn all() -> Vec<Setup> {
        let mut all = Vec::new();
        for mode in DataMode::ALL {
            for layout in [Layout::Internal, Layout::Separate] {
                all.extend([1024, 4096].map(|size| Setup {
                    forced_unit_access: size == 4096,
                    ..Setup::new(mode, layout, size)
                }));
                all.extend([1, 2].map(|commits_in_flight| {
                    let mut packed = Setup::new(mode, layout, 4096);
                    packed.options.records = Some(RecordFormat::Packed);
                    packed.options.commits_in_flight = commits_in_flight;
                    Setup {
                        forced_unit_access: layout == Layout::Separate || commits_in_flight == 1,
                        ..packed
                    }
                }));
            }
        }
        all
    }

    fn log_superblock_at(&self) -> u64 {
        match self.layout {
            Layout::Internal => self.home_blocks + 7,
            Layout::Separate | Layout::Files => 1,
        }
    }

    /// The address of a home block that scripts know by this number.
    pub fn address(&self, number: u64) -> HomeBlock {
        match self.layout {
            Layout::Files => Files::address(number),
            _ => HomeBlock(number),
        }
    }

    /// Fresh disks: home full of stale bytes, an empty log.
    pub fn images(&self) -> Vec<Image> {
        let shift = self.block_size.shift();
        let extra =
            if self.layout == Layout::Internal { u64::from(self.log_blocks) + 64 } else { 0 };
        let mut home = Image::new((self.home_blocks + extra) << shift);
        home.fill(0, self.home_blocks << shift, STALE);
        let mut superblock = JournalSuperblock::new(self.block_size, self.log_blocks, [7; 16]);
        superblock.sequence = self.first_transaction;
        let superblock = superblock.serialize();
        match self.layout {
            Layout::Internal => {
                home.write(self.log_superblock_at() << shift, &superblock);
                vec![home]
            }
            Layout::Separate | Layout::Files => {
                let mut log = Image::new((u64::from(self.log_blocks) + 1) << shift);
                log.write(self.log_superblock_at() << shift, &superblock);
                match self.layout {
                    Layout::Files => Files::images(self).chain([log]).collect(),
                    _ => vec![home, log],
                }
            }
        }
    }
}

/// One run of one volume in a virtual world.
pub struct Rig {
    pub world: VirtualWorld,
    pub disks: Vec<MemoryDisk>,
    pub parts: EngineParts,
    layout: Layout,
}

impl Rig {
    /// Adds scattered logs of `blocks` blocks each at `homes`, which the log counts from `first`
    /// on.
    pub fn scatter(&mut self, first: LogBlock, blocks: u32, homes: Vec<HomeBlock>) {
        let area = self.parts.log.as_mut().unwrap();
        area.extents.extend(homes.iter().zip(0..).map(|(home, log)| LogExtent {
            first: first.plus(log * blocks),
            count: blocks,
            disk_block: home.get(),
        }));
        area.logs = Some(ScatteredLogMap { first, blocks, homes });
    }

    pub fn new(setup: &Setup, seed: u64, images: Vec<Image>) -> Rig {
        let world = VirtualWorld::new(seed);
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let disks: Vec<_> =
            images.into_iter().map(|image| MemoryDisk::from_image(shared.clone(), image)).collect();
        let latency =
            Latency { least: Duration::from_micros(20), spread: Duration::from_micros(200) };
        disks.iter().for_each(|disk| disk.set_latency(latency));
        if !setup.forced_unit_access {
            disks.iter().for_each(MemoryDisk::hide_forced_unit_access);
        }
        let log_disk: Rc<dyn device::Disk> = Rc::new(disks[disks.len() - 1].clone());
        let device = match setup.layout {
            Layout::Internal => LogDevice::Inside,
            Layout::Separate | Layout::Files => LogDevice::Own(log_disk),
        };
        let at = setup.log_superblock_at();
        let half = setup.log_blocks / 2;
        let extents = match setup.layout {
            Layout::Internal => vec![
                LogExtent { first: LogBlock(0), count: half, disk_block: at },
                LogExtent {
                    first: LogBlock(half),
                    count: setup.log_blocks - half,
                    disk_block: at + u64::from(half) + 5,
                },
            ],
            Layout::Separate | Layout::Files => {
                vec![LogExtent { first: LogBlock(0), count: setup.log_blocks, disk_block: at }]
            }
        };
        let first: Rc<dyn device::Disk> = Rc::new(disks[0].clone());
        let home: Rc<dyn Home> = match setup.layout {
            Layout::Internal => Rc::new(DiskHome::whole(first, setup.block_size)),
            Layout::Separate => Rc::new(DiskHome::new(first, setup.block_size, setup.home_blocks)),
            Layout::Files => Rc::new(Files::new(setup, &disks[..disks.len() - 1])),
        };
        let parts = EngineParts {
            world: shared,
            home,
            block_size: setup.block_size,
            log: Some(LogArea { device, extents, superblock: LogBlock(0), logs: None }),
            options: setup.options.clone(),
            pacing: Rc::new(engine::NoPacing),
        };
        Rig { world, disks, parts, layout: setup.layout }
    }

    /// Cuts the power of all disks when the change number `count` of all of them together starts.
    pub fn cut_at(&self, count: u64) {
        let seen = Rc::new(Cell::new(0));
        for disk in &self.disks {
            let (seen, disks) = (seen.clone(), self.disks.clone());
            disk.on_change(move |_, _, _| {
                seen.set(seen.get() + 1);
                if seen.get() == count + 1 {
                    disks.iter().for_each(MemoryDisk::power_off);
                }
            });
        }
    }
    pub fn changes(&self) -> u64 {
        self.disks.iter().map(MemoryDisk::changes).sum()
    }

    /// Returns what is left of the disks: data that was not durable is there, lost or torn, by the
    /// seed.
    pub fn crash(&self, seed: u64) -> Vec<Image> {
        Rig::crash_of(&self.disks, seed)
    }
    pub fn crash_of(disks: &[MemoryDisk], seed: u64) -> Vec<Image> {
        let policy = match seed % 4 {
            0 => CrashPolicy::LoseAll,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) },
        };
        disks.iter().map(|disk| disk.crash(policy)).collect()
    }

    /// Runs `script`; `None` if the power was cut before its end.
    pub fn run<T: 'static>(&self, script: impl Future<Output = T> + 'static) -> Option<T> {
        let disk = self.disks[0].clone();
        let result =
            self.world.try_run(runtime::race(script, async move { disk.power_lost().await }));
        match result.unwrap_or_else(|deadlock| panic!("{deadlock:?}")) {
            runtime::Either::Left(value) => Some(value),
            runtime::Either::Right(()) => None,
        }
    }

    /// Opens the volume and runs `script` to its end.
    pub fn play<T: 'static>(&self, script: impl AsyncFnOnce(Rc<Engine>) -> T + 'static) -> T {
        self.try_play(script).expect("the power stays on")
    }

    /// Opens the volume and runs `script`; `None` if the power was cut before its end.
    pub fn try_play<T: 'static>(
        &self,
        script: impl AsyncFnOnce(Rc<Engine>) -> T + 'static,
    ) -> Option<T> {
        let parts = self.parts.clone();
        self.run(async move { script(Rig::open(parts).await).await })
    }

    pub fn home_block(&self, at: u64) -> Buffer {
        let size = self.parts.block_size.bytes();
        let mut bytes = Buffer::zeroed(size);
        let (disk, at) = match self.layout {
            Layout::Files => (at / FILE_BLOCKS, at % FILE_BLOCKS),
            _ => (0, at),
        };
        self.disks[disk as usize].image().read(at << self.parts.block_size.shift(), &mut bytes);
        bytes
    }

    /// Recovers the volume and opens it.
    pub async fn open(parts: EngineParts) -> Rc<Engine> {
        engine::recover(&parts, false).await.expect("recovery");
        Engine::open(parts).await.expect("a recovered volume opens")
    }
}

/// An update of file 1 over zeros, as a request of its own.
pub fn file_update(home: u64, start: u32, bytes: &[u8]) -> FileUpdate<'_> {
    FileUpdate {
        owner: Owner(1),
        home: HomeBlock(home),
        range: BlockRange::new(start, start + bytes.len() as u32),
        bytes,
        base: Base::Zero,
        request: bytes.len() as u64,
        sequential: false,
        in_place: false,
        durable_only: false,
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.end();
    }
}
