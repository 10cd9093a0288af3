//! The words behind `-o`: ours, and those that mount(8) and fstab(5) know for every file system.

use crate::error::CliError;
use crate::quantity::{parse_duration, parse_size};
use engine::{BarrierKind, EngineOptions};
use ext4::Atime;
use fuse::Transport;
use journal::{DataMode, WriteThreshold};
use std::path::PathBuf;
use std::time::Duration;

/// How the order of writes is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    None,
    Flush,
    /// By coerced cache evictions, to the flush zone of each disk.
    Coerce,
}

/// What a mount was asked for; `None` leaves the engine its own default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountSettings {
    pub data: Option<DataMode>,
    /// Bytes.
    pub threshold: Option<u64>,
    pub barrier: Barrier,
    pub commit: Option<Duration>,
    pub writeback: Option<Duration>,
    pub expire: Option<Duration>,
    /// Bytes.
    pub cache: Option<u64>,
    pub journal_device: Option<PathBuf>,
    pub journal_checksum: bool,
    pub transaction_checksum: bool,
    pub transport: Transport,
    /// An image file gets a loop device.
    pub loop_device: bool,
    pub read_only: bool,
    pub atime: Atime,
    /// `MS_NOSUID` and so on.
    pub flags: libc::c_ulong,
    /// Whether others than the mounting user may look in.
    pub allow_other: bool,
    pub synchronous_directories: bool,
}

impl Default for MountSettings {
    fn default() -> MountSettings {
        MountSettings {
            data: None,
            threshold: None,
            barrier: Barrier::Flush,
            commit: None,
            writeback: None,
            expire: None,
            cache: None,
            journal_device: None,
            journal_checksum: true,
            transaction_checksum: false,
            transport: Transport::Auto,
            loop_device: true,
            read_only: false,
            atime: Atime::Relative,
            flags: 0,
            allow_other: false,
            synchronous_directories: false,
        }
    }
}

/// Words that concern mount(8), systemd or nobody any more.
const IGNORED: [&str; 20] = [
    "",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "loud",
    "mand",
    "nomand",
    "default_permissions",
    "log=circular",
    "fuse",
    "noiversion",
    "iversion",
];

const FLAGS: [(&str, libc::c_ulong, bool); 13] = [
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("noatime", libc::MS_NOATIME, true),
    ("atime", libc::MS_NOATIME, false),
    ("nodiratime", libc::MS_NODIRATIME, true),
    ("diratime", libc::MS_NODIRATIME, false),
    ("relatime", libc::MS_RELATIME, true),
    ("lazytime", libc::MS_LAZYTIME, true),
    ("nolazytime", libc::MS_LAZYTIME, false),
];

impl MountSettings {
    /// From the words in order: a later one wins. `sloppy` passes over unknown ones (mount -s).
    pub fn parse(words: &[String], sloppy: bool) -> Result<MountSettings, CliError> {
        let mut settings = MountSettings::default();
        for word in words {
            match settings.take(word) {
                Ok(()) => {}
                Err(Refusal::Unknown) if sloppy => {}
                Err(Refusal::Unknown) => {
                    return Err(CliError::new(format!("mount option {word:?} is not known"))
                        .with_remedy("See okeanos mount --help for all options."));
                }
                Err(Refusal::Wrong(why)) => {
                    return Err(CliError::new(format!("mount option {word:?}: {why}")));
                }
            }
        }
        Ok(settings)
    }

    /// What concerns the engine, over its own defaults.
    pub fn engine(&self) -> EngineOptions {
        let own = EngineOptions::default();
        EngineOptions {
            data: self.data.unwrap_or(own.data),
            threshold: self.threshold.map_or(own.threshold, WriteThreshold),
            barrier: match self.barrier {
                Barrier::None => BarrierKind::None,
                // A coerced disk's flush is an eviction.
                Barrier::Flush | Barrier::Coerce => BarrierKind::Flush,
            },
            commit: self.commit.unwrap_or(own.commit),
            tick: own.tick,
            writeback: self.writeback.unwrap_or(own.writeback),
            expire: self.expire.unwrap_or(own.expire),
            cache_bytes: self.cache.unwrap_or(own.cache_bytes),
            journal_checksum: self.journal_checksum,
            transaction_checksum: self.transaction_checksum,
            read_only: self.read_only,
            until_damage: false,
            find_log: false,
        }
    }

