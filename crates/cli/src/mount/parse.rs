//! Parser of the options behind `-o`: those of Okeanos, and those that mount(8) and fstab(5) know
//! for every file system.

use super::options::{Barrier, MountSettings};
use super::words::{self, Meaning};
use crate::error::CliError;
use crate::text::local_time;
use crate::text::quantity::{parse_duration, parse_size};
use engine::{CheckpointTimes, LogKind};
use ext4::{Atime, DurableOnly, OnError};
use fuse::Transport;
use journal::{LogGap, WriteThreshold};
use std::time::Duration;

/// Maximum read-ahead: more than any mount can use; far below what overflows the kernel's count.
const READ_AHEAD_MAX: u64 = 1 << 30;

/// Minimum cache. With less, writers would wait for one another's blocks.
const CACHE_MIN: u64 = 1 << 20;

/// Maximum polling time; longer would only heat the machine.
const POLL_MAX: Duration = Duration::from_millis(10);

/// `linux/mount.h`; the C library's headers lack it.
const MS_NOSYMFOLLOW: libc::c_ulong = 256;

/// Flags of the VFS, for every file system.
const FLAGS: [(&str, libc::c_ulong, bool); 15] = [
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
    ("nosymfollow", MS_NOSYMFOLLOW, true),
    ("symfollow", MS_NOSYMFOLLOW, false),
    ("lazytime", libc::MS_LAZYTIME, true),
    ("nolazytime", libc::MS_LAZYTIME, false),
];

impl MountSettings {
    /// Parses options in order: a later one wins. `sloppy` ignores unknown ones (mount -s).
    pub fn parse(words: &[String], sloppy: bool) -> Result<MountSettings, CliError> {
        MountSettings::parse_onto(MountSettings::default(), words, sloppy)
    }

    /// Parses over existing settings; unmentioned ones stay.
    pub fn parse_onto(
        mut settings: MountSettings,
        words: &[String],
        sloppy: bool,
    ) -> Result<MountSettings, CliError> {
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
        if settings.without_journal && !settings.read_only {
            return Err(CliError::new("noload: without its journal a volume can only be read")
                .with_remedy("Mount with -o ro,noload, or leave noload out."));
        }
        if settings.run_table.is_some() && settings.log != LogKind::Scattered {
            return Err(CliError::new("mtl=: only scattered logs have such a table")
                .with_remedy("Mount with -o log=scattered, or leave mtl= out."));
        }
        Ok(settings)
    }

