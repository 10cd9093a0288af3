//! Mount options as tables. A row has everything that is known of an option: how it is spelled,
//! parsed and shown, its default, its help. What parses `-o`, `--help`, the man pages, the shells'
//! completions, `docs/MOUNT_OPTIONS.md` and a remount all read the same row.
//!
//! A new option is a row, and the field that it sets in the settings of the same file or in
//! `EngineOptions`. Rows that two front ends share are constants of [`session`].

pub mod page;
pub mod session;
pub mod values;

use crate::error::CliError;
use std::fmt;

/// A mount option that sets a field of `S`.
pub struct MountOption<S> {
    /// Name in refusals, and in front of `=` where the option takes a value.
    pub name: &'static str,
    /// Values that may stand behind `=`, separated by `|`: words for themselves, and kinds in
    /// capitals. Empty: the option takes no value.
    pub value: &'static str,
    /// Values with a description each, where the description needs a line of its own.
    pub choices: fn() -> Vec<(&'static str, &'static str)>,
    /// Words without `=`, and the value that each stands for.
    pub words: &'static [(&'static str, &'static str)],
    /// Further words, as ext4 and mount(8) know them, that no list shows.
    pub hidden: &'static [(&'static str, &'static str)],
    /// Former names in front of `=`.
    pub aliases: &'static [&'static str],
    /// Sets the field from a value, or from what a word stands for.
    pub parse: fn(&str, &mut S) -> Result<(), Refusal>,
    /// Returns the field's value in the form in which it is parsed. `None`: not given.
    pub text: fn(&S) -> Option<String>,
    /// The default for people, where the text of the default settings does not say it.
    pub default: &'static str,
    /// One sentence or a few; lists break its lines.
    pub help: &'static str,
    /// Heading in `docs/MOUNT_OPTIONS.md` of the section with the details; or empty.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test that makes the page reads it"))]
    pub more: &'static str,
    /// Whether a remount may change it.
    pub is_live: bool,
    /// Whether the superblock's `mount_opts` may give it.
    pub in_superblock: bool,
}

impl<S> MountOption<S> {
    /// A row that takes no value, is spelled by no word and sets nothing, to be completed.
    pub const BASE: MountOption<S> = MountOption {
        name: "",
        value: "",
        choices: Vec::new,
        words: &[],
        hidden: &[],
        aliases: &[],
        parse: |_, _| Err(Refusal::Value),
        text: |_| None,
        default: "",
        help: "",
        more: "",
        is_live: false,
        in_superblock: false,
    };

    /// Returns the words and values that are allowed, for a refusal: `auto, off or SIZE`.
    fn allowed(&self) -> String {
        let choices = (self.choices)();
        let values: Vec<&str> = match choices.is_empty() {
            true => self.value.split('|').collect(),
            false => choices.iter().map(|(name, _)| *name).collect(),
        };
        match values.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }

    /// Returns the value that `given` stands for in this row, if it is one of its spellings.
    fn value_of<'a>(&self, given: &'a str) -> Option<&'a str> {
        match given.split_once('=') {
            Some((name, value)) if !self.value.is_empty() => {
                (name == self.name || self.aliases.contains(&name)).then_some(value)
            }
            Some(_) => None,
            None => {
                let mut words = self.words.iter().chain(self.hidden);
                words.find(|(word, _)| *word == given).map(|(_, value)| *value)
            }
        }
    }

    /// Whether `given` is the name of an option that lacks its value.
    fn lacks_value(&self, given: &str) -> bool {
        !self.value.is_empty() && (given == self.name || self.aliases.contains(&given))
    }
}

/// The rows under a heading of the page.
pub struct Section<S: 'static> {
    pub title: &'static str,
    pub options: &'static [MountOption<S>],
}

/// Returns all rows, in the order of the page.
pub fn rows<S>(sections: &'static [Section<S>]) -> impl Iterator<Item = &'static MountOption<S>> {
    sections.iter().flat_map(|section| section.options)
}

/// Returns the row of which `given` is a spelling.
pub fn row_of<S>(sections: &'static [Section<S>], given: &str) -> Option<&'static MountOption<S>> {
    rows(sections).find(|row| row.value_of(given).is_some())
}

/// Reason why a value is refused.
#[derive(Debug)]
pub enum Refusal {
    /// Not one of the values that the row lists.
    Value,
    Because(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Because(why)
    }
}

/// An option that is not taken: the word as it was given, and why.
#[derive(PartialEq, Eq, Debug)]
pub enum OptionError {
    Unknown { given: String },
    Refused { given: String, why: String },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown { given } => write!(f, "mount option {given:?} is not known"),
            OptionError::Refused { given, why } => write!(f, "mount option {given:?}: {why}"),
        }
    }
}

impl OptionError {
    /// Creates the refusal of a word for this reason.
    pub fn refused(given: &str, why: impl Into<String>) -> OptionError {
        OptionError::Refused { given: given.to_owned(), why: why.into() }
    }

