//! The words behind `-o`.

use super::{duration_of, size_of};
use crate::error::CliError;
use fuse::Transport;
use host::{Destage, HostOptions};

pub struct HostSettings {
    pub host: HostOptions,
    pub allow_other: bool,
    pub transport: Transport,
}

impl HostSettings {
    pub fn parse(words: &[String]) -> Result<HostSettings, CliError> {
        let (host, transport) = (HostOptions::default(), Transport::Auto);
        let mut settings = HostSettings { host, allow_other: false, transport };
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
            None => return Err(unknown()),
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
        ]
        .map(String::from);
        let settings = HostSettings::parse(&words).unwrap();
        assert_eq!(settings.host.journal_flush, Duration::from_secs(2));
        assert_eq!(settings.host.destage, Destage::UnderPressure);
        assert!(settings.allow_other && settings.host.reconnect.is_none());
        for wrong in ["destage", "destage=soon", "allow_other=1", "records=none", "transport=x"] {
            assert!(HostSettings::parse(&[wrong.into()]).is_err(), "{wrong}");
        }
    }
}
