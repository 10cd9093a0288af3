//! Parts and options of an engine.

use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::interface::home::Home;
use crate::writeback::checkpoints::CheckpointTimes;
use device::{Buffer, DeviceError, Disk, Durability, LocalFuture, World};
use format::jbd2::JournalSuperblock;
use journal::records::RecordFormat;
use journal::{
    DataMode, LOGGED_WRITE_SIZE, LogGap, LogKind, LogPlaces, Logs, Policy, Variations,
    WriteThreshold, varied,
};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockSize, HomeBlock, LogBlock};

/// Items of a piece of a snapshot: a few hundred kilobytes of memory.
const SNAPSHOT_ITEMS: usize = 8192;

/// How a barrier is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierKind {
    /// Not at all: for disks whose cache survives a power cut.
    None,
    /// By flushing the disk, or by a write that is durable by itself.
    Flush,
}

/// Consecutive log blocks that lie one after the other on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogExtent {
    pub first: LogBlock,
    pub count: u32,
    /// First block on the disk: a home block, or one of the log's own disk.
    pub disk_block: u64,
}

/// Whose blocks the log takes. The caller that puts the parts together sets it: the engine cannot
/// find out.
#[derive(Clone)]
pub enum LogPlace {
    /// Blocks of home (hidden inode): what is flushed for one of them is flushed for both.
    Inside,
    Own(Rc<dyn Disk>),
}

/// Place of the log on its disk.
#[derive(Clone)]
pub struct LogArea {
    pub place: LogPlace,
    /// Sorted by `first`, without overlap; together they hold every block that the journal
    /// superblock names.
    pub extents: Vec<LogExtent>,
    /// The block that holds the journal superblock: 0 in a hidden inode. A journal device counts
    /// log blocks from its start, and has it in block 1 (2 with 1 KiB blocks).
    pub superblock: LogBlock,
    /// The volume's scattered logs: blocks of home behind those of the journal.
    pub logs: Option<LogPlaces>,
}

impl LogArea {
    /// Every block that the superblock names is there: on its disk, or within home.
    pub(crate) fn check(
        &self,
        superblock: &JournalSuperblock,
        home: &dyn Home,
    ) -> Result<(), EngineError> {
        self.locate(self.superblock)?;
        for at in self.logs.iter().flat_map(|logs| &logs.homes) {
            if !home.contains(*at, self.logs.as_ref().map_or(0, |logs| logs.blocks.into())) {
                return Err(EngineError::BadJournal {
                    why: format!("the log at {at} lies beyond the end"),
                });
            }
        }
        self.check_apart()?;
        let is_there = |at: u64, count: u32| match &self.place {
            LogPlace::Inside => home.contains(HomeBlock(at), u64::from(count)),
            LogPlace::Own(disk) => {
                let blocks = disk.geometry().size >> superblock.block_size.shift();
                at.checked_add(u64::from(count)).is_some_and(|end| end <= blocks)
            }
        };
        let mut at = superblock.first;
        while at < superblock.log_end() {
            let (place, together) = self.locate(at)?;
            let count = together.min(superblock.log_end().get() - at.get());
            if !is_there(place, count) {
                return Err(EngineError::BadJournal {
                    why: format!("{at} lies beyond the end of its disk"),
                });
            }
            at = at.plus(count);
        }
        Ok(())
    }

    /// No block of its disk is two blocks of the log: one transaction would overwrite another.
    pub(crate) fn check_apart(&self) -> Result<(), EngineError> {
        let mut extents: Vec<_> = self.extents.iter().collect();
        extents.sort_by_key(|extent| extent.disk_block);
        let overlap = |pair: &&[&LogExtent]| {
            pair[0].disk_block + u64::from(pair[0].count) > pair[1].disk_block
        };
        match extents.windows(2).find(overlap) {
            Some(pair) => {
                let (at, other) = (pair[1].disk_block, pair[0].disk_block);
                let why =
                    format!("the parts of the log at blocks {other} and {at} overlap; run e2fsck");
                Err(EngineError::BadJournal { why })
            }
            None => Ok(()),
        }
    }

