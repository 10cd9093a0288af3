//! The small worlds: an engine over a disk of a few hundred blocks of 1 KiB, without a file system.
//! The log is circular, or lies in five logs of 32 blocks.

use super::operation::SmallOperation;
use super::stopped_world::StoppedWorld;
use super::transactions::{BLOCK, Content, HOME_BLOCKS, REUSED, State};
use device::World;
use disks::{Image, Latency, MemoryDisk};
use engine::{
    BarrierKind, CheckpointTimes, DataMode, DiskHome, Engine, EngineError, EngineOptions,
    EngineParts, LogArea, LogDevice, LogExtent, LogGap, LogKind, NoPacing, RecordFormat,
    RecoveryReport, ScatteredLogMap, WriteThreshold,
};
use format::jbd2::JournalSuperblock;
use runtime::VirtualWorld;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockSize, HomeBlock, LogBlock, TransactionId};

/// One small world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWorld {
    pub name: &'static str,
    pub data: DataMode,
    pub log: LogKind,
    pub records: RecordFormat,
    pub forced_unit_access: bool,
    pub commits_in_flight: usize,
    pub gap: LogGap,
    pub snapshots: Snapshots,
    /// Barrier in the second life; the first one uses flushes.
    pub later_barrier: BarrierKind,
    /// Maximum number of operations of both lives together, unless another bound is given.
    pub operations: usize,
    /// Operations of the scripts.
    pub alphabet: &'static [SmallOperation],
}

/// Time of snapshots of the mapping table, in worlds with scattered logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    Never,
    /// Written after each commit.
    Each,
    /// Written after each commit of an earlier life, which a power cut has ended; from then on by
    /// swaps alone. A piece has the records of one transaction, unless that has more than five.
    OfSwaps,
}

use SmallOperation::{
    Burst, Checkpoint, Data, Far, FarLarge, Free, Large, Make, Near, Pair, Reopen, Rest,
};

const CIRCULAR: &[SmallOperation] = &[Near, Large, Pair, Rest, Checkpoint, Reopen];
const SCATTERED: &[SmallOperation] = &[Near, Large, Far, Rest, Pair, Checkpoint, Reopen];
/// A small alphabet, so that longer scripts can be played: a swap, and another of what it has
/// moved.
const SWAPS: &[SmallOperation] = &[Burst, Rest, Far, FarLarge, Near];

/// A block is freed, and used again for metadata and for data, which bypasses the log.
const REUSE: &[SmallOperation] = &[Make, Free, Data, Rest, Checkpoint, Reopen];

const fn circular(name: &'static str, records: RecordFormat) -> SmallWorld {
    SmallWorld {
        name,
        data: DataMode::Journal,
        log: LogKind::Circular,
        records,
        forced_unit_access: true,
        commits_in_flight: 1,
        gap: LogGap::Off,
        snapshots: Snapshots::Never,
        later_barrier: BarrierKind::Flush,
        operations: 3,
        alphabet: CIRCULAR,
    }
}
const fn scattered(
    name: &'static str,
    records: RecordFormat,
    snapshots: Snapshots,
    alphabet: &'static [SmallOperation],
) -> SmallWorld {
    SmallWorld { log: LogKind::Scattered, snapshots, alphabet, ..circular(name, records) }
}

const fn reusing(name: &'static str, records: RecordFormat) -> SmallWorld {
    SmallWorld {
        data: DataMode::Ordered,
        alphabet: REUSE,
        operations: 4,
        ..circular(name, records)
    }
}