    /// What whoever asks for these settings should know.
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.barrier == Barrier::None && !self.read_only {
            warnings.push(
                "barrier=none: a power cut may damage the volume and lose synced data, \
                 unless the disk keeps its write cache over it",
            );
        }
        warnings
    }

    fn take(&mut self, word: &str) -> Result<(), Refusal> {
        let is_comment =
            |word: &str| word.starts_with("x-") || word.starts_with("X-") || word.starts_with("comment=");
        if IGNORED.contains(&word) || is_comment(word) {
            return Ok(());
        }
        if let Some((_, flag, set)) = FLAGS.iter().find(|(name, ..)| *name == word) {
            self.flags = if *set { self.flags | flag } else { self.flags & !flag };
        }
        match word.split_once('=') {
            Some((name, value)) => self.take_value(name, value),
            None => self.take_word(word),
        }
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "data" => {
                self.data = Some(
                    value
                        .parse()
                        .map_err(|_| known("writeback, ordered, journal, wasteless or selective"))?,
                )
            }
            "threshold" => self.threshold = Some(parse_size(value)?),
            "barrier" => {
                self.barrier = match value {
                    "none" | "0" => Barrier::None,
                    "flush" | "1" => Barrier::Flush,
                    "coerce" => Barrier::Coerce,
                    _ => return Err(known("none, flush or coerce")),
                }
            }
            "commit" => self.commit = interval(value)?,
            "writeback" => self.writeback = interval(value)?,
            "expire" => self.expire = interval(value)?,
            "cache" => self.cache = Some(parse_size(value)?),
            "journal_dev" | "journal_path" => self.journal_device = Some(value.into()),
            "log" => return Err(known("circular")),
            "transport" => {
                self.transport = match value {
                    "auto" => Transport::Auto,
                    "uring" => Transport::Uring,
                    "classic" => Transport::Classic,
                    _ => return Err(known("auto, uring or classic")),
                }
            }
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }

    fn take_word(&mut self, word: &str) -> Result<(), Refusal> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "noloop" => self.loop_device = false,
            "loop" => self.loop_device = true,
            "barrier" => self.barrier = Barrier::Flush,
            "nobarrier" => self.barrier = Barrier::None,
            "noatime" => self.atime = Atime::Never,
            "relatime" | "atime" | "norelatime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Always,
            "nostrictatime" => self.atime = Atime::Relative,
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "journal_checksum" => self.journal_checksum = true,
            "nojournal_checksum" => (self.journal_checksum, self.transaction_checksum) = (false, false),
            "transaction_checksum" => (self.journal_checksum, self.transaction_checksum) = (true, true),
            "notransaction_checksum" => self.transaction_checksum = false,
            "sync" => {
                self.flags |= libc::MS_SYNCHRONOUS;
                self.synchronous_directories = true;
            }
            "dirsync" => self.synchronous_directories = true,
            _ if FLAGS.iter().any(|(name, ..)| *name == word) => {}
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }
}

enum Refusal {
    Unknown,
    Wrong(String),
}
impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Wrong(why)
    }
}

fn known(values: &str) -> Refusal {
    Refusal::Wrong(format!("the value must be {values}"))
}

/// As in ext4, zero means the default.
fn interval(value: &str) -> Result<Option<Duration>, Refusal> {
    let time = parse_duration(value)?;
    Ok((!time.is_zero()).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MountSettings, String> {
        let words: Vec<String> = text.split(',').map(String::from).collect();
        MountSettings::parse(&words, false).map_err(|error| error.to_string())
    }

    #[test]
    fn an_fstab_line_of_ext4_is_understood() {
        let settings =
            parse("defaults,noatime,nodev,nosuid,data=journal,commit=30,barrier=1,x-systemd.automount");
        let flags = libc::MS_NOATIME | libc::MS_NODEV | libc::MS_NOSUID;
        let commit = Some(Duration::from_secs(30));
        let (data, atime) = (Some(DataMode::Journal), Atime::Never);
        assert_eq!(settings, Ok(MountSettings { data, commit, atime, flags, ..Default::default() }));
        assert_eq!(parse("defaults"), Ok(MountSettings::default()));
    }

    #[test]
    fn of_two_that_contradict_the_later_wins() {
        let settings = parse("ro,rw,nosuid,suid,barrier=none,barrier,data=ordered,data=wasteless").unwrap();
        assert_eq!(settings, MountSettings { data: Some(DataMode::Wasteless), ..Default::default() });
    }

    #[test]
    fn a_checksum_of_the_whole_needs_those_of_the_parts() {
        for (text, expected) in [
            ("defaults", (true, false)),
            ("transaction_checksum", (true, true)),
            ("nojournal_checksum,transaction_checksum", (true, true)),
            ("transaction_checksum,nojournal_checksum", (false, false)),
            ("transaction_checksum,notransaction_checksum", (true, false)),
        ] {
            let settings = parse(text).unwrap();
            assert_eq!((settings.journal_checksum, settings.transaction_checksum), expected, "{text}");
        }
    }

    #[test]
    fn only_what_endangers_data_is_warned_of() {
        for (text, count) in
            [("barrier=none", 1), ("nobarrier", 1), ("nobarrier,ro", 0), ("barrier=flush", 0)]
        {
            assert_eq!(parse(text).unwrap().warnings().len(), count, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("data=all", "selective"),
            ("threshold=big", "threshold"),
            ("log=scattered", "circular"),
            ("barrier=force", "flush or coerce"),
            ("frobnicate", "not known"),
            ("cache=", "cache"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(MountSettings::parse(&["frobnicate".into()], true).is_ok(), "mount -s");
    }
}
