//! Options of a host's mount: their table, and the parser of `-o`.

use crate::error::CliError;
use crate::mount::words::{self, Meaning, Why};
use crate::options::page::completions;
use crate::options::session::{SessionSettings, flag};
use crate::options::values::{on_off, period, set, switch};
use crate::options::{self, MountOption, Refusal, Section};
use crate::text::quantity::{exact_duration, exact_size, parse_duration, parse_size};
use host::{Destage, HostOptions};
use std::sync::LazyLock;

/// Settings of a host's mount.
#[derive(Clone, Debug, Default)]
pub struct HostSettings {
    pub host: HostOptions,
    pub session: SessionSettings,
}

impl AsRef<SessionSettings> for HostSettings {
    fn as_ref(&self) -> &SessionSettings {
        &self.session
    }
}
impl AsMut<SessionSettings> for HostSettings {
    fn as_mut(&mut self) -> &mut SessionSettings {
        &mut self.session
    }
}

type Row = MountOption<HostSettings>;

/// Options of a host, by section.
pub const SECTIONS: &[Section<HostSettings>] = &[
    Section { title: "The journal and the store", options: JOURNAL },
    Section { title: "Requests and access", options: ACCESS },
];

const JOURNAL: &[Row] = &[
    Row {
        name: "records",
        value: "blocks|packed",
        parse: |value, it| set(&mut it.host.records, value.parse().map_err(|_| Refusal::Value)?),
        text: |it| Some(it.host.records.name().to_owned()),
        help: "how transactions are written: blocks as JBD2 has them, or one run of the bytes \
               that changed",
        ..Row::BASE
    },
    Row {
        name: "journal-flush",
        value: "TIME",
        parse: |value, it| set(&mut it.host.journal_flush, period(value)?),
        text: |it| Some(exact_duration(it.host.journal_flush)),
        help: "how long an unsynced write may wait for the journal",
        ..Row::BASE
    },
    Row {
        name: "destage",
        value: "infinite|TIME",
        parse: |value, it| {
            it.host.destage = match value {
                "infinite" => Destage::UnderPressure,
                time => Destage::After(parse_duration(time)?),
            };
            Ok(())
        },
        text: |it| {
            Some(match it.host.destage {
                Destage::UnderPressure => "infinite".to_owned(),
                Destage::After(time) => exact_duration(time),
            })
        },
        help: "how long a file may be dirty before it is written to the store; infinite: until \
               journal or memory are short, or another client wants it",
        ..Row::BASE
    },
    Row {
        name: "writeback",
        value: "TIME",
        parse: |value, it| set(&mut it.host.writeback, period(value)?),
        text: |it| Some(exact_duration(it.host.writeback)),
        help: "how often write-back looks for files that are dirty for longer than destage=",
        ..Row::BASE
    },
    Row {
        name: "dirty",
        value: "SIZE",
        parse: |value, it| set(&mut it.host.dirty_bytes_max, parse_size(value)?),
        text: |it| Some(exact_size(it.host.dirty_bytes_max)),
        help: "bytes that may be dirty in memory; above it the oldest files are written to the \
               store",
        ..Row::BASE
    },
    Row {
        name: "directories",
        value: "TIME",
        parse: |value, it| set(&mut it.host.directories, parse_duration(value)?),
        text: |it| Some(exact_duration(it.host.directories)),
        help: "how long the kernel may keep names and attributes of directories; others' changes \
               are seen that much later",
        ..Row::BASE
    },
    Row {
        name: "reconnect",
        value: "never|TIME",
        parse: |value, it| {
            it.host.reconnect = match value {
                "never" => None,
                time => Some(parse_duration(time)?),
            };
            Ok(())
        },
        text: |it| Some(it.host.reconnect.map_or("never".to_owned(), exact_duration)),
        help: "how long operations wait for a lost store",
        ..Row::BASE
    },
];

const ACCESS: &[Row] = &[
    Row::TRANSPORT,
    Row::ALLOW_OTHER,
    Row::READ_ONLY,
    Row::NOSUID,
    Row::NODEV,
    Row::NOEXEC,
    Row::NOSYMFOLLOW,
    flag!(
        libc::MS_NOATIME,
        "noatime",
        &[("noatime", "on"), ("relatime", "off")],
        "reads do not change access times"
    ),
    Row::NODIRATIME,
    Row::SYNC,
];

/// Returns what shells complete.
pub fn words() -> &'static [String] {
    static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| completions(SECTIONS));
    &WORDS
}

impl HostSettings {
    /// Parses options in order: a later one wins.
    ///
    /// # Errors
    /// An option is not known, or its value is refused.
    pub fn parse(words: &[String]) -> Result<HostSettings, CliError> {
        let mut settings = HostSettings::default();
        for word in words {
            // As for every file system: for mount(8), fstab(5) or systemd.
            if words::meaning(word) == Some(Meaning::Nothing(Why::NotOurs)) && word != "async" {
                continue;
            }
            options::take(SECTIONS, word, &mut settings)
                .map_err(|error| error.for_command("okeanos host mount"))?;
        }
        Ok(settings)
    }

    /// Returns the flags of mount(2).
    pub fn flags(&self) -> libc::c_ulong {
        let read_only = if self.session.read_only { libc::MS_RDONLY } else { 0 };
        self.session.flags | read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn words_are_taken_and_unknown_ones_refused() {
        let words = [
            "journal-flush=2s",
            "destage=infinite",
            "allow_other",
            "records=blocks",
            "reconnect=never",
            "nosuid",
            "nodev",
            "dev",
            "ro",
            "noauto",
            "user",
            "nofail",
            "_netdev",
            "x-foo",
            "noatime",
            "nosymfollow",
        ]
        .map(String::from);
        let settings = HostSettings::parse(&words).unwrap();
        assert_eq!(settings.host.journal_flush, Duration::from_secs(2));
        assert_eq!(settings.host.destage, Destage::UnderPressure);
        let flags = settings.flags() & !libc::MS_NOATIME & !256;
        assert_eq!(flags, libc::MS_NOSUID | libc::MS_RDONLY);
        assert!(settings.session.allow_other && settings.host.reconnect.is_none());
        for wrong in ["destage", "destage=soon", "allow_other=1", "records=none", "transport=x"] {
            let error = HostSettings::parse(&[wrong.into()]).err().unwrap();
            assert!(error.to_string().contains(wrong), "{error}");
        }
        for wrong in ["journal-flush=0", "writeback=0s", "journal-flush=1us", "writeback=999us"] {
            let error = HostSettings::parse(&[wrong.into()]).err().unwrap();
            assert!(error.to_string().contains("from 1ms on"), "{wrong}: {error}");
        }
        // The kernel keeps nothing, files are due at once, nothing waits: no task looks for these.
        for right in ["directories=0", "destage=0", "reconnect=0", "journal-flush=1ms"] {
            assert!(HostSettings::parse(&[right.into()]).is_ok(), "{right}");
        }
        let error = HostSettings::parse(&["transport=x".into()]).err().unwrap();
        assert!(error.to_string().contains("auto, uring or classic"), "{error}");
    }

    #[test]
    fn every_row_is_spelled_once_and_parses_its_own_text() {
        assert_eq!(options::faults(SECTIONS), Vec::<String>::new());
    }

    #[test]
    fn host_options_page_is_made_from_the_table() {
        crate::options::page::check_page("MOUNT_OPTIONS.md", "options of a host", SECTIONS);
    }
}
