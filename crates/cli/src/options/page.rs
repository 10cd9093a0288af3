//! Lists of mount options, from their tables: for `--help` and the man pages, for
//! `docs/MOUNT_OPTIONS.md`, and for the shells' completions.

use super::{MountOption, Section, rows};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::ffi::OsStr;

/// Column of descriptions in the notes behind a command's help.
const COLUMN: usize = 23;

impl<S: Default> MountOption<S> {
    /// Returns the spelling for people: `log_gap=auto|off|SIZE`, `[no]keep_awake`.
    pub fn term(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        match (self.value, &words[..]) {
            ("", [on, off]) if off.strip_prefix("no") == Some(on) => format!("[no]{on}"),
            ("", words) => words.join(", "),
            (value, []) => format!("{}={value}", self.name),
            (value, _) => format!("{}[={value}]", self.name),
        }
    }

    /// Returns the default for people.
    pub fn default_text(&self) -> String {
        match self.default {
            "" => (self.text)(&S::default()).unwrap_or_default(),
            default => default.to_owned(),
        }
    }

    fn note(&self) -> String {
        let default = self.default_text();
        let default = match default == "off" && self.value.is_empty() {
            true => String::new(),
            false => format!(" (default: {default})"),
        };
        let (term, column) = (format!("  {}", self.term()), " ".repeat(COLUMN));
        let mut note = match term.chars().count() + 2 <= COLUMN {
            true => format!("{term:<COLUMN$}{}{default}\n", self.help),
            false => format!("{term}\n{column}{}{default}\n", self.help),
        };
        let choices = (self.choices)();
        let longest = choices.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, description) in choices {
            note += &format!("{column}  {name:<longest$}   {description}\n");
        }
        note
    }
}

#[cfg(test)]
impl<S: Default> MountOption<S> {
    /// Returns the row of the page's table.
    fn page_row(&self) -> String {
        let choices = (self.choices)().into_iter().map(|(name, text)| format!("`{name}`: {text}"));
        let choices = choices.collect::<Vec<_>>().join("; ");
        let choices = if choices.is_empty() { choices } else { format!(". {choices}") };
        let more = match self.more {
            "" => String::new(),
            heading => format!(" ([more](#{}))", anchor(heading)),
        };
        let escaped = |text: &str| text.replace('|', "\\|");
        let prose = |text: &str| escaped(text).replace('*', "\\*");
        format!(
            "| `{}` | {} | {}{}{more} |\n",
            escaped(&self.term()).replace(", ", "`, `"),
            prose(&self.default_text()),
            prose(self.help),
            prose(&choices)
        )
    }
}

/// Returns the anchor that Markdown gives a heading.
#[cfg(test)]
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the notes behind a command's help. `is_shown` leaves rows out.
pub fn help<S: Default>(
    sections: &'static [Section<S>],
    is_shown: impl Fn(&MountOption<S>) -> bool,
) -> String {
    let mut text = String::from("Mount options:\n");
    for section in sections {
        let notes: String =
            section.options.iter().filter(|row| is_shown(row)).map(MountOption::note).collect();
        if !notes.is_empty() {
            text += &format!("\n{}:\n{notes}", section.title);
        }
    }
    text
}

/// Returns the tables of the page.
#[cfg(test)]
pub fn page<S: Default>(sections: &'static [Section<S>]) -> String {
    let tables = sections.iter().map(|section| {
        let rows: String = section.options.iter().map(MountOption::page_row).collect();
        let head = "| option | default | what it does |\n|---|---|---|\n";
        format!("\n### {}\n\n{head}{rows}", section.title)
    });
    tables.collect()
}

/// Returns what a shell can complete: whole words where the values are listed, else `name=`.
pub fn completions<S>(sections: &'static [Section<S>]) -> Vec<String> {
    let mut words = Vec::new();
    for row in rows(sections) {
        words.extend(row.words.iter().map(|(word, _)| (*word).to_owned()));
        let choices: Vec<&str> = (row.choices)().iter().map(|(name, _)| *name).collect();
        let listed = row.value.split('|').filter(|value| !value.is_empty());
        let is_kind = |value: &str| value.contains(|c: char| c.is_ascii_uppercase());
        let (kinds, named): (Vec<&str>, Vec<&str>) = listed.partition(|value| is_kind(value));
        words.extend(named.iter().chain(&choices).map(|value| format!("{}={value}", row.name)));
        if !kinds.is_empty() && choices.is_empty() {
            words.push(format!("{}=", row.name));
        }
    }
    words
}

/// Takes any word, and lists those of a table for completions.
#[derive(Clone)]
pub struct OptionWords(pub fn() -> &'static [String]);

impl TypedValueParser for OptionWords {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().iter().map(|word| PossibleValue::new(word.as_str()))))
    }
}

/// Checks the part of a page between two marks, which is made from a table; with
/// `OKEANOS_WRITE_PAGES` set it is written anew.
#[cfg(test)]
pub fn check_page<S: Default>(page_name: &str, mark: &str, sections: &'static [Section<S>]) {
    static TABLES_TAKE_TURNS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TABLES_TAKE_TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page_name);
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
    let (before, rest) = text.split_once(&begin).expect("the mark of the beginning");
    let (found, after) = rest.split_once(&end).expect("the mark of the end");
    let wanted = format!("{}\n", page(sections));
    if std::env::var_os("OKEANOS_WRITE_PAGES").is_some() {
        std::fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
    } else {
        assert!(found == wanted, "docs/{page_name} is behind the table: see docs/HACKING.md");
    }
    for row in rows(sections).filter(|row| !row.more.is_empty()) {
        let heading = format!("\n## {}\n", row.more);
        assert!(text.contains(&heading), "{}: docs/{page_name} lacks {heading:?}", row.name);
    }
}
