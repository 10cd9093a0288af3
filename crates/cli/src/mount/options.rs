//! Options of a mount, and the engine's options derived from them. The options behind `-o` are
//! parsed in [`super::parse`].

use crate::daemon::reporter::Level;
use engine::{BarrierKind, CheckpointTimes, EngineOptions, LogKind, RecordFormat};
use ext4::{Atime, DurableOnly, OnError};
use format::ext4::superblock::default_options;
use format::ext4::{VolumeSuperblock, feature};
use fuse_session::Transport;
use journal::{DataMode, LogGap, WriteThreshold};
use std::path::PathBuf;
use std::time::Duration;

/// Method by which the order of writes is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    None,
    Flush,
    /// Coerced cache evictions, to the flush zone of each disk.
    Coerce,
}

/// Settings of a mount; `None`: not specified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountSettings {
    pub data: Option<DataMode>,
    pub threshold: Option<WriteThreshold>,
    /// Whether the threshold applies to the changed bytes of each block.
    pub threshold_per_block: bool,
    /// Whether overwrites in place that bypass the log are ordered before the commit, as in ext3.
    pub order_overwrites: bool,
    /// Adaptive mode: the longest request that is logged, in bytes.
    pub logged_write_size: u64,
    pub barrier: Barrier,
    pub commit: Option<Duration>,
    pub writeback: Option<Duration>,
    pub expire: Option<Duration>,
    pub checkpoint: CheckpointTimes,
    /// Fill level of a scattered log in percent; `None`: never.
    pub swap_above: Option<u32>,
    /// File or device of the table of runs, on memory that survives a power cut.
    pub run_table: Option<PathBuf>,
    /// Files that need durability alone.
    pub durable_only: Option<DurableOnly>,
    /// Bytes of the cache.
    pub cache: Option<u64>,
    pub journal_device: Option<PathBuf>,
    pub journal_checksum: bool,
    pub transaction_checksum: bool,
    pub records: Option<RecordFormat>,
    /// Bytes of a log block of packed transactions.
    pub log_unit: Option<u32>,
    pub log_gap: LogGap,
    pub commits_in_flight: Option<usize>,
    /// Location of the log.
    pub log: LogKind,
    pub transport: Transport,
    /// Time for which the daemon polls before it sleeps, where that is worthwhile; zero: never.
    pub poll: Duration,
    /// Whether the other processors are kept awake, too, while polling is worthwhile.
    pub keep_awake: bool,
    /// Read-ahead of the kernel, in bytes.
    pub read_ahead: u64,
    /// Whether an image file gets a loop device.
    pub loop_device: bool,
    pub read_only: bool,
    pub atime: Atime,
    /// `MS_NOSUID` and so on.
    pub flags: libc::c_ulong,
    /// Whether users other than the mounting one may access the mount.
    pub allow_other: bool,
    pub synchronous_directories: bool,
    /// Whether files are opened without a request to the daemon.
    pub without_open: bool,
    /// Extended attributes that are not served.
    pub attributes: fuse::AttributeOptions,
    pub on_error: OnError,
    /// Whether new files get their directory's group.
    pub group_of_directory: bool,
    /// Whether home is read without replaying the journal.
    pub without_journal: bool,
    /// Whether an existing mount is to change.
    pub remount: bool,
    /// Level of reports, and their destination instead of the system's log.
    pub log_level: Option<Level>,
    pub log_file: Option<PathBuf>,
    /// Requested options that are ignored without an error.
    pub not_done: Vec<&'static str>,
}

/// Default read-ahead. The kernel's own for FUSE (128 KiB) is far too little for a request's round
/// trip. Cold reads took twice to five times as long as on the kernel's ext4.
const READ_AHEAD_DEFAULT: u64 = 4 << 20;

impl Default for MountSettings {
    fn default() -> MountSettings {
        MountSettings {
            data: None,
            threshold: None,
            threshold_per_block: false,
            order_overwrites: false,
            logged_write_size: EngineOptions::default().logged_write_size,
            barrier: Barrier::Flush,
            commit: None,
            writeback: None,
            expire: None,
            checkpoint: CheckpointTimes::ByAge,
            swap_above: EngineOptions::default().swap_above,
            run_table: None,
            durable_only: None,
            cache: None,
            journal_device: None,
            journal_checksum: true,
            transaction_checksum: false,
            records: None,
            log_unit: None,
            log_gap: LogGap::Auto,
            commits_in_flight: None,
            log: LogKind::default(),
            transport: Transport::Auto,
            poll: runtime::POLL_DEFAULT,
            keep_awake: true,
            read_ahead: READ_AHEAD_DEFAULT,
            loop_device: true,
            read_only: false,
            atime: Atime::Relative,
            flags: 0,
            allow_other: false,
            synchronous_directories: false,
            without_open: false,
            attributes: fuse::AttributeOptions::default(),
            on_error: OnError::Continue,
            group_of_directory: false,
            without_journal: false,
            remount: false,
            log_level: None,
            log_file: None,
            not_done: Vec::new(),
        }
    }
}

impl MountSettings {
    /// Whether modes alone decide on permissions.
    pub fn ignores_access_lists(&self) -> bool {
        self.attributes.without_access_lists || self.attributes.without_any
    }