    /// Converts; `help` is the command that lists the options.
    pub fn for_command(&self, help: &str) -> CliError {
        let error = CliError::new(self.to_string());
        match self {
            OptionError::Unknown { .. } => {
                error.with_remedy(format!("See {help} --help for all options."))
            }
            OptionError::Refused { .. } => error,
        }
    }
}

/// Sets the field that `given` is an option for.
///
/// # Errors
/// No row has this spelling, or the row refuses the value.
pub fn take<S>(
    sections: &'static [Section<S>],
    given: &str,
    settings: &mut S,
) -> Result<(), OptionError> {
    for row in rows(sections) {
        let refused = |why: String| Err(OptionError::refused(given, why));
        let Some(value) = row.value_of(given) else {
            if row.lacks_value(given) {
                return refused(format!("a value is needed, {}={}", row.name, row.allowed()));
            }
            continue;
        };
        return match (row.parse)(value, settings) {
            Ok(()) => Ok(()),
            Err(Refusal::Value) => refused(format!("the value must be {}", row.allowed())),
            Err(Refusal::Because(why)) if row.value.contains('|') && !why.contains(" or ") => {
                refused(format!("{why}; the value must be {}", row.allowed()))
            }
            Err(Refusal::Because(why)) => refused(why),
        };
    }
    let word = given.split_once('=').map(|(name, _)| name);
    let is_word = |row: &&MountOption<S>| word.is_some_and(|word| row.value_of(word).is_some());
    match rows(sections).find(is_word) {
        Some(row) if row.value.is_empty() => Err(OptionError::refused(given, "it takes no value")),
        _ => Err(OptionError::Unknown { given: given.to_owned() }),
    }
}

/// Whether two rows share a spelling, or a row's text is not parsed again; for the tests of tables.
#[cfg(test)]
pub fn faults<S: Default>(sections: &'static [Section<S>]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut spellings = std::collections::BTreeSet::new();
    for row in rows(sections) {
        let named = (!row.value.is_empty()).then_some(row.name);
        let named = named.into_iter().chain(row.aliases.iter().copied()).map(|it| format!("{it}="));
        let words = row.words.iter().chain(row.hidden).map(|(word, _)| (*word).to_owned());
        for spelling in named.chain(words) {
            if !spellings.insert(spelling.clone()) {
                faults.push(format!("{spelling} stands twice"));
            }
        }
        if row.help.is_empty() || row.name.is_empty() {
            faults.push(format!("{}: no name, or no help", row.name));
        }
        for values in samples(row) {
            let mut settings = S::default();
            let taken = values.iter().find(|value| (row.parse)(value, &mut settings).is_ok());
            let text = (row.text)(&settings);
            let mut again = S::default();
            let reparsed = text.as_deref().map(|text| (row.parse)(text, &mut again));
            if taken.is_none() || !matches!(reparsed, Some(Ok(()))) || (row.text)(&again) != text {
                faults.push(format!("{}: {values:?} becomes {text:?}", row.name));
            }
        }
        let default = (row.text)(&S::default());
        let reparsed = default.as_deref().map(|text| (row.parse)(text, &mut S::default()));
        let is_unsaid = default.is_none() && row.default.is_empty();
        if reparsed.is_some_and(|result| result.is_err()) || is_unsaid {
            faults.push(format!("{}: its default is {default:?}, or nothing is said", row.name));
        }
    }
    faults
}

/// Returns values of each kind that a row says to take; it takes at least one of each.
#[cfg(test)]
fn samples<S>(row: &MountOption<S>) -> Vec<Vec<&'static str>> {
    let kinds = [
        ("SIZE", vec!["8192", "2M"]),
        ("TIME", vec!["7s"]),
        ("US", vec!["80"]),
        ("PERCENT", vec!["65"]),
        ("PATH", vec!["/a/b"]),
        ("FILE", vec!["/a/b"]),
        ("DEVICE", vec!["/dev/a"]),
        ("NAMES", vec!["*.wal:*/journal/*"]),
        ("periodic:TIME", vec!["periodic:90s"]),
        ("idle:TIME", vec!["idle:1s"]),
        ("off-hours:HH-HH", vec!["off-hours:22-6"]),
    ];
    let choices: Vec<&str> = (row.choices)().iter().map(|(name, _)| *name).collect();
    let values = row.value.split('|').filter(|it| !it.is_empty() && choices.is_empty());
    let of_kind = |value: &'static str| {
        let found = kinds.iter().find(|(kind, _)| *kind == value);
        found.map_or(vec![value], |(_, samples)| samples.clone())
    };
    let words = row.words.iter().chain(row.hidden).map(|(_, value)| *value);
    let named = words.chain(choices.iter().copied()).map(|value| vec![value]);
    values.map(of_kind).chain(named).collect()
}