    /// Blocks of the journal itself.
    pub(crate) fn journal_blocks(&self) -> u64 {
        let last = self.extents.last();
        let all = last.map_or(0, |last| u64::from(last.first.get()) + u64::from(last.count));
        self.logs.as_ref().map_or(all, |logs| logs.first.get().into())
    }

    /// The scattered logs, in log blocks of which a block has `each`.
    pub(crate) fn logs(&self, each: u32) -> Result<Logs, EngineError> {
        let why = match &self.logs {
            _ if self.is_separate() => "scattered logs need the journal inside the volume",
            None => "the volume has no scattered logs (okeanos mkfs --scattered-logs)",
            Some(logs) => match logs.in_units(each) {
                Some(logs) => return Ok(logs),
                None => {
                    "the scattered logs are too long for their log blocks; mount with a larger log_unit="
                }
            },
        };
        Err(EngineError::BadJournal { why: why.to_owned() })
    }

    /// Whether the log shares no disk with home.
    pub(crate) fn is_separate(&self) -> bool {
        matches!(self.place, LogPlace::Own(_))
    }

    /// Writes to the log's disk, from its byte `at` on.
    pub(crate) fn write(
        &self,
        home: &dyn Home,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        match &self.place {
            LogPlace::Inside => home.write_log(at, parts, durability),
            LogPlace::Own(disk) => disk.write(at, parts, durability),
        }
    }

    /// Sectors of the log's disk, from its byte `at` on.
    pub(crate) fn read(
        &self,
        home: &dyn Home,
        at: u64,
        length: usize,
    ) -> LocalFuture<Result<Buffer, DeviceError>> {
        match &self.place {
            LogPlace::Inside => home.read_log(at, length),
            LogPlace::Own(disk) => disk.read(at, length),
        }
    }

    /// Returns the unit in which the log's disk writes.
    pub(crate) fn physical_sector(&self, home: &dyn Home) -> u32 {
        match &self.place {
            LogPlace::Inside => home.physical_sector(),
            LogPlace::Own(disk) => disk.physical_sector(),
        }
    }

    pub(crate) fn logical_sector(&self, home: &dyn Home) -> u32 {
        match &self.place {
            LogPlace::Inside => home.logical_sector(),
            LogPlace::Own(disk) => disk.geometry().logical_sector,
        }
    }

    /// Returns where byte `at` of the journal lies on its disk, and how many bytes follow it there,
    /// itself included.
    pub(crate) fn locate_byte(
        &self,
        at: u64,
        block_size: BlockSize,
    ) -> Result<(u64, u64), EngineError> {
        let within = at & (block_size.bytes() as u64 - 1);
        let block = u32::try_from(at >> block_size.shift()).unwrap_or(u32::MAX);
        let (place, together) = self.locate(LogBlock(block))?;
        let shift = block_size.shift();
        Ok(((place << shift) + within, (u64::from(together) << shift) - within))
    }

    /// The disk block of `at` and how many log blocks follow it there, itself included.
    pub fn locate(&self, at: LogBlock) -> Result<(u64, u32), EngineError> {
        let after = self.extents.partition_point(|extent| extent.first <= at);
        let found = after.checked_sub(1).map(|index| self.extents[index]);
        match found {
            Some(extent) if at.get() - extent.first.get() < extent.count => {
                let offset = at.get() - extent.first.get();
                Ok((extent.disk_block + u64::from(offset), extent.count - offset))
            }
            _ => Err(EngineError::BadJournal {
                why: format!("{at} lies outside the journal's blocks"),
            }),
        }
    }
}

/// Memory that survives a power cut, as a disk of at least [`format::run_table::TABLE_BYTES`].
#[derive(Clone)]
pub struct DurableMemory(pub Rc<dyn Disk>);