    pub(super) fn take(&mut self, word: &str) -> Result<(), Refusal> {
        match words::meaning(word) {
            Some(Meaning::Nothing(_)) => return Ok(()),
            Some(Meaning::NotDone(why)) => {
                self.not_done.push(why);
                return Ok(());
            }
            Some(Meaning::Refused(why)) => return Err(Refusal::Wrong(why.into())),
            None => {}
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
                self.data = Some(value.parse().map_err(|_| {
                    known("writeback, ordered, journal, wasteless, selective or adaptive")
                })?)
            }
            "threshold" => {
                self.threshold = Some(match value {
                    "auto" => WriteThreshold::Auto,
                    size => WriteThreshold::Fixed(parse_size(size)?),
                })
            }
            "threshold_per" => {
                self.threshold_per_block = match value {
                    "request" => false,
                    "block" => true,
                    _ => return Err(known("request or block")),
                }
            }
            "barrier" => {
                self.barrier = match value {
                    "none" | "0" => Barrier::None,
                    "flush" | "1" => Barrier::Flush,
                    "coerce" => Barrier::Coerce,
                    _ => return Err(known("none, flush or coerce")),
                }
            }
            "logged_write_size" => self.logged_write_size = parse_size(value)?,
            "commit" => self.commit = interval(value)?,
            "writeback" => self.writeback = interval(value)?,
            "expire" => self.expire = interval(value)?,
            "checkpoint" => self.checkpoint = checkpoint(value)?,
            "swap_above" => {
                self.swap_above = match (value, value.parse()) {
                    ("off", _) => None,
                    (_, Ok(percent @ 1..=99)) => Some(percent),
                    _ => return Err(known("off, or from 1 to 99 (percent)")),
                }
            }
            "mtl" => self.run_table = Some(value.into()),
            "durable_only" => self.durable_only = Some(value.parse().map_err(Refusal::Wrong)?),
            "cache" => {
                self.cache = match parse_size(value)? {
                    bytes @ CACHE_MIN.. => Some(bytes),
                    _ => return Err(Refusal::Wrong("at least 1M; 256M is the default".into())),
                }
            }
            "log_level" => {
                self.log_level =
                    Some(value.parse().map_err(|()| known("error, warning, info or debug"))?)
            }
            "log_file" => self.log_file = Some(value.into()),
            "journal_dev" | "journal_path" => self.journal_device = Some(value.into()),
            "poll" => self.poll = poll(value)?,
            "readahead" => self.read_ahead = read_ahead(value)?,
            "errors" => {
                self.on_error = match value {
                    "continue" => OnError::Continue,
                    "remount-ro" => OnError::Stop,
                    "panic" => {
                        self.not_done.push(
                            "errors=panic: a daemon does not stop the machine; the volume stops, as with remount-ro",
                        );
                        OnError::Stop
                    }
                    _ => return Err(known("continue, remount-ro or panic")),
                }
            }
            "records" => self.records = Some(value.parse().map_err(|_| known("blocks or packed"))?),
            "log_unit" => {
                let unit = parse_size(value)?;
                let is_unit = unit.is_power_of_two() && (512..=65536).contains(&unit);
                self.log_unit = Some(is_unit.then_some(unit as u32).ok_or_else(|| {
                    Refusal::Wrong("a power of two from 512 to 65536 is needed".into())
                })?);
            }
            "log_gap" => {
                self.log_gap = match value {
                    "auto" => LogGap::Auto,
                    "off" => LogGap::Off,
                    size => LogGap::Always(
                        u32::try_from(parse_size(size)?)
                            .map_err(|_| Refusal::Wrong("less than 4 GiB is needed".into()))?,
                    ),
                }
            }
            "commits_in_flight" => {
                let count = value.parse::<usize>().ok().filter(|count| (1..=2).contains(count));
                self.commits_in_flight = Some(count.ok_or_else(|| known("1 or 2"))?);
            }
            "log" => self.log = value.parse().map_err(|_| known("circular or scattered"))?,
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
            "noload" | "norecovery" => self.without_journal = true,
            "grpid" | "bsdgroups" => self.group_of_directory = true,
            "nogrpid" | "sysvgroups" => self.group_of_directory = false,
            "noopen" => self.without_open = true,
            "open" => self.without_open = false,
            "nouser_xattr" => self.attributes.without_user = true,
            "user_xattr" => self.attributes.without_user = false,
            "noacl" => self.attributes.without_access_lists = true,
            "acl" => self.attributes.without_access_lists = false,
            "noxattr" => self.attributes.without_any = true,
            "xattr" => self.attributes.without_any = false,
            "remount" => self.remount = true,
            "durable_only" => self.durable_only = Some(DurableOnly::default()),
            "noloop" => self.loop_device = false,
            "loop" => self.loop_device = true,
            "keep_awake" => self.keep_awake = true,
            "nokeep_awake" => self.keep_awake = false,
            "barrier" => self.barrier = Barrier::Flush,
            "nobarrier" => self.barrier = Barrier::None,
            "order_overwrites" => self.order_overwrites = true,
            "noorder_overwrites" => self.order_overwrites = false,
            "noatime" => self.atime = Atime::Never,
            "relatime" | "atime" | "norelatime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Always,
            "nostrictatime" => self.atime = Atime::Relative,
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "journal_checksum" => self.journal_checksum = true,
            "nojournal_checksum" => {
                (self.journal_checksum, self.transaction_checksum) = (false, false)
            }
            "transaction_checksum" => {
                (self.journal_checksum, self.transaction_checksum) = (true, true)
            }
            "notransaction_checksum" => self.transaction_checksum = false,
            "sync" => {
                self.flags |= libc::MS_SYNCHRONOUS;
                self.synchronous_directories = true;
            }
            "dirsync" => self.synchronous_directories = true,
            _ if FLAGS.iter().any(|(name, ..)| *name == word) => {}
            // A further name of durable_only=, after a comma. No option has a star in it.
            _ if word.contains('*') => match &mut self.durable_only {
                Some(names) => names.add(word).map_err(Refusal::Wrong)?,
                None => return Err(Refusal::Unknown),
            },
            _ => {
                return Err(Self::default().take_value(word, "").err().unwrap_or(Refusal::Unknown));
            }
        }
        Ok(())
    }
}

