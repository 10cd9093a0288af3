//! The options of a volume's mount, in the order of `docs/MOUNT_OPTIONS.md`. Each file has the rows
//! of one section, and the settings that only these rows set.

mod daemon;
mod journaling;
mod times;
mod volume;

use crate::options::page::completions;
use crate::options::session::SessionSettings;
use crate::options::{MountOption, Section};
use daemon::DaemonSettings;
use engine::EngineOptions;
use journal::LogGap;
use journaling::JournalSettings;
use std::sync::LazyLock;
use volume::VolumeSettings;

/// Settings of a mount, each part with the rows that set it.
#[derive(Clone, PartialEq, Debug)]
pub struct MountSettings {
    /// Options of the engine, but for those that [`MountSettings::engine`] adds.
    pub engine: EngineOptions,
    pub journal: JournalSettings,
    pub daemon: DaemonSettings,
    pub session: SessionSettings,
    pub volume: VolumeSettings,
    /// Whether an existing mount is to change.
    pub remount: bool,
    /// Requested options that are ignored without an error.
    pub not_done: Vec<String>,
}

impl Default for MountSettings {
    fn default() -> MountSettings {
        MountSettings {
            engine: EngineOptions { log_gap: LogGap::Auto, ..EngineOptions::default() },
            journal: JournalSettings::default(),
            daemon: DaemonSettings::default(),
            session: SessionSettings::default(),
            volume: VolumeSettings::default(),
            remount: false,
            not_done: Vec::new(),
        }
    }
}

impl AsRef<SessionSettings> for MountSettings {
    fn as_ref(&self) -> &SessionSettings {
        &self.session
    }
}
impl AsMut<SessionSettings> for MountSettings {
    fn as_mut(&mut self) -> &mut SessionSettings {
        &mut self.session
    }
}

type Row = MountOption<MountSettings>;

/// Sections of all options that have an effect.
pub const SECTIONS: &[Section<MountSettings>] = &[
    Section { title: "What is logged, and how", options: journaling::ROWS },
    Section { title: "When changes reach the disk", options: times::ROWS },
    Section { title: "Memory, requests and reports", options: daemon::ROWS },
    Section { title: "Access and damage", options: volume::ROWS },
];

/// Whether an option concerns the journal, write-back or the cache, not files or the kernel.
pub fn is_of_engine(row: &MountOption<MountSettings>) -> bool {
    let of_engine = journaling::ROWS.iter().chain(times::ROWS).any(|it| it.name == row.name);
    of_engine || row.name == "cache"
}

/// Returns what shells complete.
pub fn words() -> &'static [String] {
    static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| completions(SECTIONS));
    &WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::words;
    use crate::options::page::check_page;
    use crate::options::{faults, rows};
    use engine::LogKind;
    use journal::DataMode;
    use journal::records::RecordFormat;

    #[test]
    fn every_row_is_spelled_once_and_parses_its_own_text() {
        assert_eq!(faults(SECTIONS), Vec::<String>::new());
        for row in rows(SECTIONS) {
            for (word, _) in row.words.iter().chain(row.hidden) {
                // mount(8) passes `async` by itself, so a volume's mount ignores it.
                let is_ignored = words::meaning(word).is_some();
                assert_eq!(is_ignored, *word == "async", "{word}");
            }
        }
    }

    #[test]
    fn mount_options_page_is_made_from_the_table() {
        check_page("MOUNT_OPTIONS.md", "options of a mount", SECTIONS);
    }

    #[test]
    fn every_choice_of_the_journal_is_listed() {
        let value = |name: &str| {
            let row = rows(SECTIONS).find(|row| row.name == name).unwrap();
            row.value.split('|').collect::<Vec<_>>()
        };
        assert_eq!(value("records"), RecordFormat::ALL.map(RecordFormat::name));
        assert_eq!(value("log"), LogKind::ALL.map(LogKind::name));
        let data = rows(SECTIONS).find(|row| row.name == "data").unwrap();
        assert_eq!((data.choices)().len(), DataMode::ALL.len());
    }

    #[test]
    fn help_and_completions_have_every_option() {
        let help = crate::options::page::help(SECTIONS, |_| true);
        for row in rows(SECTIONS) {
            assert!(help.contains(&row.term()), "{}", row.term());
            let is_completed = |word: &String| word.starts_with(row.name);
            assert!(words().iter().any(is_completed) || row.value.is_empty(), "{}", row.name);
            for (word, _) in row.words {
                assert!(words().iter().any(|completed| completed == word), "{word}");
            }
        }
        assert!(words().iter().any(|word| word == "data=selective"));
    }
}
