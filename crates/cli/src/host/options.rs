//! Options behind `-o`.

use super::{duration_of, size_of};
use crate::error::CliError;
use fuse_session::Transport;
use host::{Destage, HostOptions};

pub struct HostSettings {
    pub host: HostOptions,
    pub allow_other: bool,
    pub transport: Transport,
    /// `MS_RDONLY` and so on.
    pub flags: libc::c_ulong,
}

/// Flags of the VFS, for every file system.
const FLAGS: [(&str, libc::c_ulong, bool); 11] = [
    ("defaults", 0, true),
    ("ro", libc::MS_RDONLY, true),
    ("rw", libc::MS_RDONLY, false),
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("sync", libc::MS_SYNCHRONOUS, true),
    ("async", libc::MS_SYNCHRONOUS, false),
];

impl HostSettings {
    pub fn parse(words: &[String]) -> Result<HostSettings, CliError> {
        let (host, transport) = (HostOptions::default(), Transport::Auto);
        let mut settings = HostSettings { host, allow_other: false, transport, flags: 0 };
        for word in words.iter().filter(|word| !word.is_empty()) {
            settings.take(word)?;
        }
        Ok(settings)
    }

    fn take(&mut self, word: &str) -> Result<(), CliError> {
        let unknown = || {
            CliError::new(format!("{word}: unknown option"))
                .with_remedy("See okeanos host mount --help.")
        };
        match word.split_once('=') {
            None if word == "allow_other" => self.allow_other = true,
            None => {
                let known = FLAGS.iter().find(|(name, ..)| *name == word);
                let (_, flag, is_set) = known.ok_or_else(unknown)?;
                self.flags = if *is_set { self.flags | flag } else { self.flags & !flag };
            }
            Some(("records", value)) => {
                self.host.records = value.parse().map_err(|why: String| CliError::new(why))?
            }
            Some(("journal-flush", value)) => {
                self.host.journal_flush = duration_of("journal-flush", value)?
            }
            Some(("destage", "infinite")) => self.host.destage = Destage::UnderPressure,
            Some(("destage", value)) => {
                self.host.destage = Destage::After(duration_of("destage", value)?)
            }
            Some(("writeback", value)) => self.host.writeback = duration_of("writeback", value)?,
            Some(("reconnect", "never")) => self.host.reconnect = None,
            Some(("reconnect", value)) => {
                self.host.reconnect = Some(duration_of("reconnect", value)?)
            }
            Some(("directories", value)) => {
                self.host.directories = duration_of("directories", value)?
            }
            Some(("dirty", value)) => self.host.dirty_bytes_max = size_of("dirty", value)?,
            Some(("transport", "auto")) => self.transport = Transport::Auto,
            Some(("transport", "uring")) => self.transport = Transport::Uring,
            Some(("transport", "classic")) => self.transport = Transport::Classic,
            Some(_) => return Err(unknown()),
        }
        Ok(())
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
        ]
        .map(String::from);
        let settings = HostSettings::parse(&words).unwrap();
        assert_eq!(settings.host.journal_flush, Duration::from_secs(2));
        assert_eq!(settings.host.destage, Destage::UnderPressure);
        assert_eq!(settings.flags, libc::MS_NOSUID | libc::MS_RDONLY);
        assert!(settings.allow_other && settings.host.reconnect.is_none());
        for wrong in ["destage", "destage=soon", "allow_other=1", "records=none", "transport=x"] {
            assert!(HostSettings::parse(&[wrong.into()]).is_err(), "{wrong}");
        }
    }
}