pub const SMALL_WORLDS: &[SmallWorld] = &[
    scattered("scattered", RecordFormat::Blocks, Snapshots::Each, SCATTERED),
    scattered("scattered-swaps", RecordFormat::Blocks, Snapshots::OfSwaps, SWAPS),
    scattered("scattered-packed", RecordFormat::Packed, Snapshots::Each, SCATTERED),
    SmallWorld {
        forced_unit_access: false,
        ..scattered("scattered-flush", RecordFormat::Packed, Snapshots::Never, SCATTERED)
    },
    SmallWorld {
        commits_in_flight: 2,
        gap: LogGap::Always(2048),
        ..circular("circular-gaps", RecordFormat::Packed)
    },
    SmallWorld {
        data: DataMode::Ordered,
        operations: 4,
        ..scattered("scattered-reuse", RecordFormat::Packed, Snapshots::Each, REUSE)
    },
    reusing("circular-reuse", RecordFormat::Blocks),
    reusing("circular-reuse-packed", RecordFormat::Packed),
    circular("circular", RecordFormat::Blocks),
    SmallWorld { forced_unit_access: false, ..circular("circular-flush", RecordFormat::Blocks) },
];

/// Loses promised writes of its second life: for tests that this is found and can be reproduced.
pub const BROKEN: &SmallWorld = &SmallWorld {
    later_barrier: BarrierKind::None,
    ..circular("second-life-without-barriers", RecordFormat::Blocks)
};

pub fn find(name: &str) -> Option<&'static SmallWorld> {
    SMALL_WORLDS.iter().chain([BROKEN]).find(|world| world.name == name)
}

const JOURNAL_BLOCKS: u32 = 128;
const LOGS: u64 = 5;
const LOG_BLOCKS: u32 = 32;
/// Home blocks that no transaction writes: reading one moves the arm to the start of the disk.
const IDLE_BLOCKS: u64 = 32;
const JOURNAL_AT: u64 = HOME_BLOCKS + IDLE_BLOCKS;
const LOGS_AT: u64 = JOURNAL_AT + JOURNAL_BLOCKS as u64;
const END: u64 = LOGS_AT + LOGS * LOG_BLOCKS as u64 + IDLE_BLOCKS;
/// Initial content of home, which must never be read.
const STALE: u8 = 0xee;
/// Maximum number of items of a piece of a snapshot, unless one transaction has more.
const PIECE_ITEMS: usize = 2;
/// Snapshot interval in bytes, more than any script logs.
const SWAPS_ALONE: u64 = 1 << 40;

/// Latency at which all requests take the same time, so they complete in the order of their start.
const LATENCY: Latency = Latency { least: Duration::from_micros(20), spread: Duration::ZERO };
/// Longer than everything that does not wait for a request, shorter than a rest.
pub(super) const DELAY: Duration = Duration::from_millis(1);
const WRITE_BACK: Duration = Duration::from_millis(2);
/// Pause of several rounds of write-back, of which two begin a swap.
pub(super) const REST: Duration = Duration::from_millis(12);

/// Position of the arm before a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    Near,
    Far,
}

impl Arm {
    /// Returns another block each time: reads of cached blocks move no arm.
    pub fn block(self, time: u64) -> HomeBlock {
        let first = match self {
            Arm::Near => HOME_BLOCKS,
            Arm::Far => END - IDLE_BLOCKS,
        };
        HomeBlock(first + time % IDLE_BLOCKS)
    }
}

/// A disk in a virtual world, and what an engine needs to open it.
pub(super) struct Rig {
    pub world: VirtualWorld,
    pub disk: MemoryDisk,
    parts: EngineParts,
}

impl Rig {
    /// Creates the rig. `life`: a number that no other life on the same disk has.
    pub fn new(
        small: &SmallWorld,
        image: &Image,
        snapshots: Snapshots,
        barrier: BarrierKind,
        life: u32,
    ) -> Rig {
        let world = VirtualWorld::new(1);
        let shared: Rc<dyn World> = Rc::new(StoppedWorld::new(world.clone(), life));
        let disk = MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
        disk.set_latency(LATENCY);
        if !small.forced_unit_access {
            disk.hide_forced_unit_access();
        }
        let home: Rc<dyn device::Disk> = Rc::new(disk.clone());
        let parts = EngineParts {
            world: shared,
            home: Rc::new(DiskHome::whole(home, block_size())),
            block_size: block_size(),
            log: Some(small.area()),
            options: EngineOptions { barrier, ..small.options(snapshots) },
            pacing: Rc::new(NoPacing),
        };
        Rig { world, disk, parts }
    }