impl fmt::Debug for DurableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl PartialEq for DurableMemory {
    fn eq(&self, other: &DurableMemory) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// The options of a mount that concern the engine.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineOptions {
    pub data: DataMode,
    /// Selective mode: which requests are logged.
    pub threshold: WriteThreshold,
    /// [`Variations::threshold_per_block`].
    pub threshold_per_block: bool,
    /// Adaptive mode: the longest request that is logged.
    pub logged_write_size: u64,
    /// [`Variations::ordered_overwrites`].
    pub order_overwrites: bool,
    /// After this many bytes of sequential requests, the next ones bypass the cache. Requests
    /// shorter than a sixteenth of it do not. `None`: none goes past it.
    pub past_cache_from: Option<u64>,
    pub barrier: BarrierKind,
    /// Age at which a transaction is committed although nobody asked.
    pub commit: Duration,
    /// How often write-back looks for old dirty blocks, and the age that makes them due.
    pub writeback: Duration,
    pub expire: Duration,
    /// When what the log holds is written home, if not by that age.
    pub checkpoint: CheckpointTimes,
    /// A scattered log that is fuller than so many percent is swapped in idle time; `None`: never.
    pub swap_above: Option<u32>,
    /// Scattered logs: where the table of their runs lies (`mtl=`).
    pub run_table: Option<DurableMemory>,
    /// Scattered logs: a snapshot of the mapping table is written when a restart would have to read
    /// so many bytes of them besides. A seek counts as what could be read in its time. `None`:
    /// never.
    pub snapshot_after: Option<u64>,
    /// Most items of a piece of that, unless one transaction has more.
    pub snapshot_items: usize,
    /// Most bytes of memory for blocks: the current image, those of transactions under way, and
    /// what goes with them.
    pub cache_bytes: u64,
    pub journal_checksum: bool,
    /// A checksum over each transaction in every mode, not in the extended ones alone. A commit
    /// needs one barrier less, and nobody else can read the log. Only with `journal_checksum`.
    pub transaction_checksum: bool,
    /// [`Variations::durable_only`]: [`crate::FileUpdate::durable_only`] says which.
    pub durable_only: bool,
    /// `None`: as [`EngineOptions::record_format`] says.
    pub records: Option<RecordFormat>,
    pub log: LogKind,
    /// Most transactions on their way to the log at once: 1 or 2. Two only where
    /// [`EngineOptions::overlaps`] says so.
    pub commits_in_flight: usize,
    /// The bytes of a log block, of a format that has short ones; `None`: what the log's disk
    /// writes as one.
    pub log_unit: Option<u32>,
    /// Gap between a transaction and the one before it, for rotating disks.
    pub log_gap: LogGap,
    pub read_only: bool,
    /// The log is begun at once, in the extended format, and not at the first commit: the kernel
    /// and e2fsck refuse such a journal. For disks that no exclusive claim protects from them.
    pub keep_others_out: bool,
    /// Recovery of a damaged log: replay what lies before the damage instead of refusing.
    pub until_damage: bool,
    /// Recovery of a live log that another program has marked as empty: replay it instead of
    /// refusing.
    pub find_log: bool,
    /// Recovery where home cannot be read: leave out blocks of which the log holds a part only,
    /// instead of refusing.
    pub skip_unreadable: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            data: DataMode::default(),
            threshold: WriteThreshold::Fixed(4096),
            threshold_per_block: false,
            logged_write_size: LOGGED_WRITE_SIZE,
            order_overwrites: false,
            past_cache_from: Some(1 << 20),
            barrier: BarrierKind::Flush,
            commit: Duration::from_secs(5),
            writeback: Duration::from_secs(5),
            expire: Duration::from_secs(30),
            checkpoint: CheckpointTimes::ByAge,
            swap_above: Some(80),
            run_table: None,
            snapshot_after: Some(64 << 20),
            snapshot_items: SNAPSHOT_ITEMS,
            cache_bytes: 256 << 20,
            journal_checksum: true,
            transaction_checksum: false,
            durable_only: false,
            records: None,
            log: LogKind::default(),
            commits_in_flight: 1,
            log_unit: None,
            log_gap: LogGap::Off,
            read_only: false,
            keep_others_out: false,
            until_damage: false,
            find_log: false,
            skip_unreadable: false,
        }
    }
}

impl EngineOptions {
    /// `holds_records`: the log is not empty. What an earlier mount logged in its mode must not be
    /// bypassed in this one.
    pub(crate) fn policy(&self, holds_records: bool) -> Box<dyn Policy> {
        let mut policy = self.data.policy(self.threshold);
        policy.set_logged_write_size(self.logged_write_size);
        let variations = Variations {
            durable_only: self.durable_only
                || (holds_records && !units::fault!("kept-log-bypassed")),
            ordered_overwrites: self.order_overwrites,
            threshold_per_block: self.threshold_per_block,
        };
        varied(policy, variations)
    }

