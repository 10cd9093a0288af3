//! Parts and options of an engine.

use crate::interface::commit_pacing::CommitPacing;
use crate::interface::error::EngineError;
use crate::writeback::checkpoints::CheckpointTimes;
use commit::Home;
use commit::{Durability, LogArea, LogDevice, PlanDisks};
use device::{Buffer, Disk, World};
use format::jbd2::JournalSuperblock;
use journal::records::RecordFormat;
use journal::{
    DataMode, LOGGED_WRITE_SIZE, LogGap, LogKind, Policy, PolicyOverrides, WriteThreshold,
    with_overrides,
};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockSize, HomeBlock};

/// Items of a piece of a snapshot: a few hundred kilobytes of memory.
const SNAPSHOT_ITEMS: usize = 8192;

/// Way in which a barrier is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierKind {
    /// No flush: for disks whose cache survives a power cut.
    None,
    /// A flush of the disk, or a write that is durable by itself.
    Flush,
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
    /// [`PolicyOverrides::threshold_per_block`].
    pub threshold_per_block: bool,
    /// Adaptive mode: the longest request that is logged.
    pub logged_write_size: u64,
    /// [`PolicyOverrides::ordered_overwrites`].
    pub order_overwrites: bool,
    /// Bytes of a sequential stream after which its requests bypass the cache. Requests
    /// shorter than a sixteenth of it do not. `None`: none goes past it.
    pub past_cache_from: Option<u64>,
    pub barrier: BarrierKind,
    /// Age at which a transaction is committed although nobody asked.
    pub commit: Duration,
    /// Interval at which write-back looks for old dirty blocks, and the age at which they expire.
    pub writeback: Duration,
    pub expire: Duration,
    /// Schedule by which what the log holds is written home, if not by that age.
    pub checkpoint: CheckpointTimes,
    /// Percentage above which the fill of a scattered log has it swapped in idle time; `None`:
    /// never.
    pub swap_above: Option<u32>,
    /// Scattered logs: where the table of their runs lies (`mtl=`).
    pub run_table: Option<DurableMemory>,
    /// Scattered logs: a snapshot of the mapping table is written when a restart would have to read
    /// more than this many bytes of them besides. A seek counts as what could be read in its time.
    /// `None`: never.
    pub snapshot_after: Option<u64>,
    /// Maximum number of items in a piece of the snapshot, unless one transaction has more.
    pub snapshot_items: usize,
    /// Maximum memory in bytes for blocks: the current image, those of transactions in flight, and
    /// what goes with them.
    pub cache_bytes: u64,
    pub journal_checksum: bool,
    /// A checksum over each transaction in every mode, not in the extended ones alone. A commit
    /// needs one barrier less, and nobody else can read the log. Only with `journal_checksum`.
    pub transaction_checksum: bool,
    /// [`PolicyOverrides::durable_only`]: [`crate::FileUpdate::durable_only`] says which.
    pub durable_only: bool,
    /// Record format; `None` for the one of [`EngineOptions::record_format`].
    pub records: Option<RecordFormat>,
    pub log: LogKind,
    /// Maximum number of transactions in flight to the log at once: 1 or 2. Two only where
    /// [`EngineOptions::overlaps`] says so.
    pub commits_in_flight: usize,
    /// Log blocks of a transaction that are made before other tasks run; the crash explorer plays
    /// one, too.
    pub records_at_once: usize,
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
    /// The error that the journal superblock records stays there until
    /// [`crate::clear_recorded_error`]: for an owner who notes it nowhere else. Otherwise the first
    /// commit clears it.
    pub keeps_recorded_error: bool,
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
            records_at_once: 256,
            log_unit: None,
            log_gap: LogGap::Off,
            read_only: false,
            keep_others_out: false,
            until_damage: false,
            find_log: false,
            skip_unreadable: false,
            keeps_recorded_error: false,
        }
    }
}

impl EngineOptions {
    /// Returns the policy of these options; `holds_records` if the log is not empty. What an
    /// earlier mount logged in its mode must not be bypassed in this one.
    pub(crate) fn policy(&self, holds_records: bool) -> Box<dyn Policy> {
        let mut policy = self.data.policy(self.threshold);
        policy.set_logged_write_size(self.logged_write_size);
        let overrides = PolicyOverrides {
            durable_only: self.durable_only
                || (holds_records && !units::fault!("kept-log-bypassed")),
            ordered_overwrites: self.order_overwrites,
            threshold_per_block: self.threshold_per_block,
        };
        with_overrides(policy, overrides)
    }

    /// Returns the format in which transactions are written.
    pub fn record_format(&self) -> RecordFormat {
        let logs_bytes = || self.data.policy(self.threshold).logs_bytes();
        self.records.unwrap_or_else(|| RecordFormat::by_default(logs_bytes()))
    }

    /// Returns the maximum number of bytes that may lie free between two transactions: only where
    /// recovery can detect them.
    pub(crate) fn gap_max(&self) -> u32 {
        let has_gaps = self.record_format().may_have_gaps() && self.log == LogKind::Circular;
        if has_gaps { self.log_gap.most() } else { 0 }
    }

    /// Whether a transaction may be issued while another is in flight.
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
    /// Log area; `None` for a volume without a journal: each commit then writes everything home.
    pub log: Option<LogArea>,
    pub options: EngineOptions,
    /// [`crate::NoPacing`], but for experiments.
    pub pacing: Rc<dyn CommitPacing>,
}

impl EngineParts {
    pub(crate) fn disks(&self) -> PlanDisks {
        let table = self.options.run_table.as_ref().map(|memory| memory.0.clone());
        let (world, home) = (self.world.clone(), self.home.clone());
        PlanDisks::new(world, home, self.log.clone(), table, self.block_size)
    }
    /// Returns the state of the disks of a new mount.
    pub(crate) fn durability(&self) -> Durability {
        Durability::of(&self.disks(), self.options.barrier == BarrierKind::Flush)
    }

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

    /// Reads and checks the journal superblock.
    pub(crate) async fn read_superblock(
        &self,
        area: &LogArea,
    ) -> Result<JournalSuperblock, EngineError> {
        let bytes = self.read_journal_superblock(area).await?;
        JournalSuperblock::parse(&bytes, self.block_size, area.journal_blocks())
            .map_err(|error| EngineError::BadJournal { why: error.to_string() })
    }

    /// The block that holds the journal superblock.
    pub async fn read_journal_superblock(&self, area: &LogArea) -> Result<Buffer, EngineError> {
        let (at, _) = area.locate(area.superblock)?;
        self.read_log(area, at, 1).await
    }

    /// Reads `count` blocks from the block `at` of the log's disk on: see [`LogArea::locate`].
    pub(crate) async fn read_log(
        &self,
        area: &LogArea,
        at: u64,
        count: usize,
    ) -> Result<Buffer, EngineError> {
        let shift = self.block_size.shift();
        Ok(match &area.device {
            LogDevice::Inside => self.home.read(HomeBlock(at), count).await?,
            LogDevice::Own(disk) => disk.read(at << shift, count << shift).await?,
        })
    }
}
