//! Options for what is logged, and how.

use super::Row;
use crate::options::Refusal;
use crate::options::values::{on_off, set, switch};
use crate::text::quantity::{exact_size, parse_count, parse_size};
use ext4::DurableOnly;
use journal::{DataMode, LogGap, WriteThreshold};
use std::path::PathBuf;

/// Settings of what is logged that are more than an option of the engine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalSettings {
    /// Journaling mode; `None` if the volume decides.
    pub data: Option<DataMode>,
    /// Write threshold; `None` if the mode decides.
    pub threshold: Option<WriteThreshold>,
    /// Files that need durability alone.
    pub durable_only: Option<DurableOnly>,
    pub device: Option<PathBuf>,
    /// Whether a barrier is a coerced eviction, to the flush zone of each disk.
    pub coerces: bool,
    /// File or device of the table of runs, on memory that survives a power cut.
    pub run_table: Option<PathBuf>,
}

pub const ROWS: &[Row] = &[
    Row {
        name: "data",
        value: "MODE",
        choices: || DataMode::ALL.map(|mode| (mode.name(), mode.summary())).into(),
        parse: |value, it| {
            set(&mut it.journal.data, Some(value.parse().map_err(|_| Refusal::Value)?))
        },
        text: |it| it.journal.data.map(|mode| mode.to_string()),
        default: "selective with threshold=auto; ordered on a volume without a journal",
        help: "what the journal holds of file data",
        more: "The mode",
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "threshold",
        value: "auto|SIZE",
        parse: |value, it| {
            it.journal.threshold = Some(match value {
                "auto" => WriteThreshold::Auto,
                size => WriteThreshold::Fixed(parse_size(size)?),
            });
            Ok(())
        },
        text: |it| {
            it.journal.threshold.map(|threshold| match threshold {
                WriteThreshold::Auto => "auto".to_owned(),
                WriteThreshold::Fixed(bytes) => exact_size(bytes),
            })
        },
        default: "auto; a block where data=selective is named",
        help: "selective mode: a request is small below SIZE, or below what the times of log \
               writes and home writes suggest",
        more: "Which requests are small",
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "threshold_per",
        value: "request|block",
        parse: |value, it| {
            it.engine.threshold_per_block = match value {
                "request" => false,
                "block" => true,
                _ => return Err(Refusal::Value),
            };
            Ok(())
        },
        text: |it| {
            let of_blocks = it.engine.threshold_per_block;
            Some(if of_blocks { "block" } else { "request" }.to_owned())
        },
        help: "what the threshold applies to: the request, or what it changes of each block",
        ..Row::BASE
    },
    Row {
        name: "logged_write_size",
        value: "SIZE",
        parse: |value, it| set(&mut it.engine.logged_write_size, parse_size(value)?),
        text: |it| Some(exact_size(it.engine.logged_write_size)),
        help: "adaptive mode: random requests up to SIZE are logged",
        ..Row::BASE
    },
    Row {
        name: "order_overwrites",
        words: &[("order_overwrites", "on"), ("noorder_overwrites", "off")],
        parse: |value, it| set(&mut it.engine.order_overwrites, switch(value)?),
        text: |it| on_off(it.engine.order_overwrites),
        help: "data that bypasses the log and overwrites what the file had is written home before \
               the commit, as in ext3; without it no commit waits for it, as in ext4",
        ..Row::BASE
    },
    Row {
        name: "durable_only",
        value: "NAMES",
        words: &[("durable_only", "")],
        parse: |value, it| {
            it.journal.durable_only = Some(match value {
                "" => DurableOnly::default(),
                names => names.parse()?,
            });
            Ok(())
        },
        text: |it| it.journal.durable_only.as_ref().map(ToString::to_string),
        default: "off",
        help: "files for which durability is enough, such as a database's log: those with the \
               attribute user.okeanos.durability=only, on them or on a directory above them, those \
               of these names, as in *.wal:*/journal/*, and those for which a program requests it \
               with an ioctl. Their data is logged in every mode, and written home only when the \
               journal or the cache is full, or at unmount",
        more: "Files of which durability is enough",
        ..Row::BASE
    },
    Row {
        name: "records",
        value: "blocks|packed",
        parse: |value, it| {
            set(&mut it.engine.records, Some(value.parse().map_err(|_| Refusal::Value)?))
        },
        text: |it| it.engine.records.map(|format| format.name().to_owned()),
        default: "packed with wasteless and selective, whose journal only Okeanos replays anyway; \
                  else blocks",
        help: "how transactions are written: JBD2's blocks and multiwrite blocks, or one run of \
               the bytes that changed, of metadata as well; after a crash only Okeanos can replay \
               a packed journal",
        ..Row::BASE
    },
    Row {
        name: "log_unit",
        value: "SIZE",
        parse: |value, it| {
            let unit = parse_size(value)?;
            let is_unit = unit.is_power_of_two() && (512..=65536).contains(&unit);
            let wrong = || "a power of two from 512 up to a block is needed".to_owned();
            it.engine.log_unit = Some(is_unit.then_some(unit as u32).ok_or_else(wrong)?);
            Ok(())
        },
        text: |it| it.engine.log_unit.map(|bytes| exact_size(bytes.into())),
        default: "the disk's physical sector",
        help: "packed journals: the bytes that the disk writes as one, from 512 up to a block",
        more: "In which units a log is written",
        ..Row::BASE
    },
    Row {
        name: "log_gap",
        value: "auto|off|SIZE",
        parse: |value, it| {
            it.engine.log_gap = match value {
                "auto" => LogGap::Auto,
                "off" => LogGap::Off,
                size => LogGap::Always(
                    u32::try_from(parse_size(size)?)
                        .map_err(|_| "less than 4 GiB is needed".to_owned())?,
                ),
            };
            Ok(())
        },
        text: |it| {
            Some(match it.engine.log_gap {
                LogGap::Auto => "auto".to_owned(),
                LogGap::Off => "off".to_owned(),
                LogGap::Always(bytes) => exact_size(bytes.into()),
            })
        },
        help: "packed journals: what is left free between a commit and the one before it, so that \
               a rotating disk need not wait for a revolution; auto learns it from how long \
               commits take, and leaves none where they do not wait",
        more: "Gaps between commits",
        ..Row::BASE
    },
    Row {
        name: "log",
        value: "circular|scattered",
        parse: |value, it| set(&mut it.engine.log, value.parse().map_err(|_| Refusal::Value)?),
        text: |it| Some(it.engine.log.name().to_owned()),
        help: "where the log lies: in the journal, or in the volume's scattered logs, near where \
               its disk works (okeanos mkfs --scattered-logs); after a crash only Okeanos can \
               replay those",
        ..Row::BASE
    },
    Row {
        name: "commits_in_flight",
        value: "1|2",
        parse: |value, it| {
            set(&mut it.engine.commits_in_flight, parse_count(value, 1..=2)? as usize)
        },
        text: |it| Some(it.engine.commits_in_flight.to_string()),
        help: "whether a commit may be issued while the one before it is in flight; two only with \
               packed journals and a circular log",
        more: "Two commits at once",
        ..Row::BASE
    },
    Row {
        name: "journal_dev",
        value: "DEVICE",
        aliases: &["journal_path"],
        parse: |value, it| set(&mut it.journal.device, Some(value.into())),
        text: |it| it.journal.device.as_ref().map(|path| path.display().to_string()),
        default: "the journal inside the volume",
        help: "the journal, where the volume has an external one",
        ..Row::BASE
    },
    Row {
        name: "journal_checksum",
        words: &[("journal_checksum", "on"), ("nojournal_checksum", "off")],
        parse: |value, it| {
            it.engine.journal_checksum = switch(value)?;
            // A checksum over the transaction needs those of its parts.
            it.engine.transaction_checksum &= it.engine.journal_checksum;
            Ok(())
        },
        text: |it| on_off(it.engine.journal_checksum),
        help: "checksums in the journal",
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "transaction_checksum",
        words: &[("transaction_checksum", "on"), ("notransaction_checksum", "off")],
        parse: |value, it| {
            it.engine.transaction_checksum = switch(value)?;
            it.engine.journal_checksum |= it.engine.transaction_checksum;
            Ok(())
        },
        text: |it| on_off(it.engine.transaction_checksum),
        help: "a checksum over each transaction in every mode: a commit needs one barrier less, \
               but after a crash only Okeanos can replay the journal, as always with wasteless and \
               selective",
        ..Row::BASE
    },
];
