//! Consequences of a mount's settings: the engine's options, and warnings. The options behind `-o`
//! are rows of [`super::table`], and parsed in [`super::parse`].

pub use super::table::MountSettings;

use super::table::SECTIONS;
use crate::error::CliError;
use crate::options;
use engine::{BarrierKind, CheckpointTimes, EngineOptions, LogKind};
use ext4::OnError;
use format::ext4::superblock::default_options;
use format::ext4::{VolumeSuperblock, feature};
use journal::{DataMode, WriteThreshold};
use units::BlockSize;

impl MountSettings {
    /// Whether modes alone decide on permissions.
    pub fn ignores_access_lists(&self) -> bool {
        self.volume.attributes.without_access_lists || self.volume.attributes.without_any
    }

    /// Whether the mode is named, and logs data.
    pub fn logs_data_by_name(&self) -> bool {
        !matches!(self.journal.data, None | Some(DataMode::Ordered | DataMode::Writeback))
    }

    /// Whether everything changes synchronously.
    pub fn is_synchronous(&self) -> bool {
        self.session.flags & libc::MS_SYNCHRONOUS != 0
    }

    /// Whether directories change synchronously.
    pub fn has_synchronous_directories(&self) -> bool {
        self.volume.synchronous_directories || self.is_synchronous()
    }

    /// Returns the superblock's defaults for unspecified options: tune2fs -e, -o and -E mount_opts.
    /// Unknown options are ignored, as in the kernel.
    pub fn of_superblock(superblock: &VolumeSuperblock) -> MountSettings {
        let mut settings = MountSettings::default();
        let bits = superblock.default_mount_options;
        settings.journal.data = match bits & default_options::DATA_MODE {
            default_options::DATA_JOURNAL => Some(DataMode::Journal),
            default_options::DATA_ORDERED => Some(DataMode::Ordered),
            default_options::DATA_WRITEBACK => Some(DataMode::Writeback),
            _ => None,
        };
        if bits & default_options::NO_BARRIER != 0 {
            settings.engine.barrier = BarrierKind::None;
        }
        settings.volume.group_of_directory = bits & default_options::BSD_GROUPS != 0;
        if superblock.errors > 1 {
            settings.volume.on_error = OnError::Stop;
        }
        let text = superblock.mount_options.split(|&byte| byte == 0).next().unwrap_or_default();
        // Only options on how the volume is written; permissions are for the command to decide.
        for word in String::from_utf8_lossy(text).split(',') {
            if options::row_of(SECTIONS, word).is_some_and(|row| row.in_superblock) {
                if let Err(error) = settings.take(word) {
                    let warning = format!("tune2fs -E mount_opts: {error}; it is ignored");
                    settings.not_done.push(warning);
                }
            }
        }
        settings
    }

    /// Returns the mode of a mount of this volume, and the threshold of small requests. The default
    /// mode wins for small synchronous writes and does not lose for large ones. Without a journal
    /// nothing can be logged.
    fn mode_on(&self, volume: &VolumeSuperblock) -> (DataMode, WriteThreshold) {
        let has_journal = volume.features.has(feature::HAS_JOURNAL) && !self.volume.without_journal;
        let a_block = WriteThreshold::Fixed(volume.block_size.bytes() as u64);
        let (data, threshold) = match self.journal.data {
            Some(data) => (data, a_block),
            None if has_journal => (DataMode::Selective, WriteThreshold::Auto),
            None => (DataMode::Ordered, a_block),
        };
        (data, self.journal.threshold.unwrap_or(threshold))
    }

    /// Returns the engine's options, over its own defaults, on a mount of this volume.
    pub fn engine(&self, volume: &VolumeSuperblock) -> EngineOptions {
        self.engine_in(self.mode_on(volume))
    }