/// Parses `150us`, or a bare number of microseconds.
fn poll(value: &str) -> Result<Duration, Refusal> {
    let time = match value {
        "auto" => return Ok(runtime::POLL_DEFAULT),
        "off" => return Ok(Duration::ZERO),
        _ => match value.parse() {
            Ok(microseconds) => Duration::from_micros(microseconds),
            Err(_) => parse_duration(value)?,
        },
    };
    if time > POLL_MAX {
        return Err(Refusal::Wrong("at most 10ms, or auto, or off".into()));
    }
    Ok(time)
}

/// Parses the read-ahead. The kernel counts in KiB: less than one would disable it.
fn read_ahead(value: &str) -> Result<u64, Refusal> {
    match parse_size(value)? {
        bytes @ (0 | 1024..=READ_AHEAD_MAX) => Ok(bytes),
        _ => Err(Refusal::Wrong("from 1K to 1G, or 0 for none".into())),
    }
}

pub(super) enum Refusal {
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

/// Parses hours of the current local time.
fn checkpoint(value: &str) -> Result<CheckpointTimes, Refusal> {
    Ok(match value.parse()? {
        CheckpointTimes::OffHours(hours) => {
            CheckpointTimes::OffHours(hours.of_clock(local_time::seconds_east()))
        }
        times => times,
    })
}

/// Parses; as in ext4, zero means the default.
fn interval(value: &str) -> Result<Option<Duration>, Refusal> {
    let time = parse_duration(value)?;
    Ok((!time.is_zero()).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::DataMode;

    fn parse(text: &str) -> Result<MountSettings, String> {
        let words: Vec<String> = text.split(',').map(String::from).collect();
        MountSettings::parse(&words, false).map_err(|error| error.to_string())
    }

    #[test]
    fn an_fstab_line_of_ext4_is_understood() {
        let settings = parse(
            "defaults,noatime,nodev,nosuid,data=journal,commit=30,barrier=1,x-systemd.automount",
        );
        let flags = libc::MS_NOATIME | libc::MS_NODEV | libc::MS_NOSUID;
        let commit = Some(Duration::from_secs(30));
        let (data, atime) = (Some(DataMode::Journal), Atime::Never);
        assert_eq!(
            settings,
            Ok(MountSettings { data, commit, atime, flags, ..Default::default() })
        );
        assert_eq!(parse("defaults"), Ok(MountSettings::default()));
    }

    /// Option fields as installers and administrators write them into /etc/fstab.
    #[test]
    fn fstab_lines_of_ext4_are_understood_or_refused_by_name() {
        let noatime =
            || MountSettings { atime: Atime::Never, flags: libc::MS_NOATIME, ..Default::default() };
        let with = |change: fn(&mut MountSettings)| {
            let mut settings = MountSettings::default();
            change(&mut settings);
            settings
        };
        for (line, expected) in [
            ("defaults", MountSettings::default()),
            ("errors=remount-ro", with(|it| it.on_error = OnError::Stop)),
            ("noatime,errors=continue", noatime()),
            ("noatime,errors=remount-ro,errors=continue", noatime()),
            ("defaults,acl,user_xattr,barrier=1,nodelalloc", MountSettings::default()),
            ("rw,user,noauto,exec,comment=stick,x-gvfs-show", MountSettings::default()),
            ("auto_da_alloc,stripe=256,journal_async_commit,i_version", MountSettings::default()),
            ("barrier=0", with(|it| it.barrier = Barrier::None)),
            ("nodiratime,lazytime", with(|it| it.flags = libc::MS_NODIRATIME | libc::MS_LAZYTIME)),
            ("ro,norecovery", with(|it| (it.read_only, it.without_journal) = (true, true))),
            ("remount,ro", with(|it| (it.read_only, it.remount) = (true, true))),
            ("bsdgroups", with(|it| it.group_of_directory = true)),
            ("grpid,sysvgroups,usrjquota=,_netdev,nofail", MountSettings::default()),
            ("durable_only", with(|it| it.durable_only = Some(DurableOnly::default()))),
            ("logged_write_size=64K", with(|it| it.logged_write_size = 64 << 10)),
            ("swap_above=off", with(|it| it.swap_above = None)),
            ("swap_above=off,swap_above=65", with(|it| it.swap_above = Some(65))),
            (
                "durable_only=*.wal:*/journal/*",
                with(|it| it.durable_only = Some("*.wal:*/journal/*".parse().unwrap())),
            ),
            (
                "durable_only=*/journal/*,*.wal,ro",
                with(|it| {
                    (it.durable_only, it.read_only) =
                        (Some("*/journal/*:*.wal".parse().unwrap()), true);
                }),
            ),
            (
                "noopen,nouser_xattr,noacl,noxattr",
                with(|it| {
                    it.without_open = true;
                    it.attributes = fuse::AttributeOptions {
                        without_user: true,
                        without_access_lists: true,
                        without_any: true,
                    };
                }),
            ),
            (
                "noopen,open,noxattr,xattr,noacl,acl,nouser_xattr,user_xattr",
                MountSettings::default(),
            ),
            ("dirsync,mand", with(|it| it.synchronous_directories = true)),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
        for line in [
            "durable_only=/a",
            "*.wal",
            "swap_above=100",
            "swap_above=0",
            "usrquota",
            "grpjquota=aquota.group,jqfmt=vfsv0",
            "errors=ignore",
            "noload",
            "sb=32768",
            "dax",
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(line.split(',').next().unwrap()), "{line}: {error}");
        }
    }

    #[test]
    fn of_two_that_contradict_the_later_wins() {
        let settings =
            parse("ro,rw,nosuid,suid,barrier=none,barrier,data=ordered,data=wasteless").unwrap();
        assert_eq!(
            settings,
            MountSettings { data: Some(DataMode::Wasteless), ..Default::default() }
        );
    }

    #[test]
    fn polling_is_measured_in_microseconds() {
        for (text, expected) in [
            ("defaults", runtime::POLL_DEFAULT),
            ("poll=off,poll=auto", runtime::POLL_DEFAULT),
            ("poll=off", Duration::ZERO),
            ("poll=0", Duration::ZERO),
            ("poll=80", Duration::from_micros(80)),
            ("poll=2ms", Duration::from_millis(2)),
        ] {
            assert_eq!(parse(text).unwrap().poll, expected, "{text}");
        }
    }

    #[test]
    fn others_stay_awake_unless_that_is_forbidden() {
        for (text, expected) in
            [("defaults", true), ("nokeep_awake", false), ("nokeep_awake,keep_awake", true)]
        {
            assert_eq!(parse(text).unwrap().keep_awake, expected, "{text}");
        }
    }

    #[test]
    fn reading_ahead_is_off_only_where_that_is_asked_for() {
        for (text, expected) in
            [("readahead=0", 0), ("readahead=1K", 1024), ("readahead=1G", 1 << 30)]
        {
            assert_eq!(parse(text).unwrap().read_ahead, expected, "{text}");
        }
    }

    #[test]
    fn gaps_between_commits_are_learnt_unless_they_are_given() {
        for (text, expected) in [
            ("defaults", LogGap::Auto),
            ("log_gap=off,log_gap=auto", LogGap::Auto),
            ("log_gap=off", LogGap::Off),
            ("log_gap=48K", LogGap::Always(48 << 10)),
        ] {
            assert_eq!(parse(text).unwrap().log_gap, expected, "{text}");
        }
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
            assert_eq!(
                (settings.journal_checksum, settings.transaction_checksum),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("data=all", "selective"),
            ("threshold=big", "threshold"),
            ("log=spiral", "circular"),
            ("log_gap=4G", "less than 4 GiB"),
            ("log_gap=wide", "log_gap"),
            ("barrier=force", "flush or coerce"),
            ("frobnicate", "not known"),
            ("data", "selective"),
            ("log_unit", "log_unit"),
            ("cache=", "cache"),
            ("poll=1s", "10ms"),
            ("poll=soon", "poll"),
            ("readahead=far", "readahead"),
            ("readahead=1023", "from 1K"),
            ("readahead=1025M", "to 1G"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(MountSettings::parse(&["frobnicate".into()], true).is_ok(), "mount -s");
    }
}
