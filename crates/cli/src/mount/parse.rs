//! Parser of the options behind `-o`: those of Okeanos ([`super::table`]), and those that mount(8)
//! and fstab(5) know for every file system ([`super::words`]).

use super::options::MountSettings;
use super::table::SECTIONS;
use super::words::{self, Meaning};
use crate::error::CliError;
use crate::options::{self, OptionError};
use engine::LogKind;

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
                Err(OptionError::Unknown { .. }) if sloppy => {}
                Err(error) => return Err(error.for_command("okeanos mount")),
            }
        }
        if settings.volume.without_journal && !settings.session.read_only {
            return Err(CliError::new("noload: without its journal a volume can only be read")
                .with_remedy("Mount with -o ro,noload, or leave noload out."));
        }
        Ok(settings)
    }

    /// Refuses a table of runs beside a log of this kind, which may be that of the volume's
    /// superblock: no option needs to name it.
    pub fn check_run_table(&self, log: LogKind, remedy: &str) -> Result<(), CliError> {
        match (&self.journal.run_table, log) {
            (Some(_), LogKind::Circular) => {
                Err(CliError::new("mtl=: only scattered logs have such a table")
                    .with_remedy(remedy))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn take(&mut self, word: &str) -> Result<(), OptionError> {
        match words::meaning(word) {
            Some(Meaning::Nothing(_)) => return Ok(()),
            Some(Meaning::NotDone(why)) => {
                self.not_done.push(why.to_owned());
                return Ok(());
            }
            Some(Meaning::Refused(why)) => return Err(OptionError::refused(word, why)),
            None => {}
        }
        match (options::take(SECTIONS, word, self), &mut self.journal.durable_only) {
            // A further name of durable_only=, after a comma. No option has a star in it.
            (Err(OptionError::Unknown { .. }), Some(names))
                if word.contains('*') && !word.contains('=') =>
            {
                names.add(word).map_err(|why| OptionError::refused(word, why))
            }
            (taken, _) => taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{BarrierKind, CheckpointTimes};
    use ext4::{Atime, DurableOnly, OnError};
    use journal::{DataMode, LogGap};
    use std::time::Duration;

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
        let mut expected = MountSettings::default();
        expected.engine.commit = Duration::from_secs(30);
        expected.journal.data = Some(DataMode::Journal);
        (expected.volume.atime, expected.session.flags) = (Atime::Never, flags);
        assert_eq!(settings, Ok(expected));
        assert_eq!(parse("defaults"), Ok(MountSettings::default()));
    }

    /// Option fields as installers and administrators write them into /etc/fstab.
    #[test]
    fn fstab_lines_of_ext4_are_understood_or_refused_by_name() {
        let with = |change: fn(&mut MountSettings)| {
            let mut settings = MountSettings::default();
            change(&mut settings);
            settings
        };
        let noatime =
            || with(|it| (it.volume.atime, it.session.flags) = (Atime::Never, libc::MS_NOATIME));
        for (line, expected) in [
            ("defaults", MountSettings::default()),
            ("errors=remount-ro", with(|it| it.volume.on_error = OnError::Stop)),
            ("noatime,errors=continue", noatime()),
            ("noatime,errors=remount-ro,errors=continue", noatime()),
            ("defaults,acl,user_xattr,barrier=1,nodelalloc", MountSettings::default()),
            ("rw,user,noauto,exec,comment=stick,x-gvfs-show", MountSettings::default()),
            ("auto_da_alloc,stripe=256,journal_async_commit,i_version", MountSettings::default()),
            ("barrier=0", with(|it| it.engine.barrier = BarrierKind::None)),
            (
                "nodiratime,lazytime",
                with(|it| it.session.flags = libc::MS_NODIRATIME | libc::MS_LAZYTIME),
            ),
            (
                "ro,norecovery",
                with(|it| (it.session.read_only, it.volume.without_journal) = (true, true)),
            ),
            ("remount,ro", with(|it| (it.session.read_only, it.remount) = (true, true))),
            ("bsdgroups", with(|it| it.volume.group_of_directory = true)),
            ("grpid,sysvgroups,usrjquota=,_netdev,nofail", MountSettings::default()),
            ("durable_only", with(|it| it.journal.durable_only = Some(DurableOnly::default()))),
            ("logged_write_size=64K", with(|it| it.engine.logged_write_size = 64 << 10)),
            ("swap_above=off", with(|it| it.engine.swap_above = None)),
            ("swap_above=off,swap_above=65", with(|it| it.engine.swap_above = Some(65))),
            (
                "durable_only=*.wal:*/journal/*",
                with(|it| it.journal.durable_only = Some("*.wal:*/journal/*".parse().unwrap())),
            ),
            (
                "durable_only=*/journal/*,*.wal,ro",
                with(|it| {
                    (it.journal.durable_only, it.session.read_only) =
                        (Some("*/journal/*:*.wal".parse().unwrap()), true);
                }),
            ),
            (
                "noopen,nouser_xattr,noacl,noxattr",
                with(|it| {
                    it.daemon.without_open = true;
                    it.volume.attributes = fuse::AttributeOptions {
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
            ("dirsync,mand", with(|it| it.volume.synchronous_directories = true)),
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
        let mut expected = MountSettings::default();
        expected.journal.data = Some(DataMode::Wasteless);
        assert_eq!(settings, expected);
        let settings = parse("noatime,relatime").unwrap();
        assert_eq!(settings.volume.atime, Atime::Relative);
        assert_eq!(settings.session.flags, libc::MS_RELATIME);
    }

    #[test]
    fn checkpoint_times_have_units_and_limits() {
        for (text, expected) in [
            ("idle:1s", CheckpointTimes::Idle(Duration::from_secs(1))),
            ("idle:200ms", CheckpointTimes::Idle(Duration::from_millis(200))),
            ("periodic:60", CheckpointTimes::Periodic(Duration::from_secs(60))),
            ("manual", CheckpointTimes::Manual),
        ] {
            let settings = parse(&format!("checkpoint={text}")).unwrap();
            assert_eq!(settings.engine.checkpoint, expected, "{text}");
        }
        let night = parse("checkpoint=off-hours:22-6").unwrap().engine.checkpoint;
        assert!(matches!(night, CheckpointTimes::OffHours(hours) if hours.hours() == (22, 6)));
        for text in ["idle:0", "idle:1us", "periodic:999999999", "off-hours:6-6", "idle", ""] {
            let error = parse(&format!("checkpoint={text}")).unwrap_err();
            assert!(error.contains(text) && error.contains("needed"), "{text}: {error}");
        }
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
            assert_eq!(parse(text).unwrap().daemon.poll, expected, "{text}");
        }
    }

    #[test]
    fn others_stay_awake_unless_that_is_forbidden() {
        for (text, expected) in
            [("defaults", true), ("nokeep_awake", false), ("nokeep_awake,keep_awake", true)]
        {
            assert_eq!(parse(text).unwrap().daemon.keep_awake, expected, "{text}");
        }
    }

    #[test]
    fn reading_ahead_is_off_only_where_that_is_asked_for() {
        for (text, expected) in
            [("readahead=0", 0), ("readahead=1K", 1024), ("readahead=1G", 1 << 30)]
        {
            assert_eq!(parse(text).unwrap().daemon.read_ahead, expected, "{text}");
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
            assert_eq!(parse(text).unwrap().engine.log_gap, expected, "{text}");
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
                (settings.engine.journal_checksum, settings.engine.transaction_checksum),
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
            ("log=spiral", "circular or scattered"),
            ("records=none", "blocks or packed"),
            ("transport=bus", "auto, uring or classic"),
            ("commits_in_flight=3", "from 1 to 2"),
            ("journal_path", "journal_dev=DEVICE"),
            ("log_gap=4G", "less than 4 GiB"),
            ("log_gap=wide", "log_gap"),
            ("barrier=force", "flush or coerce"),
            ("frobnicate", "not known"),
            ("data", "selective"),
            ("log_unit", "log_unit"),
            ("cache=", "cache"),
            ("poll=1s", "10ms"),
            ("poll=soon", "auto, off or US"),
            ("log_gap=wide", "auto, off or SIZE"),
            ("noopen=1", "takes no value"),
            ("idmap=foo", "takes no value"),
            ("fsname=x", "is listed with its image"),
            ("auto_unmount", "ends unmounts"),
            ("commit=100000h", "at most a year"),
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