    /// Returns the engine's options over a block volume, which always has a journal.
    pub fn engine_of_blocks(&self) -> EngineOptions {
        let a_block = WriteThreshold::Fixed(4096);
        let (data, threshold) = match self.journal.data {
            Some(data) => (data, a_block),
            None => (DataMode::Selective, WriteThreshold::Auto),
        };
        self.engine_in((data, self.journal.threshold.unwrap_or(threshold)))
    }

    fn engine_in(&self, (data, threshold): (DataMode, WriteThreshold)) -> EngineOptions {
        EngineOptions {
            data,
            threshold,
            durable_only: self.journal.durable_only.is_some(),
            read_only: self.session.read_only,
            ..self.engine.clone()
        }
    }

    /// Refuses a `log_unit=` that no journal of a volume with such blocks has.
    ///
    /// # Errors
    /// The unit is longer than a block.
    pub fn check_log_unit(&self, block: BlockSize) -> Result<(), CliError> {
        let block = block.bytes();
        match self.engine.log_unit {
            Some(unit) if unit as usize > block => Err(CliError::new(format!(
                "log_unit={unit}: blocks of this volume have {block} bytes"
            ))
            .with_remedy("A unit is at most a block.")),
            _ => Ok(()),
        }
    }

    /// Returns warnings about these settings.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.not_done.clone();
        if self.engine.barrier == BarrierKind::None && !self.session.read_only {
            warnings.push(
                "barrier=none: a power cut may damage the volume and lose synced data, \
                 unless the disk keeps its write cache over it"
                    .to_owned(),
            );
        }
        warnings.extend(self.in_vain().map(String::from));
        warnings
    }

    /// Returns warnings about options that do nothing beside the others.
    fn in_vain(&self) -> impl Iterator<Item = &'static str> {
        let (engine, usual) = (&self.engine, MountSettings::default().engine);
        let data = self.journal.data;
        let has_threshold = self.journal.threshold.is_some() || engine.threshold_per_block;
        let is_in_blocks = engine.records.is_some_and(|format| !format.has_short_units());
        let logs_all = matches!(data, Some(DataMode::Journal | DataMode::Wasteless));
        let checks = [
            (
                has_threshold && !matches!(data, None | Some(DataMode::Selective)),
                "threshold= and threshold_per= do nothing here: they apply only with \
                 data=selective",
            ),
            (
                engine.logged_write_size != usual.logged_write_size
                    && data != Some(DataMode::Adaptive),
                "logged_write_size= does nothing here: it applies only with data=adaptive",
            ),
            (
                engine.order_overwrites && logs_all,
                "order_overwrites does nothing here: this mode logs all data",
            ),
            (
                engine.log_unit.is_some() && is_in_blocks,
                "log_unit= does nothing here: with records=blocks the log is written in blocks",
            ),
            (
                engine.log_gap != usual.log_gap && is_in_blocks,
                "log_gap= does nothing here: it applies only with records=packed",
            ),
            (
                engine.swap_above != usual.swap_above && engine.log == LogKind::Circular,
                "swap_above= does nothing here: it applies only with log=scattered",
            ),
            (
                engine.expire != usual.expire && engine.checkpoint != CheckpointTimes::ByAge,
                "expire= does nothing here: checkpoint= says when blocks are written home",
            ),
        ];
        checks.into_iter().filter(|(is_in_vain, _)| *is_in_vain).map(|(_, warning)| warning)
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
            ("logged_write_size=8K", 1),
            ("data=adaptive,logged_write_size=8K", 0),
            ("data=wasteless,order_overwrites", 1),
            ("data=ordered,order_overwrites", 0),
            ("records=blocks,log_gap=8K", 1),
            ("swap_above=50", 1),
            ("log=scattered,swap_above=50", 0),
            ("checkpoint=manual,expire=1s", 1),
            ("expire=1s", 0),
        ] {
            let words: Vec<String> = text.split(',').map(String::from).collect();
            let settings = MountSettings::parse(&words, false).unwrap();
            assert_eq!(settings.warnings().len(), count, "{text}");
        }
    }
}