    pub fn opener(&self) -> Opener {
        Opener(self.parts.clone())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.disk.stop_watching();
        crate::stalls::note(&self.world);
        self.world.end();
    }
}

/// Opens the disk of a rig, again and again.
#[derive(Clone)]
pub(super) struct Opener(EngineParts);

impl Opener {
    pub async fn open(&self) -> Result<Rc<Engine>, EngineError> {
        Ok(self.open_with_report().await?.0)
    }
    pub async fn open_with_report(&self) -> Result<(Rc<Engine>, RecoveryReport), EngineError> {
        let (report, kept) = engine::restart(&self.0, &[]).await?;
        Ok((Engine::open_with(self.0.clone(), kept).await?, report))
    }
}

fn block_size() -> BlockSize {
    BlockSize::new(BLOCK as u32).expect("a power of two")
}

impl SmallWorld {
    fn area(&self) -> LogArea {
        let extent = |first, count, disk_block| LogExtent { first, count, disk_block };
        let mut extents = vec![extent(LogBlock(0), JOURNAL_BLOCKS, JOURNAL_AT)];
        let first = LogBlock(JOURNAL_BLOCKS);
        let home = |log: u64| HomeBlock(LOGS_AT + log * u64::from(LOG_BLOCKS));
        let logs =
            (self.log == LogKind::Scattered).then(|| {
                let homes: Vec<HomeBlock> = (0..LOGS).map(home).collect();
                extents.extend(homes.iter().zip(0..).map(|(home, log)| {
                    extent(first.plus(log * LOG_BLOCKS), LOG_BLOCKS, home.get())
                }));
                ScatteredLogMap { first, blocks: LOG_BLOCKS, homes }
            });
        LogArea { device: LogDevice::Inside, extents, superblock: LogBlock(0), logs }
    }

    fn options(&self, snapshots: Snapshots) -> EngineOptions {
        EngineOptions {
            data: self.data,
            threshold: WriteThreshold::Fixed(BLOCK as u64),
            commit: Duration::from_millis(100),
            writeback: WRITE_BACK,
            expire: Duration::from_secs(1),
            checkpoint: CheckpointTimes::Manual,
            cache_bytes: 4 << 20,
            records: Some(self.records),
            log: self.log,
            log_unit: (self.records == RecordFormat::Packed).then_some(BLOCK as u32),
            commits_in_flight: self.commits_in_flight,
            records_at_once: 1,
            log_gap: self.gap,
            swap_above: Some(1),
            snapshot_after: match snapshots {
                Snapshots::Never => None,
                Snapshots::Each => Some(1),
                Snapshots::OfSwaps => Some(SWAPS_ALONE),
            },
            snapshot_items: PIECE_ITEMS,
            ..EngineOptions::default()
        }
    }

    /// Whether a block is freed and used again.
    pub(super) fn reuses(&self) -> bool {
        self.alphabet.contains(&Make)
    }

    /// Returns the state of a disk that has never been written.
    pub(super) fn begun(&self) -> State {
        let mut state = [Content::Stale; HOME_BLOCKS as usize];
        if self.reuses() {
            state[REUSED as usize] = Content::Free;
        }
        state
    }

    /// Returns a disk that has never been written.
    pub(super) fn fresh(&self) -> Image {
        let mut image = Image::new(END * BLOCK as u64);
        image.fill(0, JOURNAL_AT * BLOCK as u64, STALE);
        let mut superblock = JournalSuperblock::new(block_size(), JOURNAL_BLOCKS, [7; 16]);
        // Numbers wrap behind a few transactions.
        superblock.sequence = TransactionId(u32::MAX - 1);
        image.write(JOURNAL_AT * BLOCK as u64, &superblock.serialize());
        image
    }

    /// Returns the content of a block as a [`Content`].
    pub(super) async fn read(engine: &Engine, block: u64) -> Result<Content, EngineError> {
        let bytes = engine.read_data(HomeBlock(block), 1).await?;
        Ok(Content::parse(block, &bytes[0], STALE))
    }
}

impl fmt::Display for SmallWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