    /// Returns the superblock's defaults for unspecified options: tune2fs -e, -o and -E mount_opts.
    /// Unknown options are ignored, as in the kernel.
    pub fn of_superblock(superblock: &VolumeSuperblock) -> MountSettings {
        let mut settings = MountSettings::default();
        let bits = superblock.default_mount_options;
        settings.data = match bits & default_options::DATA_MODE {
            default_options::DATA_JOURNAL => Some(DataMode::Journal),
            default_options::DATA_ORDERED => Some(DataMode::Ordered),
            default_options::DATA_WRITEBACK => Some(DataMode::Writeback),
            _ => None,
        };
        if bits & default_options::NO_BARRIER != 0 {
            settings.barrier = Barrier::None;
        }
        settings.group_of_directory = bits & default_options::BSD_GROUPS != 0;
        if superblock.errors > 1 {
            settings.on_error = OnError::Stop;
        }
        let text = superblock.mount_options.split(|&byte| byte == 0).next().unwrap_or_default();
        // Only options on how the volume is written; permissions are for the command to decide.
        const TAKEN: [&str; 10] = [
            "data",
            "barrier",
            "nobarrier",
            "commit",
            "errors",
            "journal_checksum",
            "nojournal_checksum",
            "grpid",
            "nogrpid",
            "threshold",
        ];
        for word in String::from_utf8_lossy(text).split(',') {
            let name = word.split('=').next().unwrap_or(word);
            if TAKEN.contains(&name) {
                let _ = settings.take(word);
            }
        }
        settings
    }

    /// Returns the mode of a mount of this volume, and the threshold of small requests. The default
    /// mode wins for small synchronous writes and does not lose for large ones. Without a journal
    /// nothing can be logged.
    fn mode_on(&self, volume: &VolumeSuperblock) -> (DataMode, WriteThreshold) {
        let has_journal = volume.features.has(feature::HAS_JOURNAL) && !self.without_journal;
        let a_block = WriteThreshold::Fixed(volume.block_size.bytes() as u64);
        let (data, threshold) = match self.data {
            Some(data) => (data, a_block),
            None if has_journal => (DataMode::Selective, WriteThreshold::Auto),
            None => (DataMode::Ordered, a_block),
        };
        (data, self.threshold.unwrap_or(threshold))
    }

    /// Returns the engine's options, over its own defaults, on a mount of this volume.
    pub fn engine(&self, volume: &VolumeSuperblock) -> EngineOptions {
        self.engine_in(self.mode_on(volume))
    }

    /// Returns the engine's options over a block volume, which always has a journal.
    pub fn engine_of_blocks(&self) -> EngineOptions {
        let a_block = WriteThreshold::Fixed(4096);
        let (data, threshold) = match self.data {
            Some(data) => (data, a_block),
            None => (DataMode::Selective, WriteThreshold::Auto),
        };
        self.engine_in((data, self.threshold.unwrap_or(threshold)))
    }

    fn engine_in(&self, (data, threshold): (DataMode, WriteThreshold)) -> EngineOptions {
        let own = EngineOptions::default();
        EngineOptions {
            data,
            threshold,
            threshold_per_block: self.threshold_per_block,
            order_overwrites: self.order_overwrites,
            past_cache_from: own.past_cache_from,
            logged_write_size: self.logged_write_size,
            barrier: match self.barrier {
                Barrier::None => BarrierKind::None,
                // The flush of a coerced disk is an eviction.
                Barrier::Flush | Barrier::Coerce => BarrierKind::Flush,
            },
            commit: self.commit.unwrap_or(own.commit),
            writeback: self.writeback.unwrap_or(own.writeback),
            expire: self.expire.unwrap_or(own.expire),
            checkpoint: self.checkpoint,
            swap_above: self.swap_above,
            // Opened by the caller.
            run_table: None,
            snapshot_after: own.snapshot_after,
            snapshot_items: own.snapshot_items,
            durable_only: self.durable_only.is_some(),
            cache_bytes: self.cache.unwrap_or(own.cache_bytes),
            journal_checksum: self.journal_checksum,
            transaction_checksum: self.transaction_checksum,
            records: self.records,
            log_unit: self.log_unit,
            log_gap: self.log_gap,
            commits_in_flight: self.commits_in_flight.unwrap_or(own.commits_in_flight),
            log: self.log,
            read_only: self.read_only,
            keep_others_out: false,
            until_damage: false,
            find_log: false,
            skip_unreadable: false,
        }
    }

    /// Returns warnings about these settings.
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = self.not_done.clone();
        if self.barrier == Barrier::None && !self.read_only {
            warnings.push(
                "barrier=none: a power cut may damage the volume and lose synced data, \
                 unless the disk keeps its write cache over it",
            );
        }
        let has_threshold = self.threshold.is_some() || self.threshold_per_block;
        if has_threshold && !matches!(self.data, None | Some(DataMode::Selective)) {
            warnings
                .push("threshold= and threshold_per= do nothing here: they are of data=selective");
        }
        if self.log_unit.is_some() && self.records.is_some_and(|format| !format.has_short_units()) {
            warnings.push(
                "log_unit= does nothing here: with records=blocks the log is written in blocks",
            );
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_endangers_data_or_is_not_done_is_warned_of() {
        for (text, count) in [
            ("barrier=none", 1),
            ("nobarrier", 1),
            ("nobarrier,ro", 0),
            ("barrier=flush", 0),
            ("errors=panic,discard", 2),
            ("threshold=16K", 0),
            ("data=selective,threshold=16K", 0),
            ("data=ordered,threshold=16K", 1),
            ("data=wasteless,threshold_per=block", 1),
            ("records=blocks,log_unit=512", 1),
            ("records=packed,log_unit=512", 0),
        ] {
            let words: Vec<String> = text.split(',').map(String::from).collect();
            let settings = MountSettings::parse(&words, false).unwrap();
            assert_eq!(settings.warnings().len(), count, "{text}");
        }
    }
}