    /// How transactions are written.
    pub fn record_format(&self) -> RecordFormat {
        let logs_bytes = || self.data.policy(self.threshold).logs_bytes();
        self.records.unwrap_or_else(|| RecordFormat::by_default(logs_bytes()))
    }

    /// Most bytes that may lie free between two transactions: only where recovery can detect them.
    pub(crate) fn gap_max(&self) -> u32 {
        let has_gaps = self.record_format().may_have_gaps() && self.log == LogKind::Circular;
        if has_gaps { self.log_gap.most() } else { 0 }
    }

    /// Whether a transaction may set out while another is on its way.
    pub(crate) fn overlaps(&self) -> bool {
        self.commits_in_flight > 1
            && self.record_format().may_overlap()
            && self.log == LogKind::Circular
    }
}

/// Parts that [`crate::Engine::open`] and [`crate::recover`] work on.
#[derive(Clone)]
pub struct EngineParts {
    pub world: Rc<dyn World>,
    pub home: Rc<dyn Home>,
    pub block_size: BlockSize,
    /// `None`: a volume without a journal; each commit then writes everything home.
    pub log: Option<LogArea>,
    pub options: EngineOptions,
    /// [`crate::NoPacing`], but for experiments.
    pub pacing: Rc<dyn CommitPacing>,
}

impl EngineParts {
    /// A unit that the log's disk cannot write is refused before anything is.
    pub(crate) fn check_log_unit(&self, area: &LogArea) -> Result<(), EngineError> {
        let sector = area.logical_sector(&*self.home);
        match self.options.log_unit {
            Some(unit) if unit < sector => Err(EngineError::ShortLogUnit { unit, sector }),
            _ => Ok(()),
        }
    }

    /// Returns a warning for each option that is valid but does less than its name suggests.
    pub fn warnings(&self) -> Vec<String> {
        let options = &self.options;
        let in_vain = options.commits_in_flight > 1 && !(options.overlaps() && self.log.is_some());
        let able = RecordFormat::ALL.into_iter().filter(|format| format.may_overlap());
        let able = able.map(RecordFormat::name).collect::<Vec<_>>().join(" or ");
        let mut warnings = Vec::from_iter((in_vain && !options.read_only).then(|| {
            format!(
                "commits_in_flight=2: one at a time all the same: two take a journal with records={able} and log=circular"
            )
        }));
        let Some(area) = &self.log else {
            let logs_data = options.policy(false).logs_data() && !options.read_only;
            warnings.extend((logs_data && !units::fault!("unjournaled-silence")).then(|| {
                format!(
                    "data={}: the volume has no journal, so nothing is logged: a crash may damage it, and a sync is no \
                     faster. tune2fs -j makes a journal",
                    options.data
                )
            }));
            return warnings;
        };
        let (sector, block) = (area.physical_sector(&*self.home), self.block_size.bytes() as u32);
        // At most a block counts.
        let unit = options.log_unit.map(|unit| unit.min(block)).filter(|unit| *unit < sector);
        let has_units = options.record_format().has_short_units() && !options.read_only;
        warnings.extend(unit.filter(|_| has_units).map(|unit| {
            let safe = match block < sector {
                true => format!("only a volume with blocks of {sector} bytes has longer units"),
                false => format!("log_unit={sector} is safe"),
            };
            format!(
                "log_unit={unit}: the log's disk writes {sector} bytes as one, so each shorter write is slower, and a power \
                 cut may damage what was synced before it in the same {sector} bytes; {safe}"
            )
        }));
        warnings
    }

    /// `count` blocks from the block `at` of the log's disk on: see [`LogArea::locate`].
    pub async fn read_log(
        &self,
        area: &LogArea,
        at: u64,
        count: usize,
    ) -> Result<Buffer, EngineError> {
        let shift = self.block_size.shift();
        Ok(match &area.place {
            LogPlace::Inside => self.home.read(HomeBlock(at), count).await?,
            LogPlace::Own(disk) => disk.read(at << shift, count << shift).await?,
        })
    }
}
